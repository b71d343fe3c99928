#include "src/fusion/greedy.h"

#include <algorithm>
#include <numeric>

namespace dc::fusion {

int fuse_in_order(Draft& draft) {
  int fused = 0;
  const auto count = static_cast<int32_t>(draft.problem().kernels.size());
  for (int32_t kernel = 0; kernel < count; ++kernel) {
    if (draft.problem().kernel(kernel).kind < 0) continue;
    bool changed = true;
    while (changed) {
      changed = false;
      const int32_t later = draft.owner(kernel);
      const std::vector<int32_t> before = draft.read_from(later);
      for (auto at = before.rbegin(); at != before.rend() && !changed; ++at)
        changed = draft.fuse(*at, later, false);
      fused += changed ? 1 : 0;
    }
  }
  return fused;
}

int merge_in_order(Draft& draft, Order order, Closing closing, base::Bytes most,
                   base::Bytes first) {
  Moments moments;
  play(draft, {}, order, &moments);
  const std::vector<Reduction>& reductions = draft.problem().reductions;
  std::vector<int32_t> queue(reductions.size());
  std::iota(queue.begin(), queue.end(), 0);
  std::ranges::stable_sort(queue, {},
                           [&](int32_t i) { return moments.produced[static_cast<size_t>(i)]; });
  int32_t open = -1;
  int closed = 0, joined = 0;
  base::Bytes bytes;
  for (const int32_t next : queue) {
    const Reduction& reduction = reductions[static_cast<size_t>(next)];
    const bool is_over = closing == Closing::UpTo ? bytes + reduction.bytes > most
                                                  : bytes >= (closed == 0 ? first : most);
    if (open >= 0 && (is_over || !draft.merge(open, next))) {
      open = -1;
      ++closed;
    }
    if (open >= 0) {
      ++joined;
      bytes += reduction.bytes;
    } else {
      open = next;
      bytes = reduction.bytes;
    }
  }
  return joined;
}

}  // namespace dc::fusion
