#include "runtime/kernel/cuda/hand_source.h"
#include "runtime/kernel/cuda/kernels/drawing_parameters.h"
#include "runtime/kernel/cuda/workshop.h"
#include "runtime/kernel/drawing.h"

namespace dc::runtime::kernel {
namespace cuda {
namespace {

using base::DType;
using base::Status;

class GpuDrawer final : public Drawer {
 public:
  explicit GpuDrawer(device::CudaDevice& device) : device_(device), stream_(device.make_stream()) {}
  // Kernels are unloaded after they have run.
  ~GpuDrawer() override { (void)stream_->drain(); }

  Status draw(const Drawing& what, int64_t first, int64_t count, DType through, DType to,
              void* out) override {
    if (count == 0) return {};
    if (workshop_ == nullptr) {
      DC_ASSIGN_OR_RETURN(workshop_, Workshop::open(device_));
      stream_ = device_.make_stream();
    }
    DC_ASSIGN_OR_RETURN(
        const auto kernel,
        workshop_->kernel(source_for({through, to}, "dc_draw", "drawing.h", "Draw", "draw"),
                          workshop_->blocks_for(counters_of(first, count)),
                          Draw{what, first, count, out}));
    return kernel->launch(*stream_);
  }
  Status finish() override { return stream_ != nullptr ? stream_->drain() : Status(); }

 private:
  device::CudaDevice& device_;
  std::unique_ptr<Workshop> workshop_;  // this and the stream from the first that is drawn on
  std::unique_ptr<device::Stream> stream_;
};

}  // namespace
}  // namespace cuda

std::unique_ptr<Drawer> make_drawer(device::Device& device) {
  switch (device.kind()) {
    case base::DeviceKind::Cpu:
    case base::DeviceKind::Checked:
      return nullptr;
    case base::DeviceKind::Cuda:
      return std::make_unique<cuda::GpuDrawer>(static_cast<device::CudaDevice&>(device));
  }
  return nullptr;
}

}  // namespace dc::runtime::kernel
