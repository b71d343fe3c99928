#include "runtime/checkpoint/piece.h"

#include "src/base/enum_names.h"
#include "src/base/shape.h"

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

int64_t Piece::numel() const { return base::numel(sizes); }

}  // namespace dc::runtime::checkpoint
