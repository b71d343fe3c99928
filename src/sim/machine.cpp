#include "src/sim/machine.h"

#include <algorithm>

#include "src/base/status.h"

namespace dc::sim {
namespace {

int64_t quotient_up(int64_t work, int64_t rate) { return (work + rate - 1) / rate; }

}  // namespace

Totals& Totals::operator+=(const Totals& other) {
  time += other.time;
  exposed += other.exposed;
  contention += other.contention;
  return *this;
}
Totals Totals::operator-(const Totals& other) const {
  return {time - other.time, exposed - other.exposed, contention - other.contention};
}
Totals Totals::operator*(int64_t count) const {
  return {time * count, exposed * count, contention * count};
}

Machine::Machine(const Schedule& schedule, Record* record)
    : schedule_(schedule),
      record_(record),
      streams_(static_cast<size_t>(std::max(schedule.streams, 1))) {
  const size_t count = schedule_.transfers.size();
  ended_.resize(count);
  exposed_.resize(count);
  std::vector<bool> carries(streams_.size());
  for (const Transfer& transfer : schedule_.transfers) {
    carries[static_cast<size_t>(transfer.stream)] = true;
    if (transfer.contention != cost::Contention{}) rates_change_ = true;
    if (!transfer.after.empty()) streams_wait_ = true;
  }
  if (std::count(carries.begin(), carries.end(), true) > 1) rates_change_ = true;
  if (record_ == nullptr) return;
  started_at_.resize(count, -1);
  record_->begin.assign(schedule.events.size(), {});
  record_->end.assign(schedule.events.size(), {});
}

void Machine::begin(Work& work, int64_t nanos) const {
  work = {nanos * kFull, now_, kFull, now_ + nanos};
}

void Machine::set_rate(Work& work, int64_t rate) const {
  if (work.rate == rate) return;
  work.left -= work.rate * (now_ - work.since);
  work.since = now_;
  work.rate = rate;
  work.end = now_ + quotient_up(work.left, rate);
}

void Machine::set_rates() {
  if (!stale_rates_) return;
  stale_rates_ = false;
  int64_t sharing[kLinks] = {};
  int64_t slowest = 1000;
  for (const Stream& stream : streams_) {
    if (stream.transfer < 0 || !stream.on_wire) continue;
    const Transfer& transfer = schedule_.transfers[static_cast<size_t>(stream.transfer)];
    ++sharing[static_cast<size_t>(transfer.link)];
    slowest = std::max<int64_t>(slowest, transfer.contention.compute);
  }
  for (Stream& stream : streams_) {
    if (stream.transfer < 0) continue;
    const Transfer& transfer = schedule_.transfers[static_cast<size_t>(stream.transfer)];
    int64_t share = 1000;
    if (stream.on_wire) {
      const int64_t alone = kernel_.active() ? transfer.contention.collective : 1000;
      const int64_t users = sharing[static_cast<size_t>(transfer.link)];
      share = alone * users;
      if (users > 1) share = share * transfer.contention.shared / 1000;
    }
    set_rate(stream.work, std::max<int64_t>(kFull * 1000 / share, 1));
  }
  if (kernel_.active()) set_rate(kernel_, std::max<int64_t>(kFull * 1000 / slowest, 1));
}

void Machine::start(int32_t transfer, int32_t index) {
  if (record_ != nullptr) started_at_[static_cast<size_t>(transfer)] = index;
  const auto s = static_cast<size_t>(schedule_.transfers[static_cast<size_t>(transfer)].stream);
  Stream& stream = streams_[s];
  ended_[static_cast<size_t>(transfer)] = 0;
  stream.pending.push_back(transfer);
  if (s == 0) {  // compute itself carries it
    waiting_ = transfer;
    waits_since_ = now_;
    waiting_event_ = -1;
  }
  if (stream.transfer < 0) next_transfer(stream);
}

void Machine::next_transfer(Stream& stream) {
  stream.transfer = -1;
  stream.work = {};
  stale_rates_ = rates_change_;
  if (stream.taken == stream.pending.size()) {
    stream.pending.clear();
    stream.taken = 0;
    return;
  }
  if (streams_wait_ && is_blocked(stream.pending[stream.taken])) return;
  stream.transfer = stream.pending[stream.taken++];
  stream.on_wire = false;
  const Transfer& transfer = schedule_.transfers[static_cast<size_t>(stream.transfer)];
  if (record_ != nullptr) {
    const int32_t event = started_at_[static_cast<size_t>(stream.transfer)];
    record_->begin[static_cast<size_t>(event)] = {now_};
  }
  if (transfer.latency.v > 0) {
    begin(stream.work, transfer.latency.v);
  } else {
    begin_wire(stream);
  }
}

bool Machine::is_blocked(int32_t transfer) const {
  const std::vector<int32_t>& after = schedule_.transfers[static_cast<size_t>(transfer)].after;
  return std::any_of(after.begin(), after.end(),
                     [&](int32_t other) { return ended_[static_cast<size_t>(other)] == 0; });
}

// Those whose next transfer waited.
void Machine::wake_streams() {
  for (Stream& stream : streams_) {
    if (stream.transfer < 0 && stream.taken < stream.pending.size()) next_transfer(stream);
  }
}

void Machine::begin_wire(Stream& stream) {
  stream.on_wire = true;
  stale_rates_ = rates_change_;
  begin(stream.work, schedule_.transfers[static_cast<size_t>(stream.transfer)].wire.v);
}

void Machine::end_phase(Stream& stream) {
  if (stream.on_wire) {
    end_transfer(stream);
  } else {
    begin_wire(stream);
  }
}

void Machine::end_transfer(Stream& stream) {
  const int32_t transfer = stream.transfer;
  ended_[static_cast<size_t>(transfer)] = 1;
  if (record_ != nullptr) {
    const int32_t event = started_at_[static_cast<size_t>(transfer)];
    record_->end[static_cast<size_t>(event)] = {now_};
  }
  if (waiting_ == transfer) go_on(transfer);
  next_transfer(stream);
  if (streams_wait_) wake_streams();
}

// Compute waited for the transfer that has just ended.
void Machine::go_on(int32_t ended) {
  const int64_t waited = now_ - waits_since_;
  exposed_[static_cast<size_t>(ended)] = waited;
  exposed_total_ += waited;
  waiting_ = -1;
  if (record_ == nullptr || waiting_event_ < 0) return;
  record_->end[static_cast<size_t>(waiting_event_)] = {now_};
}

void Machine::take_up(const Event& event, int32_t index) {
  if (record_ != nullptr && event.kind != EventKind::Start) {
    record_->begin[static_cast<size_t>(index)] = {now_};
    record_->end[static_cast<size_t>(index)] = {now_};
  }
  switch (event.kind) {
    case EventKind::Compute:
      if (event.time.v == 0) return;
      begin(kernel_, event.time.v);
      kernel_event_ = index;
      kernel_begin_ = now_;
      stale_rates_ = rates_change_;
      return;
    case EventKind::Start:
      start(event.transfer, index);
      return;
    case EventKind::Done:
      if (ended_[static_cast<size_t>(event.transfer)]) return;
      waiting_ = event.transfer;
      waits_since_ = now_;
      waiting_event_ = index;
      return;
  }
}

void Machine::end_kernel() {
  const auto index = static_cast<size_t>(kernel_event_);
  const int64_t alone = schedule_.events[index].time.v;
  contention_total_ += now_ - kernel_begin_ - alone;
  if (record_ != nullptr) record_->end[index] = {now_};
  kernel_ = {};
  stale_rates_ = rates_change_;
}

void Machine::advance() {
  if (rates_change_) set_rates();
  int64_t soonest = kernel_.end;
  for (const Stream& stream : streams_) soonest = std::min(soonest, stream.work.end);
  DC_CHECK(soonest != kNever);  // fails if a done waits for a transfer that never started
  now_ = soonest;
  if (kernel_.end == now_) end_kernel();
  for (Stream& stream : streams_) {
    if (stream.work.end == now_) end_phase(stream);
  }
}

Totals Machine::run_to(int32_t index) {
  while (next_ < index || !compute_is_free()) {
    if (!compute_is_free()) {
      advance();
      continue;
    }
    const int32_t event = next_++;
    take_up(schedule_.events[static_cast<size_t>(event)], event);
  }
  return {{now_}, {exposed_total_}, {contention_total_}};
}

void Machine::take_snapshot(Snapshot& into) const {
  into.totals = {{now_}, {exposed_total_}, {contention_total_}};
  into.next = next_;
  into.stale_rates = stale_rates_;
  into.streams.resize(streams_.size());
  for (size_t s = 0; s < streams_.size(); ++s) {
    const Stream& stream = streams_[s];
    Snapshot::OneStream& one = into.streams[s];
    one.pending.assign(stream.pending.begin() + static_cast<std::ptrdiff_t>(stream.taken),
                       stream.pending.end());
    one.transfer = stream.transfer;
    const bool is_busy = stream.transfer >= 0;
    one.on_wire = is_busy && stream.on_wire;
    one.left =
        is_busy ? stream.work.left - stream.work.rate * (now_ - stream.work.since) : int64_t{0};
    one.rate = is_busy ? stream.work.rate : int64_t{0};
  }
}

void Machine::set_ended(const Stream& stream, bool ended) {
  if (stream.transfer >= 0) ended_[static_cast<size_t>(stream.transfer)] = ended;
  for (size_t i = stream.taken; i < stream.pending.size(); ++i)
    ended_[static_cast<size_t>(stream.pending[i])] = ended;
}

void Machine::restore(const Snapshot& from) {
  for (const Stream& stream : streams_) set_ended(stream, true);
  now_ = from.totals.time.v;
  exposed_total_ = from.totals.exposed.v;
  contention_total_ = from.totals.contention.v;
  next_ = from.next;
  stale_rates_ = from.stale_rates;
  kernel_ = {};
  waiting_ = -1;
  for (size_t s = 0; s < streams_.size(); ++s) {
    const Snapshot::OneStream& one = from.streams[s];
    Stream& stream = streams_[s];
    stream.transfer = one.transfer;
    stream.on_wire = one.on_wire;
    stream.work = {};
    stream.pending = one.pending;
    stream.taken = 0;
    if (one.transfer >= 0)
      stream.work = {one.left, now_, one.rate, now_ + quotient_up(one.left, one.rate)};
    set_ended(stream, false);
  }
}

Totals Machine::finish() {
  (void)run_to(static_cast<int32_t>(schedule_.events.size()));
  const auto is_idle = [](const Stream& stream) {
    return !stream.work.active() && stream.taken == stream.pending.size();
  };
  while (!std::all_of(streams_.begin(), streams_.end(), is_idle)) advance();
  return {{now_}, {exposed_total_}, {contention_total_}};
}

}  // namespace dc::sim
