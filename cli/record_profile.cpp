#include "cli/record_profile.h"

#include <cstdio>
#include <map>
#include <utility>
#include <vector>

#include "runtime/comm/agreement.h"
#include "runtime/comm/hosts.h"
#include "runtime/exec/trace.h"
#include "runtime/measure/machine.h"
#include "runtime/measure/measure.h"
#include "runtime/measure/recorded.h"
#include "runtime/plan/timeline.h"
#include "src/base/text.h"
#include "src/profile/profile_file.h"

namespace dc::cli {
namespace {

using base::Status;

Status write(const std::string& path, const std::string& offload_dir,
             const runtime::plan::Loaded& loaded, const runtime::measure::Recorded& recorded,
             const base::MachineIdentity& machine, runtime::device::Device& device) {
  const runtime::plan::Plan& plan = loaded.plan;
  base::Measurements all;
  all.origin = base::ProfileOrigin::Recorded;
  all.complete.copies = true;
  all.machine = machine;
  all.model_digest = plan.model_digest;
  all.kernels = recorded.kernels;
  all.collectives = recorded.collectives;
  all.step = {loaded.digest, recorded.step, recorded.compute};
  DC_ASSIGN_OR_RETURN(all.copies, runtime::measure::measure_copies(device, offload_dir));
  // The workspace that the plan reserves may be an estimate, so it is measured too.
  DC_ASSIGN_OR_RETURN(const std::vector<base::KernelMeasurement> scratch,
                      runtime::measure::measure_scratch(plan, device));
  std::map<base::KernelSignature, int64_t> bytes;
  for (const base::KernelMeasurement& row : scratch) bytes[row.signature] = row.scratch_bytes;
  for (base::KernelMeasurement& row : all.kernels) row.scratch_bytes = bytes[row.signature];
  return profile::write_profile(path, all);
}

void print_row(const char* what, const runtime::measure::Deviation& deviation, bool has_residual) {
  char residual[32] = "";
  if (has_residual) std::snprintf(residual, sizeof residual, "%10.1f %%", 100 * deviation.residual);
  std::printf(
      "  %-12s%14s%14s%+10.1f %%%s\n", what, base::format_duration(deviation.measured_ns).c_str(),
      base::format_duration(deviation.predicted_ns).c_str(), 100 * deviation.bias, residual);
}

void print(const std::string& path, const runtime::plan::Plan& plan,
           const runtime::measure::Recorded& recorded) {
  const int ranks = plan.world();
  std::printf("%s: %zu kernels, %zu collective sizes, medians of %d steps%s\n", path.c_str(),
              recorded.kernels.size(), recorded.collectives.size(), recorded.steps,
              ranks > 1 ? (" on the slowest of " + std::to_string(ranks) + " ranks").c_str() : "");
  if (!runtime::plan::has_timeline(plan)) return;  // an older dcc predicted less
  const runtime::measure::Deviations deviations = runtime::measure::compare(plan, recorded);
  std::printf("  %-12s%14s%14s%12s%12s\n", "", "measured", "predicted", "bias", "residual");
  print_row("step", deviations.step, false);
  print_row("kernels", deviations.kernels, true);
  if (!recorded.collectives.empty()) print_row("collectives", deviations.collectives, true);
}

// Why a run of so few steps makes no profile, and what would.
void print_none(const std::string& path, const runtime::train::Outcome& outcome) {
  const std::string fewest = std::to_string(runtime::measure::kFewestSteps);
  const std::string made = base::count_of(outcome.steps - outcome.begun, "step");
  const std::string text =
      "no profile was written to " + path + ": this run " +
      (outcome.stopped ? "was stopped after " + made : "had " + made + " left to make") +
      ", and a profile takes " + fewest + ", " + std::to_string(runtime::measure::kRecordedWarmup) +
      " of them to warm up; " +
      (outcome.stopped
           ? "let the next run make as many"
           : "give --steps " + std::to_string(outcome.begun + runtime::measure::kFewestSteps) +
                 " or more to have one from where this run began");
  std::fprintf(stderr, "dcrun: note: %s\n", base::printable(text).c_str());
}

Status record(const std::string& path, const std::string& offload_dir,
              const runtime::plan::Loaded& loaded, const runtime::exec::TraceRecorder& recording,
              runtime::comm::ProcessGroup& job, const runtime::comm::LaunchInfo& launch) {
  const runtime::plan::Plan& plan = loaded.plan;
  runtime::comm::Communicator& control = job.control();
  DC_ASSIGN_OR_RETURN(const runtime::measure::Recorded recorded,
                      runtime::measure::measure_recorded(plan, recording, control));
  // The levels of the plan's groups count the ranks along its last axis as those of a host.
  const int per_host =
      plan.mesh.size() > 1 ? plan.mesh.back().second : runtime::comm::ranks_per_host(job.hosts());
  Status written;
  if (launch.rank == 0) {
    written =
        write(path, offload_dir, loaded, recorded,
              runtime::measure::machine_of(launch, job, plan.threads, per_host), job.device());
  }
  DC_RETURN_IF_ERROR(runtime::comm::agree(control, std::move(written), "writing the profile"));
  if (launch.rank == 0) print(path, plan, recorded);
  return {};
}

}  // namespace

Status record_profile(const std::string& path, const std::string& offload_dir,
                      const runtime::plan::Loaded& loaded, const runtime::train::Outcome& outcome,
                      runtime::comm::ProcessGroup& job, const runtime::comm::LaunchInfo& launch) {
  if (outcome.steps - outcome.begun < runtime::measure::kFewestSteps) {
    if (launch.rank == 0) print_none(path, outcome);
    return {};
  }
  Status status = record(path, offload_dir, loaded, *outcome.recording, job, launch);
  return std::move(status).add_context(
      std::string(outcome.stopped ? "the run was stopped on request" : "the run had ended") +
      " after step " + std::to_string(outcome.steps) + outcome.saved);
}

}  // namespace dc::cli
