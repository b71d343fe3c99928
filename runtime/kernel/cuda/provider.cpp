// The kernels of GPUs: made by NVRTC while they are prepared, except what streams do themselves.
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/kernel/cuda/expression_kernels.h"
#include "runtime/kernel/cuda/step_kernels.h"
#include "runtime/kernel/native/pointwise/expression_tensors.h"
#include "src/base/cache_directory.h"

namespace dc::runtime::kernel {
namespace cuda {
namespace {

using base::ErrorKind;
using base::Status;

class Provider final : public KernelProvider {
 public:
  Provider(device::CudaDevice& device, KernelCompiler compiler)
      : workshop_(device, std::move(compiler)) {}
  std::string_view name() const override { return "cuda"; }

  base::Result<std::unique_ptr<Kernel>> prepare(const plan::Instruction& instruction,
                                                const AddressMap& addresses) override {
    native::Call call(instruction, addresses, nullptr);
    const std::string& op = instruction.op;
    if (op == "dc.fused") return fused_kernel(workshop_, call);
    if (const StepKernel make = find_step_kernel(op); make != nullptr)
      return make(workshop_, call, instruction.stream);
    if (op == "dc.accumulate") return accumulate_kernel(workshop_, call);
    if (op == "dc.cast" && call.operand(0).dtype != call.result(0).dtype)
      return cast_kernel(workshop_, call);
    // Streams copy and fill.
    if (op == "dc.cast" || op == "dc.copy" || op == "dc.zero")
      return on_streams_->prepare(instruction, addresses);
    if (native::is_operation(op)) return operator_kernel(workshop_, call, instruction, addresses);
    return Status(ErrorKind::Unsupported, "DC6155",
                  "this version has no kernel for GPUs of '" + op + "'; run with --device cpu");
  }

  // What kernels need beyond their operands is theirs.
  base::Result<int64_t> measure_scratch(const plan::Instruction&, const AddressMap&) override {
    return int64_t{0};
  }

 private:
  std::unique_ptr<KernelProvider> on_streams_ = make_native_provider();
  Workshop workshop_;
};

}  // namespace
}  // namespace cuda

base::Result<std::unique_ptr<KernelProvider>> open_cuda_provider(device::Device& device) {
  auto& gpu = static_cast<device::CudaDevice&>(device);
  int version = 0;
  (void)gpu.driver().driver_version(&version);
  DC_ASSIGN_OR_RETURN(cuda::Nvrtc nvrtc, cuda::Nvrtc::open(version));
  return std::unique_ptr<KernelProvider>(std::make_unique<cuda::Provider>(
      gpu, cuda::KernelCompiler(std::move(nvrtc), gpu.architecture(), base::cache_directory())));
}

}  // namespace dc::runtime::kernel
