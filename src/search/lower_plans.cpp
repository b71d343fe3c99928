#include "src/search/lower_plans.h"

#include <algorithm>

namespace dc::search {
namespace {

constexpr int kMostTries = 3;
constexpr int64_t kLeastParts = 1024;  // of the budget, one of which is the least to plan less

}  // namespace

std::optional<base::Bytes> LowerPlans::next(const Excess& excess) {
  if (tried_ == kMostTries || excess.bytes <= 0) return std::nullopt;
  // Live bytes follow what was planned for; where half of their excess remains the passes have
  // nothing more to give. Addresses do not follow it one to one.
  if (!excess.is_in_layout && excess.bytes > before_ / 2) return std::nullopt;
  before_ = excess.bytes;
  const int64_t less = tried_ == 0 ? excess.bytes / 8 * 9 : excess.bytes << tried_;
  planned_ -= std::max(less, budget_ / kLeastParts);
  ++tried_;
  if (planned_ <= 0) return std::nullopt;
  return base::Bytes{planned_};
}

}  // namespace dc::search
