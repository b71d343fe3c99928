#include "src/driver/profile.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include "runtime/comm/agreement.h"
#include "runtime/measure/alone.h"
#include "runtime/measure/machine.h"
#include "runtime/plan/kernel_signature.h"
#include "src/cost/analytic.h"
#include "src/cost/profiled.h"
#include "src/driver/compile_step.h"
#include "src/ir/ops.h"
#include "src/passes/fuse/fuse_rules.h"
#include "src/search/chains.h"
#include "src/search/moves.h"

namespace dc::driver {
namespace {

using base::Result;
using base::Status;

// Whose kernels are in a plan: libtorch's; the runtime's own, one for each operator; the same with
// fused ones; with what is fused drawn at random.
// Fused: with reductions; FusedElementwise: without; the others keep less for the backward phase.
enum class Kernels : uint8_t {
  Aten,
  Native,
  Fused,
  FusedElementwise,
  FusedKeepingLess,
  FusedElementwiseKeepingLess,
  FusedAtRandom
};

struct Replay {
  Kernels kernels = Kernels::Native;
  uint64_t seed = 0;  // of what is drawn
  runtime::measure::TimingOptions timing{};
  int accumulation = 1;  // micro-batches
};

// What the plans are compiled for: the ranks' devices, and threads per rank.
struct Target {
  base::DeviceKind device = base::DeviceKind::Cpu;
  int threads = 1;
  runtime::measure::MemoryGauge* gauge = nullptr;
};
Target target_of(const ProfileRequest& request, runtime::comm::ProcessGroup& job) {
  return {job.device().kind(), request.threads, request.gauge};
}

bool keeps_less(Kernels kernels) {
  return kernels == Kernels::FusedKeepingLess || kernels == Kernels::FusedElementwiseKeepingLess;
}
bool has_reductions(Kernels kernels) {
  return kernels == Kernels::Fused || kernels == Kernels::FusedKeepingLess;
}
constexpr Kernels kFused[] = {Kernels::FusedElementwise, Kernels::Fused,
                              Kernels::FusedElementwiseKeepingLess, Kernels::FusedKeepingLess};
bool is_fused(Kernels kernels) { return std::ranges::count(kFused, kernels) != 0; }

// The step of one rank with everything resident: the kernels of every other plan are the same, or
// the same ops on shards.
Result<runtime::plan::Plan> one_rank_plan(const ir::Step& step, const Target& target,
                                          const Replay& replay, const cost::CostModel& cost) {
  DC_ASSIGN_OR_RETURN(passes::Chain chain, search::find_chain("zero0"));
  std::erase_if(chain, [&replay](const passes::PassCall& call) {
    return call.pass->name.starts_with("fuse-") && !is_fused(replay.kernels);
  });
  if (keeps_less(replay.kernels)) chain = search::fused(chain, search::kKeepsLeast);
  // Each update then has the check that lets it run before the norm is known.
  if (replay.accumulation > 1)
    chain.insert(chain.end() - 1, {passes::find_pass("overlap-update"), std::nullopt});
  CompileOptions options;
  options.passes.providers =
      replay.kernels == Kernels::Aten ? passes::Providers::Aten : passes::Providers::Native;
  // What plans for the device may have.
  const passes::FuseReductions with = target.device == base::DeviceKind::Cuda
                                          ? passes::FuseReductions::Always
                                          : passes::FuseReductions::AtEnds;
  const bool reduces = has_reductions(replay.kernels);
  options.passes.fuse_reductions = reduces ? with : passes::FuseReductions::Never;
  options.passes.fuse_products =
      reduces ? passes::FuseProducts::Always : passes::FuseProducts::Never;
  if (replay.kernels == Kernels::FusedAtRandom) {
    options.passes.after_pass = [&](const passes::Pass& pass, ir::Step& scheduled) {
      return pass.name == "schedule" ? passes::fuse_at_random(scheduled, cost, replay.seed)
                                     : Status();
    };
  }
  options.device = target.device;
  options.threads = target.threads;
  options.accumulation = replay.accumulation;
  options.own_passes = passes::print(chain);
  return compile_step(step, options, cost);
}

Result<std::vector<base::KernelMeasurement>> measure_model(
    const ir::Step& step, const Target& target, const Replay& replay,
    runtime::comm::ProcessGroup& job, const runtime::measure::Progress& progress) {
  const cost::AnalyticCost generic(target.threads);
  DC_ASSIGN_OR_RETURN(const runtime::plan::Plan estimated,
                      one_rank_plan(step, target, replay, generic));
  DC_ASSIGN_OR_RETURN(std::vector<base::KernelMeasurement> rows,
                      runtime::measure::measure_scratch(estimated, job.device()));
  // The plan that runs reserves what the kernels really need.
  profile::Profile scratch_only;
  scratch_only.measurements.kernels = rows;
  const cost::ProfiledCost measured(scratch_only, generic);
  DC_ASSIGN_OR_RETURN(const runtime::plan::Plan plan,
                      one_rank_plan(step, target, replay, measured));
  runtime::measure::TimingOptions timing = replay.timing;
  timing.gauge = target.gauge;
  auto kernels = runtime::measure::measure_kernels(plan, std::move(rows), job, timing, progress);
  // Scratch may decide about the plan: kernels of the first one alone have no time.
  if (kernels.ok())
    std::erase_if(*kernels,
                  [](const base::KernelMeasurement& row) { return row.timing.samples == 0; });
  return kernels;
}

// Operators of the model on the runtime's own kernels.
bool is_own_kernel(Kernels kernels, base::Provider provider, std::string_view op) {
  if (!is_fused(kernels)) return provider == base::Provider::Native && op.starts_with("aten.");
  const std::optional<ir::OpKind> kind = ir::native_op(op);
  return provider == base::Provider::Fused || (kind && ir::is_model_op(*kind));
}

template <typename Is>
bool has_instruction(const runtime::plan::Plan& plan, const Is& is) {
  return std::ranges::any_of(plan.programs, [&](const runtime::plan::Program& program) {
    return std::ranges::any_of(program.instructions, is);
  });
}
bool has_own_kernels(Kernels kernels, const runtime::plan::Plan& plan) {
  return has_instruction(plan, [&](const runtime::plan::Instruction& in) {
    return is_own_kernel(kernels, in.provider, in.op);
  });
}
bool is_fused_kernel(const runtime::plan::Instruction& in) {
  return in.kind == runtime::plan::InstructionKind::Kernel && in.provider == base::Provider::Fused;
}
bool has_other_fused(const runtime::plan::Plan& plan,
                     const std::set<base::KernelSignature>& known) {
  return has_instruction(plan, [&](const runtime::plan::Instruction& in) {
    return is_fused_kernel(in) && !known.contains(runtime::plan::signature_of(plan, in));
  });
}

// GPUs have none of libtorch's kernels.
Result<std::vector<Kernels>> kernels_here(const Target& target,
                                          runtime::comm::Communicator& control) {
  bool has_libtorch = false;
  if (target.device != base::DeviceKind::Cuda) {
    DC_ASSIGN_OR_RETURN(has_libtorch, runtime::measure::has_libtorch(target.threads, control));
  }
  std::vector<Kernels> all;
  if (has_libtorch) all.push_back(Kernels::Aten);
  all.push_back(Kernels::Native);
  all.insert(all.end(), std::begin(kFused), std::end(kFused));
  return all;
}

// Adds the kernels of two micro-batches that one does not have: gradients are summed in f32, and
// updates read these, as they do on several ranks, each behind a separate check. None where the
// sums do not fit in memory.
Status add_accumulating(const ir::Step& step, const Target& target,
                        runtime::comm::ProcessGroup& job,
                        const runtime::measure::Progress& progress,
                        std::vector<base::KernelMeasurement>& rows) {
  Replay replay;
  replay.timing.warmup = 1;
  replay.accumulation = 2;
  auto measured = measure_model(step, target, replay, job, progress);
  // The rank that lacks memory says so; the others hear that one could not measure.
  if (!measured.ok() && (measured.status().kind() == base::ErrorKind::OutOfMemory ||
                         measured.status().kind() == base::ErrorKind::PeerDied))
    return {};
  DC_RETURN_IF_ERROR(measured.status());
  std::set<base::KernelSignature> known;
  for (const base::KernelMeasurement& row : rows) known.insert(row.signature);
  for (base::KernelMeasurement& row : *measured) {
    const bool is_of_step = row.signature.op().starts_with("dc.");
    if (is_of_step && known.insert(row.signature).second) rows.push_back(std::move(row));
  }
  return {};
}

// The kernels of every provider that is here: those of a plan on libtorch, and what else plans have
// that take the runtime's own kernels where they can.
Result<std::vector<base::KernelMeasurement>> measure_providers(
    const ir::Step& step, const Target& target, runtime::comm::ProcessGroup& job,
    const runtime::measure::Progress& progress) {
  DC_ASSIGN_OR_RETURN(const std::vector<Kernels> all, kernels_here(target, job.control()));
  std::vector<base::KernelMeasurement> rows;
  std::set<base::KernelSignature> known;
  for (const Kernels kernels : all) {
    DC_ASSIGN_OR_RETURN(const runtime::plan::Plan plan,
                        one_rank_plan(step, target, {kernels}, cost::AnalyticCost(target.threads)));
    const bool is_first = rows.empty();
    if (!is_first && !has_own_kernels(kernels, plan)) continue;
    if (keeps_less(kernels) && !has_other_fused(plan, known)) continue;
    DC_ASSIGN_OR_RETURN(std::vector<base::KernelMeasurement> measured,
                        measure_model(step, target, {kernels}, job, progress));
    for (base::KernelMeasurement& row : measured) {
      const bool is_own =
          is_first || is_own_kernel(kernels, row.signature.provider(), row.signature.op());
      if (is_own && (!is_fused(kernels) || known.insert(row.signature).second))
        rows.push_back(std::move(row));
    }
  }
  DC_RETURN_IF_ERROR(add_accumulating(step, target, job, progress, rows));
  return rows;
}

// Plans of one kernel each.
using LoneKernels = std::map<base::KernelSignature, runtime::plan::Plan>;

// Adds the fused kernels of a plan; no more of them than `most` in all.
void add_fused(const runtime::plan::Plan& plan, size_t most, LoneKernels& kernels) {
  for (const runtime::plan::Program& program : plan.programs) {
    for (const runtime::plan::Instruction& in : program.instructions) {
      if (!is_fused_kernel(in) || kernels.size() >= most) continue;
      base::KernelSignature signature = runtime::plan::signature_of(plan, in);
      if (!kernels.contains(signature))
        kernels.emplace(std::move(signature), runtime::measure::lone_kernel(plan, in));
    }
  }
}

// The default chain's fused kernels, with reductions and without, which were measured in a step
// too, and as many others drawn at random as are asked for, or fewer where plans drawn one after
// the other bring nothing new. Every rank draws the same.
Result<LoneKernels> draw_fusions(const ir::Step& step, const ProfileRequest& request,
                                 const Target& target, const runtime::measure::Progress& progress) {
  constexpr int kMostBarren = 16;  // plans
  const cost::AnalyticCost generic(target.threads);
  const auto add = [&](const Replay& replay, size_t most, LoneKernels& kernels) -> Status {
    DC_ASSIGN_OR_RETURN(const runtime::plan::Plan plan,
                        one_rank_plan(step, target, replay, generic));
    add_fused(plan, most, kernels);
    return {};
  };
  LoneKernels kernels;
  for (const Kernels fused : kFused) DC_RETURN_IF_ERROR(add({fused}, SIZE_MAX, kernels));
  const size_t first = kernels.size(), most = first + static_cast<size_t>(request.fusions);
  int barren = 0;
  for (uint64_t seed = 0; kernels.size() < most && barren < kMostBarren; ++seed) {
    const size_t before = kernels.size();
    DC_RETURN_IF_ERROR(add({Kernels::FusedAtRandom, seed}, most, kernels));
    barren = kernels.size() == before ? barren + 1 : 0;
    progress(0.5 * static_cast<double>(kernels.size() - first) / request.fusions, "fusions");
  }
  return kernels;
}

// Adds rows of fused kernels where they stand in steps of some of these plans: how far from warm
// and how far from cold they run there. Of a kernel in several plans the first counts.
Status measure_in_steps(const ir::Step& step, const Target& target,
                        runtime::comm::ProcessGroup& job,
                        std::vector<base::KernelMeasurement>& rows) {
  constexpr uint64_t kPlans = 4;
  const auto known = [&rows](const base::KernelSignature& signature) {
    return std::ranges::find(rows, signature, &base::KernelMeasurement::signature) != rows.end();
  };
  for (uint64_t seed = 0; seed < kPlans; ++seed) {
    DC_ASSIGN_OR_RETURN(std::vector<base::KernelMeasurement> plan,
                        measure_model(step, target, {Kernels::FusedAtRandom, seed, {1, 5}}, job,
                                      [](double, std::string_view) {}));
    for (base::KernelMeasurement& row : plan) {
      if (row.signature.provider() == base::Provider::Fused && !known(row.signature))
        rows.push_back(std::move(row));
    }
  }
  return {};
}

Result<std::vector<base::AloneMeasurement>> measure_fusions(
    const ir::Step& step, const ProfileRequest& request, runtime::comm::ProcessGroup& job,
    const runtime::measure::Progress& progress) {
  DC_ASSIGN_OR_RETURN(LoneKernels drawn,
                      draw_fusions(step, request, target_of(request, job), progress));
  std::vector<base::AloneMeasurement> rows;
  std::vector<runtime::plan::Plan> kernels;
  for (auto& [signature, kernel] : drawn) {
    rows.push_back({signature, {}, {}});
    kernels.push_back(std::move(kernel));
  }
  const auto second = [&progress](double fraction, std::string_view what) {
    progress(0.5 + 0.5 * fraction, what);
  };
  DC_ASSIGN_OR_RETURN(const std::vector<runtime::measure::AloneTimings> timings,
                      runtime::measure::measure_alone(kernels, job.control(), {}, second));
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].warm = timings[i].warm;
    rows[i].cold = timings[i].cold;
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
  const Target target = target_of(request, job);
  base::Measurements all;
  DC_ASSIGN_OR_RETURN(all.kernels, measure_providers(step, target, job, progress));
  if (request.fusions > 0) {
    DC_ASSIGN_OR_RETURN(all.alone, measure_fusions(step, request, job, progress));
    DC_RETURN_IF_ERROR(measure_in_steps(step, target, job, all.kernels));
  }
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
  if (all.machine.gpu && request.gauge != nullptr)
    all.machine.gpu->library_bytes = request.gauge->beyond_arenas();
  return all;
}

}  // namespace dc::driver
