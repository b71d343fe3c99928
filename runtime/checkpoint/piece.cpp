#include "runtime/checkpoint/piece.h"

#include "src/base/enum_names.h"

namespace dc::runtime::checkpoint {
namespace {

constexpr auto kNames = base::enum_names<ValueKind>(
    {"parameter", "master", "exp_avg", "exp_avg_sq", "momentum_buffer", "buffer"});

}  // namespace

std::string_view name(ValueKind kind) { return base::enum_name(kNames, kind); }

std::optional<ValueKind> value_kind(std::string_view name) {
  return base::enum_value<ValueKind>(kNames, name);
}

std::string describe(const ValueId& value) {
  std::string text = std::string(name(value.kind)) + " '" + value.fqn + "'";
  if (value.rank >= 0) text += " of rank " + std::to_string(value.rank);
  return text;
}

int64_t Piece::numel() const {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return count;
}

}  // namespace dc::runtime::checkpoint
