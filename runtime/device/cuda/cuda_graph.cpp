// Recording and launching of graphs, by the driver's capture of streams.
#include <vector>

#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/cuda_fills.h"

namespace dc::runtime::device {
namespace {

using base::ErrorKind;
using base::Status;

class CudaGraph final : public Graph {
 public:
  CudaGraph(const CudaDevice& device, cuda::GraphExec exec) : device_(device), exec_(exec) {}
  ~CudaGraph() override {
    device_.use();
    (void)device_.driver().destroy_graph_exec(exec_);
  }
  void launch(Stream& stream) override {
    auto& own = static_cast<CudaStream&>(stream);
    device_.use();
    own.check(device_.driver().launch_graph(exec_, own.handle()), "a graph");
  }

 private:
  const CudaDevice& device_;
  cuda::GraphExec exec_;
};

// Events that order streams within a recording.
class RecordingEvents {
 public:
  explicit RecordingEvents(const cuda::Driver& driver) : driver_(driver) {}
  ~RecordingEvents() {
    for (const cuda::EventHandle event : events_) (void)driver_.destroy_event(event);
  }
  RecordingEvents(const RecordingEvents&) = delete;
  RecordingEvents& operator=(const RecordingEvents&) = delete;

  // What is issued to `after` from now on follows what `before` has been given.
  int order(cuda::StreamHandle before, cuda::StreamHandle after) {
    cuda::EventHandle event = nullptr;
    int failed = driver_.create_event(&event, cuda::kDisableTiming);
    if (failed != cuda::kSuccess) return failed;
    events_.push_back(event);
    failed = driver_.record_event(event, before);
    return failed != cuda::kSuccess ? failed : driver_.wait_event(after, event, 0);
  }

 private:
  const cuda::Driver& driver_;
  std::vector<cuda::EventHandle> events_;
};

}  // namespace

// The streams other than the first take part from their first wait for it on, and are over when it
// has waited for them.
base::Result<std::unique_ptr<Graph>> CudaDevice::record(std::span<Stream* const> streams,
                                                        const std::function<Status()>& issue) {
  use();
  const auto set_recording = [&](bool recording) {
    for (Stream* const stream : streams) static_cast<CudaStream*>(stream)->set_recording(recording);
  };
  const auto handle = [&](size_t i) { return static_cast<CudaStream*>(streams[i])->handle(); };
  RecordingEvents events(driver_);
  int failed = driver_.begin_capture(handle(0), cuda::kCaptureThreadLocal);
  if (failed != cuda::kSuccess) return not_recorded(failed);
  for (size_t i = 1; i < streams.size() && failed == cuda::kSuccess; ++i)
    failed = events.order(handle(0), handle(i));
  set_recording(true);
  const Status issued = failed == cuda::kSuccess ? issue() : base::ok_status();
  set_recording(false);
  for (size_t i = 1; i < streams.size() && failed == cuda::kSuccess; ++i)
    failed = events.order(handle(i), handle(0));
  cuda::GraphHandle graph = nullptr;
  const int ended = driver_.end_capture(handle(0), &graph);
  if (failed == cuda::kSuccess) failed = ended;
  const cuda::Function fill = static_cast<CudaStream*>(streams[0])->fill_kernel();
  if (failed == cuda::kSuccess && issued.ok() && fill != nullptr)
    failed = put_kernels_for_fills(driver_, graph, fill);
  cuda::GraphExec exec = nullptr;
  if (failed == cuda::kSuccess && issued.ok()) failed = driver_.instantiate_graph(&exec, graph, 0);
  if (graph != nullptr) (void)driver_.destroy_graph(graph);
  DC_RETURN_IF_ERROR(issued);
  if (failed != cuda::kSuccess) return not_recorded(failed);
  return std::unique_ptr<Graph>(std::make_unique<CudaGraph>(*this, exec));
}

Status CudaDevice::not_recorded(int error) const {
  return Status(ErrorKind::Unavailable, "DC6147",
                "the driver does not record the step's work: " + driver_.explain(error) +
                    "; update the driver of this host's GPU");
}

}  // namespace dc::runtime::device
