#include "src/bound/dual.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

namespace dc::bound {
namespace {

// The options of a relaxation side by side: each evaluation looks at all of them.
class FlatRelaxation {
 public:
  struct Range {
    int32_t begin = 0, end = 0;
  };
  struct Part {
    size_t resource = 0;
    double ns = 0;
  };
  struct FlatOption {
    Range work, charges, needs;
  };

  explicit FlatRelaxation(const Relaxation& relaxation) {
    for (const Item& source : relaxation.sources) add(source);
    sources_ = {0, end_of(items_)};
    for (const Choice& choice : relaxation.choices) {
      const int32_t begin = end_of(alternatives_);
      for (const Alternative& alternative : choice) {
        const int32_t first = end_of(items_);
        Option certain;
        for (const Item& item : alternative) {
          if (item.size() > 1) {
            add(item);
          } else {
            join(item[0], certain);
          }
        }
        add({merged(std::move(certain))});
        alternatives_.push_back({first, end_of(items_)});
      }
      choices_.push_back({begin, end_of(alternatives_)});
    }
  }

  const Range& sources() const { return sources_; }
  const std::vector<Range>& choices() const { return choices_; }
  const Range& alternative(int32_t index) const { return at(alternatives_, index); }
  const Range& item(int32_t index) const { return at(items_, index); }
  const FlatOption& option(int32_t index) const { return at(options_, index); }
  std::span<const Part> work(const FlatOption& of) const { return span(work_, of.work); }
  std::span<const Charge> charges(const FlatOption& of) const { return span(charges_, of.charges); }
  std::span<const Need> needs(const FlatOption& of) const { return span(needs_, of.needs); }

 private:
  template <typename T>
  static int32_t end_of(const std::vector<T>& all) {
    return static_cast<int32_t>(all.size());
  }
  template <typename T>
  static const T& at(const std::vector<T>& all, int32_t index) {
    return all[static_cast<size_t>(index)];
  }
  template <typename T>
  static std::span<const T> span(const std::vector<T>& all, const Range& range) {
    return std::span(all).subspan(static_cast<size_t>(range.begin),
                                  static_cast<size_t>(range.end - range.begin));
  }

  // An item with one option leaves nothing to choose: an alternative's are one option, which is
  // most of a relaxation.
  static void join(const Option& option, Option& all) {
    all.work += option.work;
    all.charges.insert(all.charges.end(), option.charges.begin(), option.charges.end());
    all.needs.insert(all.needs.end(), option.needs.begin(), option.needs.end());
  }

  // Charges of the same instants are one.
  static Option merged(Option option) {
    const auto instants = [](const Charge& charge) { return std::pair(charge.first, charge.last); };
    std::ranges::stable_sort(option.charges, {}, instants);
    std::vector<Charge> charges;
    for (const Charge& charge : option.charges) {
      if (charges.empty() || instants(charges.back()) != instants(charge)) {
        charges.push_back(charge);
      } else {
        charges.back().bytes += charge.bytes;
      }
    }
    option.charges = std::move(charges);
    return option;
  }

  void add(const Item& item) {
    const int32_t first = end_of(options_);
    for (const Option& option : item) {
      FlatOption& flat = options_.emplace_back();
      flat.work.begin = end_of(work_);
      for (size_t r = 0; r < kResources; ++r) {
        if (option.work.ns[r] != 0) work_.push_back({r, option.work.ns[r]});
      }
      flat.work.end = end_of(work_);
      flat.charges.begin = end_of(charges_);
      charges_.insert(charges_.end(), option.charges.begin(), option.charges.end());
      flat.charges.end = end_of(charges_);
      flat.needs.begin = end_of(needs_);
      needs_.insert(needs_.end(), option.needs.begin(), option.needs.end());
      flat.needs.end = end_of(needs_);
    }
    items_.push_back({first, end_of(options_)});
  }

  std::vector<FlatOption> options_;
  std::vector<Part> work_;
  std::vector<Charge> charges_;
  std::vector<Need> needs_;
  std::vector<Range> items_, alternatives_, choices_;  // of options, items, alternatives
  Range sources_;                                      // items
};

// A relaxation at given prices: what the cheapest options cost, do, and hold.
class Evaluation {
 public:
  explicit Evaluation(const Relaxation& relaxation) : relaxation_(relaxation), flat_(relaxation) {}

