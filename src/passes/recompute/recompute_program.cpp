#include "src/passes/recompute/recompute_program.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "src/ir/effects.h"
#include "src/schedule/time_axis.h"
#include "src/sim/simulate.h"

namespace dc::passes {
namespace {

using ir::Node;
using ir::NodeId;
using ir::OpKind;
using ir::ValueId;

// Kernels that give the same bits whenever they run on the same operands.
bool repeats(const Node& node) {
  if (node.stream != 0) return false;
  if (node.kind == OpKind::Aten) {
    const ir::AtenInfo* aten = node.overload.info();
    return aten->alias == ir::AliasRule::Fresh && !aten->random;
  }
  const ir::OpTraits& own = ir::traits(node.kind);
  return own.alias == ir::AliasRule::Fresh &&
         (own.provider == ir::Provider::Native || own.provider == ir::Provider::Fused);
}

class Builder {
 public:
  Builder(const ir::Step& step, const cost::CostModel& cost, RecomputeProgram& program)
      : step_(step), cost_(cost), p_(program), blocks_(analysis::blocks(program.graph)) {}

  void run() {
    p_.boundary = find_boundary();
    find_writes();
    find_gathers();
    find_storages();
    find_others();
    p_.nodes.resize(static_cast<size_t>(p_.boundary));
    for (int32_t t = 0; t < p_.count(); ++t) add_uses(t);
    for (int32_t t = 0; t < p_.boundary; ++t) add_forward_node(t);
    p_.slot.resize(static_cast<size_t>(p_.count()) + 1);
    for (int32_t t = 0; t <= p_.count(); ++t) {
      const bool hoists = t > p_.boundary && waits_for_use(p_.node(t - 1));
      at(p_.slot, t) = hoists ? at(p_.slot, t - 1) : t;
    }
  }

 private:
  int32_t find_boundary() const {
    for (int32_t t = 0; t < p_.count(); ++t) {
      const Node& node = p_.node(t);
      if (node.origin.phase == ir::Phase::Backward && ir::runs(node)) return t;
    }
    return p_.count();
  }

  // One key for all values that share bytes.
  int64_t bytes_key(ValueId value) const {
    const int owner = p_.owners.owner(value);
    return owner >= 0 ? -1 - int64_t{owner} : int64_t{p_.owners.root(value).v};
  }

  void find_writes() {
    for (int32_t t = 0; t < p_.count(); ++t) {
      const Node& node = p_.node(t);
      for (size_t i = 0; i < node.operands.size(); ++i) {
        if (ir::writes(node, i)) writes_[bytes_key(node.operands[i])].push_back(t);
      }
      p_.scratch.push_back(analysis::aligned_bytes(cost_.scratch(p_.graph, node).bytes.v));
    }
  }

  int32_t first_write_after(int64_t key, int32_t position) const {
    const auto found = writes_.find(key);
    if (found == writes_.end()) return kNever;
    const auto at = std::upper_bound(found->second.begin(), found->second.end(), position);
    return at == found->second.end() ? kNever : *at;
  }

  // The cast that narrows a shard before it travels; an invalid id if there is none.
  NodeId cast_before(const Node& start) const {
    const Node& producer = p_.graph.node(p_.graph.value(start.operands[0]).producer);
    return producer.kind == OpKind::Cast ? producer.id : NodeId{};
  }

  ValueId shard_of(const Node& start) const {
    const NodeId cast = cast_before(start);
    return cast.valid() ? p_.graph.node(cast).operands[0] : start.operands[0];
  }

  int32_t position(NodeId node) const { return p_.live.position[node.index()]; }

  void find_gathers() {
    p_.gather_of.assign(p_.graph.value_capacity(), -1);
    std::map<std::pair<int64_t, ir::DType>, int32_t> known;
    for (int32_t t = 0; t < p_.count(); ++t) {
      const Node& start = p_.node(t);
      if (start.kind != OpKind::AllGatherStart || p_.owners.owner(shard_of(start)) < 0) continue;
      const ir::DType dtype = p_.graph.value(start.results[0]).type.dtype;
      const auto [found, is_new] = known.try_emplace({bytes_key(shard_of(start)), dtype},
                                                     static_cast<int32_t>(p_.gathers.size()));
      const NodeId cast = cast_before(start);
      if (is_new) {
        GatheredParameter gather;
        gather.time = sim::node_time(step_, p_.graph, start, cost_);
        if (cast.valid()) {
          gather.time += sim::node_time(step_, p_.graph, p_.graph.node(cast), cost_);
          gather.narrow_bytes =
              analysis::aligned_bytes(p_.graph.value(start.operands[0]).type.bytes().v);
        }
        p_.gathers.push_back(std::move(gather));
      }
      GatheredCopy copy;
      copy.start = start.id;
      copy.done = p_.graph.value(start.results[0]).uses[0].node;
      copy.first = cast.valid() ? position(cast) : t;
      copy.ready = position(copy.done);
      at(p_.gathers, found->second).copies.push_back(copy);
      p_.gather_of[start.results[0].index()] = found->second;
      if (cast.valid()) not_storage_.push_back(p_.graph.node(cast).results[0]);
    }
    for (GatheredParameter& gather : p_.gathers) {
      gather.first_copy = p_.copy_count;
      p_.copy_count += static_cast<int32_t>(gather.copies.size());
    }
  }

