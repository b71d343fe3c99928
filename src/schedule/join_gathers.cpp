#include "src/schedule/join_gathers.h"

#include "src/cost/transfer.h"
#include "src/ir/group.h"
#include "src/schedule/gather_moves.h"

namespace dc::schedule {
namespace {

using ir::NodeId;

class Fuser {
 public:
  Fuser(const ir::Step& step, ir::Graph& graph, const cost::CostModel& cost,
        std::optional<int64_t> limit, const BucketPolicy& belongs)
      : step_(step), graph_(graph), limit_(limit), belongs_(belongs), axis_(step, graph) {
    if (limit) live_ = transient_bytes(graph, axis_.live, cost);
  }

  // Returns how many gathers joined another.
  int run() {
    int joined = 0;
    for (size_t i = 0; i < axis_.live.order.size(); ++i) {
      const ir::Node& node = graph_.node(axis_.live.order[i]);
      if (!is_gather(node.kind)) continue;
      if (cost::joins(node)) {
        head_ = {};  // made by an earlier run
        continue;
      }
      if (head_.valid() && may_join(node)) {
        join(node.id);
        ++joined;
      } else {
        open(node);
      }
    }
    return joined;
  }

 private:
  void open(const ir::Node& node) {
    const NodeId next = graph_.next(node.id);
    head_ = next.valid() && cost::joins(graph_.node(next)) ? NodeId{} : node.id;
    last_ = node.id;
    bytes_ = cost::transfer_of(graph_, node)->bytes();
  }

  bool may_join(const ir::Node& node) const {
    const ir::Node& head = graph_.node(head_);
    if (node.origin.phase != head.origin.phase || node.stream != head.stream) return false;
    if (ir::group_of(node) != ir::group_of(head) || !belongs_(head, node, bytes_)) return false;
    const int32_t from = axis_.position(head_), to = axis_.position(node.id);
    return earliest_start(axis_, node, to) <= from && fits(node, from, to);
  }

  bool fits(const ir::Node& start, int32_t from, int32_t to) const {
    if (!limit_) return true;
    const int64_t bytes = gathered_bytes(step_, graph_, start);
    for (int32_t i = from; i < to; ++i) {
      if (live_[static_cast<size_t>(i)] + bytes > *limit_) return false;
    }
    return true;
  }

  void join(NodeId id) {
    const ir::Node& start = graph_.node(id);
    const int64_t bytes = gathered_bytes(step_, graph_, start);
    for (int32_t i = axis_.position(head_); limit_ && i < axis_.position(id); ++i)
      live_[static_cast<size_t>(i)] += bytes;
    bytes_ += cost::transfer_of(graph_, start)->bytes();
    const NodeId cast = cast_of(graph_, start);
    if (cast.valid()) graph_.move_before(cast, head_);
    graph_.move_before(id, graph_.next(last_));
    graph_.edit(id).args.edit().push_back({ir::Attr::Joins, int64_t{1}});
    last_ = id;
  }

  const ir::Step& step_;
  ir::Graph& graph_;
  std::optional<int64_t> limit_;
  const BucketPolicy& belongs_;
  Positions axis_;
  std::vector<int64_t> live_;  // by position, under a limit
  NodeId head_, last_;         // of the open bucket
  base::Bytes bytes_;
};

}  // namespace

int join_gathers(const ir::Step& step, ir::Graph& graph, const cost::CostModel& cost,
                 std::optional<int64_t> limit, const BucketPolicy& belongs) {
  return Fuser(step, graph, cost, limit, belongs).run();
}

}  // namespace dc::schedule
