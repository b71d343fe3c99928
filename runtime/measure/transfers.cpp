#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <thread>

#include "runtime/comm/agreement.h"
#include "runtime/device/short_slices.h"
#include "runtime/exec/trace.h"
#include "runtime/measure/busy.h"
#include "runtime/measure/hosts.h"
#include "runtime/measure/measure.h"
#include "runtime/measure/samples.h"
#include "runtime/measure/slowest.h"
#include "runtime/measure/together.h"

namespace dc::runtime::measure {
namespace {

using base::Result;
using Level = base::CollectiveLevel;
using base::Status;

constexpr int64_t kSmallest = 4096;
constexpr int64_t kFactor = 4;
constexpr int kWarmup = 2;

// Fewer repeats where one takes longer: about 64 MiB per size, but no more of a slow link's time
// than kEnoughNs.
constexpr int64_t kEnoughNs = 2'000'000'000;
constexpr int kLeastSamples = 3;  // that make a figure
int repeats_of(int64_t bytes, int64_t time_ns) {
  const int64_t repeats = std::clamp<int64_t>((int64_t{64} << 20) / bytes, 5, 50);
  return static_cast<int>(std::min(repeats, std::max<int64_t>(kEnoughNs / time_ns, kLeastSamples)));
}

struct Sweep {
  const char* kind;
  Status (comm::Communicator::*run)(std::span<const comm::CollectiveBuffer>, device::Stream&);
};
constexpr Sweep kSweeps[] = {{"all_gather", &comm::Communicator::all_gather},
                             {"all_reduce", &comm::Communicator::all_reduce},
                             {"reduce_scatter", &comm::Communicator::reduce_scatter}};

// Long enough for compute's progress to tell something.
constexpr int64_t kLongNs = 5'000'000;
constexpr int kWindows = 5;  // of compute next to a collective

// Sizes at which gathers and reductions are measured at once: large enough to be more wire than
// latency.
constexpr int kMostAttempts = 7;
constexpr int64_t kLeastTogether = int64_t{64} << 10, kMostTogether = int64_t{16} << 20;

// How far compute gets while this thread waits.
Progressed progress_of_pause(const Busy& busy, int64_t pause_ns) {
  const int64_t before = exec::TraceRecorder::now(), products = busy.products();
  std::this_thread::sleep_for(std::chrono::nanoseconds(pause_ns));
  return {exec::TraceRecorder::now() - before, busy.products() - products};
}

class Sweeper {
 public:
  static Result<std::unique_ptr<Sweeper>> open(comm::ProcessGroup& job, int64_t largest,
                                               int ranks_per_host) {
    auto sweeper = std::unique_ptr<Sweeper>(new Sweeper(job));
    for (int64_t bytes = kSmallest; bytes < std::max(largest, kSmallest) * kFactor;
         bytes *= kFactor)
      sweeper->sizes_.push_back(bytes);
    const int world = job.control().size(), rank = job.control().rank().v;
    sweeper->room_ =
        base::round_up(sweeper->sizes_.back() + int64_t{world} * 32 * 4, base::kAlignment);
    sweeper->room_together_ = std::min(sweeper->room_, kMostTogether + int64_t{world} * 32 * 4);
    const int64_t room = 2 * (sweeper->room_ + sweeper->room_together_);
    DC_ASSIGN_OR_RETURN(sweeper->slab_, job.allocate(room));
    for (const Level level : {Level::World, Level::Inside, Level::Across}) {
      if (level != Level::World && (ranks_per_host <= 1 || ranks_per_host == world)) continue;
      const std::vector<int> ranks = ranks_at(level, std::max(ranks_per_host, 1), rank, world);
      DC_ASSIGN_OR_RETURN(auto communicator, job.open_communicator(ranks));
      DC_ASSIGN_OR_RETURN(auto second, job.open_communicator(ranks));
      sweeper->communicators_.push_back({level, std::move(communicator), std::move(second)});
    }
    sweeper->stream_->fill(sweeper->slab_.base, std::byte{0}, room);
    DC_RETURN_IF_ERROR(sweeper->stream_->drain());
    return sweeper;
  }

