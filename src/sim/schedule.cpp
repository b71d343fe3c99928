#include "src/sim/schedule.h"

#include <algorithm>

#include "src/analysis/liveness.h"
#include "src/cost/transfer.h"

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
      if (!analysis::runs(node)) continue;
      if (ir::is_start(node.kind)) {
        add_start(node);
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
    Transfer started;
    if (const auto copy = cost::space_copy_of(step_, graph_, node)) {
      started = sim::transfer(cost_, copy->bytes, copy->from, copy->to);
    } else {
      base::Bytes bytes;
      for (ir::NodeId id : cost::bucket_of(graph_, node.id))
        bytes += cost::transfer_of(graph_, graph_.node(id))->bytes();
      const cost::Collective kind = cost::transfer_of(graph_, node)->kind;
      started = sim::transfer(cost_, kind, bytes, step_.mesh.world());
    }
    started.stream = node.stream;
    const auto index = static_cast<int32_t>(schedule_.transfers.size());
    transfer_of_[node.id.index()] = index;
    schedule_.transfers.push_back(started);
    schedule_.events.push_back({EventKind::Start, index, node.id.v, {}});
  }

  const ir::Step& step_;
  const ir::Graph& graph_;
  const cost::CostModel& cost_;
  std::vector<int32_t> transfer_of_;  // by start node
  Schedule schedule_;
};

}  // namespace

Transfer transfer(const cost::CostModel& cost, cost::Collective kind, base::Bytes bytes,
                  int group_size) {
  Transfer result;
  const Nanos time = std::min(cost.collective(kind, bytes, group_size).time, kLongest);
  result.latency = std::min(cost.latency(kind, group_size), time);
  result.wire = time - result.latency;
  result.contention = cost.contention(kind, bytes, group_size);
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
