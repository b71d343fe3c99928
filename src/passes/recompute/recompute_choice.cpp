#include "src/passes/recompute/recompute_choice.h"

#include <algorithm>
#include <utility>

#include "src/passes/recompute/recompute_estimate.h"

namespace dc::passes {
namespace {

// A round takes no storage whose rate is below this part of its best: what depends on the best may
// then be cheaper.
constexpr double kLeastRate = 0.5;

class Chooser {
 public:
  // Gains count at the indices above `target`, which is at most the limit.
  Chooser(const RecomputeProgram& program, int64_t limit, int64_t target, KeptStorages kept)
      : p_(program), limit_(limit), target_(target), kept_(std::move(kept)), banned_(kept_.size()) {
    timeline_ = settle(p_, kept_);
  }

  // Drops storages until everything fits or nothing helps.
  void drop() {
    RecomputeChoice lowest = choice();
    std::vector<Estimate> estimates;
    bool are_old = true;
    while (timeline_.peak > limit_) {
      if (std::exchange(are_old, false)) estimates = estimate_all();
      const std::vector<size_t> round = next_round(estimates);
      if (round.empty()) break;
      if (accept(estimates, round) || (round.size() > 1 && accept(estimates, {round[0]}))) {
        are_old = true;
        if (timeline_.peak < lowest.timeline.peak) lowest = choice();
      } else {
        at(banned_, estimates[round[0]].storage) = true;
        estimates.erase(estimates.begin() + static_cast<std::ptrdiff_t>(round[0]));
      }
    }
    kept_ = std::move(lowest.kept);
    timeline_ = std::move(lowest.timeline);
  }

  // Keeps again what fits next to the rest, dearest per byte first.
  void restore() {
    if (timeline_.peak > limit_) return;
    std::vector<int32_t> restored = room_for();
    while (!restored.empty()) {
      KeptStorages kept = kept_;
      for (int32_t s : restored) at(kept, s) = true;
      Timeline timeline = settle(p_, kept);
      if (timeline.peak <= limit_ && timeline.time <= timeline_.time) {
        kept_ = std::move(kept);
        timeline_ = std::move(timeline);
        return;
      }
      restored.resize(restored.size() / 2);
    }
  }

  RecomputeChoice choice() const { return {kept_, timeline_, timeline_.peak <= limit_}; }

 private:
  int64_t excess(const Timeline& timeline) const {
    int64_t sum = 0;
    for (int64_t bytes : timeline.bytes) sum += std::max<int64_t>(0, bytes - target_);
    return sum;
  }

  // Of all storages that help when dropped, the best first.
  std::vector<Estimate> estimate_all() const {
    Estimator estimator(p_, kept_, timeline_, target_);
    std::vector<Estimate> found;
    for (int32_t s = 0; s < static_cast<int32_t>(kept_.size()); ++s) {
      if (at(banned_, s) || !estimator.may_drop(s)) continue;
      Estimate estimate = estimator.drop(s);
      if (estimate.gain > 0 && estimate.at_peak > 0) found.push_back(std::move(estimate));
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const Estimate& a, const Estimate& b) { return a.rate() > b.rate(); });
    return found;
  }

  // The best storages that do not depend on each other, as many as the peak needs.
  std::vector<size_t> next_round(const std::vector<Estimate>& found) const {
    std::vector<size_t> round;
    std::vector<uint8_t> dropped(kept_.size()), read(kept_.size());
    int64_t missing = timeline_.peak - limit_;
    for (size_t i = 0; i < found.size(); ++i) {
      const Estimate& estimate = found[i];
      if (missing <= 0 || estimate.rate() < kLeastRate * found[0].rate()) break;
      bool stale = at(read, estimate.storage);
      for (int32_t s : estimate.sources) stale |= at(dropped, s) != 0;
      if (stale) continue;
      at(dropped, estimate.storage) = true;
      for (int32_t s : estimate.sources) at(read, s) = true;
      missing -= estimate.at_peak;
      round.push_back(i);
    }
    return round;
  }

  // True if the round brought the program nearer to the limit; otherwise nothing has changed.
  bool accept(const std::vector<Estimate>& estimates, const std::vector<size_t>& round) {
    KeptStorages kept = kept_;
    for (const size_t i : round) {
      for (int32_t s : estimates[i].keeps) at(kept, s) = true;
    }
    for (const size_t i : round) at(kept, estimates[i].storage) = false;
    Timeline timeline = settle(p_, kept);
    if (excess(timeline) >= excess(timeline_)) return false;
    kept_ = std::move(kept);
    timeline_ = std::move(timeline);
    return true;
  }

  // Dropped storages that find room from their last forward use to where they are made again,
  // each next to those before it.
  std::vector<int32_t> room_for() const {
    std::vector<int32_t> order;
    for (int32_t s = 0; s < static_cast<int32_t>(kept_.size()); ++s) {
      if (!at(kept_, s) && at(p_.storages, s).saved()) order.push_back(s);
    }
    const auto rate = [&](int32_t s) {
      const ForwardStorage& storage = at(p_.storages, s);
      return static_cast<double>(p_.forward(storage.producer).time.v) /
             static_cast<double>(std::max<int64_t>(1, storage.bytes));
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return rate(a) > rate(b); });
    std::vector<int64_t> bytes = timeline_.bytes;
    std::vector<int32_t> fitting;
    for (int32_t s : order) {
      const ForwardStorage& storage = at(p_.storages, s);
      const std::ptrdiff_t first = storage.last_forward + 1;
      const std::ptrdiff_t end = at(timeline_.place, storage.producer);
      const auto from = bytes.begin() + 2 * first, to = bytes.begin() + 2 * end;
      const bool fits =
          std::all_of(from, to, [&](int64_t here) { return here + storage.bytes <= limit_; });
      if (!fits) continue;
      std::for_each(from, to, [&](int64_t& here) { here += storage.bytes; });
      fitting.push_back(s);
    }
    return fitting;
  }

  const RecomputeProgram& p_;
  int64_t limit_, target_;
  KeptStorages kept_;
  std::vector<uint8_t> banned_;
  Timeline timeline_;
};

}  // namespace

RecomputeChoice choose(const RecomputeProgram& program, int64_t limit) {
  RecomputeChoice best;
  // Where only few indices are above the limit, dropping what helps at one may add bytes at
  // another. So the target above which an index counts is lowered (limit, half of it, 0) until
  // something fits.
  for (int64_t halves = 2; halves >= 0; --halves) {
    for (const bool everything : {true, false}) {
      Chooser chooser(program, limit, limit / 2 * halves,
                      everything ? keep_everything(program) : keep_block_inputs(program));
      chooser.drop();
      chooser.restore();
      RecomputeChoice found = chooser.choice();
      const bool better =
          best.kept.empty() || (best.fits && found.fits ? found.timeline.time < best.timeline.time
                                                        : found.timeline.peak < best.timeline.peak);
      if (better) best = std::move(found);
    }
    if (best.fits || limit == 0) break;
  }
  return best;
}

}  // namespace dc::passes
