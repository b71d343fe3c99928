#include "src/plan/compile.h"

#include <algorithm>

#include "src/base/build_id.h"
#include "src/base/sha256.h"
#include "src/plan/emit.h"
#include "src/search/default_pipeline.h"

namespace dc::plan {

using base::ErrorKind;
using base::Result;
using base::Status;

std::string CompileOptions::canonical() const {
  std::string text = "world=" + std::to_string(world) +
                     " accumulation=" + std::to_string(accumulation) +
                     " threads=" + std::to_string(threads) + " zero=" + std::to_string(passes.zero);
  if (passes.reduction_order) {
    text += *passes.reduction_order == passes::ReductionOrder::PerStep ? " order=per-step"
                                                                       : " order=per-micro-batch";
  }
  if (reduce_dtype) text += " reduce_dtype=" + std::string(base::name(*reduce_dtype));
  if (!chain.empty()) text += " passes=" + chain;
  switch (passes.recompute) {
    case passes::Recompute::Auto:
      break;
    case passes::Recompute::Full:
      text += " recompute=full";
      break;
    case passes::Recompute::Off:
      text += " recompute=off";
      break;
  }
  if (passes.memory) text += " memory=" + std::to_string(passes.memory->v);
  return text + " device=cpu";
}

Status check(const CompileOptions& options) {
  const auto bad = [](const std::string& what) { return Status(ErrorKind::Usage, "DC2801", what); };
  if (options.world < 1 || options.world > kMaxWorld)
    return bad("--world must be between 1 and 65536");
  if (options.accumulation < 1) return bad("--grad-accum must be at least 1");
  if (options.threads < 1 || options.threads > 1024)
    return bad("--threads must be between 1 and 1024");
  if (options.passes.zero < 0 || options.passes.zero > 3) return bad("--zero must be 0, 1, 2 or 3");
  if (options.reduce_dtype && *options.reduce_dtype != ir::DType::F32 &&
      *options.reduce_dtype != ir::DType::BF16) {
    return bad("--reduce-dtype must be float32 or bfloat16");
  }
  return {};
}

namespace {

Result<std::vector<const passes::Pass*>> pipeline_of(const CompileOptions& options) {
  if (options.chain.empty()) return search::default_pipeline();
  DC_ASSIGN_OR_RETURN(std::vector<const passes::Pass*> pipeline,
                      passes::parse_passes(options.chain));
  if (pipeline.empty() || pipeline.back()->gives != ir::Stage::Allocated) {
    return Status(ErrorKind::Usage, "DC2606",
                  "--passes must end with layout-arenas, which gives every value its address");
  }
  const bool recomputes =
      std::find(pipeline.begin(), pipeline.end(), passes::find_pass("recompute")) != pipeline.end();
  if (options.passes.recompute == passes::Recompute::Full && !recomputes) {
    return Status(ErrorKind::Usage, "DC2607",
                  "--recompute full needs the pass recompute in --passes, after schedule");
  }
  return pipeline;
}

}  // namespace

Result<runtime::plan::Plan> compile(ir::Step step, const CompileOptions& options,
                                    const cost::CostModel& cost, const PartDone& done) {
  DC_RETURN_IF_ERROR(check(options));
  step.mesh.axes = {{"dp", options.world}};
  step.accumulation = options.accumulation;
  step.reduce_dtype = options.reduce_dtype;
  std::vector<passes::Remark> remarks;
  passes::PassContext context{cost, options.passes, remarks};
  DC_ASSIGN_OR_RETURN(const std::vector<const passes::Pass*> pipeline, pipeline_of(options));
  base::Result<passes::Change> change =
      passes::run_passes(step, pipeline, context, [&](const passes::Pass& pass) {
        if (done) done(pass.gives == ir::Stage::Allocated ? "layout" : "passes");
      });
  if (!change.ok()) return std::move(change).status();
  EmitOptions emit_options;
  emit_options.threads = options.threads;
  emit_options.chain = "zero" + std::to_string(options.passes.zero);
  if (!options.chain.empty()) emit_options.chain += " by its own passes";
  DC_ASSIGN_OR_RETURN(runtime::plan::Plan plan, emit(step, emit_options, cost));
  if (done) done("emit");
  plan.options = options.canonical();
  plan.options_digest = base::sha256_hex(plan.options);
  plan.compiler = std::string(base::build_id());
  for (const passes::Remark& remark : remarks)
    plan.remarks.push_back(remark.pass + ": " + remark.text);
  return plan;
}

}  // namespace dc::plan
