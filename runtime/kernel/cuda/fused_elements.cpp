#include "runtime/kernel/cuda/fused_elements.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>

#include "runtime/kernel/cuda/element_type.h"

namespace dc::runtime::kernel::cuda {
using base::DType;
using base::Expression;
using base::ExpressionArgument;
using base::ExpressionArgumentKind;
using base::ExpressionOperation;
using native::Lane;

namespace {

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

}  // namespace

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

const char* fold_of(const base::ExpressionOperation& reduction) {
  if (reduction.overload.starts_with("amax.")) return "MaxFold";
  if (reduction.overload.starts_with("amin.")) return "MinFold";
  return reduction.dtype == DType::Bool ? "AnyFold" : "SumFold";
}

std::string converted(std::string_view type, const std::string& value) {
  return "convert<" + std::string(type) + ">(" + value + ")";
}

ElementWriter::ElementWriter(const Expression& expression, const native::ExpressionTensors& tensors,
                             const native::Operations& operations)
    : expression_(expression),
      tensors_(tensors),
      operations_(operations),
      phases_(base::phases_of(expression)),
      has_reductions_(expression.has_reductions()),
      along_(has_reductions_ ? tensors.along.dims() : tensors.iteration.dims()) {
  if (has_reductions_) across_ = tensors.across.dims();
  index_ = fits_32_bits() ? "uint32_t" : "int64_t";
  pack_ = widest_pack();
}

int64_t ElementWriter::columns() const {
  return has_reductions_ ? tensors_.along.count() : tensors_.iteration.count();
}

bool ElementWriter::fits_32_bits() const {
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

const BoundTensor& ElementWriter::tensor(size_t t) const {
  const size_t results = tensors_.results.size();
  return t < results ? tensors_.results[t] : tensors_.operands[t - results];
}

bool ElementWriter::is_reduced(size_t t) const {
  return t < tensors_.results.size() && expression_.is_row_value(expression_.results[t]);
}

std::vector<size_t> ElementWriter::reductions() const {
  std::vector<size_t> found;
  for (size_t i = 0; i < operations_.size(); ++i)
    if (base::is_reduction(overload(i))) found.push_back(i);
  return found;
}

std::optional<size_t> ElementWriter::result_of(size_t value) const {
  const auto found = std::ranges::find(expression_.results, value);
  if (found == expression_.results.end()) return std::nullopt;
  return static_cast<size_t>(found - expression_.results.begin());
}

int64_t ElementWriter::widest_pack() const {
  if (along_.empty()) return 1;
  int64_t largest = 16 / kChunk;  // bytes
  for (size_t t = 0; t < tensors(); ++t)
    if (!is_reduced(t) && along_.back().strides[t] == 1)
      largest = std::max<int64_t>(largest, base::byte_size(tensor(t).dtype));
  int64_t pack = 16 / largest;
  while (pack > 1 && !takes_pack(pack)) pack /= 2;
  return pack;
}

bool ElementWriter::takes_pack(int64_t pack) const {
  if (along_.back().size % pack != 0 || !takes_ranges(pack)) return false;
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

bool ElementWriter::takes_ranges(int64_t pack) const {
  const auto is_whole = [&](const base::IndexRange& range) {
    return range.begin % pack == 0 && range.end % pack == 0;
  };
  return !has_index() || along_.back().strides[tensors_.index_tensor()] == 0 ||
         std::ranges::all_of(ranges(), is_whole);
}

std::set<base::IndexRange> ElementWriter::ranges() const {
  std::set<base::IndexRange> all;
  for (const auto& [operand, range] : expression_.windows) all.insert(range);
  for (const ExpressionOperation& operation : expression_.operations)
    if (const auto range = base::index_range(operation)) all.insert(*range);
  return all;
}

std::string ElementWriter::is_in(const base::IndexRange& range) {
  return "in_" + std::to_string(range.begin) + "_" + std::to_string(range.end);
}

std::string ElementWriter::ranges_text() const {
  std::string text;
  for (const base::IndexRange& range : ranges()) {
    const std::string index = offset(tensors_.index_tensor());
    std::string is_after = range.begin == 0 ? "" : index;
    if (!is_after.empty()) is_after.append(" >= ").append(number(range.begin)).append(" && ");
    text.append("const bool ").append(is_in(range)).append(" = ").append(is_after);
    text.append(index).append(" < ").append(number(range.end)).append(";\n");
  }
  return text;
}

const base::IndexRange* ElementWriter::window(size_t operand) const {
  const auto found = expression_.windows.find(operand);
  return found == expression_.windows.end() ? nullptr : &found->second;
}

int64_t ElementWriter::missing(size_t operand) const {
  const base::IndexRange* range = window(operand);
  if (range == nullptr) return 0;
  const BoundTensor& own = tensors_.operands[operand];
  const size_t dim =
      static_cast<size_t>(range->dim) + own.sizes.size() - tensors_.shape.elements.size();
  return range->begin * own.strides[dim];
}

std::string ElementWriter::operand_offset(size_t operand) const {
  const std::string text = offset(tensors_.results.size() + operand);
  const int64_t before = missing(operand);
  return before == 0 ? text : text + " - " + number(before);
}

std::string ElementWriter::parameters() const {
  std::string text;
  for (size_t i = 0; i < tensors_.results.size(); ++i)
    text += "  " + std::string(element_type(tensors_.results[i].dtype)) + "* r" +
            std::to_string(i) + ";\n";
  for (size_t i = 0; i < tensors_.operands.size(); ++i)
    text += "  const " + std::string(element_type(tensors_.operands[i].dtype)) + "* a" +
            std::to_string(i) + ";\n";
  return text;
}

std::string ElementWriter::number(int64_t value) const {
  return std::to_string(value) + (index_ == "uint32_t" ? "u" : "");
}

std::string ElementWriter::declared(const std::string& name, const std::string& value) const {
  return "const " + index_ + " " + name + " = " + value + ";\n";
}

std::string ElementWriter::offset(size_t t) const {
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

std::string ElementWriter::coordinates(const Dims& dims, const std::string& prefix,
                                       const std::string& i, int64_t pack) const {
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

std::string ElementWriter::load(size_t operand) const {
  const size_t t = tensors_.results.size() + operand;
  const std::string name = "a" + std::to_string(operand);
  const char* type = lane_type(native::lane_of(tensors_.operands[operand].dtype));
  std::string element = is_packed(t) ? "pack_" + name + ".at[k]"
                                     : "parameters." + name + "[" + operand_offset(operand) + "]";
  const base::IndexRange* range = window(operand);
  if (range != nullptr && !is_packed(t))
    element = is_in(*range) + " ? " + element + " : " +
              element_type(tensors_.operands[operand].dtype) + "{}";
  return "const " + std::string(type) + " " + name + " = " + converted(type, element) + ";\n";
}

bool ElementWriter::is_one_for_all(size_t operand) const {
  return window(operand) == nullptr && offset(tensors_.results.size() + operand) == "0";
}

std::string ElementWriter::loads_of_one() const {
  std::string text;
  for (size_t i = 0; i < tensors_.operands.size(); ++i)
    if (is_one_for_all(i)) text += load(i);
  return text;
}

ElementWriter::Phase ElementWriter::phase(size_t number) const {
  Phase made;
  made.computed = base::computed_in(expression_, phases_, number);
  made.reads.resize(tensors_.operands.size());
  for (size_t i = 0; i < operations_.size(); ++i) {
    const bool folds = base::is_reduction(overload(i)) && phases_.of_reduction(i) == number;
    if (folds) made.folds.push_back(i);
    if (!folds && !made.computed[i]) continue;
    for (const ExpressionArgument& read : expression_.operations[i].arguments)
      if (read.kind == ExpressionArgumentKind::Operand)
        made.reads[static_cast<size_t>(read.integer)] = true;
  }
  for (size_t i = 0; i < tensors_.results.size(); ++i)
    if (!is_reduced(i) && phases_.first[expression_.results[i]] == number) made.stores.push_back(i);
  return made;
}

std::string ElementWriter::pack_of(size_t operand) const {
  const std::string name = "a" + std::to_string(operand);
  const base::IndexRange* range = window(operand);
  return (range == nullptr ? "cuda::load_pack<" : "cuda::load_pack_if<") + std::to_string(pack_) +
         ">(" + (range == nullptr ? "" : is_in(*range) + ", ") + "parameters." + name + " + " +
         operand_offset(operand) + ")";
}

std::string ElementWriter::pack_of_elements(const Phase& phase,
                                            const std::vector<bool>* kept) const {
  std::string before = ranges_text(), after;
  for (size_t i = 0; i < tensors_.operands.size(); ++i) {
    if (!phase.reads[i] || is_one_for_all(i) || is_of_row(i)) continue;
    if (!is_packed(tensors_.results.size() + i)) {
      before += load(i);
      continue;
    }
    const std::string own = "a" + std::to_string(i);
    std::string pack = kept == nullptr ? pack_of(i) : "packs_" + own;
    if (kept != nullptr) pack += (*kept)[i] ? "[step + u][part]" : "[u][part]";
    before.append("const auto& pack_").append(own).append(" = ").append(pack).append(";\n");
  }
  for (const size_t i : phase.stores) {
    if (!is_packed(i)) continue;
    const std::string name = "r" + std::to_string(i);
    before += "cuda::Pack<" + std::string(element_type(tensors_.results[i].dtype)) + ", " +
              std::to_string(pack_) + "> pack_" + name + ";\n";
    after.append("cuda::store_pack(parameters.").append(name).append(" + ").append(offset(i));
    after.append(", pack_").append(name).append(");\n");
  }
  bool twice = false;
  for (size_t i = 0; i < operations_.size() && !has_reductions_; ++i)
    twice = twice || (!base::index_range(expression_.operations[i]) &&
                      operations_[i].scalar().knows_moderate);
  if (!twice) return before + elements(phase, false) + after;
  return before + "bool others = false;\n" + elements(phase, true) + "if (others) {\n" +
         elements(phase, false) + "}\n" + after;
}

std::string ElementWriter::elements(const Phase& phase, bool moderate) const {
  std::string text;
  for (size_t i = 0; i < tensors_.operands.size(); ++i)
    if (phase.reads[i] && !is_one_for_all(i) && !is_of_row(i) &&
        is_packed(tensors_.results.size() + i))
      text += load(i);
  for (size_t i = 0; i < operations_.size(); ++i)
    if (phase.computed[i]) text += operation(i, moderate);
  for (const size_t i : phase.folds) text += joined(i);
  for (const size_t i : phase.stores) text += element_of(i) + " = " + stored(i) + ";\n";
  if (pack_ == 1 && !has_reductions_) return "{\n" + text + "}\n";
  return "#pragma unroll\nfor (int k = 0; k < " + std::to_string(pack_) + "; ++k) {\n" + text +
         "}\n";
}

std::string ElementWriter::element_of(size_t result) const {
  const std::string name = "r" + std::to_string(result);
  return is_packed(result) ? "pack_" + name + ".at[k]"
                           : "parameters." + name + "[" + offset(result) + "]";
}

std::string ElementWriter::stored(size_t result) const {
  const size_t operation = expression_.results[result];
  const DType dtype = tensors_.results[result].dtype;
  if (is_kept_narrow(operation) && expression_.operations[operation].dtype == dtype)
    return "n" + std::to_string(operation);
  return converted(element_type(dtype), "t" + std::to_string(operation));
}

bool ElementWriter::is_kept_narrow(size_t operation) const {
  const DType dtype = expression_.operations[operation].dtype;
  return native::dtype_of(native::lane_of(dtype)) != dtype &&
         std::ranges::count(expression_.results, operation) > 0;
}

std::string ElementWriter::total_type(size_t reduction) const {
  const DType to = expression_.operations[reduction].dtype;
  const bool is_floating =
      base::is_floating(to) || (base::is_floating(folded_dtype(reduction)) && to == DType::Bool);
  return is_floating ? "double" : "int64_t";
}

DType ElementWriter::folded_dtype(size_t reduction) const {
  const ExpressionArgument& self = expression_.operations[reduction].arguments[0];
  const auto index = static_cast<size_t>(self.integer);
  return self.kind == ExpressionArgumentKind::Value ? expression_.operations[index].dtype
                                                    : tensors_.operands[index].dtype;
}

std::string ElementWriter::joined(size_t reduction) const {
  const ExpressionArgument& self = expression_.operations[reduction].arguments[0];
  const std::string value =
      (self.kind == ExpressionArgumentKind::Value ? "t" : "a") + std::to_string(self.integer);
  const std::string fold = std::string("cuda::") + fold_of(expression_.operations[reduction]);
  const std::string own = total(reduction) + (tensors_.shape.by_rows ? "" : "[k]");
  return own + " = " + fold + "::join(" + own + ", " + fold + "::of(" +
         converted(total_type(reduction), value) + "));\n";
}

bool ElementWriter::is_of_row(size_t operand) const {
  const size_t t = tensors_.results.size() + operand;
  return has_reductions_ && tensors_.shape.by_rows && !is_one_for_all(operand) &&
         window(operand) == nullptr &&
         std::ranges::all_of(along_, [&](const auto& dim) { return dim.strides[t] == 0; });
}

std::string ElementWriter::operation(size_t number, bool moderate) const {
  if (const auto range = base::index_range(expression_.operations[number]))
    return "const Bool t" + std::to_string(number) + " = Bool{" + is_in(*range) + "};\n";
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

std::string ElementWriter::operand_of(const ExpressionOperation& operation,
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

}  // namespace dc::runtime::kernel::cuda
