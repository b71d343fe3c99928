// Placements. A gathered parameter is whole where kernels read it. Between two uses it either stays
// whole, or it is gathered once more: so a step needs one gather, and one more for each gap in
// which it is not whole all the time. The gaps of a step are the time from the first to the last
// use in a micro-batch, and the time from the last use in one to the first in the next; a gather
// that a gap makes necessary starts in it, so no gather counts twice.
#include <algorithm>

#include "src/analysis/live_bytes.h"
#include "src/bound/choices.h"
#include "src/bound/head.h"
#include "src/bound/step_work.h"

namespace dc::bound {
namespace {

using base::Bytes;
using ir::NodeId;
using ir::StateRole;

// A parameter in one program.
struct Uses {
  double bytes = 0;  // of the whole value
  bool gathered = false;
  // Instants that touch it; the first that comes after some use and the last before some use; the
  // first after all uses and the last before all.
  std::vector<int32_t> touches;
  int32_t first = INT32_MAX, last = -1, after_all = -1, before_all = INT32_MAX;
  std::vector<Charge> between;  // first ... last, without the touches
};

class PlacementReader {
 public:
  PlacementReader(std::span<const ProgramMemory> memories, const LeastTime& least,
                  const Allowed& allowed, int head)
      : memories_(memories), least_(least), allowed_(allowed), head_(head) {
    const ir::Step& step = memories[0].program.step;
    for (const ProgramMemory& memory : memories) {
      uses_.emplace_back(step.parameters.size());
      find_uses(memory, uses_.back());
    }
  }

  // `entries`: of the parameter, with storage; `own_work`: StepWork::own, or less.
  Alternative alternative(const ir::Step& step, const StepWork& work, size_t parameter,
                          const std::vector<const ir::StateEntry*>& entries,
                          const Work& own_work) const {
    Alternative result;
    Option own{own_work, {}};
    if (work.gather[parameter]) {
      own.work += *work.gather[parameter];
      if (head_ == static_cast<int>(parameter))
        own.work[Resource::Head] += (*work.gather[parameter])[Resource::Queue];
      for (const std::vector<Uses>& uses : uses_) {
        for (const int32_t at : uses[parameter].touches)
          own.charges.push_back({at, at, uses[parameter].bytes});
      }
      add_gaps(result, *work.gather[parameter], parameter);
    }
    result.push_back({std::move(own)});
    for (const ir::StateEntry* entry : entries) result.push_back(state(step, *entry));
    return result;
  }

  // The same with the update on the host, where the optimizer's state then is all the time: the
  // gradient goes there and the new value comes back.
  Alternative updated_on_host(const ir::Step& step, const StepWork& work, size_t parameter,
                              std::vector<const ir::StateEntry*> entries) const {
    std::erase_if(
        entries, [](const ir::StateEntry* entry) { return base::is_optimizer_state(entry->role); });
    const ir::Parameter& of = step.parameters[parameter];
    const int64_t elements = std::min(of.shard, of.numel());
    Work own = work.own[parameter];
    own[Resource::Update] = 0;
    own += least_.copy({elements * base::byte_size(ir::DType::F32)}, ir::Space::Device,
                       ir::Space::Host);
    own += least_.copy({elements * base::byte_size(of.dtype)}, ir::Space::Host, ir::Space::Device);
    return alternative(step, work, parameter, entries, own);
  }

 private:
  int32_t instants() const { return memories_.back().end(); }

