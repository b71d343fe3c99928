// recompute: what the forward phase made and only the backward phase still reads is dropped after
// its last forward use and made again right before the backward phase needs it, by the same kernels
// on the same bits. So no number changes.
//
// `auto` does so only where the live bytes exceed the budget, cheapest time per byte first
// (recompute_choice.h), and checks with the layout that the arena fits. The argument is a
// budget for this pass alone: a smaller one leaves room for the passes behind it, a larger one
// leaves them to find room; 0 is
// `full`. `full` keeps only the
// inputs of each block (src/analysis/blocks.h), as activation checkpointing per layer does. A
// kernel that reads a gathered parameter reads the backward phase's gather, which starts earlier
// for it; where that phase gathers no more, a gather is added.
#include <algorithm>
#include <map>

#include "src/analysis/memory.h"
#include "src/base/text.h"
#include "src/layout/allocate.h"
#include "src/passes/pass.h"
#include "src/passes/recompute/known_recompute.h"
#include "src/passes/recompute/recompute_choice.h"
#include "src/passes/recompute/recompute_rewrite.h"
#include "src/schedule/time_axis.h"

namespace dc::passes {
namespace {

using base::Result;

// The limit, two lower ones, and 0: the layout may need more than the live bytes, and choices under
// a lower limit are others. The last try is the same for every budget, so the arena that the error
// of a budget out of reach names can be had.
constexpr int kTries = 4;

// A limit lower than the peak under 0 by more than one part in so many is not tried: it is out of
// reach. (Of Llama-3-8B and -70B, Mixtral-8x7B and two small models, in two orders of nodes each,
// no limit had a peak lower by more than one part in 50.)
constexpr int64_t kReach = 32;

// "mul 12, mm 8, silu 4, 3 others": the kernels that run again, most frequent first.
std::string kinds_of(const RecomputeProgram& program, const Timeline& timeline) {
  std::map<std::string, int> counts;
  for (int32_t i : timeline.again) {
    std::string name = analysis::op_text(program.node(i));
    if (name.starts_with("aten.")) name = name.substr(5, name.find('.', 5) - 5);
    ++counts[name];
  }
  std::vector<std::pair<std::string, int>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  constexpr size_t kNamed = 6;
  std::string text;
  int others = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (i >= kNamed) {
      others += sorted[i].second;
      continue;
    }
    text += (i == 0 ? "" : ", ") + sorted[i].first + " " + std::to_string(sorted[i].second);
  }
  return others > 0 ? text + ", " + std::to_string(others) + " others" : text;
}

class Recomputer {
 public:
  // `known`: of this step.
  Recomputer(ir::Step& step, const PassContext& context, KnownRecompute& known)
      : step_(step),
        context_(context),
        known_(known),
        state_(analysis::state_bytes(step, ir::Space::Device).v) {}

  Change keep_only_block_inputs() {
    return apply(known_.block_inputs(), rewritten(known_.block_inputs()), true);
  }

  Result<Change> fit(int64_t budget) {
    int64_t limit = std::max<int64_t>(0, budget - state_);
    DC_ASSIGN_OR_RETURN(const bool already, fits_already(limit, budget));
    if (already) return Change::No;
    if (!context_.argument && known_.is_refused(budget))
      return apply(known_.lowest(), rewritten(known_.lowest()), false);
    for (int tried = 1;; ++tried) {
      if (is_out_of_reach(limit)) limit = 0;
      const std::vector<RecomputeChoice> choices = choose_all(limit);
      int64_t peak = 0;
      for (const RecomputeChoice& choice : choices) peak = std::max(peak, choice.timeline.peak);
      int64_t arena = state_ + peak;  // at least
      if (limit == 0) {
        ir::Step step = rewritten(choices);
        DC_ASSIGN_OR_RETURN(const bool last_fits, fits(step, budget));
        if (!last_fits && !context_.argument) known_.refuse(budget);
        return apply(choices, std::move(step), last_fits);
      }
      if (arena <= budget) {
        ir::Step step = rewritten(choices);
        DC_ASSIGN_OR_RETURN(
            const base::Bytes found,
            layout::device_arena(step, context_.cost, base::Bytes{budget}, context_.arenas));
        if (found.v <= budget) return apply(choices, std::move(step), true);
        arena = found.v;
      }
      limit = std::min(limit, peak) - (arena - budget) * tried * tried;
      if (limit < 0 || tried + 1 == kTries) limit = 0;
    }
  }

