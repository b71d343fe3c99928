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
// schedules may need more than was planned for, less. Empty: no limit.
struct Candidate {
  passes::Chain chain;
  std::optional<base::Bytes> planned;
  bool operator==(const Candidate&) const = default;
};

class ScheduledSteps {
 public:
  // The references must outlive it.
  ScheduledSteps(const ir::Step& imported, const passes::Options& options,
                 const cost::CostModel& cost)
      : imported_(imported), options_(options), cost_(cost) {}

  // The step after all passes of the chain but the layout.
  base::Result<ir::Step> made(const Candidate& candidate);

  // The stage that `chain` begins with: the step after the passes before those that change a
  // scheduled one.
  base::Result<SharedStep> scheduled(const passes::Chain& chain);

  // Of the stage that `chain` begins with.
  base::Result<RecomputeRange> recompute_range(const passes::Chain& chain);

  // Bytes of state on the device, of the stage that `chain` begins with.
  base::Result<int64_t> state_bytes(const passes::Chain& chain);

  // Bytes of the device that are live in every plan of the chain, however little its passes plan
  // for; 0 where passes behind recompute may take bytes away. (Others only add to what is live,
  // and recompute leaves no less than this: recompute.cpp.)
  base::Result<int64_t> least_live(const passes::Chain& chain);

  // Bytes of the device's arena, whatever the budget.
  base::Result<base::Bytes> arena(const ir::Step& step);

  // As layout::arena_if_too_large() by the budgets of the options.
  base::Result<std::optional<base::Bytes>> arena_if_too_large(const ir::Step& step);

 private:
  // What recompute knows of a step that it is applied to.
  struct BeforeRecompute {
    SharedStep step;
    passes::KnownRecompute known;
  };

  base::Result<SharedStep> begun(const Candidate& candidate);
  // `step`: after the passes `chain`.
  passes::KnownRecompute& known_recompute(const passes::Chain& chain, const SharedStep& step);
  passes::Options options_for(const std::optional<base::Bytes>& planned) const;
  base::Result<passes::Change> apply(ir::Step& step, const passes::Chain& chain,
                                     const passes::Options& options,
                                     passes::KnownRecompute* recompute = nullptr);

  const ir::Step& imported_;
  const passes::Options& options_;
  const cost::CostModel& cost_;
  KnownSteps known_;  // by the passes that made them, and the bytes that these planned for
  std::map<std::string, std::unique_ptr<BeforeRecompute>> before_recompute_;  // by the passes
  std::map<std::string, RecomputeRange> ranges_;                              // by stage
  std::map<std::string, int64_t> state_bytes_;                                // by stage
  std::map<std::string, int64_t> least_live_;  // by the passes up to recompute
  layout::KnownArenas arenas_;
};

// Bytes of the device that are live at most.
int64_t live_bytes(const ir::Step& step, const cost::CostModel& cost);

}  // namespace dc::search
