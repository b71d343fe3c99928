#include "runtime/checkpoint/piece.h"

#include <array>

namespace dc::runtime::checkpoint {
namespace {

constexpr std::array<std::string_view, 6> kNames = {"parameter",  "master",          "exp_avg",
                                                    "exp_avg_sq", "momentum_buffer", "buffer"};
static_assert(kNames.size() == static_cast<size_t>(ValueKind::Buffer) + 1);

}  // namespace

std::string_view name(ValueKind kind) { return kNames[static_cast<size_t>(kind)]; }

std::optional<ValueKind> value_kind(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<ValueKind>(i);
  }
  return std::nullopt;
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
