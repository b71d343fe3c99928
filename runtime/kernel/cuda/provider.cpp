// The kernels of GPUs: made by NVRTC while they are prepared, except products, which are
// cuBLASLt's, and what streams do themselves.
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/kernel/cuda/expression_kernels.h"
#include "runtime/kernel/cuda/hand_source.h"
#include "runtime/kernel/cuda/linear_cross_entropy.h"
#include "runtime/kernel/cuda/model_kernels.h"
#include "runtime/kernel/cuda/products.h"
#include "runtime/kernel/cuda/step_kernels.h"
#include "runtime/kernel/native/pointwise/expression_tensors.h"
#include "src/base/on_all_cores.h"

namespace dc::runtime::kernel {
namespace cuda {
namespace {

using base::ErrorKind;
using base::Status;

class Provider final : public KernelProvider {
 public:
  explicit Provider(device::CudaDevice& device) : device_(device) {}
  std::string_view name() const override { return "cuda"; }

  base::Result<std::unique_ptr<Kernel>> prepare(const plan::Instruction& instruction,
                                                const AddressMap& addresses) override {
    native::Call call(instruction, addresses, nullptr);
    if (is_of_streams(call)) return on_streams_->prepare(instruction, addresses);
    DC_RETURN_IF_ERROR(open_workshop());
    workshop_->begin_kernel(
        instruction.scratch < 0 ? nullptr : addresses.slice(instruction.scratch),
        planned_scratch(addresses.plan(), instruction));
    return made(call, instruction, addresses);
  }

  // Kernels are compiled while cuBLASLt, which is large, is read; then those of output layers,
  // which need it to be made. Products are not made twice.
  void prepare_ahead(std::span<const plan::Instruction* const> instructions,
                     const AddressMap& addresses) override {
    bool multiplies = false;
    for (const plan::Instruction* const instruction : instructions) {
      const std::string& op = instruction->op;
      multiplies = multiplies || is_product(op) || is_output_layer(op);
      if (!is_product(op) && !is_output_layer(op)) list(*instruction, addresses);
    }
    if (multiplies && open_workshop().ok()) {
      workshop_->begin_listing();
      (void)fill();
    }
    (void)base::on_all_cores(2, [&](int64_t part) -> Status {
      if (part == 0 && multiplies) return open_products();
      if (part == 1 && workshop_ != nullptr) workshop_->compile_listed();
      return {};
    });
    for (const plan::Instruction* const instruction : instructions)
      if (is_output_layer(instruction->op)) list(*instruction, addresses);
    if (workshop_ != nullptr) workshop_->compile_listed();
  }

  // cuBLASLt fills its workspace before some products.
  void equip(device::Stream& stream) override {
    if (products_ == nullptr || !open_workshop().ok()) return;
    workshop_->begin_kernel(nullptr, 0);
    const base::Result<Launch> launch = fill();
    if (launch.ok()) static_cast<device::CudaStream&>(stream).set_fill_kernel(launch->function);
  }

  // By making it: what kernels need beyond their operands is known then.
  base::Result<int64_t> measure_scratch(const plan::Instruction& instruction,
                                        const AddressMap& addresses) override {
    native::Call call(instruction, addresses, nullptr);
    if (is_of_streams(call)) return int64_t{0};
    DC_RETURN_IF_ERROR(open_workshop());
    workshop_->begin_measurement();
    DC_RETURN_IF_ERROR(made(call, instruction, addresses).status());
    return workshop_->scratch_bytes();
  }

 private:
  // Streams copy and fill.
  static bool is_of_streams(native::Call& call) {
    const std::string_view op = call.op();
    return (op == "dc.cast" && !casts(call)) || op == "dc.copy" || op == "dc.zero";
  }
  static bool casts(native::Call& call) {
    return call.op() == "dc.cast" && call.operand(0).dtype != call.result(0).dtype;
  }

  Status open_workshop() {
    if (workshop_ == nullptr) {
      DC_ASSIGN_OR_RETURN(workshop_, Workshop::open(device_));
    }
    return {};
  }

  void list(const plan::Instruction& instruction, const AddressMap& addresses) {
    native::Call call(instruction, addresses, nullptr);
    if (is_of_streams(call) || !open_workshop().ok()) return;
    workshop_->begin_listing();
    (void)made(call, instruction, addresses);
  }

  base::Result<Launch> fill() {
    return workshop_->launch(source_of("dc_fill_words", "fill_words.h", "FillWords", "fill_words"),
                             0, {});
  }

  static bool is_output_layer(std::string_view op) { return op == "dc.linear_cross_entropy"; }

  Status open_products() {
    if (products_ == nullptr) {
      DC_ASSIGN_OR_RETURN(products_, Products::open(device_));
    }
    return {};
  }

  base::Result<std::unique_ptr<Kernel>> made(native::Call& call,
                                             const plan::Instruction& instruction,
                                             const AddressMap& addresses) {
    const std::string& op = instruction.op;
    if (op == "dc.fused") return fused_kernel(*workshop_, call, instruction.stream);
    if (const StepKernel make = find_step_kernel(op); make != nullptr)
      return make(*workshop_, call, instruction.stream);
    if (op == "dc.accumulate") return accumulate_kernel(*workshop_, call);
    if (casts(call)) return cast_kernel(*workshop_, call);
    if (const StepKernel make = find_model_kernel(op); make != nullptr)
      return make(*workshop_, call, instruction.stream);
    if (is_output_layer(op) || is_product(op)) {
      DC_RETURN_IF_ERROR(open_products());
      if (is_output_layer(op))
        return linear_cross_entropy_kernel(*workshop_, *products_, call, instruction.stream);
      return products_->kernel(*workshop_, call, instruction.stream);
    }
    if (native::is_operation(op)) return operator_kernel(*workshop_, instruction, addresses);
    return Status(ErrorKind::Unsupported, "DC6155",
                  "this version has no kernel for GPUs of '" + op + "'; run with --device cpu");
  }

  device::CudaDevice& device_;
  std::unique_ptr<KernelProvider> on_streams_ = make_native_provider();
  std::unique_ptr<Products> products_;  // from the first product on
  std::unique_ptr<Workshop> workshop_;  // from the first kernel on that is compiled
};

}  // namespace
}  // namespace cuda

std::unique_ptr<KernelProvider> make_cuda_provider(device::Device& device) {
  return std::make_unique<cuda::Provider>(static_cast<device::CudaDevice&>(device));
}

}  // namespace dc::runtime::kernel
