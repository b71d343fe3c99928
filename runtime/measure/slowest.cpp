#include "runtime/measure/slowest.h"

#include <algorithm>

namespace dc::runtime::measure {

base::Status keep_slowest(std::vector<base::Timing>& rows, comm::Communicator& control) {
  constexpr size_t kAtOnce = 4096;  // rows; the receive buffer holds these times ranks
  const auto ranks = static_cast<size_t>(control.size());
  std::vector<base::Timing> all;
  for (size_t begin = 0; begin < rows.size(); begin += kAtOnce) {
    const size_t count = std::min(kAtOnce, rows.size() - begin);
    all.resize(count * ranks);
    DC_RETURN_IF_ERROR(control.exchange(
        rows.data() + begin, static_cast<int64_t>(count * sizeof(base::Timing)), all.data()));
    for (size_t i = 0; i < all.size(); ++i) {
      base::Timing& kept = rows[begin + i % count];
      if (all[i].median_ns > kept.median_ns) kept = all[i];
    }
  }
  return {};
}

}  // namespace dc::runtime::measure
