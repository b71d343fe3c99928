#include "src/driver/compile_options.h"

namespace dc::driver {

using base::ErrorKind;
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

}  // namespace dc::driver
