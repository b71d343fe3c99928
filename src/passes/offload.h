// What the offload passes share: the budget that a layout turns out to keep, and the remark.
#pragma once

#include <functional>
#include <string>

#include "src/passes/memory_pressure.h"
#include "src/passes/pass.h"

namespace dc::passes {

// What one run of an offload pass did to a step.
struct Offloaded {
  int things = 0;        // that leave the device; 0: the step is as it was
  int64_t bytes = 0;     // of them
  bool may_fit = false;  // no position is above the budget that was given
};
using OffloadRun = std::function<Offloaded(ir::Step&, base::Bytes budget)>;

// Runs `run` under the device's budget. Live bytes within the budget need not make a layout within
// the budget, so the result is laid out, and what sticks out is taken off the budget of another
// run. Adds a remark of `pass`: how many of `things`, what becomes of them (`what`), and what
// compute waits for.
base::Result<Change> offload_to_fit(ir::Step& step, PassContext& context, std::string_view pass,
                                    std::string_view things, std::string_view what,
                                    const OffloadRun& run);

// The same without a layout: one run under `budget`, whatever comes of it.
Change offload_once(ir::Step& step, PassContext& context, base::Bytes budget, std::string_view pass,
                    std::string_view things, std::string_view what, const OffloadRun& run);

}  // namespace dc::passes
