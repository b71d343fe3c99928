#include "runtime/measure/together.h"

#include <algorithm>
#include <barrier>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/device/short_slices.h"
#include "runtime/measure/samples.h"

namespace dc::runtime::measure {
namespace {

using base::Result;
using base::Status;

// The repeats of one collective on a separate stream, one after the other.
class RepeatedRun {
 public:
  RepeatedRun(device::Device& device, const Repeated& one)
      : one_(one), stream_(device.make_stream()) {
    for (int64_t i = 0; i <= one.repeats; ++i) stamps_.push_back(device.make_timestamp());
  }

  void begin() { stream_->write_timestamp(*stamps_[0]); }
  bool is_over() const { return done_ == one_.repeats || !status_.ok(); }
  void issue_next() {
    status_ = (*one_.communicator.*one_.run)({&one_.buffer, 1}, *stream_);
    stream_->write_timestamp(*stamps_[static_cast<size_t>(++done_)]);
  }
  // Whether it is behind the other, as part of its repeats.
  bool is_behind(const RepeatedRun& other) const {
    return done_ * other.one_.repeats <= other.done_ * one_.repeats;
  }

  // When each ended and the next began, and when the last ended, after `origin`.
  Result<std::vector<int64_t>> finish(const device::Timestamp& origin) {
    DC_RETURN_IF_ERROR(status_);
    DC_RETURN_IF_ERROR(stream_->drain());
    DC_RETURN_IF_ERROR(one_.communicator->health());
    std::vector<int64_t> times;
    for (const auto& stamp : stamps_) {
      DC_ASSIGN_OR_RETURN(times.emplace_back(), stamp->since(origin));
    }
    return times;
  }

 private:
  const Repeated& one_;
  std::unique_ptr<device::Stream> stream_;
  std::vector<std::unique_ptr<device::Timestamp>> stamps_;
  int64_t done_ = 0;
  Status status_;
};

// Where the issuing thread is the stream, each has its own.
void issue_by_threads(RepeatedRun& first, RepeatedRun& second) {
  std::barrier<> gate(2);
  const auto issue = [&gate](RepeatedRun& run) {
    device::prefer_short_slices();  // as the streams that carry collectives in a step
    gate.arrive_and_wait();
    run.begin();
    while (!run.is_over()) run.issue_next();
  };
  std::thread one([&] { issue(first); }), other([&] { issue(second); });
  one.join();
  other.join();
}

// In one order on all ranks, as the steps of GPUs do: collectives that are issued in different
// orders may wait for each other for ever.
void issue_in_turns(RepeatedRun& first, RepeatedRun& second) {
  first.begin();
  second.begin();
  while (!first.is_over() || !second.is_over()) {
    const bool takes_first = second.is_over() || (!first.is_over() && first.is_behind(second));
    (takes_first ? first : second).issue_next();
  }
}

base::Timing during(const std::vector<int64_t>& run, const std::vector<int64_t>& other) {
  std::vector<int64_t> samples;
  for (size_t i = 1; i < run.size(); ++i) {
    if (run[i - 1] >= other.front() && run[i] <= other.back())
      samples.push_back(std::max<int64_t>(run[i] - run[i - 1], 1));
  }
  return summarize(samples);
}

}  // namespace

Result<std::array<base::Timing, 2>> time_together(device::Device& device,
                                                  const std::array<Repeated, 2>& both) {
  const auto origin = device.make_timestamp();
  const auto stream = device.make_stream();
  stream->write_timestamp(*origin);
  DC_RETURN_IF_ERROR(stream->drain());
  RepeatedRun first(device, both[0]), second(device, both[1]);
  if (device.kind() == base::DeviceKind::Cuda) {
    issue_in_turns(first, second);
  } else {
    issue_by_threads(first, second);
  }
  DC_ASSIGN_OR_RETURN(const std::vector<int64_t> one, first.finish(*origin));
  DC_ASSIGN_OR_RETURN(const std::vector<int64_t> other, second.finish(*origin));
  return std::array{during(one, other), during(other, one)};
}

}  // namespace dc::runtime::measure
