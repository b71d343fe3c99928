#include <algorithm>
#include <optional>

#include "runtime/kernel/native/norms/batch_norm.h"
#include "runtime/kernel/native/pooling/pooling.h"
#include "runtime/kernel/native/registry.h"
#include "runtime/kernel/onednn/plugin.h"

namespace dc::runtime::kernel {
namespace native {
namespace {

std::optional<Factory> find(std::span<const Row> rows, std::string_view op) {
  const auto row = std::ranges::find_if(rows, [&](const Row& each) { return each.op == op; });
  return row == rows.end() ? std::nullopt : std::optional(row->factory);
}

std::optional<Factory> find_own(std::string_view op) {
  for (const auto kernels :
       {activation_kernels,    arange_kernels,     arithmetic_kernels, attention_kernels,
        batch_norm_kernels,    cast_kernels,       choice_kernels,     copy_kernels,
        cross_entropy_kernels, diagonal_kernels,   dropout_kernels,    elementwise_kernels,
        embedding_kernels,     fused_kernels,      gather_kernels,     index_kernels,
        logsumexp_kernels,     loss_kernels,       norm_kernels,       order_kernels,
        pooling_kernels,       reduce_kernels,     reduction_kernels,  scan_kernels,
        softmax_kernels,       triangular_kernels, update_kernels,     variance_kernels,
        vector_norm_kernels}) {
    if (const auto factory = find(kernels(), op)) return factory;
  }
  return std::nullopt;
}

class Provider final : public KernelProvider {
 public:
  std::string_view name() const override { return "native"; }

  Made prepare(const plan::Instruction& instruction, const AddressMap& addresses) override {
    DC_ASSIGN_OR_RETURN(const Factory factory, factory_of(instruction));
    Call call(instruction, addresses, &extra_);
    return factory(call);
  }

  base::Result<int64_t> measure_scratch(const plan::Instruction& instruction,
                                        const AddressMap& addresses) override {
    DC_ASSIGN_OR_RETURN(const Factory factory, factory_of(instruction));
    Call call(instruction, addresses, nullptr);
    DC_RETURN_IF_ERROR(factory(call).status());
    return call.scratch_bytes();
  }

  base::Result<MissingScratch> take_missing_scratch(const AddressMap& addresses) override {
    return extra_.take_missing(addresses.plan(), plan::Provider::Native,
                               [&](const plan::Instruction& instruction) {
                                 return measure_scratch(instruction, addresses);
                               });
  }

 private:
  base::Result<Factory> factory_of(const plan::Instruction& instruction) {
    const bool is_fused = instruction.provider == plan::Provider::Fused;
    const auto own = find_own(instruction.op);
    if (own && is_fused == (instruction.op == "dc.fused")) return *own;
    if (!is_fused && std::ranges::count(onednn::kOps, instruction.op) != 0) {
      if (onednn_.empty()) {
        auto opened = open_onednn_kernels();
        if (!opened.ok())
          return std::move(opened).status().add_context(
              "oneDNN is needed for " + instruction.op +
              "; compile with --providers aten to multiply with libtorch");
        onednn_ = *opened;
      }
      if (const auto factory = find(onednn_, instruction.op)) return *factory;
    }
    return base::Status(base::ErrorKind::Unsupported, "DC6131",
                        std::string("there is no ") + (is_fused ? "fused" : "native") +
                            " kernel named '" + instruction.op +
                            "'; compile the plan with the dcc that belongs to this dcrun");
  }

  ExtraScratch extra_;
  std::span<const Row> onednn_;  // empty until a plan needs them
};

}  // namespace
}  // namespace native

std::unique_ptr<KernelProvider> make_native_provider() {
  return std::make_unique<kernel::native::Provider>();
}

}  // namespace dc::runtime::kernel
