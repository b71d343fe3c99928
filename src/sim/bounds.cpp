#include "src/sim/bounds.h"

#include <algorithm>

#include "src/analysis/live_bytes.h"
#include "src/sim/one_machine.h"
#include "src/sim/paths.h"
#include "src/sim/run_ahead.h"

namespace dc::sim {
namespace {

using base::Nanos;

const Transfer& transfer_of(const Schedule& schedule, const Event& start) {
  return schedule.transfers[static_cast<size_t>(start.transfer)];
}

// The jobs of each stream and link, with what must come before and after them.
struct Resources {
  std::vector<std::vector<Job>> streams, links;
  Nanos longest_path;

  Nanos largest() const {
    Nanos most = longest_path;
    for (const std::vector<Job>& jobs : streams) most = std::max(most, one_machine(jobs).sum());
    for (const std::vector<Job>& jobs : links) most = std::max(most, one_machine(jobs).sum());
    return most;
  }
};

Resources resources_of(const Schedule& schedule, const Paths& paths) {
  Resources result;
  result.streams.resize(static_cast<size_t>(std::max(schedule.streams, 1)));
  result.links.resize(kLinks);
  for (size_t e = 0; e < schedule.events.size(); ++e) {
    const Event& event = schedule.events[e];
    Job job{paths.head[e], event.time, paths.tail[e]};
    switch (event.kind) {
      case EventKind::Compute:
        result.streams[0].push_back(job);
        break;
      case EventKind::Start: {
        const Transfer& transfer = transfer_of(schedule, event);
        job.time = transfer.time();
        result.streams[static_cast<size_t>(transfer.stream)].push_back(job);
        result.links[static_cast<size_t>(transfer.link)].push_back(
            {job.head + transfer.latency, transfer.wire, job.tail});
        break;
      }
      case EventKind::Done:
        continue;
    }
    result.longest_path = std::max(result.longest_path, job.head + job.time + job.tail);
  }
  return result;
}

// What overlap costs, with compute and one link as two parties that slow each other. For each
// transfer, of a nanosecond that both run: what the transfer gets done and what compute gets done.
struct Pair {
  double wire = 0;  // of the transfer, alone
  double transfer_rate = 1, compute_rate = 1;

  double gain() const {
    return std::max(0.0, transfer_rate + compute_rate - 1);
  }  // saved by overlap
  // The least time that a nanosecond of wire adds, if compute is long enough to overlap with it.
  double least_cost() const { return 1 - gain() / transfer_rate; }
};

std::vector<Pair> pairs_of(const Schedule& schedule, Link link) {
  std::vector<Pair> pairs;
  for (const Event& event : schedule.events) {
    if (event.kind != EventKind::Start) continue;
    const Transfer& transfer = transfer_of(schedule, event);
    if (transfer.link != link || transfer.stream == 0) continue;
    pairs.push_back({static_cast<double>(transfer.wire.v), 1000.0 / transfer.contention.collective,
                     1000.0 / transfer.contention.compute});
  }
  return pairs;
}

// The least time of compute and the transfers. First those overlap that save most per compute that
// they overlap with; those that save nothing do not overlap.
double overlapped(double compute, std::vector<Pair> pairs) {
  std::stable_sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) {
    return a.gain() * b.compute_rate > b.gain() * a.compute_rate;
  });
  double time = compute, left = compute;
  for (const Pair& pair : pairs) {
    time += pair.wire;
    const double together = std::min(pair.wire / pair.transfer_rate, left / pair.compute_rate);
    if (pair.gain() == 0) continue;
    time -= together * pair.gain();
    left -= together * pair.compute_rate;
  }
  return time;
}

// The least time that the transfers add to compute, as a function of the time in which they run
// without compute. The transfers that add most run without compute first.
class CostToCompute {
 public:
  explicit CostToCompute(std::vector<Pair> pairs) : pairs_(std::move(pairs)) {
    std::stable_sort(pairs_.begin(), pairs_.end(),
                     [](const Pair& a, const Pair& b) { return a.least_cost() > b.least_cost(); });
    for (const Pair& pair : pairs_) wire_before_.push_back(wire_before_.back() + pair.wire);
    cost_from_.resize(pairs_.size() + 1);
    for (size_t i = pairs_.size(); i-- > 0;)
      cost_from_[i] = cost_from_[i + 1] + pairs_[i].wire * pairs_[i].least_cost();
  }

