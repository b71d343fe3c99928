// A small plan that passes every check: 2 ranks, one parameter in shards, gathered for one product,
// its gradient reduced and applied.
#pragma once

#include "runtime/plan/plan.h"

namespace dc::runtime::plan::test {

// Ids of the small plan's tensors, for tests that change it.
enum TinyTensor : int32_t {
  kShard,
  kMoment1,
  kMoment2,
  kHyperparameters,
  kRng,
  kScalars,
  kTable,
  kTableRow,
  kLossSum,
  kInput,  // state and input
  kWhole,
  kProduct,
  kGradient,
  kReduced,
  kLoss,  // of the program
};
enum TinyInstruction : int32_t {
  kGather,
  kMatmul,
  kLossSumOf,
  kGradientOf,
  kAddLoss,
  kSignalReduce,
  kWaitReduce,
  kReduce,
  kSignalReduced,
  kWaitReduced,
  kSquareSum,
  kExchangeTable,
  kClipAndCheck,
  kAdamW,
};
inline constexpr int kScratchSlice = 14;
inline constexpr int64_t kTinyDuration = 100'000;  // of every kernel and collective

Plan tiny_plan();

// The small plan with an evaluation: program 1 gathers the parameter, multiplies an input of its
// own and adds the loss. Its transients lie where those of the step do.
enum EvaluationTensor : int32_t { kEvalInput = kLoss + 1, kEvalWhole, kEvalProduct, kEvalLoss };
enum EvaluationInstruction : int32_t { kEvalGather, kEvalMatmul, kEvalSum, kEvalAddLoss };
Plan evaluating_plan();

// A plan of about `instructions` instructions with as many slices as a 70B model's.
Plan large_plan(int instructions);

}  // namespace dc::runtime::plan::test
