// keep-jointly: what memory buys, decided together. Of the parameters that the step gathers again
// and the activations that it makes again, it keeps those that shorten the simulated step most in
// the room that the budget leaves.
//
// It expects a schedule in which all of both is gathered and made again, collectives in their
// places (`recompute=0` and the passes that move collectives). What is worth most time per byte is
// taken first, each by itself. Then exchanges: some that are not kept are, and as many others are
// given back as the budget asks; what makes the step shorter stays. A step that is no longer counts
// if its kernels and collectives take less time together, because a resource that was not the
// bottleneck may become it. Each exchange is worked out from the schedule before it
// (src/schedule/draft.h). Which exchanges are tried is drawn from a fixed seed: the result is the
// same on every host.
//
// Where the addresses of what was kept do not fit, as much less is kept; where that does not help
// after a few times, nothing is.
#include <algorithm>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "src/analysis/live_bytes.h"
#include "src/base/text.h"
#include "src/layout/allocate.h"
#include "src/passes/pass.h"
#include "src/schedule/draft.h"
#include "src/schedule/evenly_spread.h"

namespace dc::passes {
namespace {

using base::Nanos;
using schedule::Draft;
using schedule::DraftItem;

constexpr int64_t kExchanges = 4000;  // unless the chain says how many
constexpr int64_t kMostExchanges = 1'000'000'000;
constexpr int kPicks = 32;  // random items until one can be taken, or there is room
constexpr int kMostLayouts = 4;
constexpr int64_t kReserve = 64;  // one part of the room that is left to the layout

class JointChoice {
 public:
  // `activations`: whether they may be kept.
  JointChoice(const ir::Step& step, const ir::Graph& graph, const cost::CostModel& cost,
              bool activations)
      : draft_(step, graph, cost) {
    for (size_t i = 0; i < items().size(); ++i) {
      if (!activations && !items()[i].is_parameter) continue;
      choices_.push_back(i);
      (items()[i].is_parameter ? parameters_ : activations_).push_back(i);
      const auto alike = static_cast<size_t>(items()[i].alike);
      if (alike >= kinds_.size()) kinds_.resize(alike + 1);
      kinds_[alike].push_back(i);
    }
    for (std::vector<size_t>& kind : kinds_) {
      std::sort(kind.begin(), kind.end(), [&](size_t a, size_t b) {
        return std::pair(items()[a].position, a) < std::pair(items()[b].position, b);
      });
    }
  }

  const std::vector<DraftItem>& items() const { return draft_.items(); }
  size_t choices() const { return choices_.size(); }
  const Draft& draft() const { return draft_; }

  // The best of some sets to begin with. In most of them what saves most time per byte comes first:
  // the time of kernels and that of gathers count the same, or the one counts less, because the
  // other is the bottleneck. In the last one parameters are exchanged for one another before
  // activations fill the gaps: they are large, and what fills a gap keeps one more out of it.
  void begin(int64_t limit, int64_t times) {
    constexpr int64_t kWeights[][2] = {
        {1, 1}, {1, 2}, {1, 4}, {1, 64}, {8, 1}};  // of kernels, of gathers
    const bool has_both = !parameters_.empty() && !activations_.empty();
    worth_least_ = by_rate(activations_, 1, 1);
    std::reverse(worth_least_.begin(), worth_least_.end());
    Begin best;
    for (const auto& [kernels, gathers] : kWeights) {
      give_back_all();
      take_in_order(by_rate(choices_, kernels, gathers), limit);
      best = better_of(std::move(best));
      if (!has_both) break;  // then weights change no order
    }
    if (has_both) {
      give_back_all();
      take_in_order(by_rate(parameters_, 1, 1), limit);
      accept();
      std::vector<size_t> activations = std::exchange(activations_, {});
      exchange(limit, times / 8);
      activations_ = std::move(activations);
      take_in_order(by_rate(activations_, 1, 1), limit);
      best = better_of(std::move(best));
    }
    give_back_all();
    for (const size_t item : best.items) draft_.toggle(item);
    accept();
  }

  bool keeps_any() const {
    return std::any_of(choices_.begin(), choices_.end(),
                       [&](size_t item) { return draft_.is_kept(item); });
  }

  // Gives back what is worth least per byte until the rest fits.
  void give_back(int64_t limit) {
    const std::vector<size_t> order = by_rate(choices_, 1, 1);
    for (auto item = order.rbegin(); item != order.rend() && draft_.most_bytes() > limit; ++item) {
      if (draft_.is_taken(*item)) draft_.toggle(*item);
    }
    accept();
  }

