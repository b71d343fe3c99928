// From an imported step to a plan: the options that decide it, the pipeline, the emission.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "runtime/plan/plan.h"
#include "src/cost/cost_model.h"
#include "src/ir/step.h"
#include "src/passes/pass.h"

namespace dc::plan {

struct CompileOptions {
  int world = 1;
  int accumulation = 1;
  int threads = 1;                        // per rank
  std::optional<ir::DType> reduce_dtype;  // wire dtype of gradients
  passes::Options passes;
  std::string chain = "zero3";  // a name that search::find_chain knows
  std::string own_passes;       // a chain as text instead of a name; empty: none

  // Every option that can change the plan, in one canonical line; part of the cache key.
  std::string canonical() const;
};

inline constexpr int kMaxWorld = 65536;
base::Status check(const CompileOptions& options);  // Usage (64) naming the option

// Hears the name of each part as it ends: "passes" (several times), "layout", "emit".
using PartDone = std::function<void(const char* part)>;

// Takes the imported step with its optimizer already configured. The step is consumed.
base::Result<runtime::plan::Plan> compile(ir::Step step, const CompileOptions& options,
                                          const cost::CostModel& cost, const PartDone& done = {});

}  // namespace dc::plan
