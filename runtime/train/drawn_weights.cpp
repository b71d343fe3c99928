#include <optional>

#include "runtime/kernel/drawing.h"
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
      : constant_(constant_of(rule)) {
    what_.key = key;
    if (rule.kind == plan::InitKind::Normal) {
      what_.kind = kernel::DrawKind::Normal;
      what_.base = static_cast<float>(rule.a);
      what_.scale = static_cast<float>(rule.b);
    } else if (rule.kind == plan::InitKind::Uniform) {
      what_.kind = kernel::DrawKind::Uniform;
      what_.base = static_cast<float>(rule.a);
      what_.scale = static_cast<float>(rule.b - rule.a);
    }
    if (rule.zero_row < 0) return;
    int64_t row = 1;
    for (size_t i = 1; i < sizes.size(); ++i) row *= sizes[i];
    what_.zeros_begin = rule.zero_row * row;
    what_.zeros_end = what_.zeros_begin + row;
  }

  Status read(int64_t first, int64_t count, DType through, DType to, void* out) const override {
    const std::optional<kernel::Drawing> what = drawing(through);
    if (what) {
      kernel::draw_elements(*what, first, count, through, to, out);
      return base::ok_status();
    }
    uint64_t rounded = 0, zero = 0;
    kernel::store_real(through, &rounded, constant_);
    auto* data = static_cast<std::byte*>(out);
    for (int64_t i = first; i < first + count; ++i, data += base::byte_size(to)) {
      const bool is_zero = i >= what_.zeros_begin && i < what_.zeros_end;
      kernel::convert(through, is_zero ? &zero : &rounded, to, to, data, 1);
    }
    return base::ok_status();
  }

  // Constants of types whose numbers may be no floats are not drawn.
  std::optional<kernel::Drawing> drawing(DType through) const override {
    if (what_.kind != kernel::DrawKind::Constant) return what_;
    if (!base::is_floating(through) || base::byte_size(through) > 4) return std::nullopt;
    uint32_t rounded = 0;
    kernel::store_real(through, &rounded, constant_);
    kernel::Drawing what = what_;
    what.base = static_cast<float>(kernel::load_real(through, &rounded));
    return what;
  }

 private:
  static double constant_of(const plan::Initializer& rule) {
    switch (rule.kind) {
      case plan::InitKind::Ones:
        return 1;
      case plan::InitKind::Constant:
        return rule.a;
      case plan::InitKind::Normal:
      case plan::InitKind::Uniform:
      case plan::InitKind::Zeros:
      case plan::InitKind::Unknown:
        return 0;  // unknown rules are refused before
    }
    return 0;
  }

  double constant_;
  kernel::Drawing what_;
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