  // Calls `visit(sweep, buffer, bytes)` for every level, kind and size.
  template <typename Visit>
  Status run(Visit visit) {
    for (const Opened& opened : communicators_) {
      current_ = &opened;
      for (const Sweep& sweep : kSweeps) {
        for (int64_t bytes : sizes_) {
          DC_RETURN_IF_ERROR(visit(sweep, buffer_of(bytes, slab_.base, room_), bytes));
        }
      }
    }
    return {};
  }

  // One after the other, all ranks beginning together, as long as each takes the stream; the
  // slowest rank's.
  Result<base::Timing> time(const Sweep& sweep, const comm::CollectiveBuffer& buffer,
                            int64_t bytes) {
    DC_ASSIGN_OR_RETURN(const auto warm, samples(sweep, buffer, kWarmup));
    DC_ASSIGN_OR_RETURN(const base::Timing one, slowest(summarize(warm)));
    DC_ASSIGN_OR_RETURN(const auto found, samples(sweep, buffer, repeats_of(bytes, one.median_ns)));
    return slowest(summarize(found));
  }

  // Compute alone, then while every rank runs the collective, which takes `time_ns`, without a
  // pause. Alone longer where the collective takes long, since such rows have few windows.
  Result<Window> window(const Sweep& sweep, const comm::CollectiveBuffer& buffer, int64_t time_ns,
                        const Busy& busy) {
    const int64_t repeats = std::clamp<int64_t>(kLongNs / time_ns, 1, 5000);
    DC_RETURN_IF_ERROR(begin_together());
    Window window;
    window.alone = progress_of_pause(busy, std::max(kLongNs, time_ns / 8));
    DC_RETURN_IF_ERROR(begin_together());
    DC_RETURN_IF_ERROR(finish());
    const int64_t before = exec::TraceRecorder::now(), products = busy.products();
    for (int64_t i = 0; i < repeats; ++i)
      DC_RETURN_IF_ERROR((*current_->communicator.*sweep.run)({&buffer, 1}, *stream_));
    DC_RETURN_IF_ERROR(finish());
    window.during = {exec::TraceRecorder::now() - before, busy.products() - products};
    return window;
  }

  // The largest of all ranks.
  Result<int64_t> slowdown(std::span<const Window> windows) {
    DC_ASSIGN_OR_RETURN(const base::Timing worst, slowest({slowdown_permille(windows), 0, 0, 0}));
    return worst.median_ns;
  }

  // A gather and a reduction of each size at once, at every level. Rows without samples are left
  // out.
  Status together(const CollectiveSweep& alone, std::vector<base::TogetherMeasurement>& rows) {
    const Sweep* const kinds[] = {&kSweeps[0], &kSweeps[2]};
    for (const Opened& opened : communicators_) {
      current_ = &opened;
      for (const int64_t bytes : sizes_) {
        if (bytes < kLeastTogether || bytes > kMostTogether) continue;
        std::byte* const behind = slab_.base + 2 * room_;
        std::array<Repeated, 2> both;
        for (size_t i = 0; i < 2; ++i) {
          both[i] = {(i == 0 ? opened.communicator : opened.second).get(), kinds[i]->run,
                     i == 0 ? buffer_of(bytes, slab_.base, room_)
                            : buffer_of(bytes, behind, room_together_),
                     repeats_together(alone, kinds[i]->kind, bytes)};
        }
        DC_ASSIGN_OR_RETURN(const auto timings, repeated_together(both));
        for (size_t i = 0; i < 2; ++i) {
          if (timings[i].samples < kLeastSamples) continue;
          rows.push_back(
              {{kinds[i]->kind, ranks(), bytes, timings[i], level()}, kinds[1 - i]->kind});
        }
      }
    }
    return {};
  }

