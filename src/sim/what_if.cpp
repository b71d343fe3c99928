#include "src/sim/what_if.h"

#include <algorithm>

#include "src/base/text.h"
#include "src/sim/figures.h"
#include "src/sim/play.h"

namespace dc::sim {
namespace {

using base::Bytes;
using base::Nanos;
using base::Result;
using base::Status;

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr int64_t kMore = 1'000'000'000;  // bytes a second

Status check(const runtime::plan::Plan& plan, const WhatIf& what_if) {
  if (what_if.world && *what_if.world != plan.world()) {
    return Status(base::ErrorKind::BadConfig, "DC7102",
                  "the plan is for " + std::to_string(plan.world()) +
                      " ranks: shards, buffers and addresses are part of it; compile the model "
                      "with --world " +
                      std::to_string(*what_if.world) +
                      " and simulate that plan, or give it to dcc simulate with --model");
  }
  const int64_t arena = plan.arena_bytes.empty() ? 0 : plan.arena_bytes[0];
  if (what_if.memory && what_if.memory->v < arena) {
    return Status(base::ErrorKind::OutOfMemory, "DC7103",
                  "the plan takes " + std::to_string(arena) + " bytes of each rank's device and " +
                      std::to_string(what_if.memory->v) +
                      " are asked for: addresses are part of it; compile the model with --memory " +
                      std::to_string(what_if.memory->v));
  }
  return {};
}

// Time on the wire at a rate, the latency being what it is.
void set_link(PlannedProgram& program, int64_t per_second) {
  std::vector<Transfer>& transfers = program.workload.schedule.transfers;
  for (size_t i = 0; i < transfers.size(); ++i) {
    if (transfers[i].link != Link::Ranks) continue;
    const double seconds = static_cast<double>(program.sent[i]) / static_cast<double>(per_second);
    transfers[i].wire = std::min(Nanos{static_cast<int64_t>(seconds * 1e9)}, kLongest);
  }
}

void scale_link(PlannedProgram& program, double factor) {
  for (Transfer& transfer : program.workload.schedule.transfers) {
    if (transfer.link != Link::Ranks) continue;
    transfer.wire = {static_cast<int64_t>(static_cast<double>(transfer.wire.v) * factor)};
  }
}

// Bytes a second over all collectives of the step.
int64_t rate_of(const std::vector<PlannedProgram>& programs) {
  double bytes = 0, nanos = 0;
  for (const PlannedProgram& program : programs) {
    const std::vector<Transfer>& transfers = program.workload.schedule.transfers;
    for (size_t i = 0; i < transfers.size(); ++i) {
      if (transfers[i].link != Link::Ranks) continue;
      bytes += static_cast<double>(program.sent[i]) * program.repeat;
      nanos += static_cast<double>(transfers[i].wire.v) * program.repeat;
    }
  }
  return nanos == 0 ? 0 : static_cast<int64_t>(bytes / nanos * 1e9);
}

Totals totals_of(const std::vector<PlannedProgram>& programs) {
  Totals sum;
  const Schedule* last = &programs.back().workload.schedule;
  for (const PlannedProgram& program : programs) {
    const Schedule& schedule = program.workload.schedule;
    const bool is_first = &program == &programs.front();
    const Totals first = play(schedule, is_first ? last : nullptr).totals;
    sum += play_repeated(schedule, program.repeat, first);
  }
  return sum;
}

// What one program has to do, with its repeats.
void add(const PlannedProgram& program, Simulated& result) {
  const Schedule& schedule = program.workload.schedule;
  const Loads loads = loads_of(schedule);
  Nanos copies;
  for (const Event& event : schedule.events) {
    if (event.kind != EventKind::Start) continue;
    const Transfer& transfer = schedule.transfers[static_cast<size_t>(event.transfer)];
    if (carries_copies(transfer.link)) copies += transfer.time();
  }
  runtime::plan::Prediction& sum = result.prediction;
  sum.compute_ns += (loads.compute * program.repeat).v;
  sum.copy_ns += (copies * program.repeat).v;
  sum.communication_ns += ((loads.communication - copies) * program.repeat).v;
  add_figures(program.time_by_source, program.repeat, sum);
}

}  // namespace

Result<Simulated> simulate(const runtime::plan::Plan& plan, const cost::CostModel& cost,
                           const WhatIf& what_if) {
  DC_RETURN_IF_ERROR(check(plan, what_if));
  DC_ASSIGN_OR_RETURN(std::vector<PlannedProgram> programs, planned_programs(plan, cost));
  Simulated result;
  result.arena = {plan.arena_bytes.empty() ? 0 : plan.arena_bytes[0]};
  result.memory = what_if.memory.value_or(result.arena);
  const Bytes room = result.memory - kept_on_device(plan);
  if (what_if.link_per_second) {
    for (PlannedProgram& program : programs) set_link(program, *what_if.link_per_second);
  }
  Bounds found;
  for (const PlannedProgram& program : programs) {
    add(program, result);
    found += bounds(program.workload, room) * program.repeat;
    result.within_more_memory +=
        bounds(program.workload, Bytes{std::min(room.v, INT64_MAX - kGiB) + kGiB}).within_memory *
        program.repeat;
  }
  const Totals totals = totals_of(programs);
  result.exposed = totals.exposed;
  runtime::plan::Prediction& prediction = result.prediction;
  prediction.step_ns = totals.time.v;
  prediction.contention_ns = totals.contention.v;
  prediction.bounds_ns = {found.full_overlap.v, found.with_ends.v, found.within_memory.v,
                          found.with_contention.v};
  prediction.without_norm_ns = found.without_norm.v;
  prediction.origin = cost.origin();
  result.link_per_second = what_if.link_per_second.value_or(rate_of(programs));
  result.time_with_faster_link = {prediction.step_ns};
  if (rate_of(programs) == 0) return result;
  const auto rate = static_cast<double>(result.link_per_second);
  for (PlannedProgram& program : programs)
    scale_link(program, rate / (rate + static_cast<double>(kMore)));
  result.time_with_faster_link = totals_of(programs).time;
  return result;
}

}  // namespace dc::sim