  // By gathers; where there are none, by the state that kernels read whole.
  void find_uses(const ProgramMemory& memory, std::vector<Uses>& found) const {
    const ProgramView& program = memory.program;
    for (NodeId id = program.graph.first(); id.valid(); id = program.graph.next(id)) {
      const ir::Node& node = program.graph.node(id);
      if (node.results.empty() || !node.results[0].valid()) continue;
      const bool is_gather = node.kind == ir::OpKind::AllGatherStart;
      const int parameter = is_gather ? program.gathered(node) : whole_state(program, node);
      if (parameter < 0) continue;
      add_uses(memory, node.results[0], is_gather, found[static_cast<size_t>(parameter)]);
    }
    for (Uses& uses : found) {
      std::sort(uses.touches.begin(), uses.touches.end());
      for (int32_t at = uses.first; uses.gathered && at <= uses.last; ++at) {
        if (std::binary_search(uses.touches.begin(), uses.touches.end(), at)) continue;
        const bool goes_on = !uses.between.empty() && uses.between.back().last == at - 1;
        if (goes_on) uses.between.back().last = at;
        if (!goes_on) uses.between.push_back({at, at, uses.bytes});
      }
    }
  }

  static int whole_state(const ProgramView& program, const ir::Node& node) {
    const int entry = analysis::state_entry_of(program.step, node);
    if (node.kind != ir::OpKind::State || entry < 0) return -1;
    const ir::StateEntry& state = program.step.state[static_cast<size_t>(entry)];
    return state.role == StateRole::Parameter ? state.parameter : -1;
  }

  static void add_uses(const ProgramMemory& memory, ir::ValueId value, bool is_gather, Uses& uses) {
    const ir::ValueId root = memory.program.root(value);
    const auto bytes = static_cast<double>(memory.program.bytes(value));
    uses.bytes = uses.gathered ? std::min(uses.bytes, bytes) : bytes;
    uses.gathered = is_gather;
    const std::vector<int32_t>& touches = memory.touches(root);
    uses.touches.insert(uses.touches.end(), touches.begin(), touches.end());
    for (const NodeId use : memory.uses(root)) {
      if (!ProgramView::is_model_kernel(memory.program.graph.node(use))) continue;
      const int32_t after = memory.after(use), before = memory.before(use);
      uses.first = std::min(uses.first, after);
      uses.last = std::max(uses.last, before);
      uses.after_all = std::max(uses.after_all, after);
      uses.before_all = std::min(uses.before_all, before);
    }
  }

  void add_gaps(Alternative& result, const Work& gather, size_t parameter) const {
    for (size_t g = 0; g < memories_.size(); ++g) {
      const int repeat = memories_[g].program.repeat;
      if (!uses_[g][parameter].gathered) continue;
      // Nothing to decide where nothing lies between the uses.
      if (const auto& between = uses_[g][parameter].between; !between.empty())
        result.push_back({{gather * repeat, {}}, {{}, between}});
      if (repeat > 1) add_gap(result, gather, parameter, g, g, repeat - 1);
      if (g + 1 < memories_.size()) add_gap(result, gather, parameter, g, g + 1, 1);
    }
  }

  // From the last use in a run of program `from` to the first in the next run, of program `to`;
  // `times` in a step.
  void add_gap(Alternative& result, const Work& gather, size_t parameter, size_t from, size_t to,
               int times) const {
    const Uses &one = uses_[from][parameter], &next = uses_[to][parameter];
    if (!next.gathered) return;
    Option stays;
    const auto add = [&](int32_t first, int32_t last, const Uses& uses, size_t program) {
      const double part = static_cast<double>(times) / memories_[program].program.repeat;
      if (first <= last) stays.charges.push_back({first, last, uses.bytes * part});
    };
    add(one.after_all, memories_[from].end() - 1, one, from);
    add(memories_[to].begin(), next.before_all, next, to);
    if (!stays.charges.empty()) result.push_back({{gather * times, {}}, std::move(stays)});
  }

