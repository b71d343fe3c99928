#include "src/passes/offload/offload_state.h"

#include <algorithm>

#include "src/cost/transfer.h"
#include "src/passes/offload/copy_writer.h"
#include "src/passes/offload/state_uses.h"

namespace dc::passes {
namespace {

using base::Bytes;
using ir::ValueId;

class StateOffloader {
 public:
  // `rule`: null for ours.
  StateOffloader(const ir::Step& step, const PassContext& context,
                 schedule::MemoryPressure pressure, std::vector<StateGroup> groups,
                 const StateRule* rule)
      : step_(step),
        context_(context),
        space_(target_space(context.options)),
        groups_(std::move(groups)),
        rule_(rule),
        pressure_(std::move(pressure)) {}

  Offloaded run() {
    if (rule_ == nullptr && !pressure_.survey()) return {0, 0, true, {}, {}};
    uses_ = find_state_uses(step_, pressure_);
    std::erase_if(groups_, [&](const StateGroup& group) { return !can_leave(group); });
    find_roots();
    stays_.resize(uses_.roots.size());
    for (size_t g = 0; g < groups_.size(); ++g) {
      for (size_t root : roots_[g]) stays_[root] = stays_of(root, groups_[g].stays_between);
      candidates_.push_back(candidate_of(g));
    }
    if (rule_ != nullptr) {
      choose_by_rule();
    } else {
      OffloadChoice(step_, context_, pressure_, candidates_).run([](size_t) {});
    }
    Offloaded done;
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (!candidates_[g].selected) continue;
      ++done.things;
      const int owner = step_.state[static_cast<size_t>(groups_[g].entries[0])].parameter;
      if (owner >= 0) done.subjects.push_back({base::SubjectKind::Parameter, owner});
      done.bytes += candidates_[g].bytes;
    }
    if (rule_ == nullptr) stay_where_there_is_room();
    if (done.things > 0) done.step = written();
    done.may_fit = !pressure_.has_given_up();
    return done;
  }

 private:
  bool can_leave(const StateGroup& group) const {
    return !group.entries.empty() &&
           std::all_of(group.entries.begin(), group.entries.end(), [&](int entry) {
             const ir::StateEntry& state = step_.state[static_cast<size_t>(entry)];
             return uses_.is_known[static_cast<size_t>(entry)] &&
                    state.location.space == ir::Space::Device && state.type.is_contiguous();
           });
  }

  void find_roots() {
    std::vector<int> group_of(step_.state.size(), -1);  // by entry
    for (size_t g = 0; g < groups_.size(); ++g) {
      for (const int entry : groups_[g].entries)
        group_of[static_cast<size_t>(entry)] = static_cast<int>(g);
    }
    roots_.resize(groups_.size());
    for (size_t r = 0; r < uses_.roots.size(); ++r) {
      const int owner = uses_.roots[r].owner;
      const int group = owner < 0 ? -1 : group_of[static_cast<size_t>(owner)];
      if (group >= 0) roots_[static_cast<size_t>(group)].push_back(r);
    }
    last_refill_.assign(step_.programs.size(), std::vector<int32_t>(step_.state.size(), -1));
    for (const StateRoot& root : uses_.roots) {
      for (const Refill& refill : root.refills) {
        int32_t& last =
            last_refill_[static_cast<size_t>(root.program)][static_cast<size_t>(root.owner)];
        last = std::max(last, refill.first);
      }
    }
  }

  const ir::Graph& graph_of(const StateRoot& root) const {
    return step_.programs[static_cast<size_t>(root.program)].graph;
  }
  Bytes bytes_of(const StateRoot& root) const {
    return graph_of(root).value(root.value).type.bytes();
  }
  // Of a whole value in one shard per rank.
  int64_t gathered_bytes(const StateRoot& root, const Refill& refill) const {
    const auto transfer = cost::transfer_of(graph_of(root), graph_of(root).node(refill.start));
    return analysis::aligned_bytes(cost::padded_bytes(step_, *transfer));
  }

  // When the root's device copy is there.
  std::vector<Interval> stays_of(size_t index, bool stays_between) const {
    const StateRoot& root = uses_.roots[index];
    std::vector<Interval> stays;
    bool is_changed = false;  // and gathered from later, instead of written back
    for (const StateUse& use : root.uses) {
      const bool joins =
          !stays.empty() && (stays_between || is_changed || use.first <= stays.back().last + 1);
      if (!joins) stays.push_back({root.program, use.first, use.last});
      stays.back().last = std::max(stays.back().last, use.last);
      is_changed |= use.writes && is_refilled_after(root, use.last);
    }
    return stays;
  }

  bool is_refilled_after(const StateRoot& root, int32_t position) const {
    return last_refill_[static_cast<size_t>(root.program)][static_cast<size_t>(root.owner)] >
           position;
  }