  // Returns the least sum without the budget's part. Fills work() and live().
  double run(const Prices& prices) {
    weights_ = &prices.weights;
    before_.assign(prices.of_byte.size() + 1, 0);
    for (size_t i = 0; i < prices.of_byte.size(); ++i)
      before_[i + 1] = before_[i] + prices.of_byte[i];
    change_.assign(prices.of_byte.size() + 1, 0);
    work_ = relaxation_.fixed;
    sources_.clear();
    source_costs_.clear();
    for (int32_t i = flat_.sources().begin; i < flat_.sources().end; ++i) {
      double least = 0;
      sources_.push_back(cheapest(i, least));
      source_costs_.push_back(least);
    }
    demand_.assign(source_costs_.size(), 0);
    double total = 0;
    for (size_t r = 0; r < kResources; ++r) total += weights_->ns[r] * relaxation_.fixed.ns[r];
    for (const FlatRelaxation::Range& choice : flat_.choices()) total += choose(choice);
    for (size_t i = demand_.size(); i-- > 0;) {
      if (demand_[i] > 0) take(flat_.option(sources_[i]), demand_[i]);
    }
    live_ = relaxation_.fixed_bytes;
    double running = 0;
    for (size_t i = 0; i < live_.size(); ++i) {
      total += prices.of_byte[i] * live_[i];
      running += change_[i];
      live_[i] += running;
    }
    return total;
  }

  const Work& work() const { return work_; }
  const std::vector<double>& live() const { return live_; }
  // Whether any option of a choice moves something to another space.
  bool any_copies() const {
    const auto copies = [](const Option& option) {
      return option.work[Resource::ToHost] + option.work[Resource::FromHost] > 0;
    };
    const auto any = [&](const Item& item) {
      return std::any_of(item.begin(), item.end(), copies);
    };
    for (const Choice& choice : relaxation_.choices) {
      for (const Alternative& one : choice) {
        if (std::any_of(one.begin(), one.end(), any)) return true;
      }
    }
    return false;
  }

 private:
  double cost(const FlatRelaxation::FlatOption& option) const {
    double sum = 0;
    for (const auto& [resource, ns] : flat_.work(option)) sum += weights_->ns[resource] * ns;
    for (const Charge& charge : flat_.charges(option)) {
      sum += charge.bytes * (before_[static_cast<size_t>(charge.last) + 1] -
                             before_[static_cast<size_t>(charge.first)]);
    }
    for (const Need& need : flat_.needs(option))
      sum += need.share * source_costs_[static_cast<size_t>(need.source)];
    return sum;
  }
  // The option of the item.
  int32_t cheapest(int32_t item, double& least) const {
    const FlatRelaxation::Range& options = flat_.item(item);
    int32_t best = options.begin;
    least = cost(flat_.option(best));
    for (int32_t i = best + 1; i < options.end; ++i) {
      const double other = cost(flat_.option(i));
      if (other >= least) continue;
      least = other;
      best = i;
    }
    return best;
  }

  double choose(const FlatRelaxation::Range& choice) {
    double best = HUGE_VAL;
    for (int32_t a = choice.begin; a < choice.end; ++a) {
      const FlatRelaxation::Range& items = flat_.alternative(a);
      double sum = 0;
      options_.clear();
      for (int32_t i = items.begin; i < items.end; ++i) {
        double least = 0;
        options_.push_back(cheapest(i, least));
        sum += least;
      }
      if (sum >= best) continue;
      best = sum;
      std::swap(chosen_, options_);
    }
    for (const int32_t option : chosen_) take(flat_.option(option), 1);
    return best;
  }

  void take(const FlatRelaxation::FlatOption& option, double part) {
    for (const auto& [resource, ns] : flat_.work(option)) work_.ns[resource] += ns * part;
    for (const Charge& charge : flat_.charges(option)) {
      change_[static_cast<size_t>(charge.first)] += charge.bytes * part;
      change_[static_cast<size_t>(charge.last) + 1] -= charge.bytes * part;
    }
    for (const Need& need : flat_.needs(option))
      demand_[static_cast<size_t>(need.source)] += need.share * part;
  }

