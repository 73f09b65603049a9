// Runs the launches of a recipe in the interpreter: what the FFI handler calls.
#ifndef JAXPIPE_PTX_LAUNCH_RECIPE_H_
#define JAXPIPE_PTX_LAUNCH_RECIPE_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "ptx/machine.h"
#include "recipe.h"
#include "status.h"

namespace jaxpipe::ptx {

struct HostBuffer {
  uint8_t* data;
  size_t bytes;
};

struct InterpretOptions {
  When landing = When::kLate;
  Order order = Order::kAscending;
  uint64_t seed = 0;
  bool check = true;
  int threads = 1;
};

// `programs` are the serialised programs of the launches, in order; `key` names their content, so
// that they are decoded once. A hazard, or a result that is not written completely, is an error
// that names it.
Status RunRecipe(const Recipe& recipe, std::string_view key, std::string_view programs,
                 const std::vector<HostBuffer>& operands, const std::vector<HostBuffer>& results,
                 const InterpretOptions& options);

}  // namespace jaxpipe::ptx

#endif  // JAXPIPE_PTX_LAUNCH_RECIPE_H_
