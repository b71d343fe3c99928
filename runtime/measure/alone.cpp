#include "runtime/measure/alone.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "runtime/comm/agreement.h"
#include "runtime/device/device.h"
#include "runtime/exec/trace.h"
#include "runtime/kernel/elements.h"
#include "runtime/kernel/kernel.h"
#include "runtime/measure/pseudo_random.h"
#include "runtime/measure/samples.h"
#include "runtime/measure/slowest.h"
#include "runtime/plan/extent.h"

namespace dc::runtime::measure {
namespace {

using base::Result;
using base::Status;

constexpr int64_t kAlignment = 64;  // of slices, as in a plan

int64_t bytes_of(const plan::Tensor& tensor) { return plan::reach_bytes(tensor).value_or(0); }

int64_t memory_of(const plan::Plan& kernel) {
  return kernel.slices.empty() ? 0 : kernel.slices.back().offset + kernel.slices.back().bytes;
}

// The same values again and again.
void fill(const plan::Tensor& tensor, std::byte* to) {
  constexpr int64_t kPeriod = 4096;  // elements
  const int64_t element = base::byte_size(tensor.dtype), bytes = bytes_of(tensor);
  const int64_t first = std::min(bytes, kPeriod * element);
  for (int64_t i = 0; i < first / element; ++i) {
    const double value =
        base::is_floating(tensor.dtype) ? pseudo_random(i) : static_cast<double>(i % 2);
    kernel::store_real(tensor.dtype, to + i * element, value);
  }
  for (int64_t done = first; done < bytes; done += first)
    std::memcpy(to + done, to, static_cast<size_t>(std::min(first, bytes - done)));
}

// Fills all caches with something else: by reading, since large writes can go around them.
class Eviction {
 public:
  static Result<Eviction> make() {
    constexpr int64_t kLeast = int64_t{32} << 20;
    const auto last_level = static_cast<int64_t>(sysconf(_SC_LEVEL3_CACHE_SIZE));
    DC_ASSIGN_OR_RETURN(auto memory,
                        device::cpu_device().allocate(std::max(kLeast, 2 * last_level)));
    std::memset(memory->base(), 1, static_cast<size_t>(memory->bytes()));
    return Eviction(std::move(memory));
  }
  void run() {
    constexpr int64_t kLine = 64;
    for (int64_t at = 0; at < memory_->bytes(); at += kLine)
      sum_ += static_cast<uint64_t>(*(memory_->base() + at));
    volatile uint64_t keep = sum_;
    static_cast<void>(keep);
  }

 private:
  explicit Eviction(std::unique_ptr<device::DeviceMemory> memory) : memory_(std::move(memory)) {}
  std::unique_ptr<device::DeviceMemory> memory_;
  uint64_t sum_ = 0;
};

// What one round says of a kernel.
struct Fastest {
  int64_t time_ns = INT64_MAX;
  int32_t runs = 0;
};

class Rounds {
 public:
  Rounds(std::byte* memory, Eviction eviction) : memory_(memory), eviction_(std::move(eviction)) {}

  Result<Fastest> warm(const plan::Plan& kernel, int64_t round_ns) {
    constexpr int kWarmup = 3, kFewest = 3, kMost = 40;
    DC_ASSIGN_OR_RETURN(const auto made, prepared(kernel));
    for (int i = 0; i < kWarmup; ++i) DC_RETURN_IF_ERROR(made->launch(*stream_));
    Fastest found;
    for (int64_t spent = 0; found.runs < kFewest || (spent < round_ns && found.runs < kMost);) {
      DC_ASSIGN_OR_RETURN(const int64_t time, timed(*made));
      found.time_ns = std::min(found.time_ns, time);
      ++found.runs;
      spent += time;
    }
    return found;
  }

  Result<Fastest> cold(const plan::Plan& kernel) {
    DC_ASSIGN_OR_RETURN(const auto made, prepared(kernel));
    DC_RETURN_IF_ERROR(made->launch(*stream_));
    eviction_.run();
    DC_ASSIGN_OR_RETURN(const int64_t time, timed(*made));
    return Fastest{time, 1};
  }

 private:
  Result<std::unique_ptr<kernel::Kernel>> prepared(const plan::Plan& kernel) {
    for (const plan::Tensor& tensor : kernel.tensors)
      fill(tensor, memory_ + kernel.slices[static_cast<size_t>(tensor.slice)].offset);
    return provider_->prepare(kernel.programs[0].instructions[0],
                              kernel::AddressMap(kernel, memory_, 0));
  }

