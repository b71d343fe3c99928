#include "src/passes/offload/state_uses.h"

#include <algorithm>

#include "src/cost/transfer.h"
#include "src/ir/builder.h"
#include "src/ir/effects.h"
#include "src/passes/offload/separate_copy.h"

namespace dc::passes {
namespace {

using ir::NodeId;
using ir::OpKind;
using ir::ValueId;

class StateUseScan {
 public:
  StateUseScan(const ir::Step& step, const schedule::MemoryPressure& pressure)
      : step_(step), pressure_(pressure) {
    found_.is_known.assign(step.state.size(), true);
  }

  StateUses run() {
    for (size_t p = 0; p < step_.programs.size(); ++p) {
      program_ = static_cast<int>(p);
      graph_ = &step_.programs[p].graph;
      by_root_.assign(graph_->value_capacity(), -1);
      const size_t first = found_.roots.size();
      for (int32_t i = 0; i < pressure_.positions(program_); ++i) visit(i);
      for (size_t r = first; r < found_.roots.size(); ++r) elide_copies(found_.roots[r]);
    }
    return std::move(found_);
  }

 private:
  const schedule::TimeAxis& axis() const { return pressure_.axis(program_); }

  void visit(int32_t position) {
    const ir::Node& node = axis().node(position);
    if (node.kind == OpKind::State) {
      const ValueId value = node.results[0];
      by_root_[value.index()] = static_cast<int32_t>(found_.roots.size());
      StateRoot root;
      root.program = program_;
      root.value = value;
      root.entry = axis().storages.entry(value);
      root.owner = axis().storages.owner(value);
      found_.roots.push_back(std::move(root));
      return;
    }
    if (!ir::runs(node)) return;
    for (size_t k = 0; k < node.operands.size(); ++k) {
      const int32_t found = by_root_[axis().storages.root(node.operands[k]).index()];
      if (found >= 0) use(found_.roots[static_cast<size_t>(found)], node, k, position);
    }
  }

  void use(StateRoot& root, const ir::Node& node, size_t operand, int32_t position) {
    const bool writes = ir::writes(node, operand);
    const bool is_root = node.operands[operand] == root.value;
    if (node.kind == OpKind::AllGatherIntoStart && operand == 0) {
      if (is_root && can_refill(node)) return refill(root, node, position);
    } else if (node.kind == OpKind::AllGatherIntoDone) {
      return;  // the start has it
    } else if (node.kind == OpKind::Copy && writes && is_root) {
      root.overwrites.push_back({node.id, node.operands[1], position});
      return;
    } else if (is_root && ir::copy_of_parameter(node) == root.value) {
      root.overwrites.push_back({node.id, {}, position + 1});
      return;
    } else if (!writes || (ir::is_update(node.kind) && is_root)) {
      root.uses.push_back({head_of_bucket(position), known(position), writes});
      return;
    }
    found_.is_known[static_cast<size_t>(root.owner)] = false;
  }

  int32_t known(int32_t position) const { return axis().live.known[static_cast<size_t>(position)]; }

  // What is needed by one collective of a bucket is needed before the first.
  int32_t head_of_bucket(int32_t position) const {
    while (cost::joins(axis().node(position))) --position;
    return position;
  }

  // Alone, and its result has no reader.
  bool can_refill(const ir::Node& start) const {
    const ir::Node& done = graph_->node(graph_->value(start.results[0]).uses[0].node);
    return cost::bucket_of(*graph_, start.id).size() == 1 && !cost::joins(start) &&
           graph_->value(done.results[0]).uses.empty();
  }

  void refill(StateRoot& root, const ir::Node& start, int32_t position) {
    const int32_t last = known(position);
    root.refills.push_back({start.id, axis().node(last).id, {}, position, last});
  }

  // A range need not be filled if only a gather reads it: the gather then reads what would fill it.
  void elide_copies(StateRoot& root) {
    for (Refill& refill : root.refills) {
      const ValueId source = graph_->node(refill.start).operands[1];
      const int32_t found = by_root_[source.index()];
      if (found < 0) continue;
      StateRoot& range = found_.roots[static_cast<size_t>(found)];
      const bool is_only = range.overwrites.size() == 1 && range.uses.size() == 1 &&
                           range.uses[0].first == refill.first &&
                           range.overwrites[0].ready <= refill.first;
      if (!is_only || range.owner != root.owner) continue;
      refill.elided = range.overwrites[0];
      range.overwrites.clear();
      range.uses.clear();
    }
  }

  const ir::Step& step_;
  const schedule::MemoryPressure& pressure_;
  int program_ = 0;
  const ir::Graph* graph_ = nullptr;
  std::vector<int32_t> by_root_;  // of the current program, by value: index of its root, -1
  StateUses found_;
};

// After the last reader, which takes the value out.
void release(ir::Graph& graph, ValueId whole) {
  const ir::Node& out = graph.node(graph.value(whole).uses[0].node);
  const ir::Node& done = graph.node(graph.value(out.results[0]).uses[0].node);
  ir::Builder(graph, graph.next(done.id), done.origin).act(OpKind::Release, {whole});
}

// An update that rounds no longer has done its part.
void drop(ir::Graph& graph, const Overwrite& over) {
  if (over.node.valid() && graph.node(over.node).kind == OpKind::Copy) graph.erase(over.node);
}

void gather_anew(ir::Graph& graph, const Refill& refill) {
  const ir::Node& start = graph.node(refill.start);
  const ir::Value& into = graph.value(start.results[0]);
  const ValueId source = refill.elided.node.valid() ? refill.elided.value : start.operands[1];
  const ValueId started =
      ir::Builder(graph, refill.start, start.origin, start.stream)
          .make(OpKind::AllGatherStart, {source}, {into.name, into.type}, start.args);
  const ValueId old = graph.node(refill.done).results[0];
  const ValueId whole =
      ir::Builder(graph, refill.done, start.origin).wait(started, graph.value(old).name);
  graph.replace_all_uses(old, whole);
  graph.erase(refill.done);
  graph.erase(refill.start);
  drop(graph, refill.elided);
  release(graph, whole);
}

}  // namespace

StateUses find_state_uses(const ir::Step& step, const schedule::MemoryPressure& pressure) {
  return StateUseScan(step, pressure).run();
}

void separate_copies(ir::Step& step, StateRoot& root) {
  const auto separate = [&](Overwrite& over) {
    if (over.node.valid() && !over.value.valid()) over.value = separate_copy(step, over.node);
  };
  for (Overwrite& over : root.overwrites) separate(over);
  for (Refill& refill : root.refills) separate(refill.elided);
}

void drop_fillers(ir::Graph& graph, const StateRoot& root) {
  for (const Overwrite& over : root.overwrites) drop(graph, over);
  for (const Refill& refill : root.refills) gather_anew(graph, refill);
}

}  // namespace dc::passes