 private:
  std::vector<RecomputeChoice> choose_all(int64_t limit) {
    if (limit == 0) return known_.lowest();
    std::vector<RecomputeChoice> choices;
    for (const RecomputeProgram& program : known_.programs())
      choices.push_back(choose(program, limit));
    return choices;
  }

  bool is_out_of_reach(int64_t limit) {
    const std::vector<RecomputeChoice>& inputs = known_.block_inputs();
    const auto is_within = [&](const RecomputeChoice& choice) {
      return choice.timeline.peak <= limit;
    };
    if (std::all_of(inputs.begin(), inputs.end(), is_within)) return false;
    const std::vector<RecomputeChoice>& lowest = known_.lowest();
    return std::any_of(lowest.begin(), lowest.end(), [&](const RecomputeChoice& choice) {
      return limit < choice.timeline.peak - choice.timeline.peak / kReach;
    });
  }

  // Asks the layout only where the live bytes leave that open.
  Result<bool> fits_already(int64_t limit, int64_t budget) const {
    const int64_t peak = known_.most_bytes();
    if (peak > limit) return false;
    if (peak <= schedule::live_limit(limit)) return true;
    return fits(step_, budget);
  }

  Result<bool> fits(const ir::Step& step, int64_t budget) const {
    return layout::fits(step, context_.cost, {base::Bytes{budget}, {}, {}}, context_.arenas);
  }

  ir::Step rewritten(const std::vector<RecomputeChoice>& choices) const {
    ir::Step step = step_;
    for (size_t i = 0; i < choices.size(); ++i) {
      if (choices[i].timeline.again.empty()) continue;
      rewrite(step.programs[i].graph, known_.programs()[i], choices[i].kept, choices[i].timeline);
    }
    return step;
  }

  Change apply(const std::vector<RecomputeChoice>& choices, ir::Step step, bool fits) {
    Change change = Change::No;
    for (size_t i = 0; i < choices.size(); ++i) {
      if (choices[i].timeline.again.empty()) continue;
      change = Change::Yes;
      if (!context_.collect_remarks) continue;
      context_.remarks.push_back(remark(known_.programs()[i], choices[i].timeline, fits));
    }
    if (change == Change::Yes) step_ = std::move(step);
    return change;
  }

  Remark remark(const RecomputeProgram& program, const Timeline& after, bool fits) const {
    const Timeline before = evaluate(program, keep_everything(program));
    const size_t kernels = after.again.size(), gathers = after.own.size();
    std::string text = "program '" + program.graph.name() +
                       "': " + base::count_of(static_cast<int64_t>(kernels), "kernel") +
                       (kernels == 1 ? " runs" : " run") + " again in the backward phase (" +
                       kinds_of(program, after) + "): live bytes " +
                       base::format_bytes(state_ + before.peak) + " become " +
                       base::format_bytes(state_ + after.peak) + " for " +
                       base::format_duration(after.time.v);
    if (gathers > 0)
      text += ", " + base::count_of(static_cast<int64_t>(gathers), "gather") + " added";
    if (!fits) text += "; that is still above what it may leave";
    return {"recompute",
            fits ? "recomputed" : "recomputed-above-budget",
            {},
            {{"kernels", static_cast<int64_t>(kernels)},
             {"gathers", static_cast<int64_t>(gathers)},
             {"live_before_bytes", state_ + before.peak},
             {"live_after_bytes", state_ + after.peak},
             {"time_ns", after.time.v}},
            text};
  }

  ir::Step& step_;
  const PassContext& context_;
  KnownRecompute& known_;
  int64_t state_;
};

Result<Change> recompute(ir::Step& step, const PassContext& context, KnownRecompute& known) {
  Recomputer recomputer(step, context, known);
  if (context.options.recompute == Recompute::Full || context.argument == 0)
    return recomputer.keep_only_block_inputs();
  return recomputer.fit(context.argument ? *context.argument : context.options.memory()->v);
}

}  // namespace

Result<Change> recompute(ir::Step& step, const PassContext& context) {
  switch (context.options.recompute) {
    case Recompute::Off:
      return Change::No;
    case Recompute::Full:
      break;
    case Recompute::Auto:
      if (!context.argument && !context.options.memory()) return Change::No;
      break;
  }
  if (context.recompute != nullptr) return recompute(step, context, *context.recompute);
  KnownRecompute known(step, context.cost);
  return recompute(step, context, known);
}

}  // namespace dc::passes
