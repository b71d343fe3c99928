// AnalyticCost: figures for a generic CPU from shapes alone, for use without a profile. Integer
// nanoseconds, equal on every host.
#pragma once

#include "src/cost/cost_model.h"

namespace dc::cost {

// The table. Rates are units per nanosecond (1 GB/s = 1 byte per ns).
struct GenericCpu {
  int64_t flops_f32 = 80;         // per thread, matrix products; f64 at half of it
  int64_t flops_half = 160;       // per thread, bf16 and f16
  int64_t memory_bytes = 8;       // per rank
  int64_t kernel_ns = 2000;       // to start a kernel
  int64_t collective_ns = 20000;  // latency of a collective
  int64_t wire_bytes = 4;         // moved by one rank in a gather
  int64_t reduce_bytes = 3;       // moved and summed by one rank in a reduction
};

class AnalyticCost final : public CostModel {
 public:
  explicit AnalyticCost(int threads, GenericCpu cpu = {}) : threads_(threads), cpu_(cpu) {}

  Estimate compute(const ir::Graph& graph, const ir::Node& node) const override;
  Scratch scratch(const ir::Graph& graph, const ir::Node& node) const override;
  Estimate collective(Collective kind, base::Bytes bytes, int group_size) const override;
  base::Nanos latency(Collective kind, int group_size) const override;
  Estimate copy(base::Bytes bytes, ir::Space from, ir::Space to) const override;
  std::string origin() const override { return "generic cpu table"; }

 private:
  int threads_;
  GenericCpu cpu_;
};

}  // namespace dc::cost
