// What a slice is for, read off the instructions and the state table: the rows of memory tables.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/plan/plan.h"

namespace dc::runtime::plan {

enum class SliceKind : uint8_t {
  Parameters,      // masters, shards, copies in the model's dtype
  OptimizerState,  // moments, momentum
  Gradients,       // accumulators, what enters and leaves a reduction
  Buffers,         // module buffers and constants
  Inputs,
  Scalars,      // the step's small tensors
  Gathered,     // whole values that a gather made for a while
  Activations,  // every other value of a program
  Scratch,      // kernel workspace
};
inline constexpr size_t kSliceKinds = 9;
using BytesPerKind = std::array<int64_t, kSliceKinds>;

std::string_view name(SliceKind kind);
std::vector<SliceKind> slice_kinds(const Plan& plan);  // one per slice

}  // namespace dc::runtime::plan
