#include "src/passes/recompute/recompute_estimate.h"

#include <algorithm>

namespace dc::passes {
Estimator::Estimator(const RecomputeProgram& program, const KeptStorages& kept,
                     const Timeline& timeline, int64_t limit)
    : p_(program), kept_(kept), t_(timeline), seen_(static_cast<size_t>(program.boundary)) {
  int32_t count = 0;
  for (int64_t bytes : timeline.bytes) {
    above_.push_back(count);
    count += bytes > limit;
  }
  above_.push_back(count);
}

int64_t Estimator::above(int32_t from, int32_t to) const {
  from = std::max(from, 0);
  return from > to ? 0 : at(above_, to + 1) - at(above_, from);
}

void Estimator::lose(int64_t bytes, int32_t from, int32_t to, Cost& cost) const {
  cost.loss += bytes * above(from, to);
  if (from <= t_.peak_at && t_.peak_at <= to) cost.at_peak += bytes;
}

bool Estimator::may_drop(int32_t s) const {
  const ForwardStorage& storage = at(p_.storages, s);
  const bool needed = storage.saved() || at(t_.readers, s) != kNever;
  return at(kept_, s) && storage.recomputable && needed;
}

Estimate Estimator::drop(int32_t s) {
  const ForwardStorage& storage = at(p_.storages, s);
  now_ = {};
  now_.storage = s;
  int32_t place = at(t_.readers, s);
  if (storage.saved()) place = std::min(place, at(p_.slot, storage.first_backward));
  const int32_t made = std::min(place, at(t_.place, storage.producer));
  Cost freed;
  lose(storage.bytes, 2 * storage.last_forward + 2, 2 * made - 1, freed);
  // What it costs lowers both.
  if (freed.loss == 0 || freed.at_peak == 0) return std::move(now_);
  own_gain_ = freed.loss;
  own_time_ = std::max<int64_t>(1, p_.forward(storage.producer).time.v);
  Cost cost;
  if (place < at(t_.place, storage.producer)) run_again(storage.producer, place, cost);
  now_.gain = cut_ ? 0 : own_gain_ - cost.loss;
  now_.at_peak = freed.at_peak - cost.at_peak;
  now_.time = cost.time;
  for (int32_t i : visited_) at(seen_, i) = false;
  visited_.clear();
  steps_ = 0;
  cut_ = false;
  return std::move(now_);
}

void Estimator::run_again(int32_t i, int32_t place, Cost& cost) {
  if (at(seen_, i)) return;
  cut_ |= visited_.size() == static_cast<size_t>(kLongestChain) || ++steps_ > kMostSteps;
  if (cut_) return;
  at(seen_, i) = true;
  visited_.push_back(i);
  const ForwardNode& node = p_.forward(i);
  const int32_t before = at(t_.place, i);
  if (before == kNever && node.read_forward) cost.time += node.time.v;
  for (int32_t s : node.results) {
    if (s == now_.storage) continue;  // alive there anyway
    if (before == kNever) {
      lose(at(p_.storages, s).bytes, 2 * place, 2 * place, cost);
    } else if (!at(kept_, s)) {
      lose(at(p_.storages, s).bytes, 2 * place, 2 * before - 1, cost);
    }
  }
  for (int32_t s : node.operands) read(s, place, cost);
  for (int32_t g : node.gathers) read_gather(g, place, cost);
}

void Estimator::read(int32_t s, int32_t place, Cost& cost) {
  now_.sources.push_back(s);
  const ForwardStorage& storage = at(p_.storages, s);
  if (at(kept_, s)) {
    lose(storage.bytes, at(t_.until, s) + 1, 2 * place, cost);
    return;
  }
  const int32_t made = at(t_.place, storage.producer);
  if (made <= place) {
    lose(storage.bytes, at(t_.again_until, s) + 1, 2 * place, cost);
  } else if (made != kNever) {
    run_again(storage.producer, place, cost);
  } else if (!at(seen_, storage.producer)) {
    make_or_keep(s, place, cost);
  }
}

// An operand that is not saved: its kernel runs again too, or it is saved from now on, if that
// frees more per time.
void Estimator::make_or_keep(int32_t s, int32_t place, Cost& cost) {
  auto& keeps = now_.keeps;
  if (std::find(keeps.begin(), keeps.end(), s) != keeps.end()) return;
  const ForwardStorage& storage = at(p_.storages, s);
  const size_t visited = visited_.size(), sources = now_.sources.size(), kept_before = keeps.size();
  Cost made, kept;
  run_again(storage.producer, place, made);
  lose(storage.bytes, 2 * storage.last_forward + 2, 2 * place, kept);
  const auto rate = [&](const Cost& c) {
    return static_cast<double>(own_gain_ - c.loss) / static_cast<double>(own_time_ + c.time);
  };
  const bool keep = cut_ || rate(kept) > rate(made);
  if (keep) {
    cut_ = false;
    for (size_t i = visited; i < visited_.size(); ++i) at(seen_, visited_[i]) = false;
    visited_.resize(visited);
    while (now_.sources.size() > sources) now_.sources.pop_back();
    while (keeps.size() > kept_before) keeps.pop_back();
    keeps.push_back(s);
  }
  const Cost& chosen = keep ? kept : made;
  cost.time += chosen.time;
  cost.loss += chosen.loss;
  cost.at_peak += chosen.at_peak;
}

void Estimator::read_gather(int32_t g, int32_t place, Cost& cost) {
  const GatheredParameter& gather = at(p_.gathers, g);
  const GatherRead read = gather_read(gather, place);
  if (read.copy < 0) {
    if (std::binary_search(t_.own.begin(), t_.own.end(), std::pair(g, place))) return;
    cost.time += gather.time.v;
    lose(gather.bytes, 2 * place, 2 * place, cost);
  } else if (read.moves) {
    const int32_t moved = at(t_.moved, gather.first_copy + read.copy);
    const int32_t start = moved != kNever ? 2 * moved : 2 * at(gather.copies, read.copy).first + 1;
    lose(gather.bytes, 2 * place, start - 1, cost);
  }
}

}  // namespace dc::passes
