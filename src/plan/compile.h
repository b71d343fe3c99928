// From an imported step to a plan: the options that decide it, the pipeline, the emission.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "runtime/plan/plan.h"
#include "src/cost/cost_model.h"
#include "src/ir/step.h"
#include "src/passes/pass_manager.h"

namespace dc::plan {

struct CompileOptions {
  int world = 1;
  int accumulation = 1;
  int threads = 1;                        // per rank
  std::optional<ir::DType> reduce_dtype;  // wire dtype of gradients
  passes::Options passes;
  std::string chain = "auto";  // a name that search::find_chain knows, or "auto": search::find_best
  int search_effort = 48;      // schedules that "auto" may simulate
  bool any_order = false;      // "auto" may choose the reduction order
  std::string own_passes;      // a chain as text instead of a name; empty: none

  // Every option that can change the plan, in one canonical line; part of the cache key.
  std::string canonical() const;
};

inline constexpr int kMaxWorld = 65536;
base::Status check(const CompileOptions& options);  // Usage (64) naming the option

// Asked by "auto" before each simulation; true cuts the search short. The plan then has the note
// kCutShort: it depends on the clock and must not be cached.
using OutOfTime = std::function<bool()>;
inline constexpr const char* kCutShort =
    "search-cut-short: the search ran out of --search-time; another run may find another plan";

// Begins a note on one schedule that "auto" left out because a pass or the verifier found a bug of
// ours in it. Such a plan is not cached, so that the note is seen.
inline constexpr const char* kLeftOut = "search-left-out: ";

// Hears the name of each part as it ends: "passes" (several times), "layout", "emit", "verify".
using PartDone = std::function<void(const char* part)>;

// Takes the imported step with its optimizer already configured. The step is consumed.
base::Result<runtime::plan::Plan> compile(ir::Step step, const CompileOptions& options,
                                          const cost::CostModel& cost, const PartDone& done = {},
                                          const OutOfTime& out_of_time = {});

// What a verifier finds in a plan that was just made, as the bug of ours that it is (70); in a plan
// read from a file the same finding is the file's fault (65). Code, sentence and context stay.
base::Status own_fault(const base::Status& found);

}  // namespace dc::plan
