// Activations. A storage must be alive where kernels touch it, and between its maker and its
// readers unless it waits elsewhere. After the last use by which the forward phase certainly needs
// it, its maker may run again instead, once.
//
// A kernel that runs again, in the backward phase, needs its operands. One that the backward phase
// reads anyway is a choice like any other. One that it does not read is a source: kept to the end
// of the forward phase for this, away, or made again too. Its cost is spread evenly over all
// kernels that may need it, and over all such results of its maker.
#include <algorithm>
#include <map>

#include "src/bound/choices.h"
#include "src/ir/effects.h"
#include "src/sim/simulate.h"

namespace dc::bound {
namespace {

using ir::Node;
using ir::NodeId;
using ir::ValueId;

class ActivationReader {
 public:
  ActivationReader(const ProgramMemory& memory, const cost::CostModel& cost, const LeastTime& least,
                   const Allowed& allowed, Relaxation& relaxation)
      : memory_(memory),
        program_(memory.program),
        cost_(cost),
        least_(least),
        allowed_(allowed),
        relaxation_(relaxation) {}

  void run() {
    for (const analysis::LiveRange& range : program_.live.ranges) {
      const Node& maker = program_.graph.node(program_.graph.value(range.value).producer);
      if (range.space != ir::Space::Device || program_.gathered(maker) >= 0) continue;
      for (const int32_t at : memory_.touches(range.value))
        relaxation_.fixed_bytes[static_cast<size_t>(at)] += bytes(range.value);
      if (maker.origin.phase == ir::Phase::Forward && maker.kind != ir::OpKind::Input &&
          !program_.feeds_loss(maker.id))
        continue;  // may be put off until its readers run
      Life life = life_of(maker, range.value);
      if (is_only_early(maker, range.value)) add_source(maker, life, range.value);
      if (life.early.empty() && life.late.empty()) continue;
      by_maker_[program_.live.position[maker.id.index()]].push_back(std::move(life));
    }
    for (const auto& [position, lives] : by_maker_)
      add(program_.graph.node(program_.live.order[static_cast<size_t>(position)]), lives);
  }

 private:
  // Where the storage is there but not touched. `late`: after the forward phase has used it.
  struct Life {
    base::Bytes copied;
    std::vector<Charge> early, late;
    int32_t end = 0;  // the first instant after the early ones
  };

  double bytes(ValueId root) const { return static_cast<double>(program_.bytes(root)); }

  Life life_of(const Node& maker, ValueId root) const {
    const bool forward = program_.feeds_loss(maker.id);
    int32_t early = -1, late = -1;
    for (const NodeId use : memory_.uses(root)) {
      const bool is_early = !forward || program_.feeds_loss(use);
      int32_t& last = is_early ? early : late;
      last = std::max(last, memory_.before(use));
    }
    const bool is_input = maker.kind == ir::OpKind::Input;
    const int32_t first = is_input ? memory_.begin() : memory_.after(maker.id);
    Life life;
    life.copied = program_.graph.value(root).type.bytes();
    memory_.charge(life.early, first, early, root, bytes(root));
    life.end = std::max(first, early + 1);
    memory_.charge(life.late, life.end, late, root, bytes(root));
    return life;
  }

  // Made in the forward phase, and what the backward phase reads only if kernels run again.
  bool is_only_early(const Node& maker, ValueId root) const {
    const std::vector<NodeId>& uses = memory_.uses(root);
    return program_.feeds_loss(maker.id) && maker.kind != ir::OpKind::Input && !uses.empty() &&
           std::all_of(uses.begin(), uses.end(),
                       [&](NodeId use) { return program_.feeds_loss(use); });
  }

  // Results that are sources, of a kernel none of whose results is read late; else 0.
  int sources_of(const Node& maker) const {
    int count = 0;
    for (const ValueId result : maker.results) {
      if (!result.valid() || memory_.uses(result).empty()) continue;
      if (program_.root(result) != result || !is_only_early(maker, result)) return 0;
      ++count;
    }
    return count;
  }

  void add_source(const Node& maker, const Life& life, ValueId root) {
    Option stays;
    memory_.charge(stays.charges, life.end, memory_.end_of_forward(), root, bytes(root));
    Item source = {std::move(stays)};
    for (const Work& trip : trips(least_, allowed_, life.copied, true))
      source.push_back({trip * program_.repeat, {}});
    if (runs_again(maker)) {
      const int results = sources_of(maker);
      source.push_back(results > 0 ? run(maker, 1.0 / results) : Option{});
    }
    source_of_[root.v] = static_cast<int32_t>(relaxation_.sources.size());
    relaxation_.sources.push_back(std::move(source));
  }

  // Another run of the kernel, or that part of it, with its share of the operands that it needs.
  Option run(const Node& maker, double part) const {
    Option option;
    option.work[Resource::Compute] =
        static_cast<double>(sim::node_time(program_.step, program_.graph, maker, cost_).v) *
        program_.repeat * part;
    std::vector<ValueId> roots;
    for (const ValueId operand : maker.operands) roots.push_back(program_.root(operand));
    std::sort(roots.begin(), roots.end());
    roots.erase(std::unique(roots.begin(), roots.end()), roots.end());
    for (const ValueId root : roots) {
      const auto source = source_of_.find(root.v);
      if (source == source_of_.end()) continue;
      const auto readers = static_cast<double>(memory_.uses(root).size());
      option.needs.push_back({source->second, part / readers});
    }
    return option;
  }

  // As imported; a kernel that draws random numbers gives others when it runs again.
  bool runs_again(const Node& maker) const {
    if (!allowed_.recompute || maker.origin.phase != ir::Phase::Forward) return false;
    if (maker.kind == ir::OpKind::Input || maker.kind == ir::OpKind::State) return false;
    return maker.kind != ir::OpKind::Aten || !maker.overload.info()->random;
  }

  Item item(const Life& life, bool keeps_late) const {
    Option kept{{}, life.early};
    if (keeps_late) kept.charges.insert(kept.charges.end(), life.late.begin(), life.late.end());
    Item item = {std::move(kept)};
    for (const Work& trip : trips(least_, allowed_, life.copied, true))
      item.push_back({trip * program_.repeat, {}});
    return item;
  }

  void add(const Node& maker, const std::vector<Life>& lives) {
    Alternative once, again;
    for (const Life& life : lives) {
      once.push_back(item(life, true));
      again.push_back(item(life, false));
    }
    Choice choice = {std::move(once)};
    if (runs_again(maker)) {
      again.push_back({run(maker, 1)});
      choice.push_back(std::move(again));
    }
    relaxation_.choices.push_back(std::move(choice));
  }

  const ProgramMemory& memory_;
  const ProgramView& program_;
  const cost::CostModel& cost_;
  const LeastTime& least_;
  const Allowed& allowed_;
  Relaxation& relaxation_;
  std::map<int32_t, std::vector<Life>> by_maker_;  // by position
  std::map<int32_t, int32_t> source_of_;           // by root
};

}  // namespace

std::vector<Work> trips(const LeastTime& least, const Allowed& allowed, base::Bytes bytes,
                        bool out) {
  std::vector<Work> result;
  for (const ir::Space space : allowed.away) {
    Work work = least.copy(bytes, space, ir::Space::Device);
    if (out) work += least.copy(bytes, ir::Space::Device, space);
    result.push_back(work);
  }
  return result;
}

void add_activations(const ProgramMemory& memory, const cost::CostModel& cost,
                     const LeastTime& least, const Allowed& allowed, Relaxation& relaxation) {
  ActivationReader(memory, cost, least, allowed, relaxation).run();
}

}  // namespace dc::bound