  void exchange(int64_t limit, int64_t times) {
    if (choices_.empty()) return;
    for (int64_t i = 0; i < times; ++i) {
      if (!take_some() || !make_room(limit) || !improves()) {
        draft_.reject();
      } else {
        accept();
      }
    }
  }

  Nanos time() const { return time_; }

 private:
  // A set to begin with.
  struct Begin {
    std::vector<size_t> items;
    int64_t cost = INT64_MAX;
  };

  // The set at hand, if it costs less.
  Begin better_of(Begin best) {
    accept();
    const int64_t cost = cost_of(time_, work_);
    return cost < best.cost ? Begin{taken(), cost} : std::move(best);
  }

  size_t pick(size_t count) { return random_() % count; }

  std::vector<size_t> taken() const {
    std::vector<size_t> result;
    for (const size_t item : choices_) {
      if (draft_.is_taken(item)) result.push_back(item);
    }
    return result;
  }

  void give_back_all() {
    for (const size_t item : taken()) draft_.toggle(item);
  }

  // Items by time saved per byte, each kind in an order whose beginnings lie evenly over the step.
  std::vector<size_t> by_rate(const std::vector<size_t>& choices, int64_t kernels,
                              int64_t gathers) const {
    std::vector<uint8_t> chosen(items().size());
    for (const size_t item : choices) chosen[item] = true;
    std::vector<size_t> order;
    for (const std::vector<size_t>& kind : kinds_) {
      for (const size_t i : schedule::evenly_spread(kind.size())) {
        if (chosen[kind[i]]) order.push_back(kind[i]);
      }
    }
    const auto saved = [&](size_t item) {
      return static_cast<double>(items()[item].saved.v) *
             static_cast<double>(items()[item].is_parameter ? gathers : kernels);
    };
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return saved(a) * static_cast<double>(items()[b].bytes) >
             saved(b) * static_cast<double>(items()[a].bytes);
    });
    return order;
  }

  bool take_if_it_fits(size_t item, int64_t limit) {
    draft_.toggle(item);
    if (draft_.most_bytes() <= limit) return true;
    draft_.toggle(item);
    return false;
  }

  // A parameter that is kept is not gathered ahead of its second use, which may make room for one
  // before it: those that did not fit are tried again before activations take the room.
  void take_in_order(const std::vector<size_t>& order, int64_t limit) {
    std::vector<size_t> left;
    bool has_more_room = false;
    for (const size_t item : order) {
      const bool is_parameter = items()[item].is_parameter;
      if (!is_parameter && has_more_room) {
        std::erase_if(left, [&](size_t other) { return take_if_it_fits(other, limit); });
        has_more_room = false;
      }
      const bool taken = take_if_it_fits(item, limit);
      if (is_parameter && !taken) left.push_back(item);
      has_more_room = has_more_room || (is_parameter && taken);
    }
  }

  void accept() {
    // What is taken but read by nothing would be kept in the place of what is given back.
    for (const size_t item : choices_) {
      if (draft_.is_taken(item) && !draft_.is_kept(item)) draft_.toggle(item);
    }
    time_ = draft_.time();
    work_ = draft_.work();
    draft_.accept();
  }

  bool improves() { return cost_of(draft_.time(), draft_.work()) < cost_of(time_, work_); }

  // The time of the work counts too, a little.
  static int64_t cost_of(Nanos time, Nanos work) {
    constexpr int64_t kWork = 64;
    return time.v * kWork + work.v;
  }

  size_t pick_one() {
    const bool parameter = activations_.empty() || (!parameters_.empty() && pick(2) == 0);
    const std::vector<size_t>& from = parameter ? parameters_ : activations_;
    return from[pick(from.size())];
  }

  // Neighbours of one kind. False if all that it came upon is taken.
  bool take_some() {
    const size_t most = size_t{1} << pick(5);
    for (int i = 0; i < kPicks; ++i) {
      if (toggle_near(pick_one(), most, false)) return true;
    }
    return false;
  }

  // Up to `most` of the item's kind that are taken, or are not, from the item on. False: none.
  bool toggle_near(size_t item, size_t most, bool taken) {
    const std::vector<size_t>& kind = kinds_[static_cast<size_t>(items()[item].alike)];
    const auto first =
        static_cast<size_t>(std::find(kind.begin(), kind.end(), item) - kind.begin());
    size_t toggled = 0;
    for (size_t i = 0; i < kind.size() && toggled < most; ++i) {
      const size_t other = kind[(first + i) % kind.size()];
      if (draft_.is_taken(other) != taken) continue;
      draft_.toggle(other);
      ++toggled;
    }
    return toggled > 0;
  }

