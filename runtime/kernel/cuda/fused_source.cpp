#include "runtime/kernel/cuda/fused_source.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <set>

#include "runtime/kernel/cuda/block.h"
#include "runtime/kernel/cuda/element_type.h"
#include "runtime/kernel/cuda/kernels/reduce_parameters.h"
#include "runtime/kernel/cuda/reduce_kernels.h"
#include "runtime/kernel/native/pointwise/operations.h"
#include "src/base/expression_phases.h"
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
        phases_(base::phases_of(expression)),
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
      for (const size_t i : reductions())
        made.folds.push_back({*result_of(i), fold_of(overload(i)), folded_dtype(i), divisor(i)});
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
  std::string_view overload(size_t value) const { return expression_.operations[value].overload; }
  // Whether it is a result with one element for each row or column.
  bool is_reduced(size_t t) const {
    return t < tensors_.results.size() && expression_.is_row_value(expression_.results[t]);
  }
  std::vector<size_t> reductions() const {
    std::vector<size_t> found;
    for (size_t i = 0; i < operations_.size(); ++i)
      if (base::is_reduction(overload(i))) found.push_back(i);
    return found;
  }
  std::optional<size_t> result_of(size_t value) const {
    const auto found = std::ranges::find(expression_.results, value);
    if (found == expression_.results.end()) return std::nullopt;
    return static_cast<size_t>(found - expression_.results.begin());
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

  // Whether all elements of a pack are in a range of indices, or none.
  bool takes_ranges(int64_t pack) const {
    const auto is_whole = [&](const base::IndexRange& range) {
      return range.begin % pack == 0 && range.end % pack == 0;
    };
    return !has_index() || along_.back().strides[tensors_.index_tensor()] == 0 ||
           std::ranges::all_of(ranges(), is_whole);
  }

  bool has_index() const { return expression_.window_dim().has_value(); }
  std::set<base::IndexRange> ranges() const {
    std::set<base::IndexRange> all;
    for (const auto& [operand, range] : expression_.windows) all.insert(range);
    for (const ExpressionOperation& operation : expression_.operations)
      if (const auto range = base::index_range(operation)) all.insert(*range);
    return all;
  }
  static std::string is_in(const base::IndexRange& range) {
    return "in_" + std::to_string(range.begin) + "_" + std::to_string(range.end);
  }
  // Whether the thread's elements are in each range.
  std::string ranges_text() const {
    std::string text;
    for (const base::IndexRange& range : ranges()) {
      const std::string index = offset(tensors_.index_tensor());
      std::string is_after = range.begin == 0 ? "" : index;
      if (!is_after.empty()) is_after.append(" >= ").append(number(range.begin)).append(" && ");
      text += "const bool " + is_in(range) + " = " + is_after + index + " < " + number(range.end) +
              ";\n";
    }
    return text;
  }
  const base::IndexRange* window(size_t operand) const {
    const auto found = expression_.windows.find(operand);
    return found == expression_.windows.end() ? nullptr : &found->second;
  }
  // Elements before the first one that an operand has.
  int64_t missing(size_t operand) const {
    const base::IndexRange* range = window(operand);
    if (range == nullptr) return 0;
    const BoundTensor& own = tensors_.operands[operand];
    const size_t dim =
        static_cast<size_t>(range->dim) + own.sizes.size() - tensors_.shape.elements.size();
    return range->begin * own.strides[dim];
  }
  // The place of the thread's element in an operand, from where its address is.
  std::string operand_offset(size_t operand) const {
    const std::string text = offset(tensors_.results.size() + operand);
    const int64_t before = missing(operand);
    return before == 0 ? text : text + " - " + number(before);
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
    std::string element = is_packed(t) ? "pack_" + name + ".at[k]"
                                       : "parameters." + name + "[" + operand_offset(operand) + "]";
    const base::IndexRange* range = window(operand);
    if (range != nullptr && !is_packed(t))
      element = is_in(*range) + " ? " + element + " : " +
                element_type(tensors_.operands[operand].dtype) + "{}";
    return "const " + std::string(type) + " " + name + " = " + converted(type, element) + ";\n";
  }
  bool is_one_for_all(size_t operand) const {
    return window(operand) == nullptr && offset(tensors_.results.size() + operand) == "0";
  }
  // Operands that are one element for all.
  std::string loads_of_one() const {
    std::string text;
    for (size_t i = 0; i < tensors_.operands.size(); ++i)
      if (is_one_for_all(i)) text += load(i);
    return text;
  }

  // What a phase does with elements.
  struct Phase {
    std::vector<bool> computed;  // by value
    std::vector<size_t> folds;   // reductions
    std::vector<size_t> stores;  // results
    std::vector<bool> reads;     // by operand
  };
  Phase phase(size_t number) const {
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
      if (!is_reduced(i) && phases_.first[expression_.results[i]] == number)
        made.stores.push_back(i);
    return made;
  }

  std::string pack_of(size_t operand) const {
    const std::string name = "a" + std::to_string(operand);
    const base::IndexRange* range = window(operand);
    return (range == nullptr ? "cuda::load_pack<" : "cuda::load_pack_if<") + std::to_string(pack_) +
           ">(" + (range == nullptr ? "" : is_in(*range) + ", ") + "parameters." + name + " + " +
           operand_offset(operand) + ")";
  }

  // What a thread does with the elements of a pack, whose coordinates are known. First as if the
  // operands were moderate (scalar/activations.h), where that is faster: then again, if they are
  // not. `kept`: of row_loop(), where packs are read before they are used; null: elsewhere.
  std::string pack_of_elements(const Phase& phase, const std::vector<bool>* kept = nullptr) const {
    std::string before = ranges_text(), after;
    for (size_t i = 0; i < tensors_.operands.size(); ++i) {
      if (!phase.reads[i] || is_one_for_all(i) || is_of_row(i)) continue;
      const std::string own = "a" + std::to_string(i);
      if (!is_packed(tensors_.results.size() + i)) {
        before += load(i);
        continue;
      }
      const std::string kept_pack =
          kept == nullptr ? pack_of(i)
                          : "packs_" + own + ((*kept)[i] ? "[step + u][part]" : "[u][part]");
      before += "const auto& pack_" + own + " = " + kept_pack + ";\n";
    }
    for (const size_t i : phase.stores) {
      if (!is_packed(i)) continue;
      const std::string name = "r" + std::to_string(i);
      before += "cuda::Pack<" + std::string(element_type(tensors_.results[i].dtype)) + ", " +
                std::to_string(pack_) + "> pack_" + name + ";\n";
      after +=
          "cuda::store_pack(parameters." + name + " + " + offset(i) + ", pack_" + name + ");\n";
    }
    bool twice = false;
    for (size_t i = 0; i < operations_.size() && !has_reductions_; ++i)
      twice = twice || (!base::index_range(expression_.operations[i]) &&
                        operations_[i].scalar().knows_moderate);
    if (!twice) return before + elements(phase, false) + after;
    return before + "bool others = false;\n" + elements(phase, true) + "if (others) {\n" +
           elements(phase, false) + "}\n" + after;
  }
  std::string elements(const Phase& phase, bool moderate) const {
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
           coordinates(along_, "c", "i", pack_) + pack_of_elements(phase(0)) + "}\n";
  }

  // Of a reduction: the type of its totals, and their name.
  std::string total_type(size_t reduction) const {
    const bool is_floating = base::is_floating(folded_dtype(reduction)) ||
                             base::is_floating(expression_.operations[reduction].dtype);
    return is_floating ? "double" : "int64_t";
  }
  DType folded_dtype(size_t reduction) const {
    const ExpressionArgument& self = expression_.operations[reduction].arguments[0];
    const auto index = static_cast<size_t>(self.integer);
    return self.kind == ExpressionArgumentKind::Value ? expression_.operations[index].dtype
                                                      : tensors_.operands[index].dtype;
  }
  // Elements of a mean; otherwise 1.
  double divisor(size_t reduction) const {
    if (!overload(reduction).starts_with("mean.")) return 1;
    return static_cast<double>(tensors_.shape.by_rows ? columns() : rows());
  }
  static std::string total(size_t reduction) { return "total_" + std::to_string(reduction); }
  std::string joined(size_t reduction) const {
    const ExpressionArgument& self = expression_.operations[reduction].arguments[0];
    const std::string value =
        (self.kind == ExpressionArgumentKind::Value ? "t" : "a") + std::to_string(self.integer);
    const std::string fold = std::string("cuda::") + fold_of(overload(reduction));
    const std::string own = total(reduction) + (tensors_.shape.by_rows ? "" : "[k]");
    return own + " = " + fold + "::join(" + own + ", " + fold + "::of(" +
           converted(total_type(reduction), value) + "));\n";
  }
  template <typename F>
  std::string for_each_reduced(F f) const {
    std::string text;
    for (const size_t i : reductions())
      text += f(i, total_type(i), std::string("cuda::") + fold_of(overload(i)));
    return text;
  }

  // Whether the operand has one element for each row.
  bool is_of_row(size_t operand) const {
    const size_t t = tensors_.results.size() + operand;
    return has_reductions_ && tensors_.shape.by_rows && !is_one_for_all(operand) &&
           window(operand) == nullptr &&
           std::ranges::all_of(along_, [&](const auto& dim) { return dim.strides[t] == 0; });
  }

  // Steps of a row: in each a thread has kChunk elements, as some packs.
  int64_t steps() const { return (columns() + kLanes * kChunk - 1) / (kLanes * kChunk); }
  std::string parts() const { return std::to_string(kChunk / pack_); }

  // Operands whose packs of a whole row a thread keeps, because several phases read them and each
  // row has its own: as many registers as leave a multiprocessor room for some blocks.
  std::vector<bool> kept_operands(const std::vector<Phase>& phases) const {
    std::vector<bool> kept(tensors_.operands.size());
    int64_t bytes = 0;
    for (size_t i = 0; i < kept.size(); ++i) {
      const size_t t = tensors_.results.size() + i;
      const auto reads = [i](const Phase& phase) { return static_cast<bool>(phase.reads[i]); };
      const bool has_rows = std::ranges::any_of(
          across_, [t](const native::Iteration::Dim& dim) { return dim.strides[t] != 0; });
      kept[i] = is_packed(t) && has_rows && std::ranges::count_if(phases, reads) > 1;
      if (kept[i]) bytes += steps() * kChunk * base::byte_size(tensor(t).dtype);
    }
    constexpr int64_t kMostBytes = 384, kMostSteps = 16;
    if (bytes > kMostBytes || steps() > kMostSteps) kept.assign(kept.size(), false);
    return kept;
  }

  // What is done for the packs of the steps from `step` on, u being how many of them are done.
  std::string for_steps(int64_t count, const std::string& what) const {
    const std::string chunk = number(kChunk), lanes = number(kLanes * kChunk);
    const bool is_whole =
        columns() % (kLanes * kChunk) == 0 && rows() % 8 == 0 && steps() % count == 0;
    std::string text = "#pragma unroll\nfor (int u = 0; u < " + std::to_string(count) +
                       "; ++u) {\n#pragma unroll\nfor (int part = 0; part < " + parts() +
                       "; ++part) {\n";
    text += declared(
        "i", "(lane * " + chunk + " + (step + u) * " + lanes + ") / " + number(pack_) + " + part");
    if (!is_whole) text += "if (exists && i < " + number(columns() / pack_) + ") {\n";
    return text + coordinates(along_, "c", "i", pack_) + what + (is_whole ? "" : "}\n") + "}\n}\n";
  }
  std::string packs_of(size_t operand, int64_t steps) const {
    const DType dtype = tensors_.operands[operand].dtype;
    return "cuda::Pack<" + std::string(element_type(dtype)) + ", " + std::to_string(pack_) +
           "> packs_a" + std::to_string(operand) + "[" + std::to_string(steps) + "][" + parts() +
           "];\n";
  }
  // Packs of some steps are read before any of them is used, so that reads wait together.
  std::string phase_of_row(const Phase& phase, const std::vector<bool>& kept) const {
    const bool keeps = std::ranges::count(kept, true) > 0;
    const int64_t all = steps(), count = std::min<int64_t>(all, 4);
    std::string arrays, loads;
    for (size_t i = 0; i < tensors_.operands.size(); ++i) {
      if (!phase.reads[i] || kept[i] || !is_packed(tensors_.results.size() + i)) continue;
      arrays += packs_of(i, count);
      loads += "packs_a" + std::to_string(i) + "[u][part] = " + pack_of(i) + ";\n";
    }
    std::string elements = pack_of_elements(phase, &kept);
    if (!loads.empty()) loads = for_steps(count, ranges_text() + loads);
    return (keeps ? "#pragma unroll\n" : "") + ("for (" + index_ + " step = 0; step < ") +
           number(all) + "; step += " + number(count) + ") {\n" + arrays + loads +
           for_steps(count, elements) + "}\n";
  }

  bool is_read(size_t value) const {
    return std::ranges::any_of(expression_.operations, [&](const ExpressionOperation& operation) {
      return std::ranges::any_of(operation.arguments, [&](const ExpressionArgument& read) {
        return read.kind == ExpressionArgumentKind::Value &&
               static_cast<size_t>(read.integer) == value;
      });
    });
  }

  // What the threads of a row make of their totals; all of them have it where it is read.
  std::string end_of_fold(size_t reduction) const {
    const std::string number = std::to_string(reduction), own = "t" + number;
    const DType dtype = expression_.operations[reduction].dtype;
    const std::string lane = lane_type(native::lane_of(dtype)), type = element_type(dtype);
    const bool reads = is_read(reduction);
    std::string text;
    if (reads) text += "__shared__ " + lane + " row_" + own + "[8];\n";
    text +=
        "{\nconst auto all = cuda::row_total<cuda::" + std::string(fold_of(overload(reduction))) +
        ">(" + total(reduction) + ");\nif (lane == 0) {\nconst auto value = cuda::of_total<" +
        type + ">(all, " + std::to_string(divisor(reduction)) + ");\n";
    if (const auto result = result_of(reduction))
      text += "if (exists) parameters.r" + std::to_string(*result) + "[" + offset(*result) +
              "] = value;\n";
    if (reads) text += "row_" + own + "[row] = " + converted(lane, "value") + ";\n";
    text += "}\n}\n";
    if (reads) text += "__syncthreads();\nconst " + lane + " " + own + " = row_" + own + "[row];\n";
    return text;
  }
  // Row values that phases from this one on may read.
  std::string rows_before(size_t phase) const {
    std::string text;
    for (size_t i = 0; i < operations_.size(); ++i) {
      const ExpressionOperation& operation = expression_.operations[i];
      if (!operation.is_row || phases_.first[i] != phase) continue;
      text += this->operation(i);
      if (const auto result = result_of(i))
        text += "if (lane == 0 && exists) parameters.r" + std::to_string(*result) + "[" +
                offset(*result) +
                "] = " + converted(element_type(operation.dtype), "t" + std::to_string(i)) + ";\n";
    }
    return text;
  }

  // Folds as reduce_by_rows of kernels/reduce.h. A phase goes over the row once.
  std::string row_loop() const {
    const std::string all = number(rows());
    std::vector<Phase> phases;
    for (size_t i = 0; i < phases_.count; ++i) phases.push_back(phase(i));
    const std::vector<bool> kept = kept_operands(phases);
    std::string text = declared("row", "threadIdx.x / 32") + declared("lane", "threadIdx.x % 32");
    text += loads_of_one();
    text += "for (" + index_ + " first = blockIdx.x * 8; first < " + all +
            "; first += gridDim.x * 8) {\nconst bool exists = first + row < " + all + ";\n";
    text += coordinates(across_, "row", "(exists ? first + row : first)", 1);
    std::string loads;
    for (size_t i = 0; i < kept.size(); ++i) {
      if (is_of_row(i)) text += load(i);
      if (!kept[i]) continue;
      text += packs_of(i, steps());
      loads += "packs_a" + std::to_string(i) + "[u][part] = " + pack_of(i) + ";\n";
    }
    if (!loads.empty())
      text += "{\nconstexpr int step = 0;\n" + for_steps(steps(), ranges_text() + loads) + "}\n";
    text += for_each_reduced([](size_t i, const std::string& type, const std::string& fold) {
      return type + " " + total(i) + " = " + fold + "::neutral<" + type + ">();\n";
    });
    for (size_t i = 0; i < phases.size(); ++i) {
      text += rows_before(i) + phase_of_row(phases[i], kept);
      for (const size_t reduction : phases[i].folds) text += end_of_fold(reduction);
    }
    return text + rows_before(phases.size()) + "}\n";
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
    text += "#pragma unroll 4\nfor (" + index_ +
            " term = begin + lane; exists && term < end; term += 8) {\n" +
            coordinates(across_, "row", "term", 1) + pack_of_elements(phase(0)) + "}\n";
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

  std::string operation(size_t number, bool moderate = false) const {
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
  const base::ExpressionPhases phases_;
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
