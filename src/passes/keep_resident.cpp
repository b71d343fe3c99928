// keep-resident: a parameter that is gathered several times in a step is gathered once and kept
// whole between its uses, as far as the budget allows (selective unsharding).
//
// With one program the forward gather lives until the backward's last use. With micro-batches the
// whole value becomes carried state: the first micro-batch gathers into it, the others read it; a
// repeated `accumulate` gives up its first run as a program of its own.
//
// Which ones: a knapsack by time saved per byte held, greedily, and a parameter that does not fit
// does not stop the next one. A byte counts only where the parameter is not whole anyway, and must
// fit at every such position. (DeepCompile, arXiv 2504.09983, section on selective unsharding,
// orders alike but stops at the first misfit and holds every byte throughout:
// keep-resident-greedily.) Kernels and sums stay the same; so do all numbers.
#include <algorithm>
#include <map>

#include "src/base/text.h"
#include "src/cost/transfer.h"
#include "src/passes/pass.h"
#include "src/passes/state_values.h"
#include "src/passes/time_axis.h"
#include "src/sim/simulate.h"

namespace dc::passes {
namespace {

using base::Nanos;
using ir::NodeId;
using ir::OpKind;
using ir::ValueId;

struct Gather {
  NodeId cast, start, done, release;  // cast: of the shard, if it travels in a smaller type
};

struct Candidate {
  int entry = -1;                            // of the shard
  std::vector<std::vector<Gather>> gathers;  // by program, in program order
  int64_t bytes = 0;                         // of the whole value
  Nanos saved;                               // per step
};

class Keeper {
 public:
  Keeper(ir::Step& step, PassContext& context)
      : step_(step), cost_(context.cost), limit_(transient_limit(step, context.options.memory)) {
    if (context.argument) room_ = *context.argument;
    for (const ir::Program& program : step.programs) {
      axes_.emplace_back(step, program.graph, cost_);
    }
  }

  // Keeps what fits and returns how many; `saved` and `held` sum up time per step and bytes.
  int run(Nanos& saved, int64_t& held) {
    std::vector<Candidate> candidates = find_candidates();
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) {
                       return static_cast<double>(a.saved.v) * static_cast<double>(b.bytes) >
                              static_cast<double>(b.saved.v) * static_cast<double>(a.bytes);
                     });
    std::vector<const Candidate*> kept;
    for (const Candidate& candidate : candidates) {
      if (candidate.bytes > room_ || !fits(candidate)) continue;
      room_ -= candidate.bytes;
      hold(candidate);
      saved += candidate.saved;
      held += candidate.bytes;
      kept.push_back(&candidate);
    }
    if (kept.empty()) return 0;
    if (step_.accumulation > 1) peel_first_micro_batch();
    for (const Candidate* candidate : kept) apply(*candidate);
    return static_cast<int>(kept.size());
  }

 private:
  // Parameters with more than one gather per step. What is kept already uses up room.
  std::vector<Candidate> find_candidates() {
    std::map<int, Candidate> by_entry;
    for (size_t p = 0; p < step_.programs.size(); ++p) {
      const ir::Graph& graph = step_.programs[p].graph;
      for (NodeId id : axes_[p].live.order) {
        const ir::Node& node = graph.node(id);
        if (node.kind == OpKind::AllGatherIntoStart && is_carried(p, node)) {
          if (p == 0) room_ -= whole_bytes(graph, node);
          continue;
        }
        if (node.kind != OpKind::AllGatherStart) continue;
        const int entry = shard_entry(p, node);
        if (entry < 0) continue;
        const Gather gather = gather_at(graph, node);
        if (kept_already(graph, gather)) {
          room_ -= whole_bytes(graph, node);
          continue;
        }
        Candidate& candidate = by_entry[entry];
        candidate.entry = entry;
        candidate.gathers.resize(step_.programs.size());
        candidate.gathers[p].push_back(gather);
        candidate.bytes = whole_bytes(graph, node);
        candidate.saved += sim::node_time(step_, graph, node, cost_) * step_.programs[p].repeat;
      }
    }
    std::vector<Candidate> candidates;
    for (auto& [entry, candidate] : by_entry) {
      int count = 0;
      for (size_t p = 0; p < candidate.gathers.size(); ++p)
        count += static_cast<int>(candidate.gathers[p].size()) * step_.programs[p].repeat;
      if (count < 2) continue;
      candidate.saved = Nanos{candidate.saved.v / count * (count - 1)};
      candidates.push_back(std::move(candidate));
    }
    return candidates;
  }