  Result<int64_t> timed(kernel::Kernel& kernel) {
    const int64_t begin = exec::TraceRecorder::now();
    DC_RETURN_IF_ERROR(kernel.launch(*stream_));
    return exec::TraceRecorder::now() - begin;
  }

  std::byte* memory_;
  Eviction eviction_;
  const std::unique_ptr<kernel::KernelProvider> provider_ = kernel::make_native_provider();
  const std::unique_ptr<device::Stream> stream_ = device::cpu_device().make_stream();
};

// The rounds of one state of the caches.
struct RoundsOf {
  std::vector<std::vector<int64_t>> times;  // by kernel
  std::vector<int32_t> runs;

  explicit RoundsOf(size_t kernels) : times(kernels), runs(kernels) {}
  void add(size_t kernel, const Fastest& found) {
    times[kernel].push_back(found.time_ns);
    runs[kernel] += found.runs;
  }
  Result<std::vector<base::Timing>> of_slowest(comm::Communicator& control) const {
    std::vector<base::Timing> timings;
    for (size_t i = 0; i < times.size(); ++i) {
      timings.push_back(summarize(times[i]));
      timings.back().samples = runs[i];
    }
    DC_RETURN_IF_ERROR(keep_slowest(timings, control));
    return timings;
  }
};

}  // namespace

plan::Plan lone_kernel(const plan::Plan& plan, const plan::Instruction& kernel) {
  plan::Plan lone;
  plan::Instruction own = kernel;
  own.stream = 0;
  own.scratch = -1;
  own.reads.clear();
  own.writes.clear();
  const auto add = [&](int64_t id) {
    plan::Tensor tensor = plan.tensors[static_cast<size_t>(id)];
    tensor.slice = static_cast<int32_t>(lone.slices.size());
    tensor.offset = tensor.rank_stride = 0;
    plan::Slice slice;
    slice.offset = memory_of(lone);
    slice.bytes = (bytes_of(tensor) + kAlignment - 1) / kAlignment * kAlignment;
    lone.slices.push_back(slice);
    lone.tensors.push_back(std::move(tensor));
    return static_cast<int32_t>(lone.tensors.size() - 1);
  };
  for (plan::Arg& arg : own.args) {
    if (arg.kind != plan::ArgKind::Tensor) continue;
    arg.i = add(arg.i);
    own.reads.push_back(static_cast<int32_t>(arg.i));
  }
  for (int32_t& id : own.outputs) {
    id = add(id);
    own.writes.push_back(id);
  }
  lone.mesh = {{"data", 1}};
  lone.programs = {plan::Program{"alone", {std::move(own)}}};
  return lone;
}

Result<std::vector<AloneTimings>> measure_alone(std::span<const plan::Plan> kernels,
                                                comm::Communicator& control,
                                                const AloneOptions& options,
                                                const Progress& progress) {
  int64_t most = 1;
  for (const plan::Plan& kernel : kernels) most = std::max(most, memory_of(kernel));
  RoundsOf warm(kernels.size()), cold(kernels.size());
  const auto measure = [&]() -> Status {
    DC_ASSIGN_OR_RETURN(const auto memory, device::cpu_device().allocate(most));
    DC_ASSIGN_OR_RETURN(Eviction eviction, Eviction::make());
    Rounds rounds(memory->base(), std::move(eviction));
    for (int round = 0; round < options.rounds; ++round) {
      for (size_t i = 0; i < kernels.size(); ++i) {
        DC_ASSIGN_OR_RETURN(const Fastest found, rounds.warm(kernels[i], options.round_ns));
        warm.add(i, found);
        if (round >= options.cold_rounds) continue;
        DC_ASSIGN_OR_RETURN(const Fastest slower, rounds.cold(kernels[i]));
        cold.add(i, slower);
      }
      progress(static_cast<double>(round + 1) / options.rounds, "fusions");
    }
    return {};
  };
  DC_RETURN_IF_ERROR(comm::agree(control, measure(), "measuring fused kernels alone"));
  DC_ASSIGN_OR_RETURN(const std::vector<base::Timing> warm_rows, warm.of_slowest(control));
  DC_ASSIGN_OR_RETURN(const std::vector<base::Timing> cold_rows, cold.of_slowest(control));
  std::vector<AloneTimings> rows;
  for (size_t i = 0; i < kernels.size(); ++i) rows.push_back({warm_rows[i], cold_rows[i]});
  return rows;
}

}  // namespace dc::runtime::measure
