// FFI handlers of jaxpipe_cuda_launch: attributes in, Status out.
//
// instantiate runs where programs are compiled, also on machines without a GPU: it only reads the
// recipe. initialize runs before every execution on its device, outside of captures: it loads.
// execute may run while XLA captures a CUDA graph: it looks up and launches.
#include <string_view>

#include "cuda/launcher.h"
#include "recipe.h"
#include "xla/ffi/api/ffi.h"

namespace jaxpipe {
namespace {

namespace ffi = xla::ffi;
using Words = ffi::Span<const int64_t>;
using Stream = ffi::PlatformStream<cuda::CUstream>;

ffi::Error ToError(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
      return ffi::Error::Success();
    case StatusCode::kInvalidArgument:
      return ffi::Error::InvalidArgument(status.message());
    case StatusCode::kFailedPrecondition:
      return ffi::Error(ffi::ErrorCode::kFailedPrecondition, status.message());
    case StatusCode::kUnavailable:
      return ffi::Error(ffi::ErrorCode::kUnavailable, status.message());
    case StatusCode::kInternal:
      break;
  }
  return ffi::Error::Internal(status.message());
}

ffi::Error Instantiate(Words words, std::string_view names, std::string_view key,
                       std::string_view cubin) {
  Recipe recipe;
  return ToError(DecodeRecipe(words.begin(), words.size(), names, &recipe));
}

ffi::Error Initialize(cuda::CUstream stream, ffi::RemainingArgs, ffi::RemainingRets, Words words,
                      std::string_view names, std::string_view key, std::string_view cubin) {
  Recipe recipe;
  const Status status = DecodeRecipe(words.begin(), words.size(), names, &recipe);
  if (!status.ok()) return ToError(status);
  return ToError(cuda::Initialize(stream, recipe, key, cubin));
}

cuda::Buffer ToBuffer(const ffi::AnyBuffer& buffer) {
  return {reinterpret_cast<uint64_t>(buffer.untyped_data()), buffer.size_bytes()};
}

ffi::Error Execute(cuda::CUstream stream, ffi::RemainingArgs args, ffi::RemainingRets rets,
                   Words words, std::string_view names, std::string_view key, std::string_view) {
  Recipe recipe;
  const Status status = DecodeRecipe(words.begin(), words.size(), names, &recipe);
  if (!status.ok()) return ToError(status);
  if (args.size() > kMaxBuffers || rets.size() > kMaxBuffers) {
    return ffi::Error::InvalidArgument("jaxpipe_cuda_launch: too many operands or results");
  }
  cuda::Buffer operands[kMaxBuffers], results[kMaxBuffers];
  for (size_t i = 0; i < args.size(); ++i) {
    auto buffer = args.get<ffi::AnyBuffer>(i);
    if (!buffer.has_value()) return buffer.error();
    operands[i] = ToBuffer(*buffer);
  }
  for (size_t i = 0; i < rets.size(); ++i) {
    auto buffer = rets.get<ffi::AnyBuffer>(i);
    if (!buffer.has_value()) return buffer.error();
    results[i] = ToBuffer(**buffer);
  }
  return ToError(cuda::Execute(stream, recipe, key, operands, args.size(), results, rets.size()));
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxpipeCudaLaunchInstantiate, Instantiate,
                              ffi::Ffi::BindInstantiate()
                                  .Attr<Words>("recipe")
                                  .Attr<std::string_view>("names")
                                  .Attr<std::string_view>("key")
                                  .Attr<std::string_view>("cubin"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxpipeCudaLaunchInitialize, Initialize,
                              ffi::Ffi::Bind<ffi::ExecutionStage::kInitialize>()
                                  .Ctx<Stream>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<Words>("recipe")
                                  .Attr<std::string_view>("names")
                                  .Attr<std::string_view>("key")
                                  .Attr<std::string_view>("cubin"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxpipeCudaLaunchExecute, Execute,
                              ffi::Ffi::Bind()
                                  .Ctx<Stream>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<Words>("recipe")
                                  .Attr<std::string_view>("names")
                                  .Attr<std::string_view>("key")
                                  .Attr<std::string_view>("cubin"),
                              {ffi::Traits::kCmdBufferCompatible});

}  // namespace jaxpipe
