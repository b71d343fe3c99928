#include "src/passes/overlap/update_places.h"

#include <algorithm>
#include <deque>
#include <optional>

#include "src/cost/transfer.h"
#include "src/ir/effects.h"
#include "src/schedule/reduction_tail.h"
#include "src/sim/simulate.h"

namespace dc::passes {
namespace {

using base::Nanos;
using ir::NodeId;
using ir::OpKind;

// Compute next to one link, which slows it.
struct Clock {
  Nanos now, link_free;
  int32_t slow_down = 1000;  // of compute by what was sent last, in thousandths

  void send(Nanos time, int32_t slows) {
    const Nanos before = std::max(link_free - now, Nanos{});
    const int64_t sum = (before + time).v;
    if (sum > 0) slow_down = static_cast<int32_t>((before.v * slow_down + time.v * slows) / sum);
    link_free = now + before + time;
  }
  void compute(Nanos work) {
    const Nanos overlapped = std::max(link_free - now, Nanos{});
    const Nanos done = {overlapped.v * 1000 / slow_down};
    now += work <= done ? Nanos{work.v * slow_down / 1000} : overlapped + (work - done);
  }
};

class PlacementWalk {
 public:
  PlacementWalk(const ir::Step& step, const schedule::TimeAxis& axis, const cost::CostModel& cost,
                const std::vector<UpdateFragment>& fragments)
      : step_(step),
        graph_(axis.graph),
        cost_(cost),
        axis_(axis),
        is_member_(axis.graph.node_capacity()) {
    for (const UpdateFragment& fragment : fragments) {
      coming_.push_back(&fragment);
      for (const auto* list : {&fragment.update, &fragment.gathers, &fragment.gathered}) {
        for (NodeId node : *list) is_member_[node.index()] = true;
      }
    }
    std::stable_sort(
        coming_.begin(), coming_.end(),
        [](const UpdateFragment* a, const UpdateFragment* b) { return a->ready > b->ready; });
  }

  std::vector<UpdatePlace> run(bool at_once) {
    if (at_once) {
      for (const UpdateFragment* fragment : coming_) {
        places_.push_back({staying(fragment->ready), fragment, true, false});
        add_waiting({fragment, true});
      }
    } else {
      walk();
    }
    for (const Waiting& one : waiting_)
      places_.push_back({count(), one.fragment, !one.is_updated, true});
    std::stable_sort(
        places_.begin(), places_.end(),
        [](const UpdatePlace& a, const UpdatePlace& b) { return a.position < b.position; });
    return std::move(places_);
  }

 private:
  struct Waiting {
    const UpdateFragment* fragment;
    bool is_updated;
  };
  // Ready but for a reduction that is under way.
  struct Reduced {
    const UpdateFragment* fragment;
    Nanos end;
  };

  // The position, or the first one after it whose node does not move itself.
  int32_t staying(int32_t position) const {
    while (position < count() && is_member_[axis_.node(position).id.index()]) ++position;
    return position;
  }

  void add_waiting(Waiting one) {
    const auto later = [](const Waiting& a, const Waiting& b) {
      return a.fragment->needed < b.fragment->needed;
    };
    waiting_.insert(std::upper_bound(waiting_.begin(), waiting_.end(), one, later), one);
    has_changed_ = true;
  }

  int32_t count() const { return static_cast<int32_t>(axis_.live.order.size()); }
  Nanos time(const ir::Node& node) const { return sim::node_time(step_, graph_, node, cost_); }
  bool starts_collective(const ir::Node& node) const {
    return !is_member_[node.id.index()] && cost::transfer_of(graph_, node) && !cost::joins(node);
  }
  const ir::Node& start_of(const ir::Node& done) const {
    return graph_.node(graph_.value(done.operands[0]).producer);
  }

  // How much longer compute takes next to this collective, in thousandths.
  int32_t slow_down(const ir::Node& start) const {
    const cost::Collective kind = cost::transfer_of(graph_, start)->kind;
    const base::Bytes bytes = cost::bucket_bytes(graph_, start);
    return cost_.contention(kind, bytes, cost::group_of(step_, start)).compute;
  }

  // By position: the time at which compute reaches it, if compute never waits and runs no update.
  // Concurrent collectives still slow compute down.
  std::vector<Nanos> compute_alone() const {
    std::vector<Nanos> at;
    Clock clock;
    for (int32_t i = 0; i < count(); ++i) {
      at.push_back(clock.now);
      const ir::Node& node = axis_.node(i);
      if (starts_collective(node)) {
        clock.send(time(node), slow_down(node));
      } else if (!is_member_[node.id.index()] && !ir::is_start(node.kind)) {
        clock.compute(time(node));
      }
    }
    return at;
  }

  // By position: the latest time at which the next collective may begin, if the link is free then,
  // without delaying the end of the last collective. Empty behind the last collective.
  std::vector<std::optional<Nanos>> latest_starts(const std::vector<Nanos>& at) const {
    std::vector<std::optional<Nanos>> latest(static_cast<size_t>(count()));
    Nanos end, work;  // of the collectives from here on
    for (int32_t i = count(); i-- > 0;) {
      if (starts_collective(axis_.node(i))) {
        work += time(axis_.node(i));
        end = std::max(end, at[static_cast<size_t>(i)] + work);
      }
      if (work.v > 0) latest[static_cast<size_t>(i)] = end - work;
    }
    return latest;
  }

