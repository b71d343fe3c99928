#include "src/schedule/draft.h"

#include <set>

#include "src/ir/cross_step.h"
#include "src/ir/effects.h"
#include "src/schedule/draft_program.h"
#include "src/schedule/gather_moves.h"

namespace dc::schedule {

using ir::Node;
using ir::NodeId;
using ir::OpKind;
using ir::ValueId;

void DraftProgram::toggle(size_t item) {
  taken_[item] = !taken_[item];
  toggled_.push_back(item);
  if (items_[item].is_parameter) {
    const Gathers& gathers = gathers_[gathers_of_[item]];
    for (const Gathers::One& one : gathers.all) dirty(root_of_done(one));
    for (size_t g = 1; g < gathers.all.size(); ++g) update(gathers.all[g].part);
  } else {
    const int32_t part = part_of_item_[item];
    dirty_operands_and_results(part);
    update(part);
  }
  refresh();
}

void DraftProgram::reject() {
  const std::vector<size_t> back(toggled_.rbegin(), toggled_.rend());
  for (const size_t item : back) toggle(item);
  replay_.forget_changes();
  toggled_.clear();
}

bool DraftProgram::is_kept(size_t item) const {
  if (!taken_[item]) return false;
  if (!items_[item].is_parameter) return part(part_of_item_[item]).readers > 0;
  const std::vector<Gathers::One>& all = gathers_[gathers_of_[item]].all;
  return std::any_of(all.begin() + 1, all.end(),
                     [&](const Gathers::One& one) { return part(one.part).readers > 0; });
}

void DraftProgram::update(int32_t index) {
  Part& one = part(index);
  const bool present = one.readers > 0 && !item_taken(one);
  if (one.present == present) return;
  one.present = present;
  dirty_operands_and_results(index);
  for (const int32_t at : one.positions) {
    curve_.add(at, at, present ? scratch(at) : -scratch(at));
    update_event(at, present);
  }
  for (const int32_t made : one.needs) {
    part(made).readers += present ? 1 : -1;
    update(made);
  }
}

void DraftProgram::update_event(int32_t at, bool present) {
  const NodeId id = live_.order[static_cast<size_t>(at)];
  if (const int32_t bucket = bucket_of_[id.index()]; bucket >= 0) return resize(bucket);
  const int32_t event = event_of_[id.index()];
  if (event < 0) return;
  const sim::Event& is = events_[static_cast<size_t>(event)];
  if (is.kind == sim::EventKind::Compute) {
    work_ = present ? work_ + is.time : work_ - is.time;
  }
  replay_.set_event(event, present ? is : nothing(is));
}

void DraftProgram::resize(int32_t index) {
  const Bucket& bucket = buckets_[static_cast<size_t>(index)];
  base::Bytes bytes;
  bool any = false;
  for (const Bucket::Member& member : bucket.members) {
    if (!is_there(member.part)) continue;
    bytes += member.bytes;
    any = true;
  }
  const sim::Event& start = events_[static_cast<size_t>(bucket.event)];
  const sim::Transfer& before = replay_.schedule().transfers[static_cast<size_t>(bucket.transfer)];
  const bool was =
      replay_.schedule().events[static_cast<size_t>(bucket.event)].kind == sim::EventKind::Start;
  if (was) work_ = work_ - before.time();
  replay_.set_event(bucket.event, any ? start : nothing(start));
  if (!any) return;
  sim::Transfer after = sim::transfer(cost_, bucket.kind, bytes, bucket.group);
  after.stream = before.stream;
  after.after = before.after;
  work_ += after.time();
  replay_.set_transfer(bucket.event, after);
}

void DraftProgram::dirty(int32_t stored) {
  if (stored < 0 || is_dirty_[static_cast<size_t>(stored)]) return;
  is_dirty_[static_cast<size_t>(stored)] = true;
  dirty_.push_back(stored);
  // What it stands in for lives as long as its readers.
  dirty(stored_[static_cast<size_t>(stored)].original);
}

void DraftProgram::refresh() {
  for (const int32_t index : dirty_) {
    is_dirty_[static_cast<size_t>(index)] = false;
    Stored& stored = stored_[static_cast<size_t>(index)];
    const int32_t last = is_there(stored.part) ? last_of(stored) : -1;
    if (last == stored.last) continue;
    if (last > stored.last) {
      curve_.add(stored.last < 0 ? stored.first : stored.last + 1, last, stored.bytes);
    } else {
      curve_.add(last < 0 ? stored.first : last + 1, stored.last, -stored.bytes);
    }
    stored.last = last;
  }
  dirty_.clear();
}

int32_t DraftProgram::last_use(const Stored& stored) const {
  for (const Stored::Use& use : stored.uses) {
    if (is_there(use.part)) return use.known;
  }
  return -1;
}

int32_t DraftProgram::last_of(const Stored& stored) const {
  int32_t last = std::max(stored.least_last, last_use(stored));
  for (const int32_t index : stored.stand_ins) {
    const Stored& other = stored_[static_cast<size_t>(index)];
    const Part& made = part(other.part);
    if (!item_taken(made) || made.readers == 0) continue;
    last = std::max(last, last_use(other));
    const DraftItem& item = items_[static_cast<size_t>(made.item)];
    if (!item.is_parameter) continue;
    // The release of the last gather that is read becomes that of the first.
    last = std::max(last, made.positions.back());
  }
  return last;
}

void DraftProgram::carry_out(ir::Graph& graph) const {
  std::set<int32_t> kept_releases;
  for (const Gathers& gathers : gathers_) {
    if (!taken_[static_cast<size_t>(gathers.item)]) continue;
    const Gathers::One* last = &gathers.all[0];
    for (size_t g = 1; g < gathers.all.size(); ++g) {
      const Gathers::One& one = gathers.all[g];
      if (part(one.part).readers > 0 && one.release_at > last->release_at) last = &one;
    }
    kept_releases.insert(last->release.v);
    const ValueId whole = graph.node(gathers.all[0].done).results[0];
    for (const Gathers::One& one : gathers.all) {
      if (&one != last) graph.erase(one.release);
      if (&one != &gathers.all[0]) graph.replace_all_uses(graph.node(one.done).results[0], whole);
    }
  }
  for (size_t item = 0; item < items_.size(); ++item) {
    if (items_[item].is_parameter || !taken_[item]) continue;
    const Node& again =
        graph.node(live_.order[static_cast<size_t>(part(part_of_item_[item]).positions[0])]);
    const Node& first = graph.node(items_[item].node);
    for (size_t r = 0; r < again.results.size(); ++r) {
      if (again.results[r].valid()) graph.replace_all_uses(again.results[r], first.results[r]);
    }
  }
  // Readers before what they read.
  for (size_t at = live_.order.size(); at-- > 0;) {
    const NodeId id = live_.order[at];
    if (is_there(part_at_[at]) || !graph.contains(id) || kept_releases.contains(id.v)) continue;
    if (graph.node(id).kind == OpKind::AllGatherStart) leave_bucket(graph, id);
    graph.erase(id);
  }
}

bool Draft::can_hold(const ir::Program& program) {
  const ir::Graph& graph = program.graph;
  for (NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
    const Node& node = graph.node(id);
    const analysis::Part part = analysis::part_of(node);
    if (part == analysis::Part::Arrival || ir::spans_steps(node)) return false;
    if (part == analysis::Part::Kernel && node.stream != 0) return false;
  }
  return true;
}

Draft::Draft(const ir::Step& step, const ir::Graph& graph, const cost::CostModel& cost)
    : program_(std::make_unique<DraftProgram>(step, graph, cost)) {}
Draft::~Draft() = default;

const std::vector<DraftItem>& Draft::items() const { return program_->items(); }
bool Draft::is_taken(size_t item) const { return program_->is_taken(item); }
bool Draft::is_kept(size_t item) const { return program_->is_kept(item); }
void Draft::toggle(size_t item) { program_->toggle(item); }
int64_t Draft::most_bytes() const { return program_->most_bytes(); }
base::Nanos Draft::time() { return program_->time(); }
base::Nanos Draft::work() const { return program_->work(); }
void Draft::accept() { program_->accept(); }
void Draft::reject() { program_->reject(); }
void Draft::carry_out(ir::Graph& graph) const { program_->carry_out(graph); }

}  // namespace dc::schedule
