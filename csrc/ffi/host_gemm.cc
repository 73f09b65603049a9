// jaxpipe_host_gemm: decodes attributes and buffers, runs csrc/host, returns a Status.
#include <functional>
#include <utility>
#include <vector>

#include "ffi/host_decode.h"
#include "host/gemm.h"
#include "xla/ffi/api/ffi.h"

namespace jaxpipe {
namespace {

namespace ffi = xla::ffi;

class XlaTaskPool : public host::TaskPool {
 public:
  explicit XlaTaskPool(ffi::ThreadPool* pool) : pool_(pool) {}
  int num_threads() const override { return static_cast<int>(pool_->num_threads()); }
  void Schedule(std::function<void()> task) override { pool_->Schedule(std::move(task)); }

 private:
  ffi::ThreadPool* pool_;
};

bool ToDType(ffi::DataType type, host::DType* dtype) {
  switch (type) {
    case ffi::DataType::F32:
      *dtype = host::DType::kF32;
      return true;
    case ffi::DataType::BF16:
      *dtype = host::DType::kBF16;
      return true;
    case ffi::DataType::F16:
      *dtype = host::DType::kF16;
      return true;
    case ffi::DataType::S8:
      *dtype = host::DType::kS8;
      return true;
    case ffi::DataType::S32:
      *dtype = host::DType::kS32;
      return true;
    default:
      return false;
  }
}

template <class Buffer>
Status AddBuffer(const Buffer& buffer, std::vector<HostBuffer>* list) {
  HostBuffer out;
  if (!ToDType(buffer.element_type(), &out.dtype)) {
    return InvalidArgument("jaxpipe_host_gemm got a buffer of an element type it does not know");
  }
  out.data = buffer.untyped_data();
  out.elements = static_cast<int64_t>(buffer.element_count());
  out.dims = buffer.dimensions().begin();
  out.rank = buffer.dimensions().size();
  list->push_back(out);
  return Status();
}

Status Buffers(ffi::RemainingArgs args, ffi::RemainingRets rets, HostCall* call) {
  for (size_t i = 0; i < args.size(); ++i) {
    const auto buffer = args.get<ffi::AnyBuffer>(i);
    if (!buffer.has_value()) return Internal("jaxpipe_host_gemm: an operand is no buffer");
    JAXPIPE_RETURN_IF_ERROR(AddBuffer(*buffer, &call->operands));
  }
  for (size_t i = 0; i < rets.size(); ++i) {
    const auto buffer = rets.get<ffi::AnyBuffer>(i);
    if (!buffer.has_value()) return Internal("jaxpipe_host_gemm: a result is no buffer");
    ffi::Result<ffi::AnyBuffer> result = *buffer;
    JAXPIPE_RETURN_IF_ERROR(AddBuffer(*result, &call->results));
  }
  return Status();
}

Status Run(ffi::ThreadPool* pool, ffi::RemainingArgs args, ffi::RemainingRets rets,
           ffi::Span<const int64_t> config) {
  HostCall call;
  JAXPIPE_RETURN_IF_ERROR(Buffers(args, rets, &call));
  JAXPIPE_RETURN_IF_ERROR(DecodeHostCall(config.begin(), config.size(), &call));
  XlaTaskPool tasks(pool);
  return host::RunGemm(call.gemm, call.schedule, *call.kernels, &tasks);
}

ffi::Error HostGemm(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets rets,
                    ffi::Span<const int64_t> config) {
  const Status status = Run(&pool, args, rets, config);
  if (status.ok()) return ffi::Error::Success();
  const auto code = status.code() == StatusCode::kInvalidArgument ? ffi::ErrorCode::kInvalidArgument
                                                                  : ffi::ErrorCode::kInternal;
  return ffi::Error(code, status.message());
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(HostGemmHandler, HostGemm,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<ffi::Span<const int64_t>>("config"));

}  // namespace jaxpipe