  // The state entry whose shard travels; -1 if it is none (sums of gradients, for example).
  int shard_entry(size_t program, const ir::Node& start) const {
    const ir::Graph& graph = step_.programs[program].graph;
    const ir::Node& producer = graph.node(graph.value(start.operands[0]).producer);
    const ValueId source = producer.kind == OpKind::Cast ? producer.operands[0] : start.operands[0];
    const int entry = axes_[program].storages.entry(source);
    if (entry < 0 || step_.state[static_cast<size_t>(entry)].role != ir::StateRole::Shard)
      return -1;
    return entry;
  }

  bool is_carried(size_t program, const ir::Node& start) const {
    const int entry = axes_[program].storages.entry(start.operands[0]);
    return entry >= 0 && step_.state[static_cast<size_t>(entry)].role == ir::StateRole::Carried;
  }

  static Gather gather_at(const ir::Graph& graph, const ir::Node& start) {
    Gather gather;
    gather.start = start.id;
    gather.done = graph.value(start.results[0]).uses[0].node;
    const ir::Node& producer = graph.node(graph.value(start.operands[0]).producer);
    if (producer.kind == OpKind::Cast) gather.cast = producer.id;
    for (const ir::Use& use : graph.value(graph.node(gather.done).results[0]).uses) {
      if (graph.node(use.node).kind == OpKind::Release) gather.release = use.node;
    }
    return gather;
  }

  // Gathered in the forward phase, released in the backward phase.
  static bool kept_already(const ir::Graph& graph, const Gather& gather) {
    return gather.release.valid() &&
           graph.node(gather.start).origin.phase != graph.node(gather.release).origin.phase;
  }

  int64_t whole_bytes(const ir::Graph& graph, const ir::Node& start) const {
    const auto transfer = cost::transfer_of(graph, start);
    return aligned_bytes(transfer->shard * transfer->element_bytes * step_.mesh.world());
  }

  // Calls `visit(axis, position)` wherever the value would be alive but is not yet.
  template <typename Visit>
  void for_each_new_position(const Candidate& candidate, Visit visit) {
    for (size_t p = 0; p < axes_.size(); ++p) {
      TimeAxis& axis = axes_[p];
      const std::vector<Gather>& gathers = candidate.gathers[p];
      const bool carried = step_.accumulation > 1;
      int32_t at = carried || gathers.empty() ? 0 : axis.position(gathers[0].start);
      const auto count = static_cast<int32_t>(axis.live.order.size());
      for (const Gather& gather : gathers) {
        for (; at < axis.position(gather.start); ++at) visit(axis, at);
        at = axis.position(gather.release) + 1;
      }
      for (; carried && at < count; ++at) visit(axis, at);
    }
  }

  bool fits(const Candidate& candidate) {
    if (!limit_) return true;
    bool fits = true;
    for_each_new_position(candidate, [&](const TimeAxis& axis, int32_t position) {
      fits = fits && axis.bytes[static_cast<size_t>(position)] + candidate.bytes <= *limit_;
    });
    return fits;
  }

  void hold(const Candidate& candidate) {
    for_each_new_position(candidate, [&](TimeAxis& axis, int32_t position) {
      axis.bytes[static_cast<size_t>(position)] += candidate.bytes;
    });
  }

  // Node ids of a clone are those of its origin, so the candidates stay true.
  void peel_first_micro_batch() {
    if (step_.programs[0].repeat == 1) return;
    ir::Program first{step_.programs[0].graph.clone(), 1};
    first.graph.set_name("first");
    --step_.programs[0].repeat;
    step_.programs.insert(step_.programs.begin(), std::move(first));
    peeled_ = true;
  }

