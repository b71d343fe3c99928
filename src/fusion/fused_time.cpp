#include "src/fusion/fused_time.h"

#include <algorithm>

namespace dc::fusion {

base::Nanos ClosedFormTime::time(const Region& region) const {
  const auto bytes = [&](std::span<const int32_t> values) {
    int64_t sum = 0;
    for (const int32_t value : values) sum += region.problem.value(value).bytes;
    return sum;
  };
  const auto moving = [&](int64_t moved) {
    return static_cast<int64_t>(static_cast<__int128>(moved) * 1'000'000'000 / bytes_per_s_);
  };
  int64_t apart = 0;
  int64_t together = launch_.v + moving(bytes(region.operands) + bytes(region.results));
  for (const int32_t member : region.members) {
    const Kernel& kernel = region.problem.kernel(member);
    apart += kernel.time.v;
    const int64_t own = launch_.v + moving(bytes(kernel.reads) + bytes(kernel.makes));
    together += std::max<int64_t>(kernel.time.v - own, 0);
  }
  return {std::min(apart, together)};
}

}  // namespace dc::fusion
