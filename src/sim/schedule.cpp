#include "src/sim/schedule.h"

#include <algorithm>
#include <utility>

#include "src/analysis/schedule_view.h"
#include "src/cost/transfer.h"
#include "src/ir/cross_step.h"
#include "src/ir/effects.h"

namespace dc::sim {
namespace {

using base::Nanos;

class Builder {
 public:
  Builder(const ir::Step& step, const ir::Graph& graph, const cost::CostModel& cost)
      : step_(step), graph_(graph), cost_(cost), transfer_of_(graph.node_capacity(), -1) {
    schedule_.streams = static_cast<int>(step.streams.size());
    schedule_.events.reserve(graph.node_count());
  }

  Schedule run() {
    const analysis::ScheduleView view = analysis::schedule_view(step_, graph_);
    auto wait = view.waits.begin();
    for (size_t i = 0; i < view.order.size(); ++i) {
      const ir::Node& node = graph_.node(view.order[i]);
      for (; wait != view.waits.end() && static_cast<size_t>(wait->waiter) == i; ++wait)
        wait_for(view.order[static_cast<size_t>(wait->awaited)], node);
      add(node);
    }
    return std::move(schedule_);
  }

 private:
  void add(const ir::Node& node) {
    switch (analysis::part_of(node)) {
      case analysis::Part::Nothing:
        return;
      case analysis::Part::Kernel:
        return add_kernel(node);
      case analysis::Part::Start:
        return add_start(node);
      case analysis::Part::Done:
        return push_done(graph_.value(node.operands[0]).producer, node);
      case analysis::Part::Arrival:
        return add_arrival(node);
    }
  }

  void push_done(ir::NodeId awaited, const ir::Node& node) {
    schedule_.events.push_back({EventKind::Done, transfer_of_[awaited.index()], node.id.v, {}});
  }

  // Compute waits at once, a transfer when its stream comes to it.
  void wait_for(ir::NodeId awaited, const ir::Node& node) {
    if (analysis::stream_of(node) == 0) return push_done(awaited, node);
    awaited_.push_back(transfer_of_[awaited.index()]);
  }

  void add_kernel(const ir::Node& node) {
    const Nanos time = std::min(cost_.compute(graph_, node).time, kLongest);
    if (node.stream == 0) {
      schedule_.events.push_back({EventKind::Compute, -1, node.id.v, time});
    } else {
      push_start(kernel_outside_compute(time, node.stream), node);
    }
  }

  void push_start(Transfer transfer, const ir::Node& node) {
    const auto index = static_cast<int32_t>(schedule_.transfers.size());
    transfer_of_[node.id.index()] = index;
    transfer.after = std::exchange(awaited_, {});
    schedule_.transfers.push_back(std::move(transfer));
    schedule_.events.push_back({EventKind::Start, index, node.id.v, {}});
  }

  void add_start(const ir::Node& node) {
    if (cost::joins(node)) {  // travels with the start before it
      transfer_of_[node.id.index()] = static_cast<int32_t>(schedule_.transfers.size()) - 1;
      std::vector<int32_t>& after = schedule_.transfers.back().after;
      after.insert(after.end(), awaited_.begin(), awaited_.end());
      awaited_.clear();
      return;
    }
    push_start(transfer_started(graph_, node), node);
    if (ir::spans_steps(node)) schedule_.leaving.push_back(transfer_of_[node.id.index()]);
  }

  Transfer transfer_started(const ir::Graph& graph, const ir::Node& node) const {
    Transfer started;
    if (const auto copy = cost::space_copy_of(step_, graph, node)) {
      started = sim::transfer(cost_, copy->bytes, copy->from, copy->to);
    } else {
      const cost::Collective kind = cost::transfer_of(graph, node)->kind;
      started =
          sim::transfer(cost_, kind, cost::bucket_bytes(graph, node), cost::group_of(step_, node));
    }
    started.stream = node.stream;
    return started;
  }

