// Machine: plays one schedule as the executor (runtime/exec) would run it. No clock, integer
// nanoseconds, equal on every host.
//
// Stream 0 does its events in order. Every other stream serves the transfers (kernels among them)
// started on it, first in, first out, each when those of other streams that it waits for have
// ended. Transfers that use one link at the same time share its rate evenly (processor
// sharing), and each is slower than that by its contention. While a transfer uses a link and
// compute runs, each is slower by the transfer's contention; of several transfers the worst counts
// for compute.
//
// Work is counted in 1/5040 of a nanosecond, so that up to ten transfers share a link without
// rounding; a piece of work ends at the first whole nanosecond that completes it.
#pragma once

#include <cstdint>
#include <vector>

#include "src/sim/schedule.h"

namespace dc::sim {

struct Totals {
  base::Nanos time;        // until every stream has ended
  base::Nanos exposed;     // compute waited at a done, or behind a transfer on its own stream
  base::Nanos contention;  // what transfers next to it added to compute
  bool operator==(const Totals&) const = default;
  Totals& operator+=(const Totals& other);
  Totals operator-(const Totals& other) const;
  Totals operator*(int64_t count) const;
};

// When each event ran, by index. A start: when its transfer ran. A done: when compute came to it
// and when it went on.
struct Record {
  std::vector<base::Nanos> begin, end;
};

class Machine {
 public:
  // Keeps a reference to the schedule.
  explicit Machine(const Schedule& schedule, Record* record = nullptr);

  // Plays the schedule until compute is done with the events before `index`; streams may work on.
  Totals run_to(int32_t index);
  // Plays it until every stream has ended.
  Totals finish();

  // All that the rest of a run depends on, while compute is between two events.
  struct Snapshot {
    struct OneStream {
      int32_t transfer = -1;
      bool on_wire = false;
      int64_t left = 0, rate = 0;
      std::vector<int32_t> pending{};  // started, and not begun
      bool operator==(const OneStream&) const = default;
    };
    Totals totals;
    int32_t next = 0;
    bool stale_rates = false;
    std::vector<OneStream> streams;
    // True if what follows takes the same time from both.
    bool same_rest(const Snapshot& other) const {
      return next == other.next && stale_rates == other.stale_rates && streams == other.streams;
    }
  };
  // Right after run_to(); takes the memory that `into` has.
  void take_snapshot(Snapshot& into) const;
  // Goes on from a snapshot of this machine, of a run in which the events before it were the same.
  // What other runs started is taken to have ended.
  void restore(const Snapshot& from);

  // How long compute waited for a transfer; valid once its done has passed.
  base::Nanos exposed(int32_t transfer) const { return {exposed_[static_cast<size_t>(transfer)]}; }

 private:
  static constexpr int64_t kFull = 5040;  // work done in a nanosecond
  static constexpr int64_t kNever = INT64_MAX;

  // A piece of work under way. `left` was left at `since`.
  struct Work {
    int64_t left = 0, since = 0, rate = kFull, end = kNever;
    bool active() const { return end != kNever; }
  };
  struct Stream {
    int32_t transfer = -1;
    bool on_wire = false;
    Work work;
    std::vector<int32_t> pending;
    size_t taken = 0;  // of pending
  };

  bool compute_is_free() const { return !kernel_.active() && waiting_ < 0; }
  void take_up(const Event& event, int32_t index);
  void start(int32_t transfer, int32_t index);
  void next_transfer(Stream& stream);
  bool is_blocked(int32_t transfer) const;
  void wake_streams();
  void begin_wire(Stream& stream);
  void end_transfer(Stream& stream);
  void end_phase(Stream& stream);
  void end_kernel();
  void go_on(int32_t ended);
  void advance();
  void set_rates();
  void set_rate(Work& work, int64_t rate) const;
  void set_ended(const Stream& stream, bool ended);
  void begin(Work& work, int64_t nanos) const;

  const Schedule& schedule_;
  Record* record_;
  bool rates_change_ = false;  // by sharing or contention; else every rate is full
  bool stale_rates_ = false;
  bool streams_wait_ = false;  // for one another
  int64_t now_ = 0, exposed_total_ = 0, contention_total_ = 0;
  int32_t next_ = 0;
  Work kernel_;
  int32_t kernel_event_ = -1;
  int64_t kernel_begin_ = 0;
  int32_t waiting_ = -1;  // transfer that compute waits for
  int64_t waits_since_ = 0;
  int32_t waiting_event_ = -1;
  std::vector<Stream> streams_;
  std::vector<uint8_t> ended_;       // by transfer
  std::vector<int64_t> exposed_;     // by transfer
  std::vector<int32_t> started_at_;  // by transfer: event; only with a record
};

}  // namespace dc::sim
