#include "runtime/measure/together.h"

#include <algorithm>
#include <barrier>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/device/short_slices.h"
#include "runtime/exec/trace.h"
#include "runtime/measure/samples.h"

namespace dc::runtime::measure {
namespace {

struct RepeatedRun {
  std::vector<int64_t> begins, ends;  // of each repeat
  base::Status status;
};

void repeat_collective(const Repeated& one, device::Stream& stream, std::barrier<>& gate,
                       RepeatedRun& run) {
  device::prefer_short_slices();  // as the streams that carry collectives in a step
  gate.arrive_and_wait();
  for (int64_t i = 0; i < one.repeats && run.status.ok(); ++i) {
    run.begins.push_back(exec::TraceRecorder::now());
    run.status = (*one.communicator.*one.run)({&one.buffer, 1}, stream);
    run.ends.push_back(exec::TraceRecorder::now());
  }
}

base::Timing during(const RepeatedRun& run, const RepeatedRun& other) {
  std::vector<int64_t> samples;
  if (other.begins.empty()) return {};
  for (size_t i = 0; i < run.begins.size(); ++i) {
    if (run.begins[i] >= other.begins.front() && run.ends[i] <= other.ends.back())
      samples.push_back(run.ends[i] - run.begins[i]);
  }
  return summarize(samples);
}

}  // namespace

base::Result<std::array<base::Timing, 2>> time_together(device::Device& device,
                                                        const std::array<Repeated, 2>& both) {
  const std::unique_ptr<device::Stream> streams[] = {device.make_stream(), device.make_stream()};
  RepeatedRun runs[2];
  std::barrier<> gate(2);
  std::thread threads[2];
  for (size_t i = 0; i < 2; ++i)
    threads[i] = std::thread([&, i] { repeat_collective(both[i], *streams[i], gate, runs[i]); });
  for (std::thread& thread : threads) thread.join();
  for (RepeatedRun& run : runs) DC_RETURN_IF_ERROR(std::move(run.status));
  return std::array{during(runs[0], runs[1]), during(runs[1], runs[0])};
}

}  // namespace dc::runtime::measure