  double operator()(Nanos apart) const {
    const auto time = static_cast<double>(apart.v);
    const auto above = std::upper_bound(wire_before_.begin(), wire_before_.end(), time);
    const auto i = static_cast<size_t>(above - wire_before_.begin()) - 1;
    if (i == pairs_.size()) return 0;
    return cost_from_[i] - (time - wire_before_[i]) * pairs_[i].least_cost();
  }

 private:
  std::vector<Pair> pairs_;
  std::vector<double> wire_before_ = {0}, cost_from_;
};

// The same for compute: the least time that it adds to a link.
double cost_to_link(double compute, const std::vector<Pair>& pairs, Nanos apart) {
  double least_cost = 1;
  for (const Pair& pair : pairs)
    least_cost = std::min(least_cost, 1 - pair.gain() / pair.compute_rate);
  return std::max(0.0, compute - static_cast<double>(apart.v)) * least_cost;
}

Nanos contention_bound(const Schedule& schedule, const Resources& resources) {
  const bool is_free = std::all_of(
      schedule.transfers.begin(), schedule.transfers.end(),
      [](const Transfer& transfer) { return transfer.contention == cost::Contention{}; });
  if (is_free) return {};
  const auto compute = static_cast<double>(loads_of(schedule).compute.v);
  double most = 0;
  for (size_t link = 0; link < kLinks; ++link) {
    const std::vector<Pair> pairs = pairs_of(schedule, static_cast<Link>(link));
    if (pairs.empty()) continue;
    const auto to_link = [&](Nanos apart) { return cost_to_link(compute, pairs, apart); };
    most = std::max({most, overlapped(compute, pairs),
                     one_machine(resources.streams[0], CostToCompute(pairs)),
                     one_machine(resources.links[link], to_link)});
  }
  return {static_cast<int64_t>(most)};
}

}  // namespace

Bounds& Bounds::operator+=(const Bounds& other) {
  full_overlap += other.full_overlap;
  with_ends += other.with_ends;
  within_memory += other.within_memory;
  with_contention += other.with_contention;
  without_norm += other.without_norm;
  return *this;
}

Bounds Bounds::operator*(int64_t count) const {
  return {full_overlap * count, with_ends * count, within_memory * count, with_contention * count,
          without_norm * count};
}

Bounds bounds(const Workload& workload, std::optional<base::Bytes> room) {
  const Schedule& schedule = workload.schedule;
  const Precedence order = precedence(workload);
  const Paths through = paths(workload, order);
  const Resources resources = resources_of(schedule, through);
  Bounds result;
  result.full_overlap = loads_of(schedule).largest();
  result.with_ends = std::max(result.full_overlap, resources.largest());
  result.within_memory = result.with_ends;
  if (room) {
    const RunAhead ahead = run_ahead(workload, order, *room);
    if (ahead.last_kernel >= 0) {
      const Nanos tail = through.tail[static_cast<size_t>(ahead.last_kernel)];
      result.within_memory = std::max(result.with_ends, ahead.end + tail);
    }
  }
  result.with_contention = std::max(result.with_ends, contention_bound(schedule, resources));
  result.without_norm = std::max(result.full_overlap,
                                 resources_of(schedule, paths(workload, order, false)).largest());
  return result;
}

Bounds bounds(const ir::Step& step, const cost::CostModel& cost,
              std::optional<base::Bytes> budget) {
  Bounds total;
  std::optional<base::Bytes> room;
  if (budget) room = *budget - analysis::state_bytes(step, ir::Space::Device);
  for (const ir::Program& program : step.programs)
    total += bounds(workload_of(step, program.graph, cost), room) * program.repeat;
  return total;
}

}  // namespace dc::sim
