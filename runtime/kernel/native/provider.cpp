#include <array>

#include "runtime/kernel/native/registry.h"

namespace dc::runtime {
namespace native {
namespace {

struct Row {
  std::string_view op;
  Factory factory;
};
constexpr std::array<Row, 12> kRegistry = {{
    {"dc.accumulate", make_accumulate},
    {"dc.adamw", make_adamw},
    {"dc.add_loss", make_add_loss},
    {"dc.cast", make_cast},
    {"dc.copy", make_copy},
    {"dc.dropout", make_dropout},
    {"dc.permit", make_permit},
    {"dc.finalize", make_finalize},
    {"dc.scale", make_scale},
    {"dc.sgd", make_sgd},
    {"dc.square_sum", make_square_sum},
    {"dc.zero", make_zero},
}};

class Provider final : public KernelProvider {
 public:
  std::string_view name() const override { return "native"; }

  Made prepare(const plan::Instruction& instruction, const AddressMap& addresses) override {
    for (const Row& row : kRegistry) {
      if (row.op != instruction.op) continue;
      Call call(instruction, addresses);
      return row.factory(call);
    }
    return base::Status(base::ErrorKind::Unsupported, "DC6131",
                        "there is no native kernel named '" + instruction.op +
                            "'; compile the plan with the dcc that belongs to this dcrun");
  }

  base::Result<int64_t> measure_scratch(const plan::Instruction& instruction,
                                        const AddressMap& addresses) override {
    auto kernel = prepare(instruction, addresses);
    if (!kernel.ok()) return std::move(kernel).status();
    return int64_t{0};
  }
};

}  // namespace
}  // namespace native

std::unique_ptr<KernelProvider> make_native_provider() {
  return std::make_unique<native::Provider>();
}

}  // namespace dc::runtime
