// The parts of a KernelSignature one after another, for those who read all of it.
#pragma once

#include <optional>

#include "src/base/kernel_signature.h"

namespace dc::base {

enum class KernelItemKind : uint8_t {
  Tensor,
  NoTensor,
  Results,  // tensors after it are results
  // Attributes
  None,
  Int,
  Double,
  Ints,
  Doubles,
  String,
};

struct KernelItem {
  KernelItemKind kind = KernelItemKind::None;
  TensorMeta tensor;                // Tensor
  std::string_view name;            // attributes
  std::span<const int64_t> values;  // Int, Ints; Double, Doubles: their bits
  std::string_view text;            // String
};

class KernelItems {
 public:
  explicit KernelItems(const KernelSignature& signature);
  std::optional<KernelItem> next();

 private:
  std::string_view take_bytes(size_t size);
  std::span<const int64_t> take(size_t words);

  std::span<const int64_t> rest_;
};

}  // namespace dc::base