  // Position of the first node that needs all square sums.
  int32_t meeting() const {
    std::optional<int64_t> row;
    for (int32_t i = 0; i < count(); ++i) {
      const ir::Node& node = axis_.node(i);
      if (node.kind == OpKind::SquareSum) {
        row = axis_.storage_key(node.operands[0]);
      } else if (row && ir::runs(node)) {
        for (ir::ValueId operand : node.operands) {
          if (axis_.storage_key(operand) == *row) return i;
        }
      }
    }
    return count();
  }

  void walk() {
    const std::vector<Nanos> at = compute_alone();
    const std::vector<std::optional<Nanos>> latest = latest_starts(at);
    const int32_t meeting = this->meeting();
    std::vector<Nanos> ends(graph_.node_capacity());  // by start
    Nanos last_reduced;  // when the reductions passed so far have ended
    for (int32_t i = 0; i < count(); ++i) {
      for (; !coming_.empty() && coming_.back()->ready <= i; coming_.pop_back())
        reduced_.push_back({coming_.back(), last_reduced});
      if (i == meeting) await_reductions(i, last_reduced);
      take_reduced();
      const ir::Node& node = axis_.node(i);
      if (is_member_[node.id.index()] || cost::joins(node)) continue;
      const std::optional<Nanos> next = latest[static_cast<size_t>(i)];
      if (next && has_changed_ && schedule::splits_no_tail(node)) {
        use_link(i, *next + (clock_.now - at[static_cast<size_t>(i)]));
        has_changed_ = false;
      }
      has_changed_ |= ir::is_start(node.kind) || ir::is_done(node.kind);
      if (starts_collective(node)) {
        clock_.send(time(node), slow_down(node));
        for (NodeId start : cost::bucket_of(graph_, node.id))
          ends[start.index()] = clock_.link_free;
      } else if (ir::is_done(node.kind)) {
        const Nanos end = ends[start_of(node).id.index()];
        Nanos& until = schedule::is_reduction(start_of(node).kind) ? last_reduced : clock_.now;
        until = std::max(until, end);
      } else if (!ir::is_start(node.kind)) {
        clock_.compute(time(node));
      }
    }
    clock_.now = std::max(clock_.now, last_reduced);
    take_reduced();
    for (const UpdateFragment* fragment : coming_) add_waiting({fragment, false});
  }

  void take_reduced() {
    for (; !reduced_.empty() && reduced_.front().end <= clock_.now; reduced_.pop_front())
      add_waiting({reduced_.front().fragment, false});
  }

  // Compute has come to where all reductions must have ended.
  void await_reductions(int32_t position, Nanos last) {
    while (true) {
      take_reduced();
      if (clock_.now >= last) return;
      const Nanos end = reduced_.empty() ? last : std::min(last, reduced_.front().end);
      fill_wait(position, end);
      clock_.now = std::max(clock_.now, end);
    }
  }

  // Places waiting fragments, update and gather, whose gather ends before the next collective must
  // begin.
  void use_link(int32_t position, Nanos latest) {
    for (size_t w = 0; w < waiting_.size();) {
      const UpdateFragment& fragment = *waiting_[w].fragment;
      const Nanos update = waiting_[w].is_updated ? Nanos{} : fragment.update_time;
      const Nanos end = std::max(clock_.link_free, clock_.now + update) + fragment.gather_time;
      if (fragment.gathers.empty() || end > latest + update) {
        ++w;
        continue;
      }
      places_.push_back({position, &fragment, !waiting_[w].is_updated, true});
      clock_.now += update;
      latest += update;
      clock_.send(fragment.gather_time, clock_.slow_down);
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(w));
    }
  }

  void fill_wait(int32_t position, Nanos end) {
    for (Waiting& one : waiting_) {
      const Nanos after = clock_.now + one.fragment->update_time;
      if (one.is_updated || after > end) continue;
      places_.push_back({position, one.fragment, true, false});
      one.is_updated = true;
      clock_.now = after;
    }
  }

  const ir::Step& step_;
  const ir::Graph& graph_;
  const cost::CostModel& cost_;
  const schedule::TimeAxis& axis_;
  std::vector<bool> is_member_;                // by node: of a fragment
  std::vector<const UpdateFragment*> coming_;  // not ready yet, the next one last
  std::deque<Reduced> reduced_;                // by end
  std::vector<Waiting> waiting_;               // ready, in order of need
  std::vector<UpdatePlace> places_;
  Clock clock_;
  bool has_changed_ = true;  // else what did not fit one node ago does not fit now
};

}  // namespace

std::vector<UpdatePlace> place_updates(const ir::Step& step, const schedule::TimeAxis& axis,
                                       const cost::CostModel& cost,
                                       const std::vector<UpdateFragment>& fragments, bool at_once) {
  return PlacementWalk(step, axis, cost, fragments).run(at_once);
}

}  // namespace dc::passes
