// Programs as bytes: how encoded kernels travel inside a custom call.
#ifndef JAXPIPE_PTX_SERIAL_H_
#define JAXPIPE_PTX_SERIAL_H_

#include <string>
#include <string_view>

#include "ptx/program.h"

namespace jaxpipe::ptx {

std::string Serialize(const Program& program);

// Reads one program from the front of `*bytes`, validates it and moves `*bytes` behind it.
Status Deserialize(std::string_view* bytes, Program* program);

}  // namespace jaxpipe::ptx

#endif  // JAXPIPE_PTX_SERIAL_H_
