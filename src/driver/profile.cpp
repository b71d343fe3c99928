#include "src/driver/profile.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include "runtime/comm/agreement.h"
#include "runtime/measure/machine.h"
#include "src/cost/analytic.h"
#include "src/cost/profiled.h"
#include "src/driver/compile_step.h"
#include "src/ir/ops.h"
#include "src/passes/fuse/fuse_rules.h"
#include "src/search/chains.h"

namespace dc::driver {
namespace {

using base::Result;
using base::Status;

// Whose kernels are measured: libtorch's; the runtime's own, one for each operator; the same with
// fused ones; with what is fused drawn at random.
// Fused: with reductions at their end; FusedElementwise: without.
enum class Kernels : uint8_t { Aten, Native, Fused, FusedElementwise, FusedAtRandom };

struct Replay {
  Kernels kernels = Kernels::Native;
  uint64_t seed = 0;  // of what is drawn
  runtime::measure::TimingOptions timing{};
};

bool is_fused(Kernels kernels) {
  return kernels == Kernels::Fused || kernels == Kernels::FusedElementwise;
}

// The step of one rank with everything resident: the kernels of every other plan are the same, or
// the same ops on shards.
Result<runtime::plan::Plan> one_rank_plan(const ir::Step& step, int threads, const Replay& replay,
                                          const cost::CostModel& cost) {
  DC_ASSIGN_OR_RETURN(passes::Chain chain, search::find_chain("zero0"));
  std::erase_if(chain, [&replay](const passes::PassCall& call) {
    return call.pass->name.starts_with("fuse-") && !is_fused(replay.kernels);
  });
  CompileOptions options;
  options.passes.providers =
      replay.kernels == Kernels::Aten ? passes::Providers::Aten : passes::Providers::Native;
  options.passes.fuse_reductions = replay.kernels == Kernels::Fused ? passes::FuseReductions::Always
                                                                    : passes::FuseReductions::Never;
  if (replay.kernels == Kernels::FusedAtRandom) {
    options.passes.after_pass = [&](const passes::Pass& pass, ir::Step& scheduled) {
      return pass.name == "schedule" ? passes::fuse_at_random(scheduled, cost, replay.seed)
                                     : Status();
    };
  }
  options.threads = threads;
  options.own_passes = passes::print(chain);
  return compile_step(step, options, cost);
}

Result<std::vector<base::KernelMeasurement>> measure_model(
    const ir::Step& step, int threads, const Replay& replay, runtime::comm::Communicator& control,
    const runtime::measure::Progress& progress) {
  const cost::AnalyticCost generic(threads);
  DC_ASSIGN_OR_RETURN(const runtime::plan::Plan estimated,
                      one_rank_plan(step, threads, replay, generic));
  DC_ASSIGN_OR_RETURN(std::vector<base::KernelMeasurement> rows,
                      runtime::measure::measure_scratch(estimated));
  // The plan that runs reserves what the kernels really need.
  profile::Profile scratch_only;
  scratch_only.measurements.kernels = rows;
  const cost::ProfiledCost measured(scratch_only, generic);
  DC_ASSIGN_OR_RETURN(const runtime::plan::Plan plan,
                      one_rank_plan(step, threads, replay, measured));
  return runtime::measure::measure_kernels(plan, std::move(rows), control, replay.timing, progress);
}

// Operators of the model on the runtime's own kernels.
bool is_own_kernel(Kernels kernels, base::Provider provider, std::string_view op) {
  if (!is_fused(kernels)) return provider == base::Provider::Native && op.starts_with("aten.");
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
  std::set<base::KernelSignature> known;
  for (const Kernels kernels :
       {Kernels::Aten, Kernels::Native, Kernels::FusedElementwise, Kernels::Fused}) {
    if (kernels == Kernels::Aten && !has_libtorch) continue;
    DC_ASSIGN_OR_RETURN(const runtime::plan::Plan plan,
                        one_rank_plan(step, threads, {kernels}, cost::AnalyticCost(threads)));
    const bool is_first = rows.empty();
    if (!is_first && !has_own_kernels(kernels, plan)) continue;
    DC_ASSIGN_OR_RETURN(std::vector<base::KernelMeasurement> measured,
                        measure_model(step, threads, {kernels}, control, progress));
    for (base::KernelMeasurement& row : measured) {
      const bool is_own =
          is_first || is_own_kernel(kernels, row.signature.provider(), row.signature.op());
      if (is_own && (!is_fused(kernels) || known.insert(row.signature).second))
        rows.push_back(std::move(row));
    }
  }
  return rows;
}

// Of a kernel that stands in several plans: caches are as its neighbours leave them, which differ.
base::Timing over_plans(const std::vector<base::Timing>& plans) {
  const auto middle = [](std::vector<int64_t> values) {
    std::ranges::nth_element(values, values.begin() + static_cast<ptrdiff_t>(values.size() / 2));
    return values[values.size() / 2];
  };
  if (plans.size() == 1) return plans[0];
  std::vector<int64_t> medians, deviations;
  base::Timing all = plans[0];
  all.samples = 0;
  for (const base::Timing& plan : plans) {
    medians.push_back(plan.median_ns);
    all.fastest_ns = std::min(all.fastest_ns, plan.fastest_ns);
    all.samples += plan.samples;
  }
  all.median_ns = middle(medians);
  for (const int64_t median : medians) deviations.push_back(std::abs(median - all.median_ns));
  all.deviation_ns = middle(deviations);
  return all;
}

// Adds rows of `count` fused kernels that the profile does not have yet, or of fewer where plans
// drawn one after the other bring nothing new. Every rank draws the same.
Status measure_fusions(const ir::Step& step, const ProfileRequest& request,
                       runtime::comm::Communicator& control,
                       const runtime::measure::Progress& progress,
                       std::vector<base::KernelMeasurement>& rows) {
  constexpr int kMostBarren = 4;  // plans
  const auto count = static_cast<size_t>(request.fusions);
  std::set<base::KernelSignature> known;
  for (const base::KernelMeasurement& row : rows) known.insert(row.signature);
  std::map<base::KernelSignature, std::vector<base::Timing>> drawn;
  int barren = 0;
  for (uint64_t seed = 0; drawn.size() < count && barren < kMostBarren; ++seed) {
    const auto part = [&](double, std::string_view) {
      progress(static_cast<double>(drawn.size()) / static_cast<double>(count), "fusions");
    };
    DC_ASSIGN_OR_RETURN(const std::vector<base::KernelMeasurement> plan,
                        measure_model(step, request.threads, {Kernels::FusedAtRandom, seed, {1, 5}},
                                      control, part));
    ++barren;
    for (const base::KernelMeasurement& row : plan) {
      if (row.signature.provider() != base::Provider::Fused || known.contains(row.signature))
        continue;
      const auto at = drawn.find(row.signature);
      if (at != drawn.end()) {
        at->second.push_back(row.timing);
      } else if (drawn.size() < count) {
        drawn[row.signature] = {row.timing};
        barren = 0;
      }
    }
  }
  for (const auto& [signature, timings] : drawn)
    rows.push_back({signature, over_plans(timings), 0});
  return {};
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
  if (request.fusions > 0)
    DC_RETURN_IF_ERROR(measure_fusions(step, request, control, progress, all.kernels));
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