  // The last program's transfers are numbered as its own schedule does it.
  void find_arrivals() {
    const ir::Graph& last = step_.programs.back().graph;
    std::vector<int32_t> number(last.node_capacity());
    int32_t next = -1;
    for (ir::NodeId id = last.first(); id.valid(); id = last.next(id)) {
      const ir::Node& node = last.node(id);
      const bool is_kernel = analysis::part_of(node) == analysis::Part::Kernel;
      const bool is_started = is_kernel ? node.stream != 0 : ir::is_start(node.kind);
      if (is_started && !cost::joins(node)) ++next;
      number[id.index()] = next;
    }
    arrival_of_.assign(step_.state.size(), -1);
    for (const ir::CrossStepGather& crossing : ir::cross_step_gathers(step_)) {
      const int32_t started = number[crossing.start.index()];
      const bool joins = cost::joins(last.node(crossing.start));
      if (!joins) {
        int32_t transfer = started;
        if (&last != &graph_) {
          transfer = static_cast<int32_t>(schedule_.transfers.size());
          schedule_.transfers.push_back(transfer_started(last, last.node(crossing.start)));
        }
        schedule_.arrivals.push_back({transfer, started});
      }
      arrival_of_[static_cast<size_t>(crossing.entry)] = schedule_.arrivals.back().transfer;
    }
  }

  void add_arrival(const ir::Node& node) {
    if (arrival_of_.empty()) find_arrivals();
    const int entry = ir::awaited_entry(graph_, node);
    const int32_t transfer = arrival_of_[static_cast<size_t>(entry)];
    schedule_.events.push_back({EventKind::Done, transfer, node.id.v, {}});
  }

  const ir::Step& step_;
  const ir::Graph& graph_;
  const cost::CostModel& cost_;
  std::vector<int32_t> transfer_of_;  // by start node
  std::vector<int32_t> arrival_of_;   // by state entry: the transfer that fills it
  std::vector<int32_t> awaited_;      // by the next transfer
  Schedule schedule_;
};

}  // namespace

Transfer transfer(const cost::CostModel& cost, cost::Collective kind, base::Bytes bytes,
                  cost::Group group) {
  Transfer result;
  const Nanos time = std::min(cost.collective(kind, bytes, group).time, kLongest);
  result.latency = std::min(cost.latency(kind, group), time);
  result.wire = time - result.latency;
  if (group.level == cost::Level::Inside) result.link = Link::Inside;
  result.contention = cost.contention(kind, bytes, group);
  return result;
}

Transfer transfer(const cost::CostModel& cost, base::Bytes bytes, ir::Space from, ir::Space to) {
  Transfer result;
  result.link = to == ir::Space::Device ? Link::FromHost : Link::ToHost;
  result.wire = std::min(cost.copy(bytes, from, to).time, kLongest);
  return result;
}

Transfer kernel_outside_compute(Nanos time, int32_t stream) {
  Transfer result;
  result.stream = stream;
  result.link = Link::None;
  result.latency = time;
  return result;
}

Nanos Loads::largest() const {
  Nanos most;
  for (Nanos load : streams) most = std::max(most, load);
  for (Nanos load : links) most = std::max(most, load);
  return most;
}

void Loads::add(const Schedule& schedule, const Event& event) {
  switch (event.kind) {
    case EventKind::Compute:
      compute += event.time;
      streams[0] += event.time;
      return;
    case EventKind::Start: {
      const Transfer& started = schedule.transfers[static_cast<size_t>(event.transfer)];
      if (started.link != Link::None) communication += started.time();
      streams[static_cast<size_t>(started.stream)] += started.time();
      links[static_cast<size_t>(started.link)] += started.wire;
      return;
    }
    case EventKind::Done:
      return;
  }
}

Loads loads_of(const Schedule& schedule) {
  Loads loads;
  loads.streams.resize(static_cast<size_t>(std::max(schedule.streams, 1)));
  for (const Event& event : schedule.events) loads.add(schedule, event);
  return loads;
}

Schedule schedule_of(const ir::Step& step, const ir::Graph& graph, const cost::CostModel& cost) {
  return Builder(step, graph, cost).run();
}

}  // namespace dc::sim
