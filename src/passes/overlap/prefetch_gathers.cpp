// prefetch-gathers: a gather starts as late as still hides it behind compute, no earlier than the
// link can serve it, and no earlier than the budget allows.
//
// Backwards along the time that compute alone would take, each gather gets its latest start: it
// ends before its first use and before the next gather must begin. Forwards along the time that
// compute really takes, waiting where a gather comes too late, the next gather in order of need
// starts once the link is about to be free and its latest start is near. So where compute is the
// bottleneck memory is held no longer than what hides, and where the link is, it never idles while
// a gather would fit. (DeepCompile, arXiv 2504.09983, starts gathers as early as memory allows.) A
// reduction takes the link from where it starts; that its done waits is overlap-reductions'
// business.
//
// Kernels, collectives and the order of what each reads stay the same; so do all numbers.
#include <algorithm>

#include "src/cost/transfer.h"
#include "src/passes/movement.h"
#include "src/schedule/gather_moves.h"
#include "src/schedule/time_axis.h"
#include "src/sim/simulate.h"

namespace dc::passes {
namespace {

using base::Nanos;
using ir::NodeId;
using ir::OpKind;

class Prefetcher {
 public:
  Prefetcher(const ir::Step& step, ir::Graph& graph, const cost::CostModel& cost,
             std::optional<int64_t> limit)
      : step_(step), graph_(graph), cost_(cost), limit_(limit), axis_(step, graph, cost) {}

  // Returns how many gathers moved.
  int run() {
    for (NodeId id : axis_.live.order) {
      if (schedule::is_gather(graph_.node(id).kind)) stream_ = graph_.node(id).stream;
    }
    find_latest_starts();
    start_in_time();
    for (const Gather& gather : gathers_) {
      if (gather.before.valid()) schedule::move_gathers(graph_, gather.bucket, gather.before);
    }
    return moved_;
  }

 private:
  struct Gather {
    std::vector<NodeId> bucket;
    int32_t position = 0;  // of the start
    int32_t earliest = 0;  // position
    Nanos time, latest;    // compute's own time at the latest start
    int64_t bytes = 0;
    Nanos end;
    NodeId before;  // where it moves; invalid: it stays
  };

  int32_t count() const { return static_cast<int32_t>(axis_.live.order.size()); }

  // Starts a collective on the stream of parameters' gathers.
  bool travels_with_gathers(const ir::Node& node) const {
    return node.stream == stream_ && cost::transfer_of(graph_, node) && !cost::joins(node);
  }

  // When compute alone would first wait for one of them.
  Nanos needed(const std::vector<NodeId>& bucket) const {
    Nanos first{INT64_MAX};
    for (NodeId start : bucket) {
      const NodeId done = graph_.value(graph_.node(start).results[0]).uses[0].node;
      first = std::min(first, axis_.time_before(axis_.position(done)));
    }
    return first;
  }

  void find_latest_starts() {
    Nanos next = axis_.time_before(count());  // when the collective after must begin
    gather_of_.assign(graph_.node_capacity(), -1);
    for (int32_t i = count(); i-- > 0;) {
      const ir::Node& node = axis_.node(i);
      if (!travels_with_gathers(node)) continue;
      const Nanos time = sim::node_time(step_, graph_, node, cost_);
      if (!schedule::is_gather(node.kind)) {
        // A reduction or copy cannot start before its position. If it would then delay the gather
        // that follows it, that gather is to start first.
        const Nanos here = axis_.time_before(i);
        next = next - time >= here ? next - time : std::min(next, here);
        continue;
      }
      Gather gather;
      gather.bucket = cost::bucket_of(graph_, node.id);
      gather.position = i;
      gather.time = time;
      next = std::min(next, needed(gather.bucket)) - time;
      gather.latest = next;
      for (NodeId start : gather.bucket) {
        gather.earliest =
            std::max(gather.earliest, schedule::earliest_start(axis_, graph_.node(start), i));
        gather.bytes += schedule::gathered_bytes(step_, graph_, graph_.node(start));
      }
      gathers_.push_back(std::move(gather));
    }
    std::reverse(gathers_.begin(), gathers_.end());
    for (size_t g = 0; g < gathers_.size(); ++g) {
      for (NodeId start : gathers_[g].bucket) gather_of_[start.index()] = static_cast<int32_t>(g);
    }
  }

  void start_in_time() {
    Nanos waited, link_free;  // by compute so far; from the beginning of the program
    size_t next = 0;
    for (int32_t i = 0; i < count(); ++i) {
      const ir::Node& node = axis_.node(i);
      const Nanos now = axis_.time_before(i) + waited, then = axis_.time_before(i + 1) + waited;
      while (next < gathers_.size()) {
        Gather& gather = gathers_[next];
        const bool must = gather.position == i;
        const bool pays = link_free < then && gather.latest < axis_.time_before(i + 1) &&
                          marks_a_place(node) && may_start(gather, i);
        if (!must && !pays) break;
        if (!must) move(gather, i);
        link_free = std::max(link_free, now) + gather.time;
        gather.end = link_free;
        ++next;
      }
      if (node.kind == OpKind::AllGatherDone || node.kind == OpKind::AllGatherIntoDone) {
        const NodeId start = graph_.value(node.operands[0]).producer;
        const int32_t of = gather_of_[start.index()];
        waited = std::max(waited, gathers_[static_cast<size_t>(of)].end - axis_.time_before(i));
      } else if (travels_with_gathers(node) && !schedule::is_gather(node.kind)) {
        link_free = std::max(link_free, now) + sim::node_time(step_, graph_, node, cost_);
      }
    }
  }

  bool may_start(Gather& gather, int32_t position) {
    if (position < gather.earliest) return false;
    for (int32_t i = gather.position; limit_ && i-- > position;) {
      if (axis_.bytes[static_cast<size_t>(i)] + gather.bytes <= *limit_) continue;
      gather.earliest = i + 1;
      return false;
    }
    return true;
  }

  void move(Gather& gather, int32_t position) {
    if (axis_.time_before(position) == axis_.time_before(gather.position)) return;
    for (int32_t i = position; i < gather.position; ++i)
      axis_.bytes[static_cast<size_t>(i)] += gather.bytes;
    gather.before = axis_.node(position).id;
    ++moved_;
  }

  // Whether a gather may be placed before the node: not if this pass moves the node, and not
  // inside a bucket.
  static bool marks_a_place(const ir::Node& node) {
    return !schedule::is_gather(node.kind) && node.kind != OpKind::Cast && !cost::joins(node);
  }

  const ir::Step& step_;
  ir::Graph& graph_;
  const cost::CostModel& cost_;
  std::optional<int64_t> limit_;
  schedule::TimeAxis axis_;
  int stream_ = 0;
  std::vector<Gather> gathers_;     // in order of need
  std::vector<int32_t> gather_of_;  // by start node
  int moved_ = 0;
};

}  // namespace

base::Result<Change> prefetch_gathers(ir::Step& step, const PassContext& context) {
  return move_collectives(step, context, "prefetch-gathers", kGathersEarlier,
                          [&](ir::Graph& graph, std::optional<int64_t> limit) {
                            return Prefetcher(step, graph, context.cost, limit).run();
                          });
}

}  // namespace dc::passes
