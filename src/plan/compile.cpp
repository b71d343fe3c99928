#include "src/plan/compile.h"

#include <algorithm>

#include "src/base/build_id.h"
#include "src/base/sha256.h"
#include "src/plan/emit.h"
#include "src/search/auto.h"
#include "src/search/chains.h"

namespace dc::plan {

using base::ErrorKind;
using base::Result;
using base::Status;

std::string CompileOptions::canonical() const {
  std::string text =
      "world=" + std::to_string(world) + " accumulation=" + std::to_string(accumulation) +
      " threads=" + std::to_string(threads) + " chain=" + (own_passes.empty() ? chain : own_passes);
  if (own_passes.empty() && chain == "auto") {
    text += " effort=" + std::to_string(search_effort);
    if (any_order) text += " order=auto";
  }
  if (passes.reduction_order) {
    text += *passes.reduction_order == passes::ReductionOrder::PerStep ? " order=per-step"
                                                                       : " order=per-micro-batch";
  }
  if (reduce_dtype) text += " reduce_dtype=" + std::string(base::name(*reduce_dtype));
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
  if (passes.host_memory) text += " host_memory=" + std::to_string(passes.host_memory->v);
  if (passes.disk_memory) text += " disk_memory=" + std::to_string(passes.disk_memory->v);
  if (passes.offload_space) {
    text +=
        *passes.offload_space == ir::Space::Disk ? " offload_space=disk" : " offload_space=host";
  }
  return text + " device=cpu";
}

Status check(const CompileOptions& options) {
  const auto bad = [](const std::string& what) { return Status(ErrorKind::Usage, "DC2801", what); };
  if (options.world < 1 || options.world > kMaxWorld)
    return bad("--world must be between 1 and 65536");
  if (options.accumulation < 1) return bad("--grad-accum must be at least 1");
  if (options.threads < 1 || options.threads > 1024)
    return bad("--threads must be between 1 and 1024");
  if (options.any_order && (options.chain != "auto" || !options.own_passes.empty()))
    return bad("--reduction-order auto needs --chain auto: a chain by name does not choose");
  if (options.search_effort < 1) return bad("--search-effort must be at least 1");
  if (options.reduce_dtype && *options.reduce_dtype != ir::DType::F32 &&
      *options.reduce_dtype != ir::DType::BF16) {
    return bad("--reduce-dtype must be float32 or bfloat16");
  }
  return {};
}

namespace {

Result<passes::Chain> own_chain(const CompileOptions& options) {
  DC_ASSIGN_OR_RETURN(passes::Chain chain, passes::parse_passes(options.own_passes));
  if (chain.empty() || chain.back().pass->gives != ir::Stage::Allocated) {
    return Status(ErrorKind::Usage, "DC2606",
                  "--passes must end with layout-arenas, which gives every value its address");
  }
  const bool recomputes = std::any_of(chain.begin(), chain.end(), [](const passes::PassCall& call) {
    return call.pass->name == "recompute";
  });
  if (options.passes.recompute == passes::Recompute::Full && !recomputes) {
    return Status(ErrorKind::Usage, "DC2611",
                  "--recompute full needs the pass recompute in --passes, after schedule");
  }
  return chain;
}

}  // namespace

Result<runtime::plan::Plan> compile(ir::Step step, const CompileOptions& options,
                                    const cost::CostModel& cost, const PartDone& done,
                                    const OutOfTime& out_of_time) {
  DC_RETURN_IF_ERROR(check(options));
  step.mesh.axes = {{"dp", options.world}};
  step.accumulation = options.accumulation;
  step.reduce_dtype = options.reduce_dtype;
  std::vector<passes::Remark> remarks;
  passes::Options pass_options = options.passes;
  passes::Chain chain;
  bool cut_short = false;
  if (!options.own_passes.empty()) {
    DC_ASSIGN_OR_RETURN(chain, own_chain(options));
  } else if (options.chain == "auto") {
    DC_ASSIGN_OR_RETURN(const search::Found found,
                        search::find_best(step, pass_options, cost,
                                          {options.search_effort, options.any_order, out_of_time}));
    chain = found.chain;
    pass_options = found.options;
    cut_short = found.cut_short;
    remarks.push_back({"auto", search::describe(found)});
    if (done) done("search");
  } else {
    DC_ASSIGN_OR_RETURN(chain, search::find_chain(options.chain));
  }
  passes::PassContext context{cost, pass_options, remarks};
  base::Result<passes::Change> change =
      passes::run_passes(step, chain, context, [&](const passes::Pass& pass) {
        if (done) done(pass.gives == ir::Stage::Allocated ? "layout" : "passes");
      });
  if (!change.ok())
    return std::move(change).status().add_context("in chain " + passes::print(chain));
  EmitOptions emit_options;
  emit_options.threads = options.threads;
  emit_options.chain = options.own_passes.empty() ? options.chain : passes::print(chain);
  emit_options.memory = options.passes.memory;
  DC_ASSIGN_OR_RETURN(runtime::plan::Plan plan, emit(step, emit_options, cost));
  if (done) done("emit");
  plan.options = options.canonical();
  plan.options_digest = base::sha256_hex(plan.options);
  plan.compiler = std::string(base::build_id());
  for (const passes::Remark& remark : remarks)
    plan.remarks.push_back(remark.pass + ": " + remark.text);
  if (cut_short) plan.notes.emplace_back(kCutShort);
  return plan;
}

}  // namespace dc::plan
