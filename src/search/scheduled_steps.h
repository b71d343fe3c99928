// ScheduledSteps: what chains make of one imported step, up to the layout.
//
// What chains begin with alike is computed once, as long as it is among what was used latest
// (known_steps.h): the step after the passes that all ZeRO stages have in common, after a stage,
// the passes up to `schedule`, and after each further one up to `recompute`.
//
// A search changes one pass of a chain at a time, mostly the one after the pass that it changed
// before. So of each chain the step after its first pass that was not known is kept as well, and
// that after keep-jointly. A pass depends on the step and its options alone (src/passes/README.md),
// so what is kept stays true.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/layout/known_arenas.h"
#include "src/passes/pass_manager.h"
#include "src/passes/recompute/known_recompute.h"
#include "src/search/known_steps.h"

namespace dc::search {

// Most and least bytes of the device that a stage's just-in-time schedule needs, by what recompute
// may do: nothing made again, and only the inputs of blocks kept.
struct RecomputeRange {
  int64_t least = 0, most = 0;
};

// A chain, and the bytes of the device that its passes plan for: those of the budget or, as
// schedules may need more or less than was planned for, others. Empty: no limit.
struct Candidate {
  passes::Chain chain;
  std::optional<base::Bytes> planned;
  bool operator==(const Candidate&) const = default;
};

// Bytes of the device that are live in plans of a chain; 0 where passes behind recompute may take
// any bytes away.
struct LiveFloor {
  int64_t planned_least = 0;  // in the one whose passes plan for almost nothing, at least
  int64_t least = 0;          // in each, whatever its passes plan for
};

// What a chain's schedule costs.
struct ScheduleCosts {
  base::Nanos time, communication;  // of the simulated step
  int64_t bytes = 0;                // live on the device at most
  int64_t nodes = 0;
};

// What was found out about an imported step. Of one cost model and one set of options, but for what
// these say of recomputation and of the device's budget: searches that differ in no more share it.
struct StepStore {
  // What recompute knows of a step that it is applied to.
  struct BeforeRecompute {
    SharedStep step;
    passes::KnownRecompute known;
  };

  KnownSteps steps;  // by what made them (key_of() in scheduled_steps.cpp)
  std::map<std::string, std::unique_ptr<BeforeRecompute>> before_recompute;  // by the passes
  std::vector<size_t> different_fusions;                                     // empty: not known
  std::map<std::string, RecomputeRange> ranges;                              // by stage
  std::map<std::string, int64_t> state_bytes;                                // by stage
  // By what made the step after recompute, and whether passes behind it update early.
  std::map<std::pair<std::string, bool>, LiveFloor> floors;
  // By what made the step before them: the fewest exchanges of both that kept nothing.
  std::map<std::string, int64_t> kept_nothing;
  layout::KnownArenas arenas;
  std::map<std::string, ScheduleCosts> costs;  // by what made the step
  // By what made the step, and the budget of the device: the arena if it is too large.
  std::map<std::pair<std::string, int64_t>, std::optional<base::Bytes>> too_large;
};

class ScheduledSteps {
 public:
  // The references must outlive it. `store`: of these; its own if there is none.
  ScheduledSteps(const ir::Step& imported, const passes::Options& options,
                 const cost::CostModel& cost, StepStore* store = nullptr)
      : imported_(imported),
        options_(options),
        cost_(cost),
        own_(store ? nullptr : std::make_unique<StepStore>()),
        known_(store ? *store : *own_) {}

  // The step after all passes of the chain but the layout.
  base::Result<ir::Step> made(const Candidate& candidate);

  // Of the step after all passes of the chain but the layout. Searches that share a store often ask
  // for the same ones.
  base::Result<ScheduleCosts> costs(const Candidate& candidate);
  // Bytes of the device's arena if it, or what is offloaded, exceeds the budgets of the options.
  base::Result<std::optional<base::Bytes>> arena_if_too_large(const Candidate& candidate);

  // The stage that `chain` begins with: the step after the passes before those that change a
  // scheduled one.
  base::Result<SharedStep> scheduled(const passes::Chain& chain);

  // Ways to fuse operators (kFusions) that make different steps of the imported one: of those that
  // make the same, the first.
  base::Result<std::vector<size_t>> different_fusions();

  // Of the stage that `chain` begins with.
  base::Result<RecomputeRange> recompute_range(const passes::Chain& chain);

  // Bytes of state on the device, of the stage that `chain` begins with.
  base::Result<int64_t> state_bytes(const passes::Chain& chain);

  // Passes behind recompute that move nothing out only add to what is live, but for early updates,
  // which take gradients away; and recompute leaves no less than `least`: recompute.cpp.
  base::Result<LiveFloor> live_floor(const passes::Chain& chain);
  base::Result<int64_t> least_live(const passes::Chain& chain);  // live_floor().least
  // Bytes that are live in the plan without a limit, at least; 0 if that is not known, so also
  // where passes behind recompute keep more.
  base::Result<int64_t> least_live_without_limit(const passes::Chain& chain);

  // Bytes of the device's arena, whatever the budget.
  base::Result<base::Bytes> arena(const ir::Step& step);

  // Requests placed by all layouts so far, which passes ask for too.
  int64_t placed() const { return known_.arenas.placed(); }

  // Whether what is offloaded keeps the budgets of the options.
  base::Result<bool> keeps_budgets_outside(const ir::Step& step);

  // Frees the step that costs() were asked of last, if it is a large one: what arena_if_too_large()
  // saves by it is not worth its memory for longer.
  void forget_large();

  // Of what made() makes: ir::verify().
  base::Status verify(const Candidate& candidate);

 private:
  // As made(); the latest is kept, since its layout is asked for behind its costs.
  base::Result<SharedStep> latest(const Candidate& candidate, const std::string& key);
  std::string key_of(const Candidate& candidate) const;
  base::Result<SharedStep> begun(const Candidate& candidate);
  // `step`: after the passes `chain`.
  passes::KnownRecompute& known_recompute(const passes::Chain& chain, const SharedStep& step);
  // Whether passes behind recompute update early; empty if they move anything out.
  static std::optional<bool> updates_early_behind(const passes::Chain& chain);
  // Of a step after recompute: bytes that the passes behind it leave on the device.
  int64_t live_behind(const ir::Step& step, bool updates_early) const;
  passes::Options options_for(const std::optional<base::Bytes>& planned) const;
  base::Result<passes::Change> apply(ir::Step& step, const passes::Chain& chain,
                                     const passes::Options& options,
                                     passes::KnownRecompute* recompute = nullptr);
  // Where some exchanges kept nothing, more of them, or of parameters alone, are taken to keep
  // nothing. `before`: key of the step.
  base::Result<passes::Change> exchange(ir::Step& step, const passes::PassCall& call,
                                        const std::string& before, const passes::Options& options);

  const ir::Step& imported_;
  const passes::Options& options_;
  const cost::CostModel& cost_;
  std::unique_ptr<StepStore> own_;
  StepStore& known_;
  std::string latest_key_;
  SharedStep latest_;
};

// Bytes of the device that are live at most.
int64_t live_bytes(const ir::Step& step, const cost::CostModel& cost);

}  // namespace dc::search
