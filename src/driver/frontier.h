// frontier: the shortest step that is found at each of several budgets of the device's memory, from
// the smallest that any plan keeps to as much as is of use. The answer to "what does more memory
// buy?".
#pragma once

#include <functional>
#include <vector>

#include "src/driver/compile.h"

namespace dc::driver {

struct FrontierRequest {
  CompileRequest compile;           // its budget for the device is left aside
  std::optional<base::Bytes> from;  // empty, or less: the smallest plan that is found
  std::optional<base::Bytes> to;    // empty: what the plan without a budget takes
  int points = 8;                   // budgets, in equal ratios; at least two
};

struct FrontierPoint {
  base::Bytes budget;
  size_t plan = 0;    // of Frontier::plans: the fastest of those that keep the budget
  base::Nanos bound;  // no plan within the budget is below it; 0: a chain by name has none
};

// By rising budget; the time never rises with it.
struct Frontier {
  std::vector<FrontierPoint> points;
  std::vector<CompileResult> plans;
  // The budget asked for that no plan keeps, where there is one: the points begin at the smallest
  // plan instead.
  std::optional<base::Bytes> too_small;
};

// Hears after each budget how many of them are done.
using BudgetDone = std::function<void(int done, int all)>;

// Errors: those of compile(); Usage (64), DC2813, for bounds or points that make no curve;
// OutOfMemory (80), as compile() says it, where no plan keeps `to`.
base::Result<Frontier> frontier(const FrontierRequest& request, Stopwatch& watch,
                                const BudgetDone& done = {});

base::Bytes device_memory(const runtime::plan::Plan& plan);  // the arena of one rank
base::Nanos step_time(const runtime::plan::Plan& plan);      // as predicted

}  // namespace dc::driver
