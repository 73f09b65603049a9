// Status: how C++ layers below the FFI report failure. No exceptions cross a handler.
#ifndef JAXPIPE_STATUS_H_
#define JAXPIPE_STATUS_H_

#include <string>
#include <utility>

namespace jaxpipe {

enum class StatusCode { kOk, kInvalidArgument, kFailedPrecondition, kUnavailable, kInternal };

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status InvalidArgument(std::string message) {
  return Status(StatusCode::kInvalidArgument, std::move(message));
}
inline Status FailedPrecondition(std::string message) {
  return Status(StatusCode::kFailedPrecondition, std::move(message));
}
inline Status Unavailable(std::string message) {
  return Status(StatusCode::kUnavailable, std::move(message));
}
inline Status Internal(std::string message) {
  return Status(StatusCode::kInternal, std::move(message));
}

#define JAXPIPE_RETURN_IF_ERROR(expr)                  \
  do {                                                 \
    ::jaxpipe::Status jaxpipe_status_ = (expr);        \
    if (!jaxpipe_status_.ok()) return jaxpipe_status_; \
  } while (false)

}  // namespace jaxpipe

#endif  // JAXPIPE_STATUS_H_
