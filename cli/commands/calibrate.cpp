#include <cstdio>

#include "cli/commands/commands.h"
#include "runtime/plan/file.h"
#include "runtime/verify/verify.h"
#include "src/base/file.h"
#include "src/base/text.h"
#include "src/driver/compile.h"
#include "src/profile/profile_file.h"
#include "src/sim/calibrate.h"

namespace dc::cli {
namespace {

using base::Result;
using base::Status;

Result<base::StepMeasurement> recorded_step(const CalibrateArguments& arguments,
                                            const std::string& digest) {
  DC_ASSIGN_OR_RETURN(const profile::Profile run, profile::read_profile(arguments.recorded));
  if (!run.measurements.step) {
    return Status(base::ErrorKind::BadInput, "DC2807",
                  arguments.recorded + " holds no step; record one: dcrun " + arguments.plan +
                      " ... --record-profile " + arguments.recorded);
  }
  if (run.measurements.step->plan_digest != digest) {
    return Status(base::ErrorKind::Mismatch, "DC2808",
                  arguments.recorded + " was recorded in a run of another plan than " +
                      arguments.plan + "; give that plan, or record this one");
  }
  return *run.measurements.step;
}

void print_row(const char* what, base::Nanos measured, base::Nanos predicted,
               base::Nanos calibrated) {
  std::printf("  %-12s%14s%14s%14s\n", what, base::format_duration(measured.v).c_str(),
              base::format_duration(predicted.v).c_str(),
              base::format_duration(calibrated.v).c_str());
}

}  // namespace

Status run_calibrate(const CalibrateArguments& arguments) {
  const std::string& estimator = arguments.options.fused_estimate.choice;
  const std::string inputs[] = {arguments.plan, arguments.profile, arguments.recorded, estimator};
  DC_RETURN_IF_ERROR(base::check_output(arguments.output, inputs));
  DC_ASSIGN_OR_RETURN(const runtime::plan::Loaded loaded, runtime::verify::load(arguments.plan));
  driver::CompileRequest request;
  request.options = arguments.options;
  DC_ASSIGN_OR_RETURN(request.profile, profile::read_profile(arguments.profile));
  DC_ASSIGN_OR_RETURN(const base::StepMeasurement step, recorded_step(arguments, loaded.digest));
  DC_ASSIGN_OR_RETURN(const driver::CompileOptions options, driver::completed(request));
  note_estimator_left_out(loaded.plan, options.fused_estimate);
  DC_ASSIGN_OR_RETURN(
      const sim::Calibration found,
      sim::calibrate(loaded.plan, *request.profile, step, options.fused_estimate.network));
  DC_RETURN_IF_ERROR(profile::write_profile(arguments.output, found.measurements));
  std::printf("%s: kernels x %.3f, collectives x %.3f\n", arguments.output.c_str(), found.kernels,
              found.collectives);
  std::printf("  %-12s%14s%14s%14s\n", "", "measured", "predicted", "calibrated");
  const base::Nanos whole{step.whole.median_ns}, compute{step.compute.median_ns};
  const sim::StepParts &before = found.predicted, &after = found.calibrated;
  print_row("step", whole, before.whole, after.whole);
  print_row("compute", compute, before.compute, after.compute);
  print_row("waiting", whole - compute, before.whole - before.compute, after.whole - after.compute);
  if (found.is_off) {
    std::fprintf(stderr,
                 "warning: calibration-off: no factors make the predicted step as long as the "
                 "measured one; measure this plan's model with dcc profile on this machine\n");
  }
  if (loaded.plan.world() > 1 && found.are_hidden) {
    std::fprintf(stderr,
                 "note: compute hides this plan's collectives, so they are left as they are; a run "
                 "of --chain zero3 tells how long they take\n");
  }
  return {};
}

}  // namespace dc::cli