  const Relaxation& relaxation_;
  const FlatRelaxation flat_;
  const Work* weights_ = nullptr;
  std::vector<double> before_, change_, live_;
  std::vector<int32_t> sources_;               // their cheapest options
  std::vector<double> source_costs_, demand_;  // by source
  std::vector<int32_t> options_, chosen_;      // of one choice
  Work work_;
};

double budget_part(const Prices& prices, std::optional<base::Bytes> budget) {
  if (!budget) return 0;
  double sum = 0;
  for (const double price : prices.of_byte) sum += price;
  return sum * static_cast<double>(budget->v);
}

// Variables: weights, and prices in units of `unit`, so that both are numbers around one.
class Ascent {
 public:
  Ascent(const Relaxation& relaxation, std::optional<base::Bytes> budget, const Limits& limits,
         Weighing weighing)
      : relaxation_(relaxation),
        budget_(budget),
        limits_(limits),
        weighing_(weighing),
        evaluation_(relaxation) {}

  // `steps`: of all rounds together.
  DualBound run(int steps, double enough, const Prices* from) {
    left_ = steps;
    enough_ = enough;
    if (from != nullptr) {
      run_from(*from);
      if (best_.ns >= enough || left_ <= 0) return best_;
    }
    // Where those steps came no further, others may: from the best of a scan.
    const DualBound of_others = std::exchange(best_, {-HUGE_VAL, {}, best_.evaluations});
    scan();
    run_rounds();
    if (best_.ns >= of_others.ns) return best_;
    return {of_others.ns, of_others.prices, best_.evaluations};
  }

 private:
  static constexpr double kFirstStep = 1.0, kLastStep = 0.001;
  static constexpr int kRound = 400;
  static constexpr double kLittle = 2e-4;  // of the bound
  static constexpr int kShares = 8, kSections = 14;

  void run_from(const Prices& prices) {
    now_ = prices;
    for (size_t r = 0; r < kResources; ++r) {
      if (!may_weigh(static_cast<Resource>(r), limits_, weighing_)) now_.weights.ns[r] = 0;
    }
    if (look()) run_rounds();
  }

  // Each from the best prices so far, and twice as long as the one before; the last gains little.
  void run_rounds() {
    for (int steps = kRound; left_ > 0 && best_.ns < enough_; steps *= 2) {
      const double before = best_.ns;
      run_round(std::min(steps, left_));
      if (best_.ns - before < before * kLittle) return;
    }
  }

  // Steps whose lengths fall.
  void run_round(int steps) {
    left_ -= steps;
    now_ = best_.prices;
    slopes_.clear();
    look();
    Prices sum = now_;
    for (int i = 0; i < steps && best_.ns < enough_; ++i) {
      step(kFirstStep * std::pow(kLastStep / kFirstStep, static_cast<double>(i) / steps));
      if (i == steps / 2) sum = now_;
      if (i > steps / 2) add(now_, sum);
    }
    // The mean of the later prices is often better than each of them.
    now_ = sum;
    look();
  }

  static void add(const Prices& one, Prices& sum) {
    sum.weights += one.weights;
    for (size_t i = 0; i < sum.of_byte.size(); ++i) sum.of_byte[i] += one.of_byte[i];
  }

  // The best of one resource alone; then a scan of how compute, collectives and copies share the
  // weight, with one price, at the instant where most would be alive at no price. From there the
  // steps refine.
  void scan() {
    Prices none;
    none.of_byte.assign(relaxation_.fixed_bytes.size(), 0);
    for (size_t r = 0; r < kResources; ++r) {
      if (!may_weigh(static_cast<Resource>(r), limits_, weighing_)) continue;
      now_ = none;
      now_.weights.ns[r] = 1;
      look();
    }
    const std::vector<double> live = evaluation_.live();
    const auto peak = std::max_element(live.begin(), live.end()) - live.begin();
    const bool copies = evaluation_.any_copies();
    for (int share = 0; share <= kShares; ++share) {
      for (int away = 0; away <= (copies ? kShares / 2 : 0); ++away) {
        const double links = static_cast<double>(share) / kShares;
        const double out = 0.5 * static_cast<double>(away) / kShares;
        now_ = none;
        now_.weights = weights_of(1 - links, links, out);
        if (budget_ && !live.empty()) {
          find_price(static_cast<size_t>(peak));
        } else {
          look();
        }
      }
    }
  }

