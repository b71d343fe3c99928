#include "runtime/kernel/cuda/fused_source.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>

#include "runtime/kernel/cuda/element_type.h"
#include "runtime/kernel/native/pointwise/operations.h"
#include "src/base/sha256.h"

namespace dc::runtime::kernel::cuda {
namespace {

using base::DType;
using base::Expression;
using base::ExpressionArgument;
using base::ExpressionArgumentKind;
using base::ExpressionOperation;
using native::Lane;

const char* lane_type(Lane lane) {
  switch (lane) {
    case Lane::F32:
      return "float";
    case Lane::F64:
      return "double";
    case Lane::I64:
      return "int64_t";
    case Lane::Bool:
      return "Bool";
  }
  return "float";
}

std::string converted(std::string_view type, const std::string& value) {
  return "convert<" + std::string(type) + ">(" + value + ")";
}

// A literal with exactly this value.
template <typename Float, typename Bits>
std::string float_literal(Float value, std::string_view type, std::string_view suffix,
                          std::string_view bits_suffix) {
  char digits[64];
  if (!std::isfinite(value)) {
    Bits bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    char* end = std::to_chars(digits, digits + sizeof digits, bits, 16).ptr;
    return "bit_cast<" + std::string(type) + ">(0x" + std::string(digits, end) +
           std::string(bits_suffix) + ")";
  }
  const Float magnitude = std::fabs(value);
  char* end = std::to_chars(digits, digits + sizeof digits, magnitude, std::chars_format::hex).ptr;
  return (std::signbit(value) ? "-0x" : "0x") + std::string(digits, end) + std::string(suffix);
}

std::string literal(Lane lane, const std::array<std::byte, 8>& bytes) {
  const auto as = [&bytes](auto value) {
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  };
  switch (lane) {
    case Lane::F32:
      return float_literal<float, uint32_t>(as(float{}), "float", "f", "u");
    case Lane::F64:
      return float_literal<double, uint64_t>(as(double{}), "double", "", "ul");
    case Lane::I64: {
      const auto value = as(int64_t{});
      return value == INT64_MIN ? "numeric_limits<int64_t>::min()"
                                : "int64_t{" + std::to_string(value) + "}";
    }
    case Lane::Bool:
      return as(uint8_t{}) != 0 ? "Bool{1}" : "Bool{0}";
  }
  return "";
}

// Writes the text of one kernel.
class Writer {
 public:
  Writer(const Expression& expression, const native::ExpressionTensors& tensors,
         const native::Operations& operations)
      : expression_(expression),
        tensors_(tensors),
        operations_(operations),
        dims_(tensors.iteration.dims()),
        index_(fits_32_bits() ? "uint32_t" : "int64_t") {}

  KernelSource run() {
    const std::string body = parameters() + "};\n\n";
    const std::string loop = this->loop();
    const std::string name = "dc_fused_" + base::sha256_hex(body + loop).substr(0, 16);
    KernelSource source;
    source.name = name;
    source.count = tensors_.iteration.count();
    source.text = "// " + expression_.text() +
                  "\n#include \"runtime/kernel/cuda/kernel_words.h\"\n"
                  "#include \"runtime/kernel/scalar/pointwise.h\"\n\n"
                  "namespace dc::runtime::kernel::scalar {\n\nstruct " +
                  name + "_tensors {\n" + body + "DC_KERNEL(" + name + ", " + name +
                  "_tensors) {\n" + loop + "}\n\n}  // namespace dc::runtime::kernel::scalar\n";
    return source;
  }

 private:
  // Whether all numbers of elements fit, with room for one step beyond the last.
  bool fits_32_bits() const {
    constexpr int64_t kMost = INT32_MAX;
    if (tensors_.iteration.count() > kMost) return false;
    for (size_t t = 0; t < tensors_.results.size() + tensors_.operands.size(); ++t) {
      int64_t last = 0;
      for (const native::Iteration::Dim& dim : dims_) {
        if (dim.strides[t] < 0) return false;
        last += (dim.size - 1) * dim.strides[t];
      }
      if (last > kMost) return false;
    }
    return true;
  }

  std::string parameters() const {
    std::string text;
    for (size_t i = 0; i < tensors_.results.size(); ++i)
      text += "  " + std::string(element_type(tensors_.results[i].dtype)) + "* r" +
              std::to_string(i) + ";\n";
    for (size_t i = 0; i < tensors_.operands.size(); ++i)
      text += "  const " + std::string(element_type(tensors_.operands[i].dtype)) + "* a" +
              std::to_string(i) + ";\n";
    return text;
  }

  std::string number(int64_t value) const {
    return std::to_string(value) + (index_ == "uint32_t" ? "u" : "");
  }

