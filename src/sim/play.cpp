#include "src/sim/play.h"

#include <algorithm>

namespace dc::sim {
namespace {

using base::Nanos;

// Which events wait for what the run before started.
std::vector<bool> arriving(const Schedule& schedule) {
  std::vector<bool> transfers(schedule.transfers.size()), events(schedule.events.size());
  for (const Arrival& one : schedule.arrivals) transfers[static_cast<size_t>(one.transfer)] = true;
  for (size_t i = 0; i < events.size(); ++i) {
    const Event& event = schedule.events[i];
    events[i] = event.kind == EventKind::Done && transfers[static_cast<size_t>(event.transfer)];
  }
  return events;
}

// The same with nothing under way at first.
Schedule without_arrivals(const Schedule& schedule) {
  Schedule result = schedule;
  result.events.clear();
  const std::vector<bool> is_arrival = arriving(schedule);
  for (size_t i = 0; i < is_arrival.size(); ++i) {
    if (!is_arrival[i]) result.events.push_back(schedule.events[i]);
  }
  result.arrivals.clear();
  return result;
}

// The end of the run before, and this run behind it; `second` is the index of its first event.
Schedule joined(const Schedule& before, const Schedule& schedule, int32_t& second) {
  Schedule both = without_arrivals(before);
  second = static_cast<int32_t>(both.events.size());
  const auto shift = static_cast<int32_t>(before.transfers.size());
  std::vector<int32_t> index(schedule.transfers.size());
  for (size_t i = 0; i < index.size(); ++i) index[i] = static_cast<int32_t>(i) + shift;
  std::vector<int32_t> awaited = index;
  for (const Arrival& one : schedule.arrivals)
    awaited[static_cast<size_t>(one.transfer)] = one.started;
  const std::vector<bool> is_arrival = arriving(schedule);
  for (size_t i = 0; i < is_arrival.size(); ++i) {
    Event event = schedule.events[i];
    if (event.transfer >= 0)
      event.transfer = (is_arrival[i] ? awaited : index)[static_cast<size_t>(event.transfer)];
    both.events.push_back(event);
  }
  for (const Transfer& transfer : schedule.transfers) {
    both.transfers.push_back(transfer);
    for (int32_t& before : both.transfers.back().after) before += shift;
  }
  return both;
}

// Plays from event `second` on and keeps only what is recorded from there.
Played play_from(const Schedule& schedule, int32_t second) {
  Played result;
  Machine machine(schedule, &result.record);
  const Totals begin = machine.run_to(second);
  Totals end = machine.run_to(static_cast<int32_t>(schedule.events.size()));
  const Totals all = machine.finish();
  if (schedule.leaving.empty()) end = all;
  result.totals = end - begin;
  if (second == 0) return result;
  for (std::vector<Nanos>* times : {&result.record.begin, &result.record.end}) {
    times->erase(times->begin(), times->begin() + second);
    for (Nanos& time : *times) time = time - begin.time;
  }
  return result;
}

}  // namespace

Played play(const Schedule& schedule, const Schedule* before) {
  if (before != nullptr && !schedule.arrivals.empty()) {
    int32_t second = 0;
    const Schedule both = joined(*before, schedule, second);
    return play_from(both, second);
  }
  if (schedule.arrivals.empty()) return play_from(schedule, 0);
  return play_from(without_arrivals(schedule), 0);
}

Totals play_repeated(const Schedule& schedule, int repeat, const Totals& first) {
  if (repeat == 1) return first;
  Totals sum = schedule.arrivals.empty() ? first : play(schedule, nullptr).totals;
  sum = sum * (repeat - 1);
  return sum += first;
}

}  // namespace dc::sim
