#include "src/driver/profile.h"

#include <algorithm>
#include <utility>

#include "runtime/comm/agreement.h"
#include "runtime/measure/machine.h"
#include "src/cost/analytic.h"
#include "src/cost/profiled.h"
#include "src/driver/compile_step.h"
#include "src/ir/ops.h"
#include "src/search/chains.h"

namespace dc::driver {
namespace {

using base::Result;
using base::Status;

// Whose kernels are measured: libtorch's; the runtime's own, one for each operator; the same with
// fused ones.
enum class Kernels : uint8_t { Aten, Native, Fused };

// The step of one rank with everything resident: the kernels of every other plan are the same, or
// the same ops on shards.
Result<runtime::plan::Plan> one_rank_plan(const ir::Step& step, int threads, Kernels kernels,
                                          const cost::CostModel& cost) {
  DC_ASSIGN_OR_RETURN(passes::Chain chain, search::find_chain("zero0"));
  std::erase_if(chain, [kernels](const passes::PassCall& call) {
    return call.pass->name.starts_with("fuse-") && kernels != Kernels::Fused;
  });
  CompileOptions options;
  options.passes.providers =
      kernels == Kernels::Aten ? passes::Providers::Aten : passes::Providers::Native;
  options.threads = threads;
  options.own_passes = passes::print(chain);
  return compile_step(step, options, cost);
}

Result<std::vector<base::KernelMeasurement>> measure_model(
    const ir::Step& step, int threads, Kernels kernels, runtime::comm::Communicator& control,
    const runtime::measure::Progress& progress) {
  const cost::AnalyticCost generic(threads);
  DC_ASSIGN_OR_RETURN(const runtime::plan::Plan estimated,
                      one_rank_plan(step, threads, kernels, generic));
  DC_ASSIGN_OR_RETURN(std::vector<base::KernelMeasurement> rows,
                      runtime::measure::measure_scratch(estimated));
  // The plan that runs reserves what the kernels really need.
  profile::Profile scratch_only;
  scratch_only.measurements.kernels = rows;
  const cost::ProfiledCost measured(scratch_only, generic);
  DC_ASSIGN_OR_RETURN(const runtime::plan::Plan plan,
                      one_rank_plan(step, threads, kernels, measured));
  return runtime::measure::measure_kernels(plan, std::move(rows), control, {}, progress);
}

// Operators of the model on the runtime's own kernels.
bool is_own_kernel(Kernels kernels, base::Provider provider, std::string_view op) {
  if (kernels != Kernels::Fused)
    return provider == base::Provider::Native && op.starts_with("aten.");
  const std::optional<ir::OpKind> kind = ir::native_op(op);
  return provider == base::Provider::Fused || (kind && ir::is_model_op(*kind));
}

bool has_own_kernels(Kernels kernels, const runtime::plan::Plan& plan) {
  return std::ranges::any_of(plan.programs, [&](const runtime::plan::Program& program) {
    return std::ranges::any_of(program.instructions, [&](const runtime::plan::Instruction& in) {
      return is_own_kernel(kernels, in.provider, in.op);
    });
  });
}

// The kernels of every provider that is here: those of a plan on libtorch, and what else plans have
// that take the runtime's own kernels where they can.
Result<std::vector<base::KernelMeasurement>> measure_providers(
    const ir::Step& step, int threads, runtime::comm::Communicator& control,
    const runtime::measure::Progress& progress) {
  DC_ASSIGN_OR_RETURN(const bool has_libtorch, runtime::measure::has_libtorch(threads, control));
  std::vector<base::KernelMeasurement> rows;
  for (const Kernels kernels : {Kernels::Aten, Kernels::Native, Kernels::Fused}) {
    if (kernels == Kernels::Aten && !has_libtorch) continue;
    DC_ASSIGN_OR_RETURN(const runtime::plan::Plan plan,
                        one_rank_plan(step, threads, kernels, cost::AnalyticCost(threads)));
    const bool is_first = rows.empty();
    if (!is_first && !has_own_kernels(kernels, plan)) continue;
    DC_ASSIGN_OR_RETURN(std::vector<base::KernelMeasurement> measured,
                        measure_model(step, threads, kernels, control, progress));
    for (base::KernelMeasurement& row : measured) {
      if (is_first || is_own_kernel(kernels, row.signature.provider(), row.signature.op()))
        rows.push_back(std::move(row));
    }
  }
  return rows;
}

// What a collective carries at most: the largest parameter, or a bucket of several.
int64_t largest_collective(const ir::Step& step) {
  constexpr int64_t kBucket = int64_t{64} << 20;
  int64_t largest = 0, all = 0;
  for (const ir::Parameter& parameter : step.parameters) {
    largest = std::max(largest, parameter.numel() * 4);
    all += parameter.numel() * 4;
  }
  return std::max(largest, std::min(all, kBucket));
}

// Every rank measures, because all of them copy in a step, and gets its own figures. Rank 0 writes
// its own into the profile.
Result<std::vector<base::CopyMeasurement>> copies(const std::string& directory,
                                                  runtime::comm::ProcessGroup& job) {
  auto measured = runtime::measure::measure_copies(job.device(), directory);
  DC_RETURN_IF_ERROR(runtime::comm::agree(
      job.control(), measured.ok() ? Status() : measured.status(), "measuring copies"));
  return measured;
}

}  // namespace

Result<base::Measurements> measure(const ir::Step& step, const ProfileRequest& request,
                                   const runtime::comm::LaunchInfo& launch,
                                   runtime::comm::ProcessGroup& job,
                                   const runtime::measure::Progress& progress) {
  runtime::comm::Communicator& control = job.control();
  base::Measurements all;
  DC_ASSIGN_OR_RETURN(all.kernels, measure_providers(step, request.threads, control, progress));
  if (launch.world > 1) {
    DC_ASSIGN_OR_RETURN(
        runtime::measure::CollectiveSweep swept,
        runtime::measure::measure_collectives(job, largest_collective(step), request.threads,
                                              request.ranks_per_host, progress));
    all.collectives = std::move(swept.alone);
    all.during_compute = std::move(swept.during_compute);
    all.together = std::move(swept.together);
  }
  DC_ASSIGN_OR_RETURN(all.copies, copies(request.offload_directory, job));
  all.complete = {true, launch.world > 1, launch.world > 1, true};
  all.model_digest = step.model_digest;
  all.machine = runtime::measure::machine_of(launch, job, request.threads, request.ranks_per_host);
  return all;
}

}  // namespace dc::driver