  // The place of the thread's element in tensor `t` of the iteration.
  std::string offset(size_t t) const {
    std::string text;
    for (size_t d = 0; d < dims_.size(); ++d) {
      const int64_t stride = dims_[d].strides[t];
      if (stride == 0) continue;
      if (!text.empty()) text += " + ";
      text += coordinate(d) + (stride == 1 ? "" : " * " + number(stride));
    }
    return text.empty() ? "0" : text;
  }
  std::string coordinate(size_t dim) const {
    return dims_.size() == 1 ? "i" : "c" + std::to_string(dim);
  }

  std::string load(size_t operand) const {
    const DType dtype = tensors_.operands[operand].dtype;
    const std::string name = "a" + std::to_string(operand);
    const char* type = lane_type(native::lane_of(dtype));
    return "const " + std::string(type) + " " + name + " = " +
           converted(type,
                     "parameters." + name + "[" + offset(tensors_.results.size() + operand) + "]") +
           ";\n";
  }

  std::string loop() {
    std::string once, text;
    for (size_t i = 0; i < tensors_.operands.size(); ++i) {
      const bool is_one = offset(tensors_.results.size() + i) == "0";
      (is_one ? once : text) += (is_one ? "  " : "    ") + load(i);
    }
    for (size_t i = 0; i < operations_.size(); ++i) text += operation(i);
    for (size_t i = 0; i < tensors_.results.size(); ++i)
      text += "    parameters.r" + std::to_string(i) + "[" + offset(i) + "] = " +
              converted(element_type(tensors_.results[i].dtype),
                        "t" + std::to_string(expression_.results[i])) +
              ";\n";
    return once + "  for (" + index_ + " i = cuda::first_element<" + index_ + ">(); i < " +
           number(tensors_.iteration.count()) + "; i += cuda::all_threads<" + index_ + ">()) {\n" +
           coordinates() + text + "  }\n";
  }

  std::string coordinates() const {
    if (dims_.size() < 2) return "";
    std::string text = "    " + index_ + " rest = i;\n";
    for (size_t d = dims_.size(); d-- > 1;) {
      const std::string size = number(dims_[d].size);
      text.append("    const ").append(index_).append(" c").append(std::to_string(d));
      text.append(" = rest % ").append(size).append(";\n    rest /= ").append(size).append(";\n");
    }
    return text + "    const " + index_ + " c0 = rest;\n";
  }

  std::string operation(size_t number) const {
    const native::Pointwise& kernel = operations_[number];
    const native::ScalarOperator scalar = kernel.scalar();
    std::string text = "apply<" + std::string(lane_type(kernel.loop().result)) + ">(" +
                       std::string(scalar.name) + "<" + lane_type(scalar.lane) + ">{";
    for (size_t i = 0; i < scalar.numbers.size(); ++i)
      text += (i == 0 ? "" : ", ") + literal(scalar.lane, scalar.numbers[i]);
    text += "}";
    for (const native::PointwiseOperand& operand : kernel.operands())
      text += ", " + operand_of(expression_.operations[number], operand);
    text += ")";
    // Rounded to the value's type, as if it lay in memory.
    const DType dtype = expression_.operations[number].dtype;
    const Lane lane = native::lane_of(dtype);
    if (native::dtype_of(kernel.loop().result) != dtype) {
      text = converted(element_type(dtype), text);
      if (native::dtype_of(lane) != dtype) text = converted(lane_type(lane), text);
    }
    return "    const " + std::string(lane_type(lane)) + " t" + std::to_string(number) + " = " +
           text + ";\n";
  }

  // An operation's operand, in the lane that it computes with.
  std::string operand_of(const ExpressionOperation& operation,
                         const native::PointwiseOperand& operand) const {
    std::string text;
    if (operand.tensor) {
      const auto argument =
          std::ranges::find(operation.arguments, operand.name, &ExpressionArgument::name);
      const bool is_value = argument->kind == ExpressionArgumentKind::Value;
      text = (is_value ? "t" : "a") + std::to_string(argument->integer);
      if (native::lane_of(operand.tensor->dtype) != operand.lane)
        text = converted(lane_type(operand.lane), text);
    } else {
      text = literal(operand.lane, operand.number);
    }
    if (operand.rounded_to)
      text = converted(lane_type(operand.lane), converted(element_type(*operand.rounded_to), text));
    return text;
  }

  const Expression& expression_;
  const native::ExpressionTensors& tensors_;
  const native::Operations& operations_;
  std::vector<native::Iteration::Dim> dims_;
  std::string index_;  // the type that counts elements
};

}  // namespace

base::Result<KernelSource> fused_source(const Expression& expression,
                                        const native::ExpressionTensors& tensors) {
  if (expression.has_reductions()) {
    return base::Status(base::ErrorKind::Unsupported, "DC6155",
                        "fused kernels of GPUs have no reductions; compile the plan with a profile "
                        "of this device or without one, and without fuse-elementwise=8");
  }
  DC_ASSIGN_OR_RETURN(
      const native::Operations operations,
      native::Operations::of(expression, tensors.operands, !tensors.results[0].sizes.empty()));
  return Writer(expression, tensors, operations).run();
}

}  // namespace dc::runtime::kernel::cuda
