// LeastTime: what a collective must cost at least, however it is bucketed with others.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "src/bound/limits.h"
#include "src/cost/cost_model.h"

namespace dc::bound {

// By kind: bytes of the largest bucket that a plan may make.
using Buckets = std::map<cost::Collective, base::Bytes>;

class LeastTime {
 public:
  // `buckets`: no bucket of a kind is larger.
  LeastTime(const cost::CostModel& cost, const Buckets& buckets) : cost_(cost), buckets_(buckets) {}

  // Of a collective of `bytes` (the whole value, as the cost model takes them). In a bucket of B
  // bytes it has the part bytes/B of the bucket's time, and B is at least `bytes`: so its time is
  // at least the smallest time(B)/B of all such B, which lies where the cost model bends or at an
  // end, because a linear function over its argument is monotone.
  Work collective(cost::Collective kind, base::Bytes bytes, cost::Group group);
  // Copies are not bucketed.
  Work copy(base::Bytes bytes, ir::Space from, ir::Space to) const;

  // Over all collectives so far.
  double compute_contention() const { return contention_.compute / 1000.0; }
  double collective_contention() const { return contention_.collective / 1000.0; }
  bool any_collective() const { return any_; }

 private:
  void add_contention(cost::Contention found);

  const cost::CostModel& cost_;
  Buckets buckets_;
  bool any_ = false;
  cost::Contention contention_{INT32_MAX, INT32_MAX};
  struct Key {
    cost::Collective kind;
    int64_t bytes;
    int size;
    cost::Level level;
    auto operator<=>(const Key&) const = default;
  };
  std::map<Key, Work> known_;
};

}  // namespace dc::bound
