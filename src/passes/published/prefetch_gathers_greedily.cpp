// prefetch-gathers-greedily: proactive prefetch with fusing as DeepCompile does it (arXiv
// 2504.09983, Algorithm 1; DeepSpeed, deepspeed/compile/passes/prefetch.py). The baseline of
// fuse-gathers and prefetch-gathers.
//
// Walks backwards through the forward and through the backward phase, each on its own. A gather
// found waits in a group, a group in a queue; where memory at the node before, with all that waits,
// passes nine tenths of the budget, or more than 4 GB wait, the oldest group is issued. So gathers
// start as early as memory allows, whether or not that hides them. The original demand gathers that
// find their buffer valid are left out here.
#include <algorithm>
#include <deque>

#include "src/cost/transfer.h"
#include "src/ir/effects.h"
#include "src/ir/group.h"
#include "src/passes/movement.h"
#include "src/passes/published/published_rules.h"
#include "src/schedule/gather_moves.h"
#include "src/schedule/time_axis.h"

namespace dc::passes {
namespace {

using ir::NodeId;
using ir::OpKind;

class Prefetcher {
 public:
  Prefetcher(const ir::Step& step, ir::Graph& graph, const PassContext& context)
      : step_(step), graph_(graph), cost_(context.cost), axis_(step, graph, context.cost) {
    state_ = analysis::state_bytes(step, ir::Space::Device).v;
    if (context.options.memory()) budget_ = published::usable(context.options.memory()->v);
  }

  // Returns how many gathers moved.
  int run() {
    const schedule::TimeAxis::Phase backward = axis_.backward();
    walk(0, backward.begin);
    walk(backward.begin, backward.end);
    return moved_;
  }

 private:
  struct Group {
    std::vector<NodeId> starts;  // latest needed first
    int64_t bytes = 0;
  };

  void walk(int32_t begin, int32_t end) {
    int32_t first = begin;
    while (first < end && !ir::runs(axis_.node(first))) ++first;
    for (int32_t i = end; i-- > first;) {
      const ir::Node& node = axis_.node(i);
      while (i > first && over_budget(i - 1)) {
        if (groups_.empty()) {
          if (current_.starts.empty()) break;
          close();
        }
        issue(i + 1);
      }
      if (node.kind == OpKind::AllGatherStart && is_just_in_time(node)) add(node);
    }
    if (!current_.starts.empty()) close();
    while (!groups_.empty()) issue(first);
  }

  bool is_just_in_time(const ir::Node& start) const {
    const NodeId done = graph_.value(start.results[0]).uses[0].node;
    return axis_.position(done) == axis_.position(start.id) + 1;
  }

  bool over_budget(int32_t before) const {
    const int64_t peak = state_ + axis_.bytes[static_cast<size_t>(before)];
    return peak + pending_ > budget_ || pending_ > published::kPendingBytes;
  }

  void add(const ir::Node& start) {
    const int64_t bytes = cost::transfer_of(graph_, start)->bytes().v;
    const int64_t fused = current_.bytes + bytes;
    const auto time = [&](int64_t of) {
      return cost_.collective(cost::Collective::AllGather, {of}, cost::group_of(step_, start)).time;
    };
    const auto same_group = [&](NodeId other) {
      return ir::group_of(graph_.node(other)) == ir::group_of(start);
    };
    const bool joins = published::fuse(time(current_.bytes), time(bytes), time(fused), fused);
    if (!current_.starts.empty() && !(joins && same_group(current_.starts[0]))) close();
    current_.starts.push_back(start.id);
    current_.bytes += bytes;
    pending_ += bytes;
  }

  void close() {
    groups_.push_back(std::move(current_));
    current_ = {};
  }

  // Before the node that is at `position`, and before what was issued there already: groups issued
  // later are needed earlier.
  void issue(int32_t position) {
    const Group group = std::move(groups_.front());
    groups_.pop_front();
    pending_ -= group.bytes;
    for (NodeId start : group.starts) {
      const int32_t now = axis_.position(start);
      const bool is_too_late = now < position;
      const bool is_too_early = schedule::earliest_start(axis_, graph_.node(start), now) > position;
      if (is_too_late || is_too_early) return;  // it stays just in time
    }
    const bool at_end = position >= static_cast<int32_t>(axis_.live.order.size());
    NodeId before = at_end ? NodeId{} : axis_.live.order[static_cast<size_t>(position)];
    if (issued_at_ == position) before = issued_;
    const std::vector<NodeId> members(group.starts.rbegin(), group.starts.rend());
    while (moves_with(members, before)) before = graph_.next(before);
    while (before.valid() && cost::joins(graph_.node(before))) before = graph_.previous(before);
    issued_ = schedule::move_gathers(graph_, members, before);
    for (size_t i = 1; i < members.size(); ++i)
      graph_.edit(members[i]).args.edit().push_back({ir::Attr::Joins, int64_t{1}});
    moved_ += static_cast<int>(members.size());
    issued_at_ = position;
  }

  // Whether the node is one of `members`, or the cast of one.
  bool moves_with(const std::vector<NodeId>& members, NodeId node) const {
    return std::any_of(members.begin(), members.end(), [&](NodeId start) {
      return node.valid() &&
             (start == node || schedule::cast_of(graph_, graph_.node(start)) == node);
    });
  }

  const ir::Step& step_;
  ir::Graph& graph_;
  const cost::CostModel& cost_;
  schedule::TimeAxis axis_;
  int64_t state_ = 0, budget_ = INT64_MAX;
  std::deque<Group> groups_;
  Group current_;
  int64_t pending_ = 0;
  int32_t issued_at_ = -1;  // where the last group was issued, and its first node
  NodeId issued_;
  int moved_ = 0;
};

}  // namespace

base::Result<Change> prefetch_gathers_greedily(ir::Step& step, const PassContext& context) {
  return move_collectives(step, context, "prefetch-gathers-greedily", kGathersEarlier,
                          [&](ir::Graph& graph, std::optional<int64_t>) {
                            return Prefetcher(step, graph, context).run();
                          });
}

}  // namespace dc::passes