  // On the device all the time, or away but for its uses, which takes one way there and back.
  Item state(const ir::Step& step, const ir::StateEntry& entry) const {
    const auto bytes = static_cast<double>(analysis::aligned_bytes(analysis::state_bytes(entry).v));
    Item item = {{{}, {{0, instants() - 1, bytes}}}};
    // What a reload makes is not padded.
    const auto back = static_cast<double>(analysis::aligned_bytes(entry.type.bytes().v));
    const bool changes = step.parameters[static_cast<size_t>(entry.parameter)].trainable;
    for (const Work& trip : trips(least_, allowed_, entry.type.bytes(), changes)) {
      Option away{trip, {}};
      const auto parameter = static_cast<size_t>(entry.parameter);
      if (entry.role == StateRole::Parameter) {
        for (const std::vector<Uses>& uses : uses_) {
          for (const int32_t at : uses[parameter].touches) away.charges.push_back({at, at, back});
        }
      }
      item.push_back(std::move(away));
    }
    return item;
  }

  std::span<const ProgramMemory> memories_;
  const LeastTime& least_;
  const Allowed& allowed_;
  int head_;                             // parameter, -1
  std::vector<std::vector<Uses>> uses_;  // by program, then parameter
};

std::vector<const ProgramView*> views(std::span<const ProgramView> programs) {
  std::vector<const ProgramView*> result;
  for (const ProgramView& program : programs) result.push_back(&program);
  return result;
}

std::vector<std::vector<const ir::StateEntry*>> entries_of(const ir::Step& step) {
  std::vector<std::vector<const ir::StateEntry*>> result(step.parameters.size());
  for (const ir::StateEntry& entry : step.state) {
    if (entry.parameter >= 0 && entry.range_of < 0)
      result[static_cast<size_t>(entry.parameter)].push_back(&entry);
  }
  return result;
}

// What no choice moves, on every instant.
double other_state(const ir::Step& step) {
  int64_t bytes = 0;
  for (const ir::StateEntry& entry : step.state) {
    if (entry.parameter < 0 && entry.range_of < 0)
      bytes += analysis::aligned_bytes(analysis::state_bytes(entry).v);
  }
  return static_cast<double>(bytes);
}

}  // namespace

void add_placements(std::span<const ProgramMemory> memories,
                    std::span<const std::vector<ProgramView>> others, const cost::CostModel& cost,
                    LeastTime& least, const Allowed& allowed, Relaxation& relaxation) {
  std::vector<const ProgramView*> gathered;
  for (const ProgramMemory& memory : memories) gathered.push_back(&memory.program);
  const bool copies_may_go = !allowed.away.empty();
  std::vector<const ir::Step*> steps = {&gathered[0]->step};
  std::vector<StepWork> works = {work_of(gathered, cost, least, copies_may_go)};
  double state = other_state(*steps[0]);
  relaxation.fixed = works[0].common;
  for (const std::vector<ProgramView>& other : others) {
    steps.push_back(&other[0].step);
    works.push_back(work_of(views(other), cost, least, copies_may_go));
    relaxation.fixed = smaller(relaxation.fixed, works.back().common);
    state = std::min(state, other_state(*steps.back()));
  }
  for (double& bytes : relaxation.fixed_bytes) bytes += state;
  const std::optional<Head> head = find_head(*gathered[0], works[0], cost);
  if (head) {
    double& compute = relaxation.fixed[Resource::Compute];
    compute = std::max(0.0, compute - head->others_ns);
  }
  const PlacementReader reader(memories, least, allowed, head ? head->parameter : -1);
  const size_t first = relaxation.choices.size();
  relaxation.choices.resize(first + steps[0]->parameters.size());
  const bool may_update_on_host =
      std::find(allowed.away.begin(), allowed.away.end(), ir::Space::Host) != allowed.away.end();
  for (size_t s = 0; s < steps.size(); ++s) {
    const auto entries = entries_of(*steps[s]);
    for (size_t p = 0; p < entries.size(); ++p) {
      Choice& choice = relaxation.choices[first + p];
      choice.push_back(reader.alternative(*steps[s], works[s], p, entries[p], works[s].own[p]));
      if (may_update_on_host && steps[s]->parameters[p].trainable)
        choice.push_back(reader.updated_on_host(*steps[s], works[s], p, entries[p]));
    }
  }
}

}  // namespace dc::bound
