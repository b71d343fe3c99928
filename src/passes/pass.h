// What a pass is written against: a function Result<Change> name(ir::Step&, const PassContext&)
// that takes a step from one stage to the next, or leaves it at its stage. The table is passes.def.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "src/base/device_kind.h"
#include "src/base/remark.h"
#include "src/base/status.h"
#include "src/cost/cost_model.h"
#include "src/ir/step.h"

namespace dc::layout {
class KnownArenas;
}

namespace dc::passes {

class KnownRecompute;

// When gradients are summed over ranks.
// ByStage: once per step with ZeRO 0 and 1, after every micro-batch with ZeRO 2 and 3.
// PerStep: once per step.
// PerMicroBatch: after every micro-batch.
// Any: the search chooses.
enum class ReductionOrder : uint8_t { ByStage, PerStep, PerMicroBatch, Any };

// Which activations the backward phase makes again instead of keeping them: as many as the budget
// asks for; none; all but the inputs of each block.
enum class Recompute : uint8_t { Auto, Off, Full };

// Who supplies the kernels of the model's operators.
// Aten: libtorch.
// Native: the runtime's own kernels where there is one, libtorch for the rest.
// Any: as Native, but libtorch's where the profile says that they are faster.
enum class Providers : uint8_t { Aten, Native, Any };

// Whether fused kernels have reductions.
// Never: to measure them without.
// AtEnds: to measure them with reductions that they do not read.
// WhereFaster: where the profile has measured that this is no slower, at ends alone; on GPUs unless
// it has measured that this is slower.
// Always: to measure them.
enum class FuseReductions : uint8_t { Never, AtEnds, WhereFaster, Always };

// Whether products add, and are joined, on GPUs (fuse-products).
// Never, Always: to measure them without or with that.
// WhereFaster: where the profile has measured that this is no slower, and where it has measured
// neither.
enum class FuseProducts : uint8_t { Never, WhereFaster, Always };

struct Pass;

struct Options {
  ReductionOrder reduction_order = ReductionOrder::ByStage;
  ir::PerSpace<std::optional<base::Bytes>> budgets;  // per rank; empty: no limit
  const std::optional<base::Bytes>& memory() const { return budgets[ir::Space::Device]; }
  // Where offload passes put what they move: the host if empty. A search may offload only if it is
  // set.
  std::optional<ir::Space> offload_space;
  Recompute recompute = Recompute::Auto;
  Providers providers = Providers::Aten;
  FuseReductions fuse_reductions = FuseReductions::WhereFaster;
  FuseProducts fuse_products = FuseProducts::WhereFaster;
  base::DeviceKind device = base::DeviceKind::Cpu;
  // Ranks that share a host, for hierarchical chains. Empty: not known.
  std::optional<int> ranks_per_host;
  // Called after each pass, whose result becomes its own: a test plants failures with it. Empty:
  // none.
  std::function<base::Status(const Pass&, ir::Step&)> after_pass = {};
};

using base::Remark;

// All a pass may know: no globals, no clock, no communication.
struct PassContext {
  const cost::CostModel& cost;
  const Options& options;
  std::vector<Remark>& remarks;
  std::optional<int64_t>
      argument{};               // of the pass that runs, as the chain says: "name=3", "name=64MiB"
  bool collect_remarks = true;  // false: saves the time to work them out
  // What passes that lay a step out need not lay out again; null: nothing.
  layout::KnownArenas* arenas = nullptr;
  // What recompute has found out about the step already; null: nothing.
  KnownRecompute* recompute = nullptr;
};

enum class Change : uint8_t { No, Yes };

}  // namespace dc::passes
