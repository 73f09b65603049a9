// The thread pool that callers lend to the host executor; csrc/ffi wraps XLA's.
#ifndef JAXPIPE_HOST_TASK_POOL_H_
#define JAXPIPE_HOST_TASK_POOL_H_

#include <functional>

namespace jaxpipe::host {

class TaskPool {
 public:
  virtual ~TaskPool() = default;
  virtual int num_threads() const = 0;
  // Runs `task` on some thread, now or later; may run it in the caller.
  virtual void Schedule(std::function<void()> task) = 0;
};

}  // namespace jaxpipe::host

#endif  // JAXPIPE_HOST_TASK_POOL_H_
