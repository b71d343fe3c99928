#include "tests/fuzz/kernel_mutation.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "runtime/plan/extent.h"
#include "src/base/checked.h"
#include "tests/fuzz/expression_mutation.h"

namespace dc::fuzz {
namespace {

using base::DType;
using runtime::plan::Arg;
using runtime::plan::ArgKind;

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
// Around the lengths of tiles, blocks and vectors, and around the ends of integer types.
constexpr int64_t kSizes[] = {0,  1,  2,  3,  4,   5,  7,   8,   9,   15,  16,   17,
                              31, 33, 64, 65, 96,  97, 255, 256, 257, 511, 512,  513,
                              1,  2,  3,  4,  600, 0,  1,   2,   64,  3,   1025, 5};
constexpr int64_t kHugeSizes[] = {(int64_t{1} << 31) - 1, int64_t{1} << 31, int64_t{1} << 32,
                                  int64_t{1} << 47,       int64_t{1} << 48, (int64_t{1} << 48) + 1,
                                  int64_t{1} << 60,       int64_t{1} << 62, kLargest};
constexpr int64_t kNumbers[] = {0,  1,  2,    3,  4,  5,  7,  8,   -1,  -2,   -3, -8,
                                -9, 64, -100, 37, 16, 24, 80, 255, 256, 1000, 74, -kLargest - 1};
constexpr double kFractions[] = {0.0,
                                 -0.0,
                                 0.5,
                                 -1.5,
                                 1.0,
                                 3.0,
                                 1e-300,
                                 1e300,
                                 -1e300,
                                 9.3e18,
                                 std::numeric_limits<double>::infinity(),
                                 std::numeric_limits<double>::quiet_NaN()};

int64_t size(Choices& choices) {
  return choices.one_in(12) ? one_of(choices, kHugeSizes) : one_of(choices, kSizes);
}
int64_t number(Choices& choices) {
  const bool huge = choices.one_in(5);
  const int64_t small = one_of(choices, kNumbers);
  if (!huge) return small;
  const int64_t large = one_of(choices, kHugeSizes);
  return base::checked_add(large, -(small % 256)).value_or(-large);
}

KernelTensor& some_tensor(KernelInstruction& instruction, Choices& choices) {
  return instruction.tensors[choices.below(instruction.tensors.size())];
}

void change_size(KernelInstruction& instruction, Choices& choices) {
  KernelTensor& tensor = some_tensor(instruction, choices);
  if (tensor.sizes.empty()) return;
  int64_t& changed = tensor.sizes[choices.below(tensor.sizes.size())];
  switch (choices.below(6)) {
    case 0:
      changed = std::max<int64_t>(changed - 1, 0);
      break;
    case 1:
      changed = base::checked_add(changed, 1).value_or(changed);
      break;
    default:
      changed = size(choices);
      break;
  }
  lay_out(tensor);
}

// Of every tensor and attribute that has it, so that the instruction may stay right.
void change_size_everywhere(KernelInstruction& instruction, Choices& choices) {
  const KernelTensor& tensor = some_tensor(instruction, choices);
  if (tensor.sizes.empty()) return;
  const int64_t before = tensor.sizes[choices.below(tensor.sizes.size())];
  const int64_t after = size(choices);
  for (KernelTensor& each : instruction.tensors) {
    std::replace(each.sizes.begin(), each.sizes.end(), before, after);
    lay_out(each);
  }
  for (Arg& arg : instruction.args) {
    if (arg.kind == ArgKind::Int && arg.i == before) arg.i = after;
    if (arg.kind == ArgKind::Ints) std::replace(arg.ints.begin(), arg.ints.end(), before, after);
  }
}

void change_dims(KernelInstruction& instruction, Choices& choices) {
  KernelTensor& tensor = some_tensor(instruction, choices);
  const size_t at = choices.below(tensor.sizes.size() + 1);
  const auto place = tensor.sizes.begin() + static_cast<ptrdiff_t>(at);
  switch (choices.below(4)) {
    case 0:
      tensor.sizes.insert(place, choices.one_in(2) ? 1 : size(choices));
      break;
    case 1:
      if (at < tensor.sizes.size()) tensor.sizes.erase(place);
      break;
    case 2:
      tensor.sizes.insert(place, 1 + choices.below(18), 1);  // more dims than an iteration has
      break;
    default:
      std::rotate(tensor.sizes.begin(), place, tensor.sizes.end());
      break;
  }
  lay_out(tensor);
}

// The same dim added to all tensors, in front.
void add_dim_everywhere(KernelInstruction& instruction, Choices& choices) {
  const int64_t added = size(choices);
  for (KernelTensor& tensor : instruction.tensors) {
    tensor.sizes.insert(tensor.sizes.begin(), added);
    lay_out(tensor);
  }
}

void copy_shape(KernelInstruction& instruction, Choices& choices) {
  const KernelTensor from = some_tensor(instruction, choices);
  KernelTensor& to = some_tensor(instruction, choices);
  to.sizes = from.sizes;
  to.strides = from.strides;
}

void change_strides(KernelInstruction& instruction, Choices& choices) {
  KernelTensor& tensor = some_tensor(instruction, choices);
  if (tensor.strides.empty()) return;
  int64_t& stride = tensor.strides[choices.below(tensor.strides.size())];
  switch (choices.below(6)) {
    case 0:
      stride = 0;
      break;
    case 1: {  // gaps
      const int64_t factor = 2 + static_cast<int64_t>(choices.below(3));
      for (int64_t& each : tensor.strides)
        each = base::checked_mul(each, factor).value_or(kLargest);
      break;
    }
    case 2: {  // another order of dims in memory
      KernelTensor turned;
      turned.sizes.assign(tensor.sizes.rbegin(), tensor.sizes.rend());
      lay_out(turned);
      tensor.strides.assign(turned.strides.rbegin(), turned.strides.rend());
      break;
    }
    case 3:
      std::fill(tensor.strides.begin(), tensor.strides.end(), 0);
      break;
    case 4:
      stride = static_cast<int64_t>(choices.below(70));
      break;
    default:
      stride = one_of(choices, kHugeSizes);
      break;
  }
}

void change_type(KernelInstruction& instruction, Choices& choices) {
  some_tensor(instruction, choices).dtype = one_of(choices, kElementTypes);
}

// Of all tensors of one type.
void change_type_everywhere(KernelInstruction& instruction, Choices& choices) {
  const DType before = some_tensor(instruction, choices).dtype,
              after = one_of(choices, kElementTypes);
  for (KernelTensor& tensor : instruction.tensors)
    if (tensor.dtype == before) tensor.dtype = after;
}

int64_t some_id(const KernelInstruction& instruction, Choices& choices) {
  return static_cast<int64_t>(choices.below(instruction.tensors.size() + 1)) - 1;
}

void change_list(std::vector<int64_t>& list, int64_t value, Choices& choices) {
  const size_t at = choices.below(list.size() + 1);
  const auto place = list.begin() + static_cast<ptrdiff_t>(at);
  const size_t how = choices.below(3);
  if (how == 0 || list.empty()) {
    list.insert(place, value);
  } else if (how == 1) {
    list.erase(place == list.end() ? place - 1 : place);
  } else {
    list[at % list.size()] = value;
  }
}

void change_value(KernelInstruction& instruction, Arg& arg, Choices& choices) {
  switch (arg.kind) {
    case ArgKind::Int:
      arg.i = number(choices);
      break;
    case ArgKind::Bool:
      arg.i = 1 - arg.i;
      break;
    case ArgKind::Float:
      arg.f = one_of(choices, kFractions);
      break;
    case ArgKind::String:
      if (arg.name == "body") return mutate_expression(arg.s, choices);
      arg.s = choices.one_in(2) ? "floor" : "none";
      break;
    case ArgKind::Tensor:
      arg.i = some_id(instruction, choices);
      break;
    case ArgKind::Tensors:
      change_list(arg.ints, some_id(instruction, choices), choices);
      break;
    default:
      change_list(arg.ints, number(choices), choices);
      break;
  }
}

void change_kind(Arg& arg, Choices& choices) {
  constexpr ArgKind kKinds[] = {ArgKind::None, ArgKind::Int,    ArgKind::Ints, ArgKind::Float,
                                ArgKind::Bool, ArgKind::String, ArgKind::Bools};
  arg.kind = one_of(choices, kKinds);
  if (arg.kind == ArgKind::Int) arg.i = number(choices);
  if (arg.kind == ArgKind::Float) arg.f = one_of(choices, kFractions);
  if (arg.kind == ArgKind::Bool) arg.i = 1;
}

void change_argument(KernelInstruction& instruction, Choices& choices) {
  if (instruction.args.empty()) return;
  const size_t at = choices.below(instruction.args.size());
  switch (choices.below(8)) {
    case 0:
      return change_kind(instruction.args[at], choices);
    case 1:
      instruction.args.erase(instruction.args.begin() + static_cast<ptrdiff_t>(at));
      return;
    case 2:
      std::swap(instruction.args[at], instruction.args[choices.below(instruction.args.size())]);
      return;
    default:
      return change_value(instruction, instruction.args[at], choices);
  }
}

bool is_result(const KernelInstruction& instruction, int32_t tensor) {
  return std::ranges::find(instruction.outputs, tensor) != instruction.outputs.end();
}

void change_results(KernelInstruction& instruction, Choices& choices) {
  if (instruction.outputs.empty()) return;
  const size_t at = choices.below(instruction.outputs.size());
  switch (choices.below(3)) {
    case 0:
      instruction.outputs[at] = -1;
      break;
    case 1:
      instruction.outputs.pop_back();
      break;
    default:
      std::swap(instruction.outputs[at], instruction.outputs.back());
      break;
  }
}

void change_op(KernelInstruction& instruction, Choices& choices) {
  // In place or not is a property of the operator: a result that is an operand stays one.
  if (is_result(instruction, 0)) return;
  instruction.op = kernel_rows()[choices.below(kernel_rows().size())].op;
}

void make_smaller(KernelTensor& tensor, bool is_result) {
  size_t largest = 0;
  const auto steps = [&](size_t dim) {
    return base::checked_mul(tensor.sizes[dim] - 1, tensor.strides[dim]).value_or(kLargest);
  };
  for (size_t dim = 1; dim < tensor.sizes.size(); ++dim)
    if (steps(dim) > steps(largest)) largest = dim;
  if (!is_result) {
    tensor.strides[largest] = 0;
  } else if (tensor.sizes[largest] > 3) {
    tensor.sizes[largest] = 3;
  } else {
    lay_out(tensor);
    if (steps(largest) > 64) tensor.sizes[largest] = 1;
  }
}

}  // namespace

void mutate(KernelInstruction& instruction, Choices& choices) {
  using Change = void (*)(KernelInstruction&, Choices&);
  constexpr Change kChanges[] = {
      change_size,     change_size_everywhere, change_size_everywhere, change_dims,
      copy_shape,      change_strides,         change_strides,         change_type,
      change_argument, change_argument,        change_type_everywhere, change_results,
      change_op,       add_dim_everywhere,     change_argument,        change_size_everywhere};
  const size_t changes = choices.below(5);
  for (size_t i = 0; i < changes && !instruction.tensors.empty(); ++i)
    one_of(choices, kChanges)(instruction, choices);
}

bool fit(KernelInstruction& instruction, int64_t limit) {
  for (size_t i = 0; i < instruction.tensors.size(); ++i) {
    KernelTensor& tensor = instruction.tensors[i];
    if (!base::checked_product(tensor.sizes)) return false;
    while (runtime::plan::reach_bytes(tensor).value_or(kLargest) > limit)
      make_smaller(tensor, is_result(instruction, static_cast<int32_t>(i)));
    if (!base::checked_product(tensor.sizes)) return false;
  }
  return true;
}

}  // namespace dc::fuzz