  Work weights_of(double compute, double collectives, double copies) const {
    using enum Resource;
    Work weights;
    for (const Resource one : {Compute, Update, Head}) weights[one] = compute * (1 - 2 * copies);
    for (const Resource one : {Queue, Refresh, Ranks})
      weights[one] = collectives * (1 - 2 * copies);
    for (const Resource one : {ToHost, FromHost}) weights[one] = copies;
    for (size_t r = 0; r < kResources; ++r) {
      if (!may_weigh(static_cast<Resource>(r), limits_, weighing_)) weights.ns[r] = 0;
    }
    return weights;
  }

  // The value is concave in the price: golden section (J. Kiefer, Proceedings of the AMS 4, 1953)
  // over its square root.
  void find_price(size_t instant) {
    const double unit = 4 * std::max(best_.ns, 1.0) / static_cast<double>(budget_->v);
    const Prices from = now_;
    const auto value = [&](double root) {
      now_ = from;
      now_.of_byte[instant] = root * root * unit;
      look();
      return value_;
    };
    const double ratio = (std::sqrt(5.0) - 1) / 2;
    double low = 0, high = 1, left = high - ratio, right = low + ratio;
    double at_left = value(left), at_right = value(right);
    for (int i = 0; i < kSections; ++i) {
      if (at_left < at_right) {
        low = left;
        left = right;
        at_left = at_right;
        right = low + ratio * (high - low);
        at_right = value(right);
      } else {
        high = right;
        right = left;
        at_right = at_left;
        left = high - ratio * (high - low);
        at_left = value(left);
      }
    }
  }

  // Evaluates here, after scaling to weights that keep the limits. False where all are 0: that
  // bounds nothing.
  bool look() {
    const double size = norm(now_.weights, limits_, weighing_).value;
    if (size <= 0) return false;
    for (double& weight : now_.weights.ns) weight /= size;
    for (double& price : now_.of_byte) price /= size;
    value_ = evaluation_.run(now_) - budget_part(now_, budget_);
    ++best_.evaluations;
    if (value_ > best_.ns) {
      best_.ns = value_;
      best_.prices = now_;
    }
    return true;
  }

  // One step up, of a length that falls for each variable with what it has moved (J. Duchi, E.
  // Hazan, Y. Singer, Journal of Machine Learning Research 12, 2011).
  void step(double length) {
    const double target = std::max(best_.ns, 1.0);
    const double unit = budget_ ? target / static_cast<double>(budget_->v) : 1;
    const size_t count = kResources + now_.of_byte.size();
    slopes_.resize(count, 1e-6);
    const Work limit = norm(now_.weights, limits_, weighing_).slope;
    const auto move = [&](size_t i, double slope, double& variable, double scale) {
      if (variable <= 0 && slope <= 0) return;
      slopes_[i] += slope * slope;
      variable = std::max(0.0, variable + length * scale * slope / std::sqrt(slopes_[i]));
    };
    for (size_t r = 0; r < kResources; ++r) {
      if (!may_weigh(static_cast<Resource>(r), limits_, weighing_)) continue;
      move(r, evaluation_.work().ns[r] / target - limit.ns[r], now_.weights.ns[r], 1);
    }
    for (size_t i = 0; i < now_.of_byte.size(); ++i) {
      const auto budget = static_cast<double>(budget_->v);
      move(kResources + i, (evaluation_.live()[i] - budget) / budget, now_.of_byte[i], unit);
    }
    if (look()) return;
    now_ = best_.prices;
    look();
  }

  const Relaxation& relaxation_;
  std::optional<base::Bytes> budget_;
  const Limits& limits_;
  Weighing weighing_;
  Evaluation evaluation_;
  int left_ = 0;  // steps
  double enough_ = 0;
  Prices now_;
  double value_ = 0;
  std::vector<double> slopes_;
  DualBound best_{-HUGE_VAL, {}, 0};
};

}  // namespace

DualBound ascend(const Relaxation& relaxation, std::optional<base::Bytes> budget,
                 const Limits& limits, Weighing weighing, int steps, double enough,
                 const Prices* from) {
  return Ascent(relaxation, budget, limits, weighing).run(steps, enough, from);
}

}  // namespace dc::bound
