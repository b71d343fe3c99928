// KnownArenas: how large the layouts of the latest requests were. A search asks about the same
// requests time and again: a pass whose result fits, the next ones that have nothing to add, and
// the search itself.
//
// An entry holds all that best_layout() depends on, so it is never out of date. Not for several
// threads at once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "src/layout/request.h"

namespace dc::layout {

class KnownArenas {
 public:
  // Bytes of a layout of the requests that are at most `enough`, or of the best if none is; empty
  // if they are not known. What is known for one number of bytes answers for more that it fits,
  // but for what ejections found: these do not find it for each number.
  std::optional<int64_t> find(std::span<const Request> requests, int64_t enough);
  // They must not be known. Forgets the entries that were not asked for longest, where all have too
  // many requests together.
  void add(std::vector<Request> requests, int64_t enough, const Layout& layout);
  // How many requests all layouts that were added placed, as often as they did.
  int64_t placed() const { return placed_; }

 private:
  struct Known {
    std::vector<Request> requests;
    int64_t enough = 0, bytes = 0;
    bool is_of_ejections = false;
  };
  static constexpr size_t kMostRequests = 2'000'000;
  std::vector<Known> known_;  // the latest first
  size_t requests_ = 0;       // of all
  int64_t placed_ = 0;
};

}  // namespace dc::layout
