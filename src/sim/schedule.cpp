#include "src/sim/schedule.h"

#include <algorithm>

#include "src/analysis/liveness.h"
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
    for (ir::NodeId id = graph_.first(); id.valid(); id = graph_.next(id)) {
      const ir::Node& node = graph_.node(id);
      if (!ir::runs(node)) continue;
      if (ir::is_start(node.kind)) {
        add_start(node);
      } else if (node.kind == ir::OpKind::AllGatherWaitPreviousStep) {
        add_arrival(node);
      } else if (ir::is_done(node.kind)) {
        const int32_t index = transfer_of_[graph_.value(node.operands[0]).producer.index()];
        schedule_.events.push_back({EventKind::Done, index, id.v, {}});
      } else {
        const Nanos time = std::min(cost_.compute(graph_, node).time, kLongest);
        schedule_.events.push_back({EventKind::Compute, -1, id.v, time});
      }
    }
    return std::move(schedule_);
  }

 private:
  void add_start(const ir::Node& node) {
    if (cost::joins(node)) {  // travels with the start before it
      transfer_of_[node.id.index()] = static_cast<int32_t>(schedule_.transfers.size()) - 1;
      return;
    }
    const auto index = static_cast<int32_t>(schedule_.transfers.size());
    transfer_of_[node.id.index()] = index;
    schedule_.transfers.push_back(transfer_started(graph_, node));
    schedule_.events.push_back({EventKind::Start, index, node.id.v, {}});
    if (ir::spans_steps(node)) schedule_.leaving.push_back(index);
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
      if (ir::is_start(node.kind) && !cost::joins(node)) ++next;
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
      communication += started.time();
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