  OffloadCandidate candidate_of(size_t group) const {
    OffloadCandidate candidate;
    candidate.is_state = true;
    for (int entry : groups_[group].entries)
      candidate.bytes +=
          analysis::aligned_bytes(analysis::state_bytes(step_.state[static_cast<size_t>(entry)]).v);
    for (size_t r : roots_[group]) {
      const StateRoot& root = uses_.roots[r];
      for (const Interval& when : stays_[r])
        candidate.device_intervals.push_back({when, analysis::aligned_bytes(bytes_of(root).v)});
      for (const Refill& refill : root.refills) {
        candidate.device_intervals.push_back(
            {{root.program, refill.first, refill.last}, gathered_bytes(root, refill)});
        // What an update rounds is then a value apart from the range.
        if (!refill.elided.node.valid() || refill.elided.value.valid()) continue;
        const ValueId range = graph_of(root).node(refill.start).operands[1];
        candidate.device_intervals.push_back(
            {{root.program, refill.elided.ready, refill.last},
             analysis::aligned_bytes(graph_of(root).value(range).type.bytes().v)});
      }
    }
    candidate.offloaded_intervals = gaps_between(candidate.device_intervals);
    candidate.copies = copies_of(group);
    return candidate;
  }

  // What none of them covers, of every program.
  std::vector<Interval> gaps_between(const std::vector<DeviceInterval>& intervals) const {
    std::vector<Interval> there, gaps;
    for (const DeviceInterval& one : intervals) there.push_back(one.when);
    std::sort(there.begin(), there.end(), [](const Interval& a, const Interval& b) {
      return a.program != b.program ? a.program < b.program : a.first < b.first;
    });
    auto next = there.begin();
    for (int p = 0; p < pressure_.programs(); ++p) {
      int32_t first = 0;  // that nothing so far covers
      for (; next != there.end() && next->program == p; ++next) {
        if (next->first > first) gaps.push_back({p, first, next->first - 1});
        first = std::max(first, next->last + 1);
      }
      if (pressure_.positions(p) > first) gaps.push_back({p, first, pressure_.positions(p) - 1});
    }
    return gaps;
  }

  PlannedCopy copy(size_t root_index, bool out, int32_t position, int32_t bound, int64_t held,
                   ValueId value = {}) const {
    const StateRoot& root = uses_.roots[root_index];
    PlannedCopy one;
    one.out = out;
    one.program = root.program;
    one.position = position;
    one.bound = bound;
    one.bytes = held;
    one.time = out ? context_.cost.copy(bytes_of(root), ir::Space::Device, space_).time
                   : context_.cost.copy(bytes_of(root), space_, ir::Space::Device).time;
    one.item = root_index;
    one.value = value;
    return one;
  }

  std::vector<PlannedCopy> copies_of(size_t group) const {
    std::vector<PlannedCopy> copies;
    for (size_t r : roots_[group]) {
      const StateRoot& root = uses_.roots[r];
      const int64_t held = analysis::aligned_bytes(bytes_of(root).v);
      int32_t before = 1 + pressure_.axis(root.program)
                               .position(  // the end of the stay before
                                   graph_of(root).value(root.value).producer);
      for (const Interval& stay : stays_[r]) {
        copies.push_back(copy(r, false, stay.first, before, held));
        before = stay.last + 1;
        const int32_t changed = last_write(root, stay);
        if (changed >= 0)
          copies.push_back(copy(r, true, changed + 1, pressure_.positions(root.program), held));
      }
      add_new_values(r, copies);
    }
    return copies;
  }

  // The last position in the stay that changes the copy; -1 if none does, or if the whole entry is
  // filled anew afterwards.
  int32_t last_write(const StateRoot& root, const Interval& stay) const {
    int32_t last = -1;
    for (const StateUse& use : root.uses) {
      if (use.writes && use.first >= stay.first && use.last <= stay.last) last = use.last;
    }
    return last >= 0 && is_refilled_after(root, last) ? -1 : last;
  }

  // New values of the entry that are made in other device memory. They are copied out from there,
  // without passing through the entry's copy on the device.
  void add_new_values(size_t r, std::vector<PlannedCopy>& copies) const {
    const StateRoot& root = uses_.roots[r];
    const ir::Graph& graph = graph_of(root);
    const int32_t end = pressure_.positions(root.program);
    for (const Overwrite& over : root.overwrites) {
      copies.push_back(
          copy(r, true, over.ready, end, analysis::aligned_bytes(bytes_of(root).v), over.value));
    }
    for (const Refill& refill : root.refills) {
      copies.push_back(copy(r, true, refill.last + 1, end, gathered_bytes(root, refill),
                            graph.node(refill.done).results[0]));
    }
  }

  void choose_by_rule() {
    rule_->choose(pressure_, candidates_);
    for (const OffloadCandidate& candidate : candidates_) {
      if (candidate.selected) account(pressure_, candidate, 1);
    }
  }

