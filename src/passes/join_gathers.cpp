#include "src/cost/transfer.h"
#include "src/passes/buckets.h"

namespace dc::passes {
namespace {

using ir::NodeId;
using ir::OpKind;

class Fuser {
 public:
  Fuser(const ir::Step& step, ir::Graph& graph, const cost::CostModel& cost,
        std::optional<int64_t> limit, const Belongs& belongs)
      : step_(step), graph_(graph), limit_(limit), belongs_(belongs), axis_(step, graph, cost) {}

  // Returns how many gathers joined another.
  int run() {
    int joined = 0;
    for (size_t i = 0; i < axis_.live.order.size(); ++i) {
      const ir::Node& node = graph_.node(axis_.live.order[i]);
      if (node.kind != OpKind::AllGatherStart && node.kind != OpKind::AllGatherIntoStart) continue;
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
    if (!belongs_(head, node, bytes_)) return false;
    const int32_t from = axis_.position(head_), to = axis_.position(node.id);
    return source_exists(node, from, to) && fits(node, from, to);
  }

  NodeId cast_of(const ir::Node& start) const {
    const ir::Node& producer = graph_.node(graph_.value(start.operands.back()).producer);
    return producer.kind == OpKind::Cast ? producer.id : NodeId{};
  }

  // What travels is there at `from` and not written until `to`; what is gathered into is not
  // touched.
  bool source_exists(const ir::Node& start, int32_t from, int32_t to) const {
    const NodeId cast = cast_of(start);
    const ir::ValueId source = cast.valid() ? graph_.node(cast).operands[0] : start.operands.back();
    if (axis_.position(graph_.value(source).producer) >= from) return false;
    const bool into = start.kind == OpKind::AllGatherIntoStart;
    for (int32_t i = from; i < to; ++i) {
      if (axis_.writes(axis_.node(i), source)) return false;
      if (into && axis_.touches(axis_.node(i), start.operands[0])) return false;
    }
    return true;
  }

  bool fits(const ir::Node& start, int32_t from, int32_t to) const {
    for (int32_t i = from; limit_ && i < to; ++i) {
      if (axis_.bytes[static_cast<size_t>(i)] + held_bytes(start) > *limit_) return false;
    }
    return true;
  }

  int64_t held_bytes(const ir::Node& start) const {
    const auto transfer = cost::transfer_of(graph_, start);
    const int64_t shard = transfer->shard * transfer->element_bytes;
    const bool fresh = start.kind == OpKind::AllGatherStart;
    return (fresh ? aligned_bytes(shard * step_.mesh.world()) : 0) +
           (cast_of(start).valid() ? aligned_bytes(shard) : 0);
  }

  void join(NodeId id) {
    const ir::Node& start = graph_.node(id);
    for (int32_t i = axis_.position(head_); i < axis_.position(id); ++i)
      axis_.bytes[static_cast<size_t>(i)] += held_bytes(start);
    bytes_ += cost::transfer_of(graph_, start)->bytes();
    const NodeId cast = cast_of(start);
    if (cast.valid()) graph_.move_before(cast, head_);
    graph_.move_before(id, graph_.next(last_));
    graph_.node(id).args.push_back({"joins", int64_t{1}});
    last_ = id;
  }

  const ir::Step& step_;
  ir::Graph& graph_;
  std::optional<int64_t> limit_;
  const Belongs& belongs_;
  TimeAxis axis_;
  NodeId head_, last_;  // of the open bucket
  base::Bytes bytes_;
};

}  // namespace

int join_gathers(const ir::Step& step, ir::Graph& graph, const cost::CostModel& cost,
                 std::optional<int64_t> limit, const Belongs& belongs) {
  return Fuser(step, graph, cost, limit, belongs).run();
}

}  // namespace dc::passes
