// prefetch-gathers-by-trace: prefetch as DeepSpeed's ZeRO-3 does it without a compiler (DeepSpeed,
// deepspeed/runtime/zero/partitioned_param_coordinator.py, fetch_sub_module), with its defaults.
//
// A trace of one step says in which order parameters are used. As soon as a module has its
// parameters, gathers of the next ones in that order start as one, until they are 5e7 elements or
// 1e9 are whole. No time and no budget are considered. Left out: parameters below 1e5 elements,
// which DeepSpeed keeps whole, and those at the turn from forward to backward, which it does not
// gather again where less than 1e9 elements lie between both uses.
//
// A program in which gathers start early already is left alone.
#include <algorithm>

#include "src/cost/transfer.h"
#include "src/ir/group.h"
#include "src/passes/movement.h"
#include "src/passes/published/published_rules.h"
#include "src/schedule/gather_moves.h"
#include "src/schedule/time_axis.h"

namespace dc::passes {
namespace {

using ir::NodeId;
using ir::OpKind;

class TracePrefetcher {
 public:
  TracePrefetcher(const ir::Step& step, ir::Graph& graph) : graph_(graph), axis_(step, graph) {}

  // Returns how many gathers moved.
  int run() {
    for (NodeId id : axis_.live.order) {
      if (graph_.node(id).kind == OpKind::AllGatherStart) trace_.push_back(of(id));
    }
    const auto early = [&](const Gather& gather) {
      return axis_.position(gather.done) != axis_.position(gather.start) + 1;
    };
    if (std::any_of(trace_.begin(), trace_.end(), early)) return 0;
    for (NodeId id : axis_.live.order) {
      const ir::Node& node = graph_.node(id);
      if (node.kind == OpKind::Release) release(node);
      if (used_ == trace_.size() || id != trace_[used_].done) continue;
      if (next_ == used_) take();  // not prefetched
      ++used_;
      prefetch_behind(id);
    }
    return moved_;
  }

 private:
  struct Gather {
    NodeId start, done;
    int64_t elements = 0;
  };

  Gather of(NodeId start) const {
    const NodeId done = graph_.value(graph_.node(start).results[0]).uses[0].node;
    return {start, done, cost::transfer_of(graph_, graph_.node(start))->elements};
  }

  NodeId take() {
    whole_ += trace_[next_].elements;
    return trace_[next_++].start;
  }

  void release(const ir::Node& node) {
    const ir::Node& done = graph_.node(graph_.value(node.operands[0]).producer);
    if (done.kind != OpKind::AllGatherDone) return;
    const ir::Node& start = graph_.node(graph_.value(done.operands[0]).producer);
    if (start.kind == OpKind::AllGatherStart) whole_ -= of(start.id).elements;
  }

  void prefetch_behind(NodeId done) {
    const int64_t most = std::min(published::kLiveElements - whole_, published::kTraceElements);
    const int32_t place = axis_.position(done) + 1;
    int64_t begun = 0;
    std::vector<NodeId> bucket;
    while (next_ < trace_.size() && begun < most && may_start(trace_[next_].start, place, bucket)) {
      begun += trace_[next_].elements;
      bucket.push_back(take());
    }
    if (bucket.empty()) return;
    schedule::move_gathers(graph_, bucket, graph_.next(done));
    for (size_t i = 1; i < bucket.size(); ++i)
      graph_.edit(bucket[i]).args.edit().push_back({ir::Attr::Joins, int64_t{1}});
    moved_ += static_cast<int>(bucket.size());
  }

  bool may_start(NodeId id, int32_t place, const std::vector<NodeId>& bucket) const {
    const ir::Node& start = graph_.node(id);
    if (!bucket.empty() && ir::group_of(graph_.node(bucket[0])) != ir::group_of(start))
      return false;
    return schedule::earliest_start(axis_, start, axis_.position(id)) <= place;
  }

  ir::Graph& graph_;
  schedule::Positions axis_;
  std::vector<Gather> trace_;   // in order of use
  size_t next_ = 0, used_ = 0;  // of the trace: not begun yet, not used yet
  int64_t whole_ = 0;           // elements of gathers begun and not released
  int moved_ = 0;
};

}  // namespace

base::Result<Change> prefetch_gathers_by_trace(ir::Step& step, const PassContext& context) {
  return move_collectives(
      step, context, "prefetch-gathers-by-trace", kGathersEarlier,
      [&](ir::Graph& graph, std::optional<int64_t>) { return TracePrefetcher(step, graph).run(); });
}

}  // namespace dc::passes
