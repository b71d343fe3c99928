// Instructions that native kernels take, one for each operator and some more: the good inputs of
// the kernels' fuzz target.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/plan/plan.h"

namespace dc::fuzz {

using KernelTensor = runtime::plan::Tensor;  // element type, sizes and strides

// Tensors of arguments and outputs are indices into `tensors`, -1 for none.
struct KernelInstruction {
  std::string op;
  std::vector<runtime::plan::Arg> args;
  std::vector<int32_t> outputs;
  std::vector<KernelTensor> tensors;
};

// Fills in the strides of a tensor without gaps, as far as they fit an int64_t.
void lay_out(KernelTensor& tensor);

struct KernelRow {
  std::string_view op;
  // Arguments, "->", results, all separated by spaces:
  //   x=f32[4,8]      tensor            x=3, x=0.5, x=true  number
  //   x={f32[2];-}    tensors, one none x=[1,2]             integers
  //   x='tanh'        text              -                   no result
  //   @0              as a result: the first tensor
  std::string_view text;
};
std::span<const KernelRow> kernel_rows();

KernelInstruction parse(const KernelRow& row);
// As in a row, with strides: "f32[4,8:8,1]".
std::string describe(const KernelInstruction& instruction);

}  // namespace dc::fuzz
