#include "cuda/timer.h"

namespace jaxpipe::cuda {
namespace {

constexpr unsigned kNonBlocking = 1;    // CU_STREAM_NON_BLOCKING
constexpr int kCaptureThreadLocal = 1;  // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL

// The primary context of a device (the one that XLA uses), current for a scope, with a stream.
class Session {
 public:
  explicit Session(const Driver& driver) : driver_(driver) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Status Open(int ordinal) {
    JAXPIPE_RETURN_IF_ERROR(Check(driver_, driver_.DeviceGet(&device_, ordinal), "cuDeviceGet",
                                  "device " + std::to_string(ordinal)));
    CUcontext context = nullptr;
    JAXPIPE_RETURN_IF_ERROR(Check(driver_, driver_.DevicePrimaryCtxRetain(&context, device_),
                                  "cuDevicePrimaryCtxRetain", ""));
    is_retained_ = true;
    JAXPIPE_RETURN_IF_ERROR(
        Check(driver_, driver_.CtxPushCurrent(context), "cuCtxPushCurrent", ""));
    is_pushed_ = true;
    return Check(driver_, driver_.StreamCreate(&stream_, kNonBlocking), "cuStreamCreate", "");
  }

  ~Session() {
    CUcontext popped = nullptr;
    if (stream_ != nullptr) (void)driver_.StreamDestroy(stream_);
    if (is_pushed_) (void)driver_.CtxPopCurrent(&popped);
    if (is_retained_) (void)driver_.DevicePrimaryCtxRelease(device_);
  }

  CUstream stream() const { return stream_; }

 private:
  const Driver& driver_;
  CUdevice device_ = 0;
  bool is_retained_ = false, is_pushed_ = false;
  CUstream stream_ = nullptr;
};

class Graph {
 public:
  explicit Graph(const Driver& driver) : driver_(driver) {}
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() {
    if (executable_ != nullptr) (void)driver_.GraphExecDestroy(executable_);
    if (graph_ != nullptr) (void)driver_.GraphDestroy(graph_);
  }

  // Captures what `enqueue` puts on the stream. The capture is ended also when that fails.
  template <typename Enqueue>
  Status Capture(CUstream stream, Enqueue enqueue) {
    JAXPIPE_RETURN_IF_ERROR(Check(driver_, driver_.StreamBeginCapture(stream, kCaptureThreadLocal),
                                  "cuStreamBeginCapture", ""));
    const Status enqueued = enqueue();
    const CUresult ended = driver_.StreamEndCapture(stream, &graph_);
    JAXPIPE_RETURN_IF_ERROR(enqueued);
    JAXPIPE_RETURN_IF_ERROR(Check(driver_, ended, "cuStreamEndCapture", ""));
    return Check(driver_, driver_.GraphInstantiate(&executable_, graph_, 0),
                 "cuGraphInstantiateWithFlags", "");
  }

  Status Launch(CUstream stream) const {
    return Check(driver_, driver_.GraphLaunch(executable_, stream), "cuGraphLaunch", "");
  }

 private:
  const Driver& driver_;
  CUgraph graph_ = nullptr;
  CUgraphExec executable_ = nullptr;
};

class Event {
 public:
  explicit Event(const Driver& driver) : driver_(driver) {}
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() {
    if (event_ != nullptr) (void)driver_.EventDestroy(event_);
  }

  Status Record(CUstream stream) {
    if (event_ == nullptr) {
      JAXPIPE_RETURN_IF_ERROR(Check(driver_, driver_.EventCreate(&event_, 0), "cuEventCreate", ""));
    }
    return Check(driver_, driver_.EventRecord(event_, stream), "cuEventRecord", "");
  }

  // Waits for this event; seconds since `start`.
  Status Since(const Event& start, double* seconds) const {
    JAXPIPE_RETURN_IF_ERROR(
        Check(driver_, driver_.EventSynchronize(event_), "cuEventSynchronize", ""));
    float milliseconds = 0;
    JAXPIPE_RETURN_IF_ERROR(Check(driver_,
                                  driver_.EventElapsedTime(&milliseconds, start.event_, event_),
                                  "cuEventElapsedTime", ""));
    *seconds = milliseconds * 1e-3;
    return Status();
  }

 private:
  const Driver& driver_;
  CUevent event_ = nullptr;
};

Status Enqueue(CUstream stream, const Recipe& recipe, std::string_view key,
               const CallBuffers& call) {
  return Execute(stream, recipe, key, call.operands.data(), call.operands.size(),
                 call.results.data(), call.results.size());
}

Status Replay(const Driver& driver, const Graph& graph, CUstream stream, int samples, int launches,
              std::vector<double>* seconds) {
  Event start(driver), stop(driver);
  for (int i = -1; i < samples; ++i) {
    double elapsed = 0;
    JAXPIPE_RETURN_IF_ERROR(start.Record(stream));
    JAXPIPE_RETURN_IF_ERROR(graph.Launch(stream));
    JAXPIPE_RETURN_IF_ERROR(stop.Record(stream));
    JAXPIPE_RETURN_IF_ERROR(stop.Since(start, &elapsed));
    if (i >= 0) seconds->push_back(elapsed / launches);
  }
  return Status();
}

}  // namespace

Status RunCalls(int device, const Recipe& recipe, std::string_view key, std::string_view compressed,
                const std::vector<CallBuffers>& calls) {
  const Driver* driver;
  JAXPIPE_RETURN_IF_ERROR(GetDriver(&driver));
  Session session(*driver);
  JAXPIPE_RETURN_IF_ERROR(session.Open(device));
  JAXPIPE_RETURN_IF_ERROR(Initialize(session.stream(), recipe, key, compressed));
  for (const CallBuffers& call : calls) {
    JAXPIPE_RETURN_IF_ERROR(Enqueue(session.stream(), recipe, key, call));
  }
  return Check(*driver, driver->StreamSynchronize(session.stream()), "cuStreamSynchronize",
               "after kernel " + std::string(recipe.kernel));
}

Status TimeCalls(int device, const Recipe& recipe, std::string_view key,
                 std::string_view compressed, const std::vector<CallBuffers>& calls, int launches,
                 int samples, std::vector<double>* seconds) {
  if (calls.empty() || launches < 1 || samples < 1) {
    return InvalidArgument("timing needs at least one call, launch and sample");
  }
  const Driver* driver;
  JAXPIPE_RETURN_IF_ERROR(GetDriver(&driver));
  Session session(*driver);
  JAXPIPE_RETURN_IF_ERROR(session.Open(device));
  JAXPIPE_RETURN_IF_ERROR(Initialize(session.stream(), recipe, key, compressed));
  Graph graph(*driver);
  JAXPIPE_RETURN_IF_ERROR(graph.Capture(session.stream(), [&] {
    for (int i = 0; i < launches; ++i) {
      JAXPIPE_RETURN_IF_ERROR(
          Enqueue(session.stream(), recipe, key, calls[static_cast<size_t>(i) % calls.size()]));
    }
    return Status();
  }));
  return Replay(*driver, graph, session.stream(), samples, launches, seconds);
}

}  // namespace jaxpipe::cuda
