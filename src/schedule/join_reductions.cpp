#include "src/schedule/join_reductions.h"

#include <algorithm>

#include "src/cost/transfer.h"
#include "src/ir/effects.h"
#include "src/ir/group.h"
#include "src/schedule/reduction_tail.h"

namespace dc::schedule {
namespace {

using ir::NodeId;

class Bucketer {
 public:
  Bucketer(const ir::Step& step, ir::Graph& graph, const cost::CostModel& cost,
           std::optional<int64_t> limit, const BucketPolicy& belongs, ir::AxisMask group)
      : graph_(graph), limit_(limit), belongs_(belongs), group_(group), axis_(step, graph) {
    if (limit) live_ = transient_bytes(graph, axis_.live, cost);
  }

  // Returns how many reductions joined another.
  int run() {
    for (NodeId id : axis_.live.order) {
      const ir::Node& node = graph_.node(id);
      if (!is_reduction(node.kind) || ir::group_of(node) != group_) continue;
      if (bucket_.empty() || !may_join(node)) {
        close();
        bytes_ = {};
      }
      add(node);
    }
    close();
    return joined_;
  }

 private:
  struct Member {
    NodeId start;
    std::vector<NodeId> tail;
  };

  void add(const ir::Node& start) {
    for (Member& member : bucket_) hold(graph_.node(member.start), axis_.position(start.id));
    bucket_.push_back({start.id, reduction_tail(axis_, {start.id})});
    bytes_ += cost::transfer_of(graph_, start)->bytes();
  }

  bool may_join(const ir::Node& start) const {
    const ir::Node& first = graph_.node(bucket_[0].start);
    const NodeId after = graph_.next(start.id);
    const bool joined = cost::joins(start) || (after.valid() && cost::joins(graph_.node(after)));
    if (joined || start.kind != first.kind || start.stream != first.stream) return false;
    if (!belongs_(first, start, bytes_)) return false;
    const int32_t position = axis_.position(start.id);
    return std::all_of(bucket_.begin(), bucket_.end(), [&](const Member& member) {
      // A reduction joins only if its tail follows its start directly: one already moved stays.
      const bool adjacent = !member.tail.empty() &&
                            axis_.position(member.tail[0]) == axis_.position(member.start) + 1;
      // Positions up to stands_at() were checked when the earlier members joined.
      return adjacent &&
             latest_tail(axis_, {member.start}, member.tail, position + 1, stands_at() + 1) >
                 position &&
             fits(graph_.node(member.start), position);
    });
  }

  // Bytes of the summand, which must wait for the bucket to start; state, and what becomes the sum
  // in place, waits anyway.
  int64_t held_bytes(const ir::Node& start) const {
    if (axis_.storages.owner(start.operands[0]) >= 0 || ir::writes(start, 0)) return 0;
    return aligned_bytes(cost::transfer_of(graph_, start)->bytes().v);
  }

  // Position of the bucket so far.
  int32_t stands_at() const { return axis_.position(bucket_.back().start); }

  bool fits(const ir::Node& start, int32_t position) const {
    for (int32_t i = stands_at() + 1; limit_ && i <= position; ++i) {
      if (live_[static_cast<size_t>(i)] + held_bytes(start) > *limit_) return false;
    }
    return true;
  }

  void hold(const ir::Node& start, int32_t position) {
    for (int32_t i = stands_at() + 1; limit_ && i <= position; ++i)
      live_[static_cast<size_t>(i)] += held_bytes(start);
  }

  void close() {
    for (size_t i = 0; bucket_.size() > 1 && i < bucket_.size(); ++i) {
      graph_.move_before(bucket_[i].start, bucket_.back().tail[0]);
      if (i == 0) continue;
      graph_.edit(bucket_[i].start).args.edit().push_back({ir::Attr::Joins, int64_t{1}});
      ++joined_;
    }
    // The last member's tail stays where it is. The tails of the others move to right before it,
    // in their old order.
    for (size_t i = 0; i + 1 < bucket_.size(); ++i) {
      for (NodeId id : bucket_[i].tail) graph_.move_before(id, bucket_.back().tail[0]);
    }
    bucket_.clear();
  }

  ir::Graph& graph_;
  std::optional<int64_t> limit_;
  const BucketPolicy& belongs_;
  ir::AxisMask group_;  // of the reductions that are looked at
  Positions axis_;
  std::vector<int64_t> live_;  // by position, under a limit
  std::vector<Member> bucket_;
  base::Bytes bytes_;
  int joined_ = 0;
};

// In the order of their first reduction.
std::vector<ir::AxisMask> groups_of_reductions(const ir::Graph& graph) {
  std::vector<ir::AxisMask> groups;
  for (NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
    const ir::Node& node = graph.node(id);
    if (!is_reduction(node.kind)) continue;
    const ir::AxisMask group = ir::group_of(node);
    if (std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
  }
  return groups;
}

}  // namespace

int join_reductions(const ir::Step& step, ir::Graph& graph, const cost::CostModel& cost,
                    std::optional<int64_t> limit, const BucketPolicy& belongs) {
  int joined = 0;
  for (ir::AxisMask group : groups_of_reductions(graph))
    joined += Bucketer(step, graph, cost, limit, belongs, group).run();
  return joined;
}

}  // namespace dc::schedule
