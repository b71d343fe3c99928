// Rules over program order: halves of collectives and copies pair up, buffers in flight are left
// alone, released values are dead.
#include <algorithm>
#include <set>
#include <unordered_map>

#include "src/ir/cross_step.h"
#include "src/ir/group.h"
#include "src/ir/verifier.h"

namespace dc::ir {
namespace {

using base::Status;

class OrderChecker {
 public:
  explicit OrderChecker(const Scope& scope)
      : scope_(scope), released_(scope.graph.value_capacity()) {}

  Status run() {
    DC_RETURN_IF_ERROR(begin_crossings());
    for (NodeId id : scope_.order) {
      const Node& node = scope_.graph.node(id);
      DC_RETURN_IF_ERROR(use_after_release(node));
      if (is_done(node.kind)) finish(node);
      if (node.kind == OpKind::AllGatherWaitPreviousStep) DC_RETURN_IF_ERROR(arrive(node));
      DC_RETURN_IF_ERROR(hazard(node));
      follow_copies(node);
      if (is_start(node.kind)) {
        DC_RETURN_IF_ERROR(pairing(node));
        DC_RETURN_IF_ERROR(bucket(node));
        begin(node);
      }
      if (node.kind == OpKind::Release)
        released_[scope_.root[node.operands[0].index()].index()] = true;
    }
    DC_RETURN_IF_ERROR(unsaved_copies());
    DC_RETURN_IF_ERROR(all_arrived());
    for (const Output& output : scope_.graph.outputs) {
      const ValueId root = scope_.root[output.value.index()];
      if (!released_[root.index()]) continue;
      return table_offence(scope_.step, scope_.stage, "DC2309",
                           "program @" + scope_.graph.name() + ": the output %" +
                               *scope_.value(output.value).name + " is released");
    }
    return {};
  }

 private:
  // A storage that a collective reads or writes between its halves.
  struct InFlight {
    NodeId start;  // invalid: started when the step was last run
    bool written;
  };

  // A reloaded copy of state that a node changed.
  struct Unsaved {
    ValueId copy;
    NodeId change;
  };
  static constexpr int64_t kNoState = 0;  // storages of state are negative

  // Equal for values that share bytes: ranges of a state entry share them with the whole entry.
  int64_t storage(ValueId value) const {
    const ValueId root = scope_.root[value.index()];
    const int entry = scope_.entry[root.index()];
    if (entry < 0) return root.v;
    const int range_of = scope_.step.state[static_cast<size_t>(entry)].range_of;
    return -1 - (range_of >= 0 ? range_of : entry);
  }

  Status use_after_release(const Node& node) const {
    for (ValueId operand : node.operands) {
      if (!released_[scope_.root[operand.index()].index()]) continue;
      return offence(scope_, node, "DC2309",
                     "%" + *scope_.value(operand).name + " is used after its release");
    }
    return {};
  }

  Status pairing(const Node& start) const {
    int dones = 0;
    for (const Use& use : scope_.value(start.results[0]).uses) {
      const Node& reader = scope_.graph.node(use.node);
      if (!is_done(reader.kind)) {
        return offence(scope_, reader, "DC2308",
                       "%" + *scope_.value(start.results[0]).name + " is read before it is done");
      }
      ++dones;
    }
    const bool goes_on = spans_steps(start) && scope_.is_last;
    if (dones == (goes_on ? 0 : 1)) return {};
    return offence(scope_, start, "DC2308",
                   "this start has " + std::to_string(dones) + " dones, not one");
  }

  // A start that joins stands right after a start of its kind and group on its stream.
  Status bucket(const Node& start) const {
    if (start.find(Attr::Joins) == nullptr) return {};
    const NodeId before = scope_.graph.previous(start.id);
    const bool fits = before.valid() && is_start(scope_.graph.node(before).kind) &&
                      gathers(scope_.graph.node(before).kind) == gathers(start.kind) &&
                      (gathers(start.kind) || scope_.graph.node(before).kind == start.kind) &&
                      scope_.graph.node(before).stream == start.stream &&
                      group_of(scope_.graph.node(before)) == group_of(start);
    if (fits) return {};
    return offence(
        scope_, start, "DC2314",
        "this start joins another, but none of its kind, stream and group stands before it");
  }

  static bool gathers(OpKind kind) {
    return kind == OpKind::AllGatherStart || kind == OpKind::AllGatherIntoStart;
  }

