// What the offload passes share: the loop that lowers the budget until the layout fits, and the
// remark.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "src/passes/pass.h"
#include "src/schedule/memory_pressure.h"

namespace dc::passes {

// What an offload pass moves, as its remark says it: "3 values of 12 KiB leave the device ...".
struct OffloadWords {
  std::string_view code, things, what;
};

// What one run of an offload pass made of a step.
struct Offloaded {
  int things = 0;                               // that leave the device
  int64_t bytes = 0;                            // of them
  bool may_fit = false;                         // no position is above the budget that was given
  std::vector<base::RemarkSubject> subjects{};  // the parameters, where things are of parameters
  std::optional<ir::Step> step{};               // afterwards; empty: as before, nothing leaves
};
// `pressure`: of that step, under the budget of this run.
using OffloadRun = std::function<Offloaded(const ir::Step&, schedule::MemoryPressure pressure)>;

// Runs `run` under the device's budget and lays out the result: live bytes within the budget do
// not ensure a layout within the budget. If the layout exceeds it, another run gets a budget that
// is smaller by the excess. Adds a remark of `pass`: how many things, what becomes of them, and
// what compute waits for.
base::Result<Change> offload_to_fit(ir::Step& step, const PassContext& context,
                                    std::string_view pass, const OffloadWords& words,
                                    const OffloadRun& run);

// The same without a layout: one run under `budget`, whatever comes of it.
Change offload_once(ir::Step& step, const PassContext& context, base::Bytes budget,
                    std::string_view pass, const OffloadWords& words, const OffloadRun& run);

}  // namespace dc::passes
