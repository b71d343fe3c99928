// From an imported step to a plan: the search or a chain by name, its passes, the emission.
#pragma once

#include <functional>
#include <optional>

#include "runtime/plan/plan.h"
#include "src/cost/cost_model.h"
#include "src/driver/compile_options.h"
#include "src/ir/step.h"
#include "src/search/smallest_plan.h"

namespace dc::driver {

// Asked by "auto" before each simulation; true cuts the search short. The plan then has the note
// kCutShort: it depends on the clock and must not be cached.
using OutOfTime = std::function<bool()>;
inline constexpr const char* kCutShort =
    "search-cut-short: --search-time ended the search; another run may find another plan";

// Begins a note on one schedule that "auto" left out because a pass or the verifier found a bug of
// ours in it. Such a plan is not cached, so that the note is seen.
inline constexpr const char* kLeftOut = "search-left-out: ";

// Hears the name of each part as it ends: "search" (of "auto"), "passes" (after each pass),
// "layout", "evaluation" (of an archive that has one), "emit", "verify". All may come again: a plan
// that fails is followed by another.
using PartDone = std::function<void(const char* part)>;

// The imported step as the options have it: ranks, micro-batches, type of gradients on the wire.
ir::Step with_options(ir::Step step, const CompileOptions& options);

// Takes the imported step with its optimizer already configured. The step is consumed.
base::Result<runtime::plan::Plan> compile_step(ir::Step step, const CompileOptions& options,
                                               const cost::CostModel& cost,
                                               const PartDone& done = {},
                                               const OutOfTime& out_of_time = {});

// The same by passes that plan for `planned` bytes of the device, whatever its budget: the plan may
// be above that.
base::Result<runtime::plan::Plan> compile_planned(ir::Step step, const CompileOptions& options,
                                                  const cost::CostModel& cost,
                                                  const search::PlannedMemory& planned);

// Bytes of the device's arena of the smallest plan that is found: every budget that is at least as
// large has one (smallest_plan.h). Empty if none can be made, with or without a limit. The budget
// of the options does not count.
std::optional<base::Bytes> smallest_memory(ir::Step step, const CompileOptions& options,
                                           const cost::CostModel& cost);

// What a verifier finds in a plan that was just made, as the bug of ours that it is (70); in a plan
// read from a file the same finding is the file's fault (65). Code, sentence and context stay.
base::Status own_fault(const base::Status& found);

}  // namespace dc::driver
