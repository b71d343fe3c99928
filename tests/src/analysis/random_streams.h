// Random programs whose kernels run on three streams, and which of their nodes touch the same
// bytes, found pair by pair.
#pragma once

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "src/analysis/storage.h"
#include "src/ir/effects.h"
#include "tests/src/analysis/small_steps.h"

namespace dc::ir {

// Sums, views, changes in place and all-reduces (on stream 1, all done in the end) of 8 elements,
// equal on every host.
inline StepBuilder random_streams(uint32_t seed, int count) {
  std::mt19937 random(seed);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  StepBuilder b(2);
  b.step.streams = {"compute", "comm", "host"};
  std::vector<ValueId> values = {b.input("x", f32({8})), b.input("y", f32({8}))};
  std::vector<std::pair<ValueId, ValueId>> started;  // the start's result, what it reads
  const auto travels = [&](ValueId value) {
    return std::any_of(started.begin(), started.end(), [&](const auto& one) {
      return view_root(b.graph(), one.second) == view_root(b.graph(), value);
    });
  };
  const auto finish = [&](size_t i) {
    values.push_back(b.op(OpKind::AllReduceDone, {started[i].first}, {{"sum", f32({8})}}));
    started.erase(started.begin() + static_cast<std::ptrdiff_t>(i));
  };
  const auto put = [&](size_t stream) {
    b.graph().edit(b.graph().order().back()).stream = static_cast<int>(stream);
  };
  for (int i = 0; i < count; ++i) {
    const ValueId one = values[below(values.size())], other = values[below(values.size())];
    switch (below(7)) {
      case 0:
        values.push_back(b.aten("aten.view.default", {one}, {"v", f32({8})}));
        break;
      case 1:
        if (travels(one)) break;
        b.op(OpKind::Accumulate, {one, other}, {});
        put(below(3));
        break;
      case 2:
        started.emplace_back(b.op(OpKind::AllReduceStart, {one}, {{"start", f32({8})}},
                                  {{Attr::Elements, int64_t{8}}, {Attr::Shard, int64_t{32}}}),
                             one);
        put(1);
        break;
      case 3:
        if (!started.empty()) finish(below(started.size()));
        break;
      default:
        values.push_back(b.aten("aten.add.Tensor", {one, other}, {"a", f32({8})}));
        put(below(3));
    }
  }
  while (!started.empty()) finish(0);
  return b;
}

// Whether two nodes touch the same bytes and one of them writes there. A done touches what its
// start does.
class Conflicts {
 public:
  Conflicts(const Step& step, const Graph& graph) : graph_(graph), storages_(step, graph) {}

  bool between(const Node& a, const Node& b) const {
    for (const auto& [root, writes] : touches(a)) {
      for (const auto& [other, also_writes] : touches(b)) {
        if (root == other && (writes || also_writes)) return true;
      }
    }
    return false;
  }
  // The storages that it touches, and whether it writes there.
  std::vector<std::pair<ValueId, bool>> touches(const Node& node) const {
    std::vector<std::pair<ValueId, bool>> all;
    if (!runs(node)) return all;
    for (size_t i = 0; i < node.operands.size(); ++i)
      all.emplace_back(storages_.root(node.operands[i]), writes(node, i));
    for (const ValueId result : node.results) {
      if (storages_.root(result) == result) all.emplace_back(result, true);
    }
    if (!is_done(node.kind)) return all;
    for (const auto& touch : touches(graph_.node(graph_.value(node.operands[0]).producer)))
      all.push_back(touch);
    return all;
  }

 private:
  const Graph& graph_;
  const analysis::StorageMap storages_;
};

}  // namespace dc::ir
