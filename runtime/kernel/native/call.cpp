#include "runtime/kernel/native/call.h"

#include "src/base/shape.h"

namespace dc::runtime::kernel::native {

void Call::require(bool condition, std::string_view problem) {
  if (condition || !status_.ok()) return;
  std::string sentence =
      "the native kernel '" + instruction_.op + "' cannot run this instruction: ";
  status_ = base::Status(base::ErrorKind::Unsupported, "DC6130", sentence.append(problem));
  if (!instruction_.module.empty()) status_.add_context("in module " + instruction_.module);
}

Dense Call::bind(int64_t tensor, const std::string& what) {
  const auto& tensors = addresses_.plan().tensors;
  require(tensor >= 0 && tensor < static_cast<int64_t>(tensors.size()), what + " is missing");
  if (!ok()) return {};
  const BoundTensor bound = addresses_.bind(static_cast<int32_t>(tensor));
  require(base::is_contiguous(bound.sizes, bound.strides), what + " is not contiguous");
  return Dense{bound.data, bound.dtype, bound.numel()};
}

Dense Call::operand(size_t index) {
  const std::string what = "operand " + std::to_string(index);
  const bool given =
      index < instruction_.args.size() && instruction_.args[index].kind == plan::ArgKind::Tensor;
  require(given, what + " is missing");
  return given ? bind(instruction_.args[index].i, what) : Dense{};
}

Dense Call::operand(size_t index, base::DType dtype) {
  const Dense dense = operand(index);
  require(dense.dtype == dtype, "operand " + std::to_string(index) + " must have element type " +
                                    std::string(base::name(dtype)));
  return dense;
}

Dense Call::result(size_t index) {
  const std::string what = "result " + std::to_string(index);
  const bool given = index < instruction_.outputs.size();
  require(given, what + " is missing");
  return given ? bind(instruction_.outputs[index], what) : Dense{};
}

bool Call::has_result(size_t index) const {
  return index < instruction_.outputs.size() && instruction_.outputs[index] >= 0;
}

int64_t Call::columns(size_t index) {
  if (!ok() || index >= instruction_.args.size()) return 0;
  const plan::Tensor& tensor = addresses_.plan().tensors[instruction_.args[index].i];
  require(!tensor.sizes.empty(), "operand " + std::to_string(index) + " must have two dims");
  return tensor.sizes.empty() ? 0 : tensor.sizes.back();
}

const plan::Arg* Call::find(std::string_view name) const {
  for (const plan::Arg& arg : instruction_.args) {
    if (arg.kind != plan::ArgKind::Tensor && arg.name == name) return &arg;
  }
  return nullptr;
}

bool Call::has(std::string_view name) const { return find(name) != nullptr; }

const plan::Arg* Call::attribute(std::string_view name) {
  const plan::Arg* found = find(name);
  if (found == nullptr) require(false, "attribute '" + std::string(name) + "' is missing");
  return found;
}

uint32_t Call::axes(std::string_view name) {
  const plan::Arg* arg = attribute(name);
  if (arg == nullptr) return 0;
  uint32_t mask = 0;
  bool fits = arg->kind == plan::ArgKind::Ints;
  for (const int64_t axis : arg->ints) {
    fits = fits && axis >= 0 && axis < static_cast<int64_t>(addresses_.plan().mesh.size());
    if (fits) mask |= uint32_t{1} << axis;
  }
  require(fits, "attribute '" + std::string(name) + "' must list mesh axes");
  return mask;
}

int64_t Call::integer(std::string_view name) {
  const plan::Arg* arg = attribute(name);
  if (arg == nullptr) return 0;
  require(arg->kind == plan::ArgKind::Int || arg->kind == plan::ArgKind::Bool,
          "attribute '" + std::string(name) + "' must be an integer");
  return arg->i;
}

double Call::number(std::string_view name) {
  const plan::Arg* arg = attribute(name);
  if (arg == nullptr) return 0;
  return arg->kind == plan::ArgKind::Float ? arg->f : static_cast<double>(integer(name));
}

}  // namespace dc::runtime::kernel::native
