#include "src/passes/overlap/update_places.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <unordered_map>

#include "src/cost/transfer.h"
#include "src/ir/effects.h"
#include "src/schedule/reduction_tail.h"
#include "src/sim/simulate.h"

namespace dc::passes {
namespace {

using base::Nanos;
using ir::NodeId;
using ir::OpKind;

// Compute next to the queues of collectives, one for each stream, which slow it. A stream has one
// link: inside hosts, or across them.
class Clock {
 public:
  explicit Clock(size_t streams) : queues_(streams) {}

  Nanos now() const { return now_; }
  void wait_until(Nanos time) { now_ = std::max(now_, time); }
  // When the queue has served all that was sent.
  Nanos free(size_t stream) const { return queues_[stream].free; }
  int32_t slow_down(size_t stream) const { return queues_[stream].slow_down; }

  // Begins no earlier than `earliest`; returns its end.
  Nanos send(size_t stream, Nanos time, int32_t slows, Nanos earliest = {}) {
    Queue& queue = queues_[stream];
    const Nanos before = std::max(queue.free - now_, Nanos{});
    const int64_t sum = (before + time).v;
    if (sum > 0) {
      queue.slow_down = static_cast<int32_t>((before.v * queue.slow_down + time.v * slows) / sum);
    }
    queue.free = std::max(now_ + before, earliest) + time;
    return queue.free;
  }

  void compute(Nanos work) {
    while (true) {
      std::optional<Nanos> next;  // when the first of the busy queues will be free
      int32_t slowest = 1000;
      for (const Queue& queue : queues_) {
        if (queue.free <= now_) continue;
        next = next ? std::min(*next, queue.free) : queue.free;
        slowest = std::max(slowest, queue.slow_down);
      }
      const Nanos done = next ? Nanos{(*next - now_).v * 1000 / slowest} : work;
      if (work <= done) {
        now_ += Nanos{work.v * slowest / 1000};
        return;
      }
      now_ = *next;
      work = work - done;
    }
  }

 private:
  struct Queue {
    Nanos free;
    int32_t slow_down = 1000;  // of compute by what was sent last, in thousandths
  };
  Nanos now_;
  std::vector<Queue> queues_;  // by stream
};

class PlacementWalk {
 public:
  PlacementWalk(const ir::Step& step, const schedule::TimeAxis& axis, const cost::CostModel& cost,
                const std::vector<UpdateFragment>& fragments)
      : step_(step),
        graph_(axis.graph),
        cost_(cost),
        axis_(axis),
        is_member_(axis.graph.node_capacity()),
        clock_(step.streams.size()) {
    for (const UpdateFragment& fragment : fragments) {
      coming_.push_back(&fragment);
      longest_update_ = std::max(longest_update_, fragment.update_time);
      if (!fragment.gathers.empty()) {
        stream_ = stream_of(graph_.node(fragment.gathers[0]));
        shortest_gather_ = std::min(shortest_gather_, fragment.gather_time);
      }
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
  static size_t stream_of(const ir::Node& start) { return static_cast<size_t>(start.stream); }
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
    Clock clock(step_.streams.size());
    for (int32_t i = 0; i < count(); ++i) {
      at.push_back(clock.now());
      const ir::Node& node = axis_.node(i);
      if (starts_collective(node)) {
        clock.send(stream_of(node), time(node), slow_down(node));
      } else if (!is_member_[node.id.index()] && !ir::is_start(node.kind)) {
        clock.compute(time(node));
      }
    }
    return at;
  }

  // What is still to come behind each position.
  //
  // A collective waits for the one before it on its stream and for what made its operands: sums
  // across hosts for those inside. All behind the meeting wait for all before it.
  void look_ahead(int32_t meeting) {
    const size_t streams = step_.streams.size();
    ends_.resize(static_cast<size_t>(count()));
    from_.resize(ends_.size() * streams);
    std::vector<Nanos> from_stream(streams);
    // As from(), of those that read a storage.
    std::unordered_map<int64_t, Nanos> from_storage;  // only looked up
    Nanos end;
    for (int32_t i = count(); i-- > 0;) {
      const ir::Node& node = axis_.node(i);
      if (starts_collective(node)) {
        Nanos& next = from_stream[stream_of(node)];
        for (NodeId start : cost::bucket_of(graph_, node.id))
          next = std::max(next, from_storage[made_by(graph_.node(start))]);
        next += time(node);
        for (NodeId start : cost::bucket_of(graph_, node.id)) {
          Nanos& read = from_storage[read_by(graph_.node(start))];
          read = std::max(read, next);
        }
        end = std::max(end, at_[static_cast<size_t>(i)] + next);
      } else if (node.kind == OpKind::Accumulate) {
        const Nanos sum = from_storage[axis_.storage_key(node.operands[0])];
        Nanos& summand = from_storage[axis_.storage_key(node.operands[1])];
        summand = std::max(summand, sum);
      }
      const auto index = static_cast<size_t>(i);
      ends_[index] = end;
      std::copy(from_stream.begin(), from_stream.end(),
                from_.begin() + static_cast<std::ptrdiff_t>(index * streams));
      if (i != meeting) continue;
      const Nanos longest = *std::max_element(from_stream.begin(), from_stream.end());
      std::fill(from_stream.begin(), from_stream.end(), longest);
    }
  }

  // From the beginning of the stream's next collective to the end of the last that must come behind
  // it, 0 if there is none.
  Nanos from(int32_t position, size_t stream) const {
    return from_[static_cast<size_t>(position) * step_.streams.size() + stream];
  }

  // The latest time at which the next collective on the gathers' stream may begin, if that is free
  // then, without delaying the end of the last collective of any stream. Empty behind the last one
  // on the gathers' stream. `now`: when compute comes to the position.
  std::optional<Nanos> latest_start(int32_t position, Nanos now) const {
    const Nanos next = from(position, stream_);
    if (next.v == 0) return std::nullopt;
    const auto index = static_cast<size_t>(position);
    Nanos end = ends_[index] + (now - at_[index]);
    for (size_t stream = 0; stream < step_.streams.size(); ++stream) {
      const Nanos busy_until = clock_.free(stream);
      if (stream == stream_ || busy_until <= clock_.now()) continue;
      end = std::max(end, busy_until + from(position, stream));
    }
    return end - next;
  }

  // The storage that a start fills, and the one that it sends.
  int64_t made_by(const ir::Node& start) const { return axis_.storage_key(start.results[0]); }
  int64_t read_by(const ir::Node& start) const { return axis_.storage_key(start.operands.back()); }

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
    at_ = compute_alone();
    const int32_t meeting = this->meeting();
    look_ahead(meeting);
    std::vector<Nanos> ends(graph_.node_capacity());  // by start
    Nanos last_reduced;  // when the reductions passed so far have ended
    for (int32_t i = 0; i < count(); ++i) {
      for (; !coming_.empty() && coming_.back()->ready <= i; coming_.pop_back())
        reduced_.push_back({coming_.back(), last_reduced});
      if (i == meeting) await_reductions(i, last_reduced);
      take_reduced();
      const ir::Node& node = axis_.node(i);
      if (is_member_[node.id.index()] || cost::joins(node)) continue;
      if (has_changed_ && latest_start(i, clock_.now()) && schedule::splits_no_tail(node)) {
        use_link(i);
        has_changed_ = false;
      }
      has_changed_ |= ir::is_start(node.kind) || ir::is_done(node.kind);
      if (starts_collective(node)) {
        const Nanos end =
            clock_.send(stream_of(node), time(node), slow_down(node), operands_made(node));
        for (NodeId start : cost::bucket_of(graph_, node.id)) ends[start.index()] = end;
      } else if (ir::is_done(node.kind)) {
        pass_done(node, ends[start_of(node).id.index()], last_reduced);
      } else if (!ir::is_start(node.kind)) {
        if (node.kind == OpKind::Accumulate) {
          Nanos& sum = made_at_[axis_.storage_key(node.operands[0])];
          sum = std::max(sum, made_at_[axis_.storage_key(node.operands[1])]);
        }
        clock_.compute(time(node));
      }
    }
    clock_.wait_until(last_reduced);
    take_reduced();
    for (const UpdateFragment* fragment : coming_) add_waiting({fragment, false});
  }