  // By items of any kind, by activations alone or by parameters alone; now and then by the
  // activations that are worth least, as many as a large parameter needs.
  bool make_room(int64_t limit) {
    if (draft_.most_bytes() <= limit) return true;
    if (pick(8) == 0) {
      for (const size_t item : worth_least_) {
        if (!draft_.is_taken(item)) continue;
        draft_.toggle(item);
        if (draft_.most_bytes() <= limit) return true;
      }
      return false;
    }
    const size_t most = size_t{1} << pick(5), which = pick(3);
    for (int i = 0; i < kPicks && draft_.most_bytes() > limit; ++i) {
      const size_t item = pick_one();
      if (which == 0 || items()[item].is_parameter == (which == 1)) toggle_near(item, most, true);
    }
    return draft_.most_bytes() <= limit;
  }

  Draft draft_;
  std::vector<size_t> choices_, parameters_, activations_;  // items
  std::vector<size_t> worth_least_;                         // activations, by time saved per byte
  std::vector<std::vector<size_t>> kinds_;  // items by what they are alike in, in program order
  Nanos time_, work_;
  std::mt19937 random_{1};
};

Remark remark(const char* pass, const ir::Program& program, const JointChoice& choice) {
  int64_t parameters = 0, activations = 0, held = 0;
  for (size_t i = 0; i < choice.items().size(); ++i) {
    if (!choice.draft().is_kept(i)) continue;
    ++(choice.items()[i].is_parameter ? parameters : activations);
    held += choice.items()[i].bytes;
  }
  return {pass,
          "kept-jointly",
          {},
          {{"parameters", parameters},
           {"kernels", activations},
           {"held_bytes", held},
           {"time_ns", choice.time().v}},
          "program '" + program.graph.name() + "': " + std::to_string(parameters) +
              " parameters stay whole and the results of " + std::to_string(activations) +
              " kernels are kept, of " + std::to_string(choice.choices()) +
              " choices: " + base::format_bytes(held) + "; the program takes " +
              base::format_duration(choice.time().v)};
}

// `activations`: whether they may be kept.
base::Result<Change> keep(const char* pass, ir::Step& step, const PassContext& context,
                          bool activations) {
  for (const ir::Program& program : step.programs) {
    if (!Draft::can_hold(program)) return Change::No;
  }
  int64_t limit = INT64_MAX;
  if (context.options.memory()) {
    limit = context.options.memory()->v - analysis::state_bytes(step, ir::Space::Device).v;
    limit -= limit / kReserve;
  }
  std::vector<std::unique_ptr<JointChoice>> chosen;
  size_t choices = 0;
  for (const ir::Program& program : step.programs) {
    chosen.push_back(std::make_unique<JointChoice>(step, program.graph, context.cost, activations));
    choices += chosen.back()->choices();
  }
  if (choices == 0) return Change::No;
  for (const auto& choice : chosen) {
    if (choice->draft().most_bytes() > limit) return Change::No;
  }
  const int64_t exchanges = std::min(context.argument.value_or(kExchanges), kMostExchanges);
  const auto share_of = [&](const JointChoice& choice) {
    return exchanges * static_cast<int64_t>(choice.choices()) / static_cast<int64_t>(choices);
  };
  for (const auto& choice : chosen) choice->begin(limit, share_of(*choice));
  for (int layouts = 1;; ++layouts) {
    for (const auto& choice : chosen) choice->exchange(limit, share_of(*choice) / layouts);
    if (std::none_of(chosen.begin(), chosen.end(),
                     [](const auto& choice) { return choice->keeps_any(); }))
      return Change::No;
    ir::Step kept = step;
    for (size_t p = 0; p < chosen.size(); ++p) chosen[p]->draft().carry_out(kept.programs[p].graph);
    int64_t excess = 0;
    if (context.options.memory()) {
      const base::Bytes budget = *context.options.memory();
      DC_ASSIGN_OR_RETURN(const base::Bytes arena,
                          layout::device_arena(kept, context.cost, budget, context.arenas));
      excess = arena.v - budget.v;
    }
    if (excess <= 0) {
      step = std::move(kept);
      break;
    }
    if (layouts == kMostLayouts) return Change::No;
    limit -= excess * layouts * layouts;
    for (const auto& choice : chosen) choice->give_back(limit);
  }
  for (size_t p = 0; p < chosen.size(); ++p)
    context.remarks.push_back(remark(pass, step.programs[p], *chosen[p]));
  return Change::Yes;
}

}  // namespace

base::Result<Change> keep_jointly(ir::Step& step, const PassContext& context) {
  return keep("keep-jointly", step, context, context.options.recompute != Recompute::Full);
}

base::Result<Change> keep_parameters(ir::Step& step, const PassContext& context) {
  return keep("keep-parameters", step, context, false);
}

}  // namespace dc::passes
