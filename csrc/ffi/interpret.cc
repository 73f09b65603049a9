// FFI handler of jaxpipe_interpret_launch: runs a kernel's PTX on the CPU, with every check.
#include <string_view>
#include <thread>
#include <vector>

#include "ptx/launch_recipe.h"
#include "recipe.h"
#include "xla/ffi/api/ffi.h"

namespace jaxpipe {
namespace {

namespace ffi = xla::ffi;
using Words = ffi::Span<const int64_t>;
using Bytes = ffi::Span<const uint8_t>;

ffi::Error ToError(const Status& status) {
  if (status.ok()) return ffi::Error::Success();
  if (status.code() == StatusCode::kInvalidArgument)
    return ffi::Error::InvalidArgument(status.message());
  if (status.code() == StatusCode::kFailedPrecondition)
    return ffi::Error(ffi::ErrorCode::kFailedPrecondition, status.message());
  return ffi::Error::Internal(status.message());
}

ptx::HostBuffer ToBuffer(const ffi::AnyBuffer& buffer) {
  return {static_cast<uint8_t*>(buffer.untyped_data()), buffer.size_bytes()};
}

ffi::Error Interpret(ffi::RemainingArgs args, ffi::RemainingRets rets, Words words,
                     std::string_view names, std::string_view key, Bytes program, int64_t landing,
                     int64_t order, int64_t seed, int64_t checks) {
  Recipe recipe;
  const Status status = DecodeRecipe(words.begin(), words.size(), names, &recipe);
  if (!status.ok()) return ToError(status);
  std::vector<ptx::HostBuffer> operands, results;
  for (size_t i = 0; i < args.size(); ++i) {
    auto buffer = args.get<ffi::AnyBuffer>(i);
    if (!buffer.has_value()) return buffer.error();
    operands.push_back(ToBuffer(*buffer));
  }
  for (size_t i = 0; i < rets.size(); ++i) {
    auto buffer = rets.get<ffi::AnyBuffer>(i);
    if (!buffer.has_value()) return buffer.error();
    results.push_back(ToBuffer(**buffer));
  }
  ptx::InterpretOptions options;
  options.landing = static_cast<ptx::When>(landing);
  options.order = static_cast<ptx::Order>(order);
  options.seed = static_cast<uint64_t>(seed);
  options.check = checks != 0;
  options.threads = static_cast<int>(std::thread::hardware_concurrency());
  const std::string_view programs(reinterpret_cast<const char*>(program.begin()), program.size());
  return ToError(ptx::RunRecipe(recipe, key, programs, operands, results, options));
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(InterpretHandler, Interpret,
                              ffi::Ffi::Bind()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<Words>("recipe")
                                  .Attr<std::string_view>("names")
                                  .Attr<std::string_view>("key")
                                  .Attr<Bytes>("program")
                                  .Attr<int64_t>("landing")
                                  .Attr<int64_t>("order")
                                  .Attr<int64_t>("seed")
                                  .Attr<int64_t>("checks"));

}  // namespace jaxpipe