  // Removes copies in that are not needed because the device has room to keep the value: shortest
  // gaps first.
  void stay_where_there_is_room() {
    struct Gap {
      base::Nanos time;
      size_t root;
      Interval when;
    };
    std::vector<Gap> gaps;
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (!candidates_[g].selected) continue;
      for (size_t r : roots_[g]) {
        for (size_t i = 1; i < stays_[r].size(); ++i) {
          const Interval when{uses_.roots[r].program, stays_[r][i - 1].last + 1,
                              stays_[r][i].first - 1};
          gaps.push_back({pressure_.time(when.program, when.last + 1) -
                              pressure_.time(when.program, when.first),
                          r, when});
        }
      }
    }
    std::stable_sort(gaps.begin(), gaps.end(),
                     [](const Gap& a, const Gap& b) { return a.time < b.time; });
    for (const Gap& gap : gaps) {
      const int64_t bytes = analysis::aligned_bytes(bytes_of(uses_.roots[gap.root]).v);
      if (pressure_.least_room(gap.when.program, gap.when.first, gap.when.last) < bytes) continue;
      pressure_.add(gap.when.program, gap.when.first, gap.when.last, bytes);
      std::vector<Interval>& stays = stays_[gap.root];
      const auto after = std::find_if(stays.begin(), stays.end(), [&](const Interval& stay) {
        return stay.first == gap.when.last + 1;
      });
      std::prev(after)->last = after->last;
      stays.erase(after);
    }
  }

  ir::Step written() {
    ir::Step after = step_;
    std::vector<PlannedCopy> copies;
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (!candidates_[g].selected) continue;
      for (const size_t r : roots_[g]) separate_copies(after, uses_.roots[r]);
      for (const PlannedCopy& one : copies_of(g)) copies.push_back(one);
    }
    std::vector<PlannedCopy*> to_place;
    to_place.reserve(copies.size());
    for (PlannedCopy& one : copies) to_place.push_back(&one);
    place_copies(pressure_, to_place, rule_ != nullptr ? rule_->start : start_when_it_hides);
    for (int p = 0; p < pressure_.programs(); ++p) write_program(p, copies, after);
    std::vector<bool> moves(after.state.size());
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (!candidates_[g].selected) continue;
      for (size_t r : roots_[g]) {
        const StateRoot& root = uses_.roots[r];
        drop_fillers(after.programs[static_cast<size_t>(root.program)].graph, root);
      }
      for (const int entry : groups_[g].entries) moves[static_cast<size_t>(entry)] = true;
    }
    move(moves, after);
    return after;
  }

  void write_program(int p, const std::vector<PlannedCopy>& copies, ir::Step& after) const {
    CopyWriter writer(after, after.programs[static_cast<size_t>(p)].graph, pressure_.axis(p));
    bool any = false;
    for (const PlannedCopy& one : copies) {
      if (one.program != p) continue;
      any = true;
      const ValueId root = uses_.roots[one.item].value;
      if (one.out) {
        writer.add(CopyWriter::Out{one.value.valid() ? one.value : root, root, space_, one.position,
                                   one.other_half, one.value.valid()});
      } else {
        writer.add(CopyWriter::In{root, one.other_half, one.position});
      }
    }
    if (any) writer.write();
  }

  // `moves`: by entry. Its ranges go along.
  void move(const std::vector<bool>& moves, ir::Step& after) const {
    for (size_t i = 0; i < moves.size(); ++i) {
      const int whole = after.state[i].range_of;
      if (moves[whole < 0 ? i : static_cast<size_t>(whole)])
        after.state.edit(i).location.space = space_;
    }
  }

  const ir::Step& step_;
  const PassContext& context_;
  ir::Space space_;
  std::vector<StateGroup> groups_;
  const StateRule* rule_;
  schedule::MemoryPressure pressure_;
  StateUses uses_;
  std::vector<std::vector<size_t>> roots_;  // by group: indices into uses_.roots, ascending
  // By program and entry: position of the last gather that fills it, -1.
  std::vector<std::vector<int32_t>> last_refill_;
  std::vector<std::vector<Interval>> stays_;  // by root
  std::vector<OffloadCandidate> candidates_;  // by group
};

}  // namespace

Offloaded offload_state(const ir::Step& step, const PassContext& context,
                        schedule::MemoryPressure pressure, std::vector<StateGroup> groups) {
  return StateOffloader(step, context, std::move(pressure), std::move(groups), nullptr).run();
}

Offloaded offload_state(const ir::Step& step, const PassContext& context,
                        schedule::MemoryPressure pressure, std::vector<StateGroup> groups,
                        const StateRule& rule) {
  return StateOffloader(step, context, std::move(pressure), std::move(groups), &rule).run();
}

}  // namespace dc::passes