  // What the last program started is under way in the first; a gather is into a whole entry, whose
  // ranges share its storage.
  Status begin_crossings() {
    if (!scope_.is_first) return {};
    for (const CrossStepGather& crossing : cross_step_gathers(scope_.step)) {
      if (crossing.entry < 0 || !arriving_.insert(crossing.entry).second) {
        return table_offence(scope_.step, scope_.stage, "DC2317",
                             "a gather that crosses the end of the step fills no state entry, or "
                             "one that another fills");
      }
      in_flight_[-1 - crossing.entry].push_back({{}, true});
    }
    return {};
  }

  Status arrive(const Node& node) {
    const int entry = scope_.is_first ? awaited_entry(scope_.graph, node) : -1;
    if (entry < 0 || arriving_.erase(entry) == 0)
      return offence(scope_, node, "DC2317",
                     "no gather crosses the end of the step into this entry");
    in_flight_.erase(-1 - entry);
    return {};
  }

  Status all_arrived() const {
    if (arriving_.empty()) return {};
    return table_offence(scope_.step, scope_.stage, "DC2317",
                         "nothing waits for the gather into state entry '" +
                             scope_.step.state[static_cast<size_t>(*arriving_.begin())].name +
                             "', which crosses the end of the step");
  }

  void begin(const Node& start) {
    for (size_t i = 0; i < start.operands.size(); ++i) {
      in_flight_[storage(start.operands[i])].push_back({start.id, writes(start, i)});
    }
  }

  void finish(const Node& done) {
    const Node& start = scope_.graph.node(scope_.operand(done, 0).producer);
    for (ValueId operand : start.operands) {
      const auto flights = in_flight_.find(storage(operand));
      if (flights == in_flight_.end()) continue;
      std::erase_if(flights->second,
                    [&](const InFlight& flight) { return flight.start == start.id; });
      if (flights->second.empty()) in_flight_.erase(flights);
    }
  }

  Status hazard(const Node& node) const {
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const auto flights = in_flight_.find(storage(node.operands[i]));
      if (flights == in_flight_.end() || is_plain_view(node)) continue;
      for (const InFlight& flight : flights->second) {
        if (!flight.written && !writes(node, i)) continue;
        const std::string user = flight.start.valid()
                                     ? describe(scope_.graph, scope_.graph.node(flight.start))
                                     : "a gather of the step before";
        return offence(scope_, node, "DC2311",
                       "%" + *scope_.value(node.operands[i]).name + " is in use by '" + user +
                           "', which is not done");
      }
    }
    return {};
  }

  // Modified copies of state must be written back: to the entry they came from, or to the whole
  // entry that it is a range of (gathered from what the ranks modified).
  void follow_copies(const Node& node) {
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const ValueId root = scope_.root[node.operands[i].index()];
      if (!writes(node, i) || copied_state(root) == kNoState) continue;
      std::erase_if(unsaved_, [&](const Unsaved& one) { return one.copy == root; });
      unsaved_.push_back({root, node.id});
    }
    if (node.kind != OpKind::OffloadIntoStart) return;
    const int64_t target = storage(node.operands[0]);
    std::erase_if(unsaved_, [&](const Unsaved& one) { return copied_state(one.copy) == target; });
  }

  // The storage of the state that a reloaded value is a copy of.
  int64_t copied_state(ValueId root) const {
    const Node& producer = scope_.graph.node(scope_.value(root).producer);
    if (producer.kind != OpKind::ReloadStart) return kNoState;
    const int64_t source = storage(producer.operands[0]);
    return source < 0 ? source : kNoState;
  }

  Status unsaved_copies() const {
    if (unsaved_.empty()) return {};
    const Unsaved& first = unsaved_.front();
    return offence(scope_, scope_.graph.node(first.change), "DC2315",
                   "%" + *scope_.value(first.copy).name +
                       " is a reloaded copy of state, and its change is not written back");
  }

  const Scope& scope_;
  std::vector<bool> released_;
  std::vector<Unsaved> unsaved_;
  std::set<int> arriving_;  // entries that gathers of the step before fill
  std::unordered_map<int64_t, std::vector<InFlight>> in_flight_;  // by storage; only looked up
};

}  // namespace

Status verify_schedule(const Scope& scope) { return OrderChecker(scope).run(); }

}  // namespace dc::ir