  void apply(const Candidate& candidate) {
    if (step_.accumulation == 1) {
      const std::vector<Gather>& gathers = candidate.gathers[0];
      ir::Graph& graph = step_.programs[0].graph;
      for (size_t i = 0; i + 1 < gathers.size(); ++i) graph.erase(gathers[i].release);
      const ValueId whole = graph.node(gathers[0].done).results[0];
      for (size_t i = 1; i < gathers.size(); ++i) replace(graph, gathers[i], whole);
      return;
    }
    const int carried = add_carried(candidate);
    for (size_t p = 0; p < step_.programs.size(); ++p) {
      ir::Graph& graph = step_.programs[p].graph;
      const std::vector<Gather>& gathers = candidate.gathers[p - (peeled_ && p > 0 ? 1 : 0)];
      ValueId whole = state_value(step_, graph, carried);
      for (size_t i = 0; i < gathers.size(); ++i) {
        graph.erase(gathers[i].release);
        if (p == 0 && i == 0) whole = gather_into(graph, gathers[0], whole);
        replace(graph, gathers[i], whole);
      }
    }
  }

  int add_carried(const Candidate& candidate) {
    const ir::StateEntry& shard = step_.state[static_cast<size_t>(candidate.entry)];
    const ir::Parameter& parameter = step_.parameters[static_cast<size_t>(shard.parameter)];
    const ir::Graph& graph = step_.programs[0].graph;
    ir::StateEntry entry;
    entry.name = "carried." + parameter.fqn;
    entry.role = ir::StateRole::Carried;
    entry.parameter = shard.parameter;
    entry.type = graph.value(graph.node(candidate.gathers[0][0].done).results[0]).type;
    entry.storage_elements = parameter.shard * step_.mesh.world();
    return add_entry(step_, std::move(entry));
  }

  // The same gather into the carried entry; returns its value once done.
  static ValueId gather_into(ir::Graph& graph, const Gather& gather, ValueId carried) {
    const ir::Node start = graph.node(gather.start);
    const ir::TensorType type = graph.value(carried).type;
    ir::Node& into =
        graph.insert(start.id, OpKind::AllGatherIntoStart, {carried, start.operands[0]},
                     {{graph.value(start.results[0]).name, type}}, start.args, start.origin);
    into.stream = start.stream;
    const ValueId started = into.results[0];
    const ValueId done = graph.node(gather.done).results[0];
    return graph
        .insert(gather.done, OpKind::AllGatherIntoDone, {started}, {{graph.value(done).name, type}},
                {}, start.origin)
        .results[0];
  }

  // Readers of the gather's value read `whole`; the gather goes, and its cast if nobody else needs
  // it.
  static void replace(ir::Graph& graph, const Gather& gather, ValueId whole) {
    graph.replace_all_uses(graph.node(gather.done).results[0], whole);
    graph.erase(gather.done);
    graph.erase(gather.start);
    if (gather.cast.valid() && graph.value(graph.node(gather.cast).results[0]).uses.empty())
      graph.erase(gather.cast);
  }

  ir::Step& step_;
  const cost::CostModel& cost_;
  std::optional<int64_t> limit_;
  int64_t room_ = INT64_MAX;    // bytes that may still be kept
  std::vector<TimeAxis> axes_;  // by program
  bool peeled_ = false;
};

}  // namespace

base::Result<Change> keep_resident(ir::Step& step, PassContext& context) {
  Nanos saved;
  int64_t held = 0;
  const int kept = Keeper(step, context).run(saved, held);
  if (kept == 0) return Change::No;
  context.remarks.push_back(
      {"keep-resident", std::to_string(kept) + " parameters stay whole between their uses: " +
                            base::format_bytes(held) + " held, " + base::format_duration(saved.v) +
                            " of gathers saved per step"});
  return Change::Yes;
}

}  // namespace dc::passes
