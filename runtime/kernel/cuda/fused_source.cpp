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
        index_(fits_32_bits() ? "uint32_t" : "int64_t"),
        pack_(widest_pack()) {}

  KernelSource run() {
    const std::string body = parameters() + "};\n\n";
    const std::string loop = this->loop();
    const std::string name = "dc_fused_" + base::sha256_hex(body + loop).substr(0, 16);
    KernelSource source;
    source.name = name;
    source.count = tensors_.iteration.count() / pack_;
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

  const BoundTensor& tensor(size_t t) const {
    const size_t results = tensors_.results.size();
    return t < results ? tensors_.results[t] : tensors_.operands[t - results];
  }
  size_t tensors() const { return tensors_.results.size() + tensors_.operands.size(); }

  // How many neighbouring elements a thread has at once: as many as 16 bytes of the smallest
  // element type have, up to 8, where every tensor lets them be read and written together.
  int64_t widest_pack() const {
    if (dims_.empty()) return 1;
    constexpr int64_t kBytes = 16;
    int64_t pack = 1;
    for (size_t t = 0; t < tensors(); ++t)
      if (dims_.back().strides[t] == 1)
        pack = std::max(pack, std::min<int64_t>(8, kBytes / base::byte_size(tensor(t).dtype)));
    while (pack > 1 && !takes_pack(pack)) pack /= 2;
    return pack;
  }
  bool takes_pack(int64_t pack) const {
    if (dims_.back().size % pack != 0) return false;
    for (size_t t = 0; t < tensors(); ++t) {
      const int64_t stride = dims_.back().strides[t];
      if (stride == 0) continue;
      const int64_t bytes = std::min<int64_t>(16, pack * base::byte_size(tensor(t).dtype));
      if (stride != 1 || reinterpret_cast<uintptr_t>(tensor(t).data) % bytes != 0) return false;
      for (size_t d = 0; d + 1 < dims_.size(); ++d)
        if (dims_[d].strides[t] % pack != 0) return false;
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
    return dims_.size() == 1 && pack_ == 1 ? "i" : "c" + std::to_string(dim);
  }
  // Whether the elements of a pack lie next to each other.
  bool is_packed(size_t t) const { return pack_ > 1 && dims_.back().strides[t] == 1; }

  std::string load(size_t operand) const {
    const size_t t = tensors_.results.size() + operand;
    const std::string name = "a" + std::to_string(operand);
    const char* type = lane_type(native::lane_of(tensors_.operands[operand].dtype));
    const std::string element =
        is_packed(t) ? "pack_" + name + ".at[k]" : "parameters." + name + "[" + offset(t) + "]";
    return "const " + std::string(type) + " " + name + " = " + converted(type, element) + ";\n";
  }

  std::string loop() {
    std::string once, each, elements, stores;
    for (size_t i = 0; i < tensors_.operands.size(); ++i) {
      const size_t t = tensors_.results.size() + i;
      const std::string name = "a" + std::to_string(i);
      if (is_packed(t)) {
        each += "    const auto pack_" + name + " = cuda::load_pack<" + std::to_string(pack_) +
                ">(parameters." + name + " + " + offset(t) + ");\n";
        elements += "    " + load(i);
      } else {
        const bool is_one = offset(t) == "0";
        (is_one ? once : each) += (is_one ? "  " : "    ") + load(i);
      }
    }
    for (size_t i = 0; i < operations_.size(); ++i) elements += operation(i);
    for (size_t i = 0; i < tensors_.results.size(); ++i) {
      const std::string name = "r" + std::to_string(i);
      const std::string type = element_type(tensors_.results[i].dtype);
      const std::string value =
          converted(type, "t" + std::to_string(expression_.results[i])) + ";\n";
      if (is_packed(i)) {
        each += "    cuda::Pack<" + type + ", " + std::to_string(pack_) + "> pack_" + name + ";\n";
        elements += "    pack_" + name + ".at[k] = " + value;
        stores += "    cuda::store_pack(parameters." + name + " + " + offset(i) + ", pack_" + name +
                  ");\n";
      } else {
        elements += "    parameters." + name + "[" + offset(i) + "] = " + value;
      }
    }
    if (pack_ > 1)
      elements = "#pragma unroll\n    for (int k = 0; k < " + std::to_string(pack_) + "; ++k) {\n" +
                 elements + "    }\n";
    return once + "  for (" + index_ + " i = cuda::first_element<" + index_ + ">(); i < " +
           number(tensors_.iteration.count() / pack_) + "; i += cuda::all_threads<" + index_ +
           ">()) {\n" + coordinates() + each + elements + stores + "  }\n";
  }

  std::string coordinates() const {
    if (dims_.size() == 1 && pack_ > 1)
      return "    const " + index_ + " c0 = i * " + number(pack_) + ";\n";
    if (dims_.size() < 2) return "";
    std::string text = "    " + index_ + " rest = i;\n";
    for (size_t d = dims_.size(); d-- > 1;) {
      const bool is_last = d + 1 == dims_.size();
      const std::string size = number(is_last ? dims_[d].size / pack_ : dims_[d].size);
      text.append("    const ").append(index_).append(" c").append(std::to_string(d));
      text.append(" = rest % ").append(size);
      if (is_last && pack_ > 1) text.append(" * ").append(number(pack_));
      text.append(";\n    rest /= ").append(size).append(";\n");
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
  int64_t pack_;       // elements that a thread has at once
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
