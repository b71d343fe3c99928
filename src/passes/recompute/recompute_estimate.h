// What dropping one more storage would free and cost, before anything is evaluated anew.
#pragma once

#include <vector>

#include "src/base/small_list.h"
#include "src/passes/recompute/recompute_timeline.h"

namespace dc::passes {

// kLongestChain: the most kernels that run again for one storage, its own producer included.
// kMostSteps: the most kernels that one estimate visits; visits that it takes back count too.
inline constexpr int kLongestChain = 64;
inline constexpr int kMostSteps = 8 * kLongestChain;

struct Estimate {
  int32_t storage = -1;
  int64_t gain = 0;                     // bytes x coordinates above the limit; may be negative
  int64_t at_peak = 0;                  // bytes at the coordinate of the peak
  int64_t time = 0;                     // ns of kernels and gathers added
  base::SmallList<int32_t, 2> keeps;    // storages to keep that were not
  base::SmallList<int32_t, 6> sources;  // storages read
  double rate() const {
    return static_cast<double>(gain) / static_cast<double>(time > 0 ? time : 1);
  }
};

// Estimates what dropping one storage gains and costs, for a fixed set of kept storages and its
// timeline. A call of drop() costs O(kMostSteps).
class Estimator {
 public:
  Estimator(const RecomputeProgram& program, const KeptStorages& kept, const Timeline& timeline,
            int64_t limit);
  // True if the storage is kept, is alive beyond the boundary and can be made again.
  bool may_drop(int32_t storage) const;
  Estimate drop(int32_t storage);

 private:
  struct Cost {
    int64_t time = 0, loss = 0, at_peak = 0;
  };
  int64_t above(int32_t from, int32_t to) const;  // coordinates above the limit, inclusive ends
  void lose(int64_t bytes, int32_t from, int32_t to, Cost& cost) const;
  void run_again(int32_t node, int32_t place, Cost& cost);
  void read(int32_t storage, int32_t place, Cost& cost);
  void read_gather(int32_t gather, int32_t place, Cost& cost);
  void make_or_keep(int32_t storage, int32_t place, Cost& cost);

  const RecomputeProgram& p_;
  const KeptStorages& kept_;
  const Timeline& t_;
  std::vector<int32_t> above_;    // coordinates above the limit before each
  std::vector<uint8_t> seen_;     // by forward position
  std::vector<int32_t> visited_;  // those
  int steps_ = 0;
  bool cut_ = false;  // the chain became too long to follow
  Estimate now_;
  int64_t own_gain_ = 0, own_time_ = 0;
};

}  // namespace dc::passes