  // Of the level that is swept.
  int ranks() const { return current_->communicator->size(); }
  Level level() const { return current_->level; }
  double part(size_t rows) const {
    const size_t all = communicators_.size() * sizes_.size() * std::size(kSweeps);
    return static_cast<double>(rows) / static_cast<double>(all);
  }

 private:
  struct Opened {
    Level level = Level::World;
    std::unique_ptr<comm::Communicator> communicator, second;
  };
  explicit Sweeper(comm::ProcessGroup& job)
      : job_(job),
        stream_(job.device().make_stream()),
        begin_(job.device().make_timestamp()),
        end_(job.device().make_timestamp()) {}

  comm::CollectiveBuffer buffer_of(int64_t bytes, std::byte* input, int64_t room) const {
    comm::CollectiveBuffer buffer;
    buffer.elements = bytes / 4;
    buffer.shard = base::round_up((buffer.elements + ranks() - 1) / ranks(), 32);
    buffer.input.data = input;
    buffer.output.data = input + room;
    return buffer;
  }

  Result<std::vector<int64_t>> samples(const Sweep& sweep, const comm::CollectiveBuffer& buffer,
                                       int count) {
    std::vector<int64_t> found;
    for (int i = 0; i < count; ++i) {
      DC_RETURN_IF_ERROR(begin_together());
      stream_->write_timestamp(*begin_);
      DC_RETURN_IF_ERROR((*current_->communicator.*sweep.run)({&buffer, 1}, *stream_));
      stream_->write_timestamp(*end_);
      DC_RETURN_IF_ERROR(finish());
      DC_ASSIGN_OR_RETURN(const int64_t time, end_->since(*begin_));
      found.push_back(std::max<int64_t>(time, 1));
    }
    return found;
  }

  // About as long for both kinds. All ranks have the same figures of what it takes alone.
  int64_t repeats_together(const CollectiveSweep& sweep, const char* kind, int64_t bytes) const {
    for (const base::CollectiveMeasurement& row : sweep.alone) {
      if (row.kind == kind && row.bytes == bytes && row.level == level())
        return std::clamp<int64_t>(4 * kLongNs / std::max<int64_t>(row.timing.median_ns, 1), 8,
                                   400);
    }
    return 8;
  }

  // The slowest rank's. Where other programs keep the machine busy, one may be through before the
  // other begins: then both again, twice as often.
  Result<std::array<base::Timing, 2>> repeated_together(std::array<Repeated, 2> both) {
    std::array<base::Timing, 2> timings;
    for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
      DC_RETURN_IF_ERROR(begin_together());
      DC_RETURN_IF_ERROR(finish());
      DC_ASSIGN_OR_RETURN(const auto mine, time_together(job_.device(), both));
      bool enough = true;
      for (size_t i = 0; i < 2; ++i) {
        DC_ASSIGN_OR_RETURN(timings[i], slowest(mine[i]));
        enough = enough && timings[i].samples >= kLeastSamples;
        both[i].repeats *= 2;
      }
      if (enough) break;
    }
    return timings;
  }

  // All groups of a level at once; among all ranks, by the communicator that is measured. The
  // streams of GPUs, which begin as their hosts come to issue to them, begin when they leave a
  // small gather; while that is under way, the hosts issue what follows.
  Status begin_together() {
    if (job_.device().kind() == base::DeviceKind::Cuda) {
      DC_RETURN_IF_ERROR(job_.control().barrier());
      const comm::CollectiveBuffer buffer = buffer_of(kSmallest, slab_.base, room_);
      return current_->communicator->all_gather({&buffer, 1}, *stream_);
    }
    return level() == Level::World ? current_->communicator->barrier() : job_.control().barrier();
  }

  // Until everything issued is done. A collective that was ended leaves its stream without an
  // error.
  Status finish() {
    DC_RETURN_IF_ERROR(stream_->drain());
    return current_->communicator->health();
  }

