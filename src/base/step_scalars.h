// Layout of the small tensors through which the host, the update kernels and the metrics talk.
// Compiler and runtime share it, and kernels of GPUs.
#pragma once

namespace dc::base {

// "hyperparameters": f64[kHyperGroups + kHyperPerGroup * groups], written by the host before each
// step.
inline constexpr int kHyperGradScale =
    0;  // 1 / (world * accumulation * loss_scale), applied as f32
inline constexpr int kHyperClipNorm = 1;
inline constexpr int kHyperStep = 2;         // 1 for the first update
inline constexpr int kHyperLossDivisor = 3;  // world * accumulation
inline constexpr int kHyperGroups = 8;
inline constexpr int kHyperPerGroup = 8;
inline constexpr int kGroupLr = 0;
inline constexpr int kGroupWeightDecay = 1;
inline constexpr int kGroupBeta1 = 2;
inline constexpr int kGroupBeta2 = 3;
inline constexpr int kGroupEps = 4;
inline constexpr int kGroupMomentum = 5;
inline constexpr int kGroupDampening = 6;

// "rng": i64[4]
inline constexpr int kRngSeed = 0;
inline constexpr int kRngStep = 1;
inline constexpr int kRngMicroBatch = 2;
inline constexpr int kRngRank = 3;
// Random operators draw by 16 bits of either (runtime/kernel/scalar/dropout.h): in a larger job
// masks would repeat.
inline constexpr int kMaxMicroBatches = 1 << 16;  // per step
inline constexpr int kMaxRanks = 1 << 16;

// "norm_table": f64[world, trainable + 2]; row = rank. Columns: one sum of squares per trainable
// parameter, then:
inline constexpr int kTableLoss = 0;  // column trainable + 0: sum of the rank's micro-batch losses
inline constexpr int kTableStop = 1;  // column trainable + 1: nonzero if the rank was asked to stop
inline constexpr int kTableExtra = 2;

// "scalars": f64[kScalarFinite + trainable]. `clip_and_check` writes all of it; without clipping
// `check_finite` may write the entries from kScalarFinite on earlier.
inline constexpr int kScalarClip = 0;       // factor for gradients: 1 without clipping
inline constexpr int kScalarNorm = 1;       // global gradient norm before clipping
inline constexpr int kScalarLoss = 2;       // mean loss over ranks and micro-batches
inline constexpr int kScalarAllFinite = 3;  // 1 if the loss and every gradient are finite
inline constexpr int kScalarStop = 4;       // number of ranks asked to stop
inline constexpr int kScalarFinite = 8;     // + i: 1 if parameter i may be updated

}  // namespace dc::base
