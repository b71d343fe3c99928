#include "runtime/kernel/cuda/fused_source.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>

#include "runtime/kernel/cuda/block.h"
#include "runtime/kernel/cuda/element_type.h"
#include "runtime/kernel/cuda/kernels/reduce_parameters.h"
#include "runtime/kernel/cuda/reduce_kernels.h"
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

// Threads that fold one row, and rows or columns of packs of a block: those of kernels/reduce.h.
constexpr int64_t kLanes = 32, kChunk = kElementsOfLane;

const char* fold_of(std::string_view overload) {
  if (overload.starts_with("amax.")) return "MaxFold";
  return overload.starts_with("amin.") ? "MinFold" : "SumFold";
}

// Writes the text of one kernel.
class Writer {
 public:
  Writer(const Expression& expression, const native::ExpressionTensors& tensors,
         const native::Operations& operations)
      : expression_(expression),
        tensors_(tensors),
        operations_(operations),
        has_reductions_(expression.has_reductions()),
        along_(has_reductions_ ? tensors.along.dims() : tensors.iteration.dims()) {
    if (has_reductions_) across_ = tensors.across.dims();
    index_ = fits_32_bits() ? "uint32_t" : "int64_t";
    pack_ = widest_pack();
  }

  FusedSource run() {
    FusedSource made;
    if (has_reductions_ && !tensors_.shape.by_rows) {
      made.parts = column_parts(columns(), rows());
      for (size_t i = 0; i < tensors_.results.size(); ++i)
        if (is_reduced(i))
          made.folds.push_back({i, fold_of(overload(i)), folded_dtype(i), divisor(i)});
    }
    std::string body = parameters();
    if (made.parts > 0) body += "  void* totals;\n";
    body += "};\n\n";
    const std::string loop = !has_reductions_         ? element_loop()
                             : tensors_.shape.by_rows ? row_loop()
                                                      : column_loop(made.parts);
    const std::string name = "dc_fused_" + base::sha256_hex(body + loop).substr(0, 16);
    made.kernel.name = name;
    made.kernel.count = threads(made.parts);
    made.kernel.text = "// " + expression_.text() + "\n#include \"runtime/kernel/cuda/" +
                       (has_reductions_ ? "kernels/reduce.h" : "kernel_words.h") +
                       "\"\n#include \"runtime/kernel/scalar/pointwise.h\"\n\n"
                       "namespace dc::runtime::kernel::scalar {\n\nstruct " +
                       name + "_tensors {\n" + body + "DC_KERNEL(" + name + ", " + name +
                       "_tensors) {\n" + loop +
                       "}\n\n}  // namespace dc::runtime::kernel::scalar\n";
    return made;
  }

 private:
  using Dims = std::vector<native::Iteration::Dim>;

  int64_t rows() const { return tensors_.across.count(); }
  int64_t columns() const {
    return has_reductions_ ? tensors_.along.count() : tensors_.iteration.count();
  }
  int64_t column_groups() const {
    const int64_t all = columns() / pack_;
    return (all + kLanes - 1) / kLanes;
  }
  int64_t threads(int64_t parts) const {
    if (!has_reductions_) return columns() / pack_;
    return parts > 0 ? column_groups() * parts * kBlockThreads : rows() * kLanes;
  }