  // Compute waits for what was gathered; for a reduction only what reads its result does.
  void pass_done(const ir::Node& done, Nanos end, Nanos& last_reduced) {
    if (!schedule::is_reduction(start_of(done).kind)) return clock_.wait_until(end);
    last_reduced = std::max(last_reduced, end);
    made_at_[axis_.storage_key(done.results[0])] = end;
  }

  // When reductions under way have made all that the bucket sends.
  Nanos operands_made(const ir::Node& first) const {
    Nanos made;
    for (NodeId start : cost::bucket_of(graph_, first.id)) {
      const auto found = made_at_.find(read_by(graph_.node(start)));
      if (found != made_at_.end()) made = std::max(made, found->second);
    }
    return made;
  }

  void take_reduced() {
    for (; !reduced_.empty() && reduced_.front().end <= clock_.now(); reduced_.pop_front())
      add_waiting({reduced_.front().fragment, false});
  }

  // Compute has come to where all reductions must have ended.
  void await_reductions(int32_t position, Nanos last) {
    while (true) {
      take_reduced();
      if (clock_.now() >= last) return;
      const Nanos end = reduced_.empty() ? last : std::min(last, reduced_.front().end);
      fill_wait(position, end);
      clock_.wait_until(end);
    }
  }

  // Places waiting fragments, update and gather, whose gather ends before the next collective must
  // begin.
  void use_link(int32_t position) {
    // No gather fits where the shortest one does not, were it behind the longest update: what else
    // is to come on the link may begin later the later compute comes to it.
    const Nanos free = std::max(clock_.free(stream_), clock_.now());
    if (shortest_gather_ > *latest_start(position, clock_.now() + longest_update_) - free) return;
    for (size_t w = 0; w < waiting_.size();) {
      const UpdateFragment& fragment = *waiting_[w].fragment;
      const Nanos update = waiting_[w].is_updated ? Nanos{} : fragment.update_time;
      const Nanos end =
          std::max(clock_.free(stream_), clock_.now() + update) + fragment.gather_time;
      if (fragment.gathers.empty() || end > *latest_start(position, clock_.now() + update)) {
        ++w;
        continue;
      }
      places_.push_back({position, &fragment, !waiting_[w].is_updated, true});
      clock_.wait_until(clock_.now() + update);
      clock_.send(stream_, fragment.gather_time, clock_.slow_down(stream_));
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(w));
    }
  }

  void fill_wait(int32_t position, Nanos end) {
    for (Waiting& one : waiting_) {
      const Nanos after = clock_.now() + one.fragment->update_time;
      if (one.is_updated || after > end) continue;
      places_.push_back({position, one.fragment, true, false});
      one.is_updated = true;
      clock_.wait_until(after);
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
  // By position: the time of compute alone; when the last of the collectives from there on ends.
  std::vector<Nanos> at_, ends_;
  std::vector<Nanos> from_;  // by position and stream
  // By storage: when the reduction that makes it ends; only looked up.
  std::unordered_map<int64_t, Nanos> made_at_;
  size_t stream_ = 0;  // of the fragments' gathers
  Nanos longest_update_, shortest_gather_{INT64_MAX};
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
