// Tensor maps of the copy engine (TMA), encoded from a recipe and an address.
#ifndef JAXPIPE_CUDA_TENSOR_MAP_H_
#define JAXPIPE_CUDA_TENSOR_MAP_H_

#include <cstdint>

#include "cuda/driver.h"
#include "recipe.h"
#include "status.h"

namespace jaxpipe::cuda {

// cuTensorMapEncodeTiled of `recipe` at `address`; an error text holds every argument.
// Source: CUDA driver API, Tensor Map Object Management.
Status EncodeTensorMap(const Driver& driver, const TensorMapRecipe& recipe, uint64_t address,
                       TensorMap* map);

}  // namespace jaxpipe::cuda

#endif  // JAXPIPE_CUDA_TENSOR_MAP_H_
