// DisCo's search over operator and tensor fusion together (arXiv 2209.12769, algorithm 1): a queue
// of drafts by their time; the fastest is taken out, each method changes it at random up to beta
// times, and what is not slower than alpha times the best so far is put in.
#pragma once

#include <cstdint>
#include <vector>

#include "src/fusion/draft.h"
#include "src/fusion/timeline.h"

namespace dc::fusion {

enum class Method : uint8_t { Fuse, FuseCopy, Merge };
inline constexpr int kMethods = 3;

// The published constants.
struct SearchRules {
  double alpha = 1.05;
  int beta = 10;
  int64_t patience = 1000;  // candidates without gain after which it ends
  uint64_t seed = 0;
  bool uses[kMethods] = {true, true, true};  // by method
};

struct Found {
  Draft best;
  Timeline timeline;
  int64_t taken = 0;       // out of the queue
  int64_t candidates = 0;  // that counted: seen before or not
  int64_t played = 0;      // that were not seen before
};

// Where the paper leaves a choice: a change that is not allowed is drawn again, a few times; a
// draft that was seen before is not played again, but counts and goes back into the queue as if it
// were; the slower half of the queue is dropped when it is long.
Found search(Draft start, const LinearTime& collective, Order order, const SearchRules& rules);

// The other buckets nearest to a reduction's in the graph of groups: those of gradients that the
// group that makes its own gradient makes too, else that the groups right before and after it make,
// and so on.
std::vector<int32_t> neighbouring_buckets(const Draft& draft, int32_t reduction);

}  // namespace dc::fusion
