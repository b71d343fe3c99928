// The least step time of a tiny model, by trying all decisions and orders. Nothing here is shared
// with src/bound or src/search: it reads the graph and asks the cost model, decides, plays the
// machine's rules and counts bytes with code that stands in this folder only.
//
// Decisions: each parameter gathered for each phase, gathered once and kept, whole with a gather
// after the update, or whole with whole optimizer state; each activation that the backward phase
// reads kept, made again (its operands too, where they are gone) or in host memory; optimizer state
// of each parameter here or in host memory. Orders: of kernels, of starts of gathers, alone or in
// buckets, and of copies; when to wait; which reductions travel together.
#pragma once

#include <optional>

#include "src/cost/cost_model.h"
#include "src/ir/step.h"

namespace dc::bound::test {

struct Question {
  const ir::Step& model;       // normalized, one micro-batch, without contention
  const ir::Step& sharded;     // the same with all state in shards, scheduled: bytes of state, tail
  const ir::Step& whole;       // the same with parameters whole
  const ir::Step& replicated;  // and optimizer state
  const cost::CostModel& cost;
  int64_t budget = 0;
  std::optional<ir::Space> away{};
  bool recompute = true;
};

struct Optimum {
  int64_t time = INT64_MAX;
  int64_t states = 0;    // looked at
  bool complete = true;  // false: cut short, so `time` may not be the least
};

Optimum enumerate(const Question& question);

}  // namespace dc::bound::test
