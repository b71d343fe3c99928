// AnalyticCost: figures from shapes and the rates of a machine alone, for use where nothing was
// measured. Integer nanoseconds, equal on every host.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "src/base/measurements.h"
#include "src/cost/cost_model.h"

namespace dc::cost {

struct Rate {
  static constexpr int64_t kLongest = int64_t{1} << 50;  // ns, 13 days: sums cannot overflow
  int64_t per_second = 1'000'000'000;                    // at least 1
  base::Nanos time(int64_t amount) const {
    const __int128 ns = static_cast<__int128>(amount) * 1'000'000'000 / per_second;
    return {static_cast<int64_t>(std::min<__int128>(ns, kLongest))};
  }
};

// The rates of one rank: floating-point operations or bytes per second, and fixed latencies.
struct Rates {
  std::string name;                       // "a generic CPU"
  Rate flops_f64, flops_f32, flops_half;  // matrix products; half: bf16 and f16
  Rate memory_bytes;
  int64_t kernel_ns = 0;            // to start a kernel
  int64_t collective_ns = 0;        // latency of a collective
  Rate gather_bytes, reduce_bytes;  // moved by one rank in a gather; a reduction
  Rate to_host_bytes, from_host_bytes, disk_bytes;
  // Read and written by kernels on the host; empty: the device is the host.
  std::optional<Rate> host_memory_bytes;
};
Rates generic_cpu(int threads);
Rates rates_of(const base::MachineRates& machine, std::string name);

class AnalyticCost final : public CostModel {
 public:
  // `threads`: of one rank, for the workspace of its kernels.
  explicit AnalyticCost(int threads) : AnalyticCost(threads, generic_cpu(threads)) {}
  AnalyticCost(int threads, Rates rates) : threads_(threads), rates_(std::move(rates)) {}

  Estimate collective(Collective kind, base::Bytes bytes, Group group) const override;
  base::Nanos latency(Collective kind, Group group) const override;
  Estimate copy(base::Bytes bytes, ir::Space from, ir::Space to) const override;
  std::string origin() const override { return "generic cpu table"; }
  std::string table() const override { return rates_.name; }

 private:
  Estimate kernel_time(const base::KernelSignature& kernel) const override;
  Scratch kernel_scratch(const base::KernelSignature& kernel) const override;

  int threads_;
  Rates rates_;
};

}  // namespace dc::cost
