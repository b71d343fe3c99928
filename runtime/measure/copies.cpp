#include <algorithm>
#include <array>
#include <functional>
#include <memory>

#include "runtime/measure/measure.h"
#include "runtime/measure/samples.h"
#include "runtime/memory/disk_space.h"

namespace dc::runtime::measure {
namespace {

using base::Result;
using base::Status;

constexpr std::array<int64_t, 7> kSizes = {4 << 10, 16 << 10, 64 << 10, 256 << 10,
                                           1 << 20, 4 << 20,  16 << 20};
constexpr int kCopyWarmup = 2, kCopyRepeats = 9;

// Of the size of that index, on the stream.
using Copy = std::function<Status(size_t size)>;

// There and back again, of every size.
struct Both {
  const char *here, *there;
  Copy out, back;
};

// How long each copy of a size takes the stream, out and back in turns.
Result<std::array<base::Timing, 2>> time_of(device::Device& device, device::Stream& stream,
                                            const Both& both, size_t size) {
  std::vector<std::unique_ptr<device::Timestamp>> stamps;
  for (int i = 0; i <= 2 * (kCopyWarmup + kCopyRepeats); ++i)
    stamps.push_back(device.make_timestamp());
  stream.write_timestamp(*stamps[0]);
  for (size_t i = 1; i < stamps.size(); ++i) {
    DC_RETURN_IF_ERROR(i % 2 == 1 ? both.out(size) : both.back(size));
    stream.write_timestamp(*stamps[i]);
  }
  DC_RETURN_IF_ERROR(stream.drain());
  std::vector<int64_t> times[2];
  for (size_t i = 1 + 2 * kCopyWarmup; i < stamps.size(); ++i) {
    DC_ASSIGN_OR_RETURN(const int64_t time, stamps[i]->since(*stamps[i - 1]));
    times[(i + 1) % 2].push_back(std::max<int64_t>(time, 1));
  }
  return std::array{summarize(times[0]), summarize(times[1])};
}

Status add(device::Device& device, device::Stream& stream, const Both& both,
           std::vector<base::CopyMeasurement>& rows) {
  std::vector<base::CopyMeasurement> returns;
  for (size_t s = 0; s < kSizes.size(); ++s) {
    DC_ASSIGN_OR_RETURN(const auto timings, time_of(device, stream, both, s));
    rows.push_back({both.here, both.there, kSizes[s], timings[0]});
    returns.push_back({both.there, both.here, kSizes[s], timings[1]});
  }
  rows.insert(rows.end(), returns.begin(), returns.end());
  return {};
}

// A tensor of every size, each in another slice on disk.
plan::Plan plan_of_sizes() {
  plan::Plan plan;
  int64_t end = 0;
  for (size_t s = 0; s < kSizes.size(); ++s) {
    plan.slices.push_back({plan::Space::Disk, end, kSizes[s], -1, 0, 0});
    plan::Tensor& tensor = plan.tensors.emplace_back();
    tensor.dtype = plan::DType::U8;
    tensor.sizes = {kSizes[s]};
    tensor.strides = {1};
    tensor.slice = static_cast<int32_t>(s);
    end += kSizes[s];
  }
  plan.arena_bytes = {0, 0, end};
  return plan;
}

}  // namespace

Result<std::vector<base::CopyMeasurement>> measure_copies(device::Device& device,
                                                          const std::string& offload_dir) {
  const int64_t most = kSizes.back();
  DC_ASSIGN_OR_RETURN(const auto here, device.allocate(most));
  DC_ASSIGN_OR_RETURN(const auto there, device.allocate_host(most));
  const std::unique_ptr<device::Stream> stream = device.make_stream();
  stream->fill(here->base(), std::byte{1}, most);
  stream->fill(there->base(), std::byte{2}, most);
  std::vector<base::CopyMeasurement> rows;
  const auto out = [&](size_t s) -> Status {
    stream->copy(there->base(), here->base(), kSizes[s]);
    return {};
  };
  const auto back = [&](size_t s) -> Status {
    stream->copy(here->base(), there->base(), kSizes[s]);
    return {};
  };
  DC_RETURN_IF_ERROR(add(device, *stream, {"device", "host", out, back}, rows));
  if (offload_dir.empty()) return rows;
  const plan::Plan plan = plan_of_sizes();
  DC_ASSIGN_OR_RETURN(const std::unique_ptr<memory::DiskSpace> disk,
                      memory::DiskSpace::create(plan, 0, offload_dir));
  const auto write = [&](size_t s) {
    return disk->write(disk->extent(static_cast<int32_t>(s)), stream->resolve(here->base()));
  };
  const auto read = [&](size_t s) {
    return disk->read(disk->extent(static_cast<int32_t>(s)), stream->resolve(here->base()));
  };
  DC_RETURN_IF_ERROR(add(device, *stream, {"device", "disk", write, read}, rows));
  return rows;
}

}  // namespace dc::runtime::measure
