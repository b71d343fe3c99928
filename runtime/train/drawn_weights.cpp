#include "runtime/kernel/elements.h"
#include "runtime/train/random.h"
#include "runtime/train/weights.h"

namespace dc::runtime::train {
namespace {

using base::DType;
using base::ErrorKind;
using base::Result;
using base::Status;

// Draws by name and element index: equal for any world and any sharding, and for the other rows
// whether or not one stays zero.
class DrawnElements final : public ElementSource {
 public:
  DrawnElements(const plan::Initializer& rule, const std::vector<int64_t>& sizes, uint64_t key)
      : rule_(rule), key_(key) {
    if (rule.zero_row < 0) return;
    int64_t row = 1;
    for (size_t i = 1; i < sizes.size(); ++i) row *= sizes[i];
    zeros_begin_ = rule.zero_row * row;
    zeros_end_ = zeros_begin_ + row;
  }

  Status read(int64_t first, int64_t count, DType through, DType to, void* out) const override {
    auto* data = static_cast<std::byte*>(out);
    const int64_t bytes = base::byte_size(to);
    for (int64_t i = 0; i < count; ++i, data += bytes) {
      uint64_t rounded = 0;
      const bool zero = first + i >= zeros_begin_ && first + i < zeros_end_;
      kernel::store_real(through, &rounded, zero ? 0 : draw(static_cast<uint64_t>(first + i)));
      kernel::convert(through, &rounded, to, to, data, 1);
    }
    return base::ok_status();
  }

 private:
  double draw(uint64_t index) const {
    switch (rule_.kind) {
      case plan::InitKind::Normal:
        return rule_.a + rule_.b * draw_normal(key_, index);
      case plan::InitKind::Uniform:
        return rule_.a + (rule_.b - rule_.a) * draw_uniform(key_, index);
      case plan::InitKind::Ones:
        return 1;
      case plan::InitKind::Constant:
        return rule_.a;
      case plan::InitKind::Zeros:
      case plan::InitKind::Unknown:
        return 0;  // unknown rules are refused before
    }
    return 0;
  }

  plan::Initializer rule_;
  uint64_t key_;
  int64_t zeros_begin_ = 0, zeros_end_ = 0;  // elements of the row that is not drawn
};

}  // namespace

Result<WeightSet> draw_weights(uint64_t seed, const plan::Plan& plan) {
  WeightSet set;
  std::string unknown;
  int count = 0;
  const auto draw = [&](const auto& tensor) {
    const plan::Initializer& rule = tensor.initializer;
    if (rule.kind == plan::InitKind::Unknown) unknown += (count++ ? ", " : "") + tensor.fqn;
    return std::make_unique<DrawnElements>(rule, tensor.sizes,
                                           derive_key(seed, hash_text(tensor.fqn)));
  };
  for (const plan::Parameter& parameter : plan.parameters) {
    set.parameters.push_back(draw(parameter));
  }
  // Only a buffer that does not travel inside the plan needs a rule.
  std::vector<bool> drawn(plan.buffers.size(), false);
  for (const plan::StateEntry& entry : plan.state) {
    if (entry.source != plan::StateSource::Buffer || entry.buffer < 0) continue;
    drawn[static_cast<size_t>(entry.buffer)] = true;
  }
  set.buffers.resize(plan.buffers.size());
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    if (drawn[i]) set.buffers[i] = draw(plan.buffers[i]);
  }
  if (count == 0) return set;
  return Status(ErrorKind::BadInput, "DC6411",
                "the model says nothing about how " + std::to_string(count) +
                    " of its tensors start: " + unknown +
                    "; give --weights FILE.safetensors, or export with initializers for them");
}

}  // namespace dc::runtime::train
