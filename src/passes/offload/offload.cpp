#include "src/passes/offload/offload.h"

#include "src/base/text.h"
#include "src/layout/allocate.h"
#include "src/sim/simulate.h"

namespace dc::passes {
namespace {

constexpr int kRuns = 6;

// With so much room no layout fails; a layout of a large step takes longer than everything else.
bool fits_easily(const schedule::MemoryPressure& pressure, base::Bytes budget) {
  return pressure.most_bytes().v <= budget.v / 17 * 16;
}

// How many things left, and what compute waits for in both steps.
void report(const ir::Step& before, const Offloaded& done, const PassContext& context,
            std::string_view pass, const OffloadWords& words) {
  if (!context.collect_remarks) return;
  const auto waits = [&](const ir::Step& of) { return sim::simulate(of, context.cost).exposed.v; };
  const int64_t old = waits(before), now = waits(*done.step);
  context.remarks.push_back(
      {std::string(pass),
       std::string(words.code),
       done.subjects,
       {{"things", done.things},
        {"bytes", done.bytes},
        {"exposed_before_ns", old},
        {"exposed_after_ns", now}},
       std::to_string(done.things) + " " + std::string(words.things) + " of " +
           base::format_bytes(done.bytes) + " " + std::string(words.what) + ": exposed transfers " +
           base::format_duration(old) + " become " + base::format_duration(now)});
}

}  // namespace

base::Result<Change> offload_to_fit(ir::Step& step, const PassContext& context,
                                    std::string_view pass, const OffloadWords& words,
                                    const OffloadRun& run) {
  if (!context.options.memory()) return Change::No;
  const base::Bytes wanted = *context.options.memory();
  const schedule::MemoryPressure pressure(step, context.cost, wanted);
  if (fits_easily(pressure, wanted)) return Change::No;
  base::Bytes budget = wanted;
  Offloaded best;
  base::Bytes least{INT64_MAX};
  for (int i = 0; i < kRuns; ++i) {
    Offloaded now = run(step, pressure.within(budget));
    // If the first run cannot fit the budget, its result is kept without laying it out: a later
    // pass may still free memory. The arena then counts as almost infinite.
    base::Bytes arena{INT64_MAX - 1};
    if (now.may_fit || i > 0) {
      DC_ASSIGN_OR_RETURN(arena, layout::device_arena(now.step ? *now.step : step, context.cost,
                                                      wanted, context.arenas));
    }
    const bool may_fit = now.may_fit;
    if (arena < least) {
      best = std::move(now);
      least = arena;
    }
    if (least <= wanted || !may_fit) break;
    budget -= (arena - wanted) * (int64_t{1} << i);  // a little less often changes nothing
  }
  if (!best.step) return Change::No;
  report(step, best, context, pass, words);
  step = *std::move(best.step);
  return Change::Yes;
}

Change offload_once(ir::Step& step, const PassContext& context, base::Bytes budget,
                    std::string_view pass, const OffloadWords& words, const OffloadRun& run) {
  Offloaded done = run(step, schedule::MemoryPressure(step, context.cost, budget));
  if (!done.step) return Change::No;
  report(step, done, context, pass, words);
  step = *std::move(done.step);
  return Change::Yes;
}

}  // namespace dc::passes