  Result<base::Timing> slowest(const base::Timing& mine) {
    std::vector<base::Timing> timing{mine};
    DC_RETURN_IF_ERROR(keep_slowest(timing, job_.control()));
    return timing[0];
  }

  comm::ProcessGroup& job_;
  std::vector<int64_t> sizes_;
  int64_t room_ = 0, room_together_ = 0;  // of one buffer; of one of the second collective
  comm::Slab slab_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<device::Timestamp> begin_, end_;
  std::vector<Opened> communicators_;
  const Opened* current_ = nullptr;
};

// Every row's times first, then all rows in turn kWindows times for what compute loses: so what
// disturbs the machine for some seconds is in a few of a row's windows only. A row whose windows
// are long has fewer.
Status next_to_compute(Sweeper& sweeper, Busy& busy, const Progress& progress,
                       std::vector<base::DuringComputeMeasurement>& rows) {
  device::prefer_short_slices();  // as the stream that carries collectives in a step
  size_t visited = 0;
  const auto note_progress = [&] {
    progress((1 + sweeper.part(++visited) / (1 + kWindows)) / 2, "collectives");
  };
  DC_RETURN_IF_ERROR(sweeper.run(
      [&](const Sweep& sweep, const comm::CollectiveBuffer& buffer, int64_t bytes) -> Status {
        DC_ASSIGN_OR_RETURN(const base::Timing timing, sweeper.time(sweep, buffer, bytes));
        rows.push_back({{sweep.kind, sweeper.ranks(), bytes, timing, sweeper.level()}});
        note_progress();
        return {};
      }));
  std::vector<std::vector<Window>> windows(rows.size());
  for (int turn = 0; turn < kWindows; ++turn) {
    size_t row = 0;
    DC_RETURN_IF_ERROR(sweeper.run(
        [&](const Sweep& sweep, const comm::CollectiveBuffer& buffer, int64_t /*bytes*/) -> Status {
          const size_t here = row++;
          note_progress();
          const int64_t time = std::max<int64_t>(rows[here].timing.median_ns, 1);
          if (turn * time >= kEnoughNs) return {};
          DC_ASSIGN_OR_RETURN(const Window window, sweeper.window(sweep, buffer, time, busy));
          windows[here].push_back(window);
          return {};
        }));
  }
  for (size_t row = 0; row < rows.size(); ++row) {
    DC_ASSIGN_OR_RETURN(rows[row].compute_permille, sweeper.slowdown(windows[row]));
  }
  return {};
}

}  // namespace

Result<CollectiveSweep> measure_collectives(comm::ProcessGroup& job, int64_t largest,
                                            int compute_threads, int ranks_per_host,
                                            const Progress& progress) {
  DC_ASSIGN_OR_RETURN(const std::unique_ptr<Sweeper> sweeper,
                      Sweeper::open(job, largest, ranks_per_host));
  CollectiveSweep all;
  const auto alone = [&](const Sweep& sweep, const comm::CollectiveBuffer& buffer,
                         int64_t bytes) -> Status {
    DC_ASSIGN_OR_RETURN(const base::Timing timing, sweeper->time(sweep, buffer, bytes));
    all.alone.push_back({sweep.kind, sweeper->ranks(), bytes, timing, sweeper->level()});
    progress(sweeper->part(all.alone.size()) / 2, "collectives");
    return {};
  };
  DC_RETURN_IF_ERROR(sweeper->run(alone));
  DC_RETURN_IF_ERROR(sweeper->together(all, all.together));
  auto products = make_products(job.device(), compute_threads);
  DC_RETURN_IF_ERROR(comm::agree(job.control(), products.ok() ? Status() : products.status(),
                                 "making matrices to multiply"));
  Busy busy(job.device(), std::move(products).value());
  DC_RETURN_IF_ERROR(next_to_compute(*sweeper, busy, progress, all.during_compute));
  DC_RETURN_IF_ERROR(comm::agree(job.control(), busy.stop(), "multiplying matrices"));
  return all;
}

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace dc::runtime::measure
