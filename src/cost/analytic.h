// AnalyticCost: figures from shapes and the rates of a machine alone, for use where nothing was
// measured. Integer nanoseconds, equal on every host.
#pragma once

#include <string>
#include <utility>

#include "src/base/measurements.h"
#include "src/cost/cost_model.h"

namespace dc::cost {

// What one rank does. Rates are units per nanosecond (1 GB/s = 1 byte per ns).
struct Rates {
  std::string name;                                      // "a generic CPU"
  int64_t flops_f64 = 1, flops_f32 = 1, flops_half = 1;  // matrix products; half: bf16 and f16
  int64_t memory_bytes = 1;
  int64_t kernel_ns = 0;                       // to start a kernel
  int64_t collective_ns = 0;                   // latency of a collective
  int64_t gather_bytes = 1, reduce_bytes = 1;  // moved by one rank in a gather; a reduction
  int64_t to_host_bytes = 1, from_host_bytes = 1, disk_bytes = 1;
};
Rates generic_cpu(int threads);
Rates rates_of(const base::MachineRates& machine, std::string name);

class AnalyticCost final : public CostModel {
 public:
  // `threads`: of one rank, for the workspace of its kernels.
  explicit AnalyticCost(int threads) : AnalyticCost(threads, generic_cpu(threads)) {}
  AnalyticCost(int threads, Rates rates) : threads_(threads), rates_(std::move(rates)) {}

  Estimate compute(const ir::Graph& graph, const ir::Node& node) const override;
  Scratch scratch(const ir::Graph& graph, const ir::Node& node) const override;
  Estimate collective(Collective kind, base::Bytes bytes, int group_size) const override;
  base::Nanos latency(Collective kind, int group_size) const override;
  Estimate copy(base::Bytes bytes, ir::Space from, ir::Space to) const override;
  std::string origin() const override { return "generic cpu table"; }
  std::string table() const override { return rates_.name; }

 private:
  int threads_;
  Rates rates_;
};

}  // namespace dc::cost