  // Whether all numbers of elements fit, with room for some steps beyond the last.
  bool fits_32_bits() const {
    constexpr int64_t kMost = INT32_MAX;
    if (columns() * std::max<int64_t>(has_reductions_ ? rows() : 1, 1) > kMost) return false;
    for (size_t t = 0; t < tensors(); ++t) {
      int64_t last = 0;
      for (const Dims* dims : {&across_, &along_}) {
        for (const native::Iteration::Dim& dim : *dims) {
          if (dim.strides[t] < 0) return false;
          last += (dim.size - 1) * dim.strides[t];
        }
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
  const ExpressionOperation& operation_of(size_t result) const {
    return expression_.operations[expression_.results[result]];
  }
  std::string_view overload(size_t result) const { return operation_of(result).overload; }
  bool is_reduced(size_t t) const {
    return t < tensors_.results.size() && base::is_reduction(overload(t));
  }

  // How many neighbouring elements a thread has at once: as many as 16 bytes of the largest element
  // type have, up to 8, where every tensor lets them be read and written together. With more,
  // neighbouring threads would not touch neighbouring 16 bytes.
  int64_t widest_pack() const {
    if (along_.empty()) return 1;
    int64_t largest = 16 / kChunk;  // bytes
    for (size_t t = 0; t < tensors(); ++t)
      if (!is_reduced(t) && along_.back().strides[t] == 1)
        largest = std::max<int64_t>(largest, base::byte_size(tensor(t).dtype));
    int64_t pack = 16 / largest;
    while (pack > 1 && !takes_pack(pack)) pack /= 2;
    return pack;
  }
  bool takes_pack(int64_t pack) const {
    if (along_.back().size % pack != 0) return false;
    for (size_t t = 0; t < tensors(); ++t) {
      const int64_t stride = along_.back().strides[t];
      if (is_reduced(t) || stride == 0) continue;
      const int64_t bytes = std::min<int64_t>(16, pack * base::byte_size(tensor(t).dtype));
      if (stride != 1 || reinterpret_cast<uintptr_t>(tensor(t).data) % bytes != 0) return false;
      const auto is_whole = [&](const native::Iteration::Dim& dim) {
        return dim.strides[t] % pack == 0;
      };
      if (!std::ranges::all_of(across_, is_whole) ||
          !std::all_of(along_.begin(), along_.end() - 1, is_whole))
        return false;
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
  std::string declared(const std::string& name, const std::string& value) const {
    return "const " + index_ + " " + name + " = " + value + ";\n";
  }

  // The place of the thread's element in tensor `t`.
  std::string offset(size_t t) const {
    std::string text;
    const auto add = [&](const Dims& dims, const char* prefix) {
      for (size_t d = 0; d < dims.size(); ++d) {
        const int64_t stride = dims[d].strides[t];
        if (stride == 0) continue;
        text += (text.empty() ? "" : " + ") + (prefix + std::to_string(d)) +
                (stride == 1 ? "" : " * " + number(stride));
      }
    };
    add(across_, "row");
    add(along_, "c");
    return text.empty() ? "0" : text;
  }
  // The coordinates along `dims` of element `i`, or of the first element of pack `i`.
  std::string coordinates(const Dims& dims, const std::string& prefix, const std::string& i,
                          int64_t pack) const {
    if (dims.empty()) return "";
    const auto whole = [&](const std::string& value) {
      return pack == 1 ? value : value + " * " + number(pack);
    };
    if (dims.size() == 1) return declared(prefix + "0", whole(i));
    const std::string rest = "rest_" + prefix;
    std::string text = index_ + " " + rest + " = " + i + ";\n";
    for (size_t d = dims.size(); d-- > 1;) {
      const bool is_last = d + 1 == dims.size();
      const std::string size = number(is_last ? dims[d].size / pack : dims[d].size);
      std::string own = rest;
      own.append(" % ").append(size);
      text += declared(prefix + std::to_string(d), is_last ? whole(own) : own);
      text.append(rest).append(" /= ").append(size).append(";\n");
    }
    return text + declared(prefix + "0", rest);
  }

  // Whether the elements of a pack lie next to each other.
  bool is_packed(size_t t) const { return pack_ > 1 && along_.back().strides[t] == 1; }

  std::string load(size_t operand) const {
    const size_t t = tensors_.results.size() + operand;
    const std::string name = "a" + std::to_string(operand);
    const char* type = lane_type(native::lane_of(tensors_.operands[operand].dtype));
    const std::string element =
        is_packed(t) ? "pack_" + name + ".at[k]" : "parameters." + name + "[" + offset(t) + "]";
    return "const " + std::string(type) + " " + name + " = " + converted(type, element) + ";\n";
  }
  bool is_one_for_all(size_t operand) const {
    return offset(tensors_.results.size() + operand) == "0";
  }
  // Operands that are one element for all.
  std::string loads_of_one() const {
    std::string text;
    for (size_t i = 0; i < tensors_.operands.size(); ++i)
      if (is_one_for_all(i)) text += load(i);
    return text;
  }

  // What a thread does with the elements of a pack, whose coordinates are known. First as if the
  // operands were moderate (scalar/activations.h), where that is faster: then again, if they are
  // not.
  std::string pack_of_elements() const {
    std::string before, after;
    for (size_t i = 0; i < tensors_.operands.size(); ++i) {
      if (is_one_for_all(i)) continue;
      const size_t t = tensors_.results.size() + i;
      const std::string name = "a" + std::to_string(i);
      before += is_packed(t)
                    ? "const auto pack_" + name + " = cuda::load_pack<" + std::to_string(pack_) +
                          ">(parameters." + name + " + " + offset(t) + ");\n"
                    : load(i);
    }
    for (size_t i = 0; i < tensors_.results.size(); ++i) {
      if (is_reduced(i) || !is_packed(i)) continue;
      const std::string name = "r" + std::to_string(i);
      before += "cuda::Pack<" + std::string(element_type(tensors_.results[i].dtype)) + ", " +
                std::to_string(pack_) + "> pack_" + name + ";\n";
      after +=
          "cuda::store_pack(parameters." + name + " + " + offset(i) + ", pack_" + name + ");\n";
    }
    bool twice = false;
    for (size_t i = 0; i < operations_.size() && !has_reductions_; ++i)
      twice = twice || operations_[i].scalar().knows_moderate;
    if (!twice) return before + elements(false) + after;
    return before + "bool others = false;\n" + elements(true) + "if (others) {\n" +
           elements(false) + "}\n" + after;
  }
  std::string elements(bool moderate) const {
    std::string text;
    for (size_t i = 0; i < tensors_.operands.size(); ++i)
      if (!is_one_for_all(i) && is_packed(tensors_.results.size() + i)) text += load(i);
    for (size_t i = 0; i < operations_.size(); ++i)
      if (!base::is_reduction(expression_.operations[i].overload)) text += operation(i, moderate);
    for (size_t i = 0; i < tensors_.results.size(); ++i)
      text += is_reduced(i) ? joined(i) : element_of(i) + " = " + stored(i) + ";\n";
    if (pack_ == 1 && !has_reductions_) return "{\n" + text + "}\n";
    return "#pragma unroll\nfor (int k = 0; k < " + std::to_string(pack_) + "; ++k) {\n" + text +
           "}\n";
  }
  // Where the thread has an element of a result, and the value for it.
  std::string element_of(size_t result) const {
    const std::string name = "r" + std::to_string(result);
    return is_packed(result) ? "pack_" + name + ".at[k]"
                             : "parameters." + name + "[" + offset(result) + "]";
  }
  std::string stored(size_t result) const {
    const size_t operation = expression_.results[result];
    const DType dtype = tensors_.results[result].dtype;
    if (is_kept_narrow(operation) && expression_.operations[operation].dtype == dtype)
      return "n" + std::to_string(operation);
    return converted(element_type(dtype), "t" + std::to_string(operation));
  }
  // Whether a value is narrower than its lane, and a result: it is narrowed once.
  bool is_kept_narrow(size_t operation) const {
    const DType dtype = expression_.operations[operation].dtype;
    return native::dtype_of(native::lane_of(dtype)) != dtype &&
           std::ranges::count(expression_.results, operation) > 0;
  }

  std::string element_loop() const {
    return loads_of_one() + "for (" + index_ + " i = cuda::first_element<" + index_ + ">(); i < " +
           number(columns() / pack_) + "; i += cuda::all_threads<" + index_ + ">()) {\n" +
           coordinates(along_, "c", "i", pack_) + pack_of_elements() + "}\n";
  }

  // Of a reduction, the result `result`: the type of its totals, and their name.
  std::string total_type(size_t result) const {
    const bool is_floating = base::is_floating(folded_dtype(result)) ||
                             base::is_floating(tensors_.results[result].dtype);
    return is_floating ? "double" : "int64_t";
  }
  DType folded_dtype(size_t result) const {
    const ExpressionArgument& self = operation_of(result).arguments[0];
    const auto index = static_cast<size_t>(self.integer);
    return self.kind == ExpressionArgumentKind::Value ? expression_.operations[index].dtype
                                                      : tensors_.operands[index].dtype;
  }
  // Elements of a mean; otherwise 1.
  double divisor(size_t result) const {
    if (!overload(result).starts_with("mean.")) return 1;
    return static_cast<double>(tensors_.shape.by_rows ? columns() : rows());
  }
  static std::string total(size_t result) { return "total_" + std::to_string(result); }
  std::string joined(size_t result) const {
    const ExpressionArgument& self = operation_of(result).arguments[0];
    const std::string value =
        (self.kind == ExpressionArgumentKind::Value ? "t" : "a") + std::to_string(self.integer);
    const std::string fold = std::string("cuda::") + fold_of(overload(result));
    const std::string own = total(result) + (tensors_.shape.by_rows ? "" : "[k]");
    return own + " = " + fold + "::join(" + own + ", " + fold + "::of(" +
           converted(total_type(result), value) + "));\n";
  }
  template <typename F>
  std::string for_each_reduced(F f) const {
    std::string text;
    for (size_t i = 0; i < tensors_.results.size(); ++i)
      if (is_reduced(i)) text += f(i, total_type(i), std::string("cuda::") + fold_of(overload(i)));
    return text;
  }

  // As reduce_by_rows of kernels/reduce.h.
  std::string row_loop() const {
    const std::string all = number(rows()), packs = number(columns() / pack_);
    std::string text = declared("row", "threadIdx.x / 32") + declared("lane", "threadIdx.x % 32");
    text += loads_of_one();
    text += "for (" + index_ + " first = blockIdx.x * 8; first < " + all +
            "; first += gridDim.x * 8) {\nconst bool exists = first + row < " + all + ";\n";
    text += coordinates(across_, "row", "(exists ? first + row : first)", 1);
    text += for_each_reduced([](size_t i, const std::string& type, const std::string& fold) {
      return type + " " + total(i) + " = " + fold + "::neutral<" + type + ">();\n";
    });
    text += "for (" + index_ + " at = lane * " + number(kChunk) + "; exists && at < " +
            number(columns()) + "; at += " + number(kLanes * kChunk) +
            ") {\n#pragma unroll\nfor (int part = 0; part < " + std::to_string(kChunk / pack_) +
            "; ++part) {\n" + declared("i", "at / " + number(pack_) + " + part") + "if (i < " +
            packs + ") {\n" + coordinates(along_, "c", "i", pack_) + pack_of_elements() +
            "}\n}\n}\n";
    text += for_each_reduced([&](size_t i, const std::string&, const std::string& fold) {
      const std::string type = element_type(tensors_.results[i].dtype);
      return "{\nconst auto all = cuda::row_total<" + fold + ">(" + total(i) +
             ");\nif (lane == 0 && exists) parameters.r" + std::to_string(i) + "[" + offset(i) +
             "] = cuda::of_total<" + type + ">(all, " + std::to_string(divisor(i)) + ");\n}\n";
    });
    return text + "}\n";
  }

  // As reduce_parts_by_columns of kernels/reduce.h, a pack of columns for each thread.
  std::string column_loop(int64_t parts) const {
    const int64_t terms = (rows() + parts - 1) / parts;
    const std::string groups = number(column_groups()), packs = std::to_string(pack_);
    std::string text =
        declared("lane", "threadIdx.x / 32") + declared("column", "threadIdx.x % 32");
    text += loads_of_one();
    text += "for (" + index_ + " block = blockIdx.x; block < " + number(column_groups() * parts) +
            "; block += gridDim.x) {\n";
    text += declared("part", "block / " + groups);
    text += declared("own", "block % " + groups + " * 32 + column");
    text += "const bool exists = own < " + number(columns() / pack_) + ";\n";
    text += declared("i", "exists ? own : 0");
    text += coordinates(along_, "c", "i", pack_);
    text += for_each_reduced([&](size_t i, const std::string& type, const std::string& fold) {
      return type + " " + total(i) + "[" + packs + "];\nfor (int k = 0; k < " + packs + "; ++k) " +
             total(i) + "[k] = " + fold + "::neutral<" + type + ">();\n";
    });
    text += declared("begin", "part * " + number(terms));
    text += declared("end", "begin + " + number(terms) + " < " + number(rows()) + " ? begin + " +
                                number(terms) + " : " + number(rows()));
    text += "for (" + index_ + " term = begin + lane; exists && term < end; term += 8) {\n" +
            coordinates(across_, "row", "term", 1) + pack_of_elements() + "}\n";
    size_t number_of = 0;
    text += for_each_reduced([&](size_t i, const std::string& type, const std::string& fold) {
      const int64_t begin = static_cast<int64_t>(number_of++) * parts;
      return "for (int k = 0; k < " + packs + "; ++k) {\nconst auto all = cuda::lanes_total<" +
             fold + ">(" + total(i) + "[k]);\nif (lane == 0 && exists) static_cast<" + type +
             "*>(parameters.totals)[(" + std::to_string(begin) + "l + part) * " +
             std::to_string(columns()) + "l + i * " + packs + " + k] = all;\n}\n";
    });
    return text + "}\n";
  }

  std::string operation(size_t number, bool moderate) const {
    const native::Pointwise& kernel = operations_[number];
    const native::ScalarOperator scalar = kernel.scalar();
    const bool to_moderate = moderate && scalar.knows_moderate;
    std::string text = (to_moderate ? "apply_to_moderate<" : "apply<") +
                       std::string(lane_type(kernel.loop().result)) +
                       (to_moderate ? ">(others, " : ">(") + std::string(scalar.name) + "<" +
                       lane_type(scalar.lane) + ">{";
    for (size_t i = 0; i < scalar.numbers.size(); ++i)
      text += (i == 0 ? "" : ", ") + literal(scalar.lane, scalar.numbers[i]);
    text += "}";
    for (const native::PointwiseOperand& operand : kernel.operands())
      text += ", " + operand_of(expression_.operations[number], operand);
    text += ")";
    // Rounded to the value's type, as if it lay in memory.
    const DType dtype = expression_.operations[number].dtype;
    const Lane lane = native::lane_of(dtype);
    const std::string type = element_type(dtype), own = lane_type(lane),
                      name = std::to_string(number);
    if (is_kept_narrow(number))
      return "const " + type + " n" + name + " = " + converted(type, text) + ";\nconst " + own +
             " t" + name + " = " + converted(own, "n" + name) + ";\n";
    if (native::dtype_of(lane) != dtype) {
      text = kernel.loop().result == lane ? "rounded<" + type + ">(" + text + ")"
                                          : converted(own, converted(type, text));
    } else if (kernel.loop().result != lane) {
      text = converted(type, text);
    }
    return "const " + own + " t" + name + " = " + text + ";\n";
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
  bool has_reductions_;
  // Dims of rows, and of columns; without reductions all are of columns.
  Dims across_, along_;
  std::string index_;  // the type that counts elements
  int64_t pack_ = 1;   // elements that a thread has at once
};

}  // namespace

base::Result<FusedSource> fused_source(const Expression& expression,
                                       const native::ExpressionTensors& tensors) {
  const bool has_dims = expression.has_reductions() ? !tensors.shape.elements.empty()
                                                    : !tensors.results[0].sizes.empty();
  DC_ASSIGN_OR_RETURN(const native::Operations operations,
                      native::Operations::of(expression, tensors.operands, has_dims));
  return Writer(expression, tensors, operations).run();
}

}  // namespace dc::runtime::kernel::cuda