  void find_storages() {
    p_.storage_of.assign(p_.graph.value_capacity(), -1);
    for (const analysis::LiveRange& range : p_.live.ranges) {
      const Node& producer = p_.graph.node(p_.graph.value(range.value).producer);
      const int32_t made = position(producer.id);
      const int32_t gather = p_.gather_of[range.value.index()];
      if (gather >= 0) {
        GatheredParameter& parameter = at(p_.gathers, gather);
        parameter.bytes = analysis::aligned_bytes(range.bytes.v);
        for (GatheredCopy& copy : parameter.copies) {
          if (copy.start == producer.id) copy.last = range.last;
        }
        continue;
      }
      if (made >= p_.boundary) continue;
      ForwardStorage storage;
      storage.root = range.value;
      storage.producer = storage.last_forward = made;
      storage.last = range.last;
      storage.bytes = analysis::aligned_bytes(range.bytes.v);
      storage.recomputable =
          repeats(producer) && !writes_.contains(bytes_key(range.value)) && reads_known(producer);
      p_.storage_of[range.value.index()] = static_cast<int32_t>(p_.storages.size());
      p_.storages.push_back(storage);
    }
    for (ValueId value : not_storage_) forbid(value);
    for (const ir::Output& output : p_.graph.outputs) forbid(output.value);
  }

  void find_others() {
    for (const analysis::LiveRange& range : p_.live.ranges) {
      const bool is_storage = p_.storage_of[range.value.index()] >= 0;
      if (is_storage || p_.graph.storage(range.value).location.space != ir::Space::Device) continue;
      p_.others.push_back({range.first, range.last, analysis::aligned_bytes(range.bytes.v)});
    }
  }

  void forbid(ValueId value) {
    const int32_t storage = p_.storage_of[p_.owners.root(value).index()];
    if (storage >= 0) at(p_.storages, storage).recomputable = false;
  }

  // True if every operand is state, a gathered parameter or what a kernel made.
  bool reads_known(const Node& node) const {
    return std::all_of(node.operands.begin(), node.operands.end(), [&](ValueId operand) {
      const ValueId root = p_.owners.root(operand);
      const Node& producer = p_.graph.node(p_.graph.value(root).producer);
      return p_.owners.owner(root) >= 0 || p_.gather_of[root.index()] >= 0 ||
             ir::traits(producer.kind).provider != ir::Provider::Comm;
    });
  }

  void add_uses(int32_t t) {
    const Node& node = p_.node(t);
    for (ValueId operand : node.operands) {
      const int32_t index = p_.storage_of[p_.owners.root(operand).index()];
      if (index < 0) continue;
      ForwardStorage& storage = at(p_.storages, index);
      if (ir::is_plain_view(node)) continue;
      if (t < p_.boundary) {
        storage.last_forward = t;
      } else {
        storage.first_backward = std::min(storage.first_backward, t);
      }
      if (ir::traits(node.kind).provider == ir::Provider::Comm) storage.recomputable = false;
    }
  }

  void add_forward_node(int32_t t) {
    const Node& node = p_.node(t);
    ForwardNode& forward = at(p_.nodes, t);
    if (!ir::runs(node)) return;
    forward.time = sim::node_time(step_, p_.graph, node, cost_);
    forward.block = blocks_.of_node[node.id.index()];
    for (ValueId operand : node.operands) {
      const ValueId root = p_.owners.root(operand);
      forward.frozen_until = std::min(forward.frozen_until, first_write_after(bytes_key(root), t));
      const int32_t gather = p_.gather_of[root.index()];
      if (gather >= 0) {
        add_unique(forward.gathers, gather);
        const ValueId shard = shard_of(p_.graph.node(p_.graph.value(root).producer));
        forward.frozen_until =
            std::min(forward.frozen_until, first_write_after(bytes_key(shard), t));
      }
      const int32_t storage = p_.storage_of[root.index()];
      if (storage < 0) continue;
      add_unique(forward.operands, storage);
      at(p_.nodes, at(p_.storages, storage).producer).read_forward = true;
    }
    for (ValueId result : node.results) {
      if (!result.valid()) continue;
      const int32_t storage = p_.storage_of[result.index()];
      if (storage >= 0) forward.results.push_back(storage);
    }
  }

  static void add_unique(ForwardNode::Indices& list, int32_t index) {
    if (std::find(list.begin(), list.end(), index) == list.end()) list.push_back(index);
  }

  // Whether the node is placed right before its reader: a gather, its cast, or a view.
  bool waits_for_use(const Node& node) const {
    if (node.kind == OpKind::AllGatherStart || node.kind == OpKind::AllGatherDone) return true;
    if (node.kind == OpKind::Cast) {
      const auto& uses = p_.graph.value(node.results[0]).uses;
      return uses.size() == 1 && p_.graph.node(uses[0].node).kind == OpKind::AllGatherStart;
    }
    return ir::is_plain_view(node);
  }

  const ir::Step& step_;
  const cost::CostModel& cost_;
  RecomputeProgram& p_;
  analysis::Blocks blocks_;
  std::unordered_map<int64_t, std::vector<int32_t>> writes_;  // only looked up
  std::vector<ValueId> not_storage_;
};

}  // namespace

RecomputeProgram::RecomputeProgram(const ir::Step& step, const ir::Graph& of,
                                   const cost::CostModel& cost)
    : graph(of), owners(step, of), live(analysis::liveness(step, of, owners)) {
  Builder(step, cost, *this).run();
}

}  // namespace dc::passes
