#include "src/fusion/problem.h"

#include <algorithm>

namespace dc::fusion {

void Problem::finish() {
  readers_.assign(kernels.size(), {});
  followers_.assign(kernels.size(), {});
  reductions_.assign(kernels.size(), {});
  const auto add = [](Lists& lists, int32_t kernel, size_t item) {
    std::vector<int32_t>& list = lists[static_cast<size_t>(kernel)];
    const auto number = static_cast<int32_t>(item);
    if (list.empty() || list.back() != number) list.push_back(number);
  };
  for (size_t i = 0; i < kernels.size(); ++i) {
    for (const int32_t read : kernels[i].reads) {
      if (maker(read) >= 0) add(readers_, maker(read), i);
    }
    for (const int32_t earlier : kernels[i].after) add(followers_, earlier, i);
  }
  for (size_t i = 0; i < reductions.size(); ++i) {
    for (const int32_t kernel : reductions[i].after) {
      add(reductions_, kernel, i);
      for (const int32_t made : kernels[static_cast<size_t>(kernel)].makes)
        values[static_cast<size_t>(made)].kept = true;
    }
  }
  for (size_t i = 0; i < kernels.size(); ++i) {
    if (!readers_[i].empty()) continue;
    for (const int32_t made : kernels[i].makes) values[static_cast<size_t>(made)].kept = true;
  }
}

}  // namespace dc::fusion
