#include <algorithm>
#include <cstring>
#include <fstream>

#include "runtime/exec/trace.h"
#include "runtime/measure/measure.h"
#include "runtime/measure/samples.h"
#include "runtime/measure/slowest.h"

namespace dc::runtime {
namespace {

using base::CollectiveMeasurement;
using base::Result;
using base::Status;

constexpr int64_t kSmallest = 4096;
constexpr int64_t kFactor = 4;
constexpr int kWarmup = 2;

// Fewer repeats where one takes longer: about 64 MiB per size.
int repeats_of(int64_t bytes) {
  const int64_t repeats = (int64_t{64} << 20) / bytes;
  return static_cast<int>(std::clamp<int64_t>(repeats, 5, 50));
}

struct Sweep {
  const char* kind;
  Status (Communicator::*run)(std::span<const CollectiveBuffer>);
};
constexpr Sweep kSweeps[] = {{"all_gather", &Communicator::all_gather},
                             {"all_reduce", &Communicator::all_reduce},
                             {"reduce_scatter", &Communicator::reduce_scatter}};

Result<base::Timing> time_one(Communicator& communicator, const Sweep& sweep,
                              const CollectiveBuffer& buffer, int repeats) {
  std::vector<int64_t> samples;
  for (int i = 0; i < kWarmup + repeats; ++i) {
    DC_RETURN_IF_ERROR(communicator.barrier());
    const int64_t before = TraceRecorder::now();
    DC_RETURN_IF_ERROR((communicator.*sweep.run)({&buffer, 1}));
    if (i >= kWarmup) samples.push_back(TraceRecorder::now() - before);
  }
  return summarize(samples);
}

}  // namespace

Result<std::vector<CollectiveMeasurement>> measure_collectives(Job& job, int64_t largest,
                                                               const Progress& progress) {
  const int ranks = job.control().size();
  largest = std::max(largest, kSmallest);
  std::vector<int64_t> sizes;
  for (int64_t bytes = kSmallest; bytes < largest * kFactor; bytes *= kFactor)
    sizes.push_back(bytes);
  const int64_t room = base::round_up(sizes.back() + int64_t{ranks} * 32 * 4, base::kAlignment);
  DC_ASSIGN_OR_RETURN(const Slab slab, job.allocate(2 * room));
  DC_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> communicator, job.open_communicator());
  std::memset(slab.base, 0, static_cast<size_t>(2 * room));
  std::vector<CollectiveMeasurement> rows;
  for (const Sweep& sweep : kSweeps) {
    for (int64_t bytes : sizes) {
      CollectiveBuffer buffer;
      buffer.elements = bytes / 4;
      buffer.shard = base::round_up((buffer.elements + ranks - 1) / ranks, 32);
      buffer.input.data = slab.base;
      buffer.output.data = slab.base + room;
      DC_ASSIGN_OR_RETURN(const base::Timing mine,
                          time_one(*communicator, sweep, buffer, repeats_of(bytes)));
      std::vector<base::Timing> timing{mine};
      DC_RETURN_IF_ERROR(keep_slowest(timing, job.control()));
      rows.push_back({sweep.kind, ranks, bytes, timing[0]});
      progress(
          static_cast<double>(rows.size()) / static_cast<double>(sizes.size() * std::size(kSweeps)),
          "collectives");
    }
  }
  return rows;
}

std::vector<base::CopyMeasurement> measure_copies() {
  constexpr int64_t kBytes = int64_t{16} << 20;
  std::vector<std::byte> from(kBytes, std::byte{1}), to(kBytes, std::byte{2});
  std::vector<int64_t> samples;
  for (int i = 0; i < kWarmup + 9; ++i) {
    const int64_t before = TraceRecorder::now();
    std::memcpy(to.data(), from.data(), static_cast<size_t>(kBytes));
    if (i >= kWarmup) samples.push_back(TraceRecorder::now() - before);
    from[0] = to[static_cast<size_t>(kBytes) - 1];
  }
  const base::Timing timing = summarize(samples);
  return {{"device", "host", kBytes, timing},
          {"host", "device", kBytes, timing}};  // one memory on this device
}

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace dc::runtime
