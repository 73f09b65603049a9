// Inflate: reads the zlib format (RFC 1950, RFC 1951), so that binaries can travel compressed
// without a library to link.
#ifndef JAXPIPE_INFLATE_H_
#define JAXPIPE_INFLATE_H_

#include <string>
#include <string_view>

#include "status.h"

namespace jaxpipe {

// Decompresses `compressed` into `*output` (replaced). A damaged stream, one whose checksum is
// wrong, or one that gives more than `limit_bytes` is an error.
Status InflateZlib(std::string_view compressed, size_t limit_bytes, std::string* output);

}  // namespace jaxpipe

#endif  // JAXPIPE_INFLATE_H_
