// Passes: transformations of a Step from one stage to the next (or within one). The table is
// passes.def.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/cost/cost_model.h"
#include "src/ir/step.h"

namespace dc::passes {

// When gradients are summed over ranks: once per step, or after every micro-batch.
enum class ReductionOrder : uint8_t { PerStep, PerMicroBatch };

// Which activations the backward phase makes again instead of keeping them: as many as the budget
// asks for; none; all but the inputs of each block.
enum class Recompute : uint8_t { Auto, Off, Full };

struct Options {
  int zero = 3;  // ZeRO stage 0 to 3: the uniform placement
  std::optional<ReductionOrder>
      reduction_order;  // empty: per-step for ZeRO 0 and 1, per-micro-batch for 2 and 3
  std::optional<base::Bytes> memory;  // budget of space device, per rank
  Recompute recompute = Recompute::Auto;
};

struct Remark {
  std::string pass, text;
};

// All a pass may know: no globals, no clock, no communication.
struct PassContext {
  const cost::CostModel& cost;
  const Options& options;
  std::vector<Remark>& remarks;
};

enum class Change : uint8_t { No, Yes };

struct Pass {
  std::string_view name;     // kebab-case, verb first
  std::string_view summary;  // one line
  ir::Stage needs, gives;    // stage before and after
  base::Result<Change> (*run)(ir::Step&, PassContext&);
};

std::span<const Pass> all_passes();            // in the order in which they may run
const Pass* find_pass(std::string_view name);  // null if unknown

// Runs passes in order; verifies the step before the first and after each. The context of an error
// names the pass. `done` hears of each pass that went well, for those who measure.
using PassDone = std::function<void(const Pass&)>;
base::Result<Change> run_passes(ir::Step& step, std::span<const Pass* const> passes,
                                PassContext& context, const PassDone& done = {});
// "a,b,c" to passes; Usage (64) with the nearest name for an unknown one.
base::Result<std::vector<const Pass*>> parse_passes(std::string_view list);

}  // namespace dc::passes
