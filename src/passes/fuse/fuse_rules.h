// What the passes over src/fusion and the programs that print its tables share: published sizes of
// buckets, and the time of fused kernels by a cost model.
#pragma once

#include "src/base/status.h"
#include "src/cost/cost_model.h"
#include "src/fusion/fused_time.h"
#include "src/ir/step.h"

namespace dc::passes {

// Bytes. XLA: xla_gpu_all_reduce_combine_threshold_bytes; PyTorch: bucket_cap_mb of
// DistributedDataParallel, torch.distributed._DEFAULT_FIRST_BUCKET_BYTES.
inline constexpr int64_t kXlaBucket = int64_t{30} << 20;
inline constexpr int64_t kDdpBucket = int64_t{25} << 20;
inline constexpr int64_t kDdpFirstBucket = int64_t{1} << 20;

// Fuses element-wise kernels of a scheduled step at random, into kernels that a plan can run
// (fusion::fuse_at_random). No pass of the table: `dcc profile` measures what comes of it.
base::Status fuse_at_random(ir::Step& step, const cost::CostModel& cost, uint64_t seed);

// With the time of a copy of nothing as that to start a kernel, and what a longer one moves in a
// second.
fusion::ClosedFormTime closed_form_time(const cost::CostModel& cost);

}  // namespace dc::passes
