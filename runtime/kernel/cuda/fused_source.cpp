#include "runtime/kernel/cuda/fused_source.h"

#include <algorithm>

#include "runtime/kernel/cuda/block.h"
#include "runtime/kernel/cuda/element_type.h"
#include "runtime/kernel/cuda/fused_elements.h"
#include "runtime/kernel/cuda/reduce_kernels.h"
#include "src/base/sha256.h"

namespace dc::runtime::kernel::cuda {
namespace {

using base::DType;
using base::Expression;
using base::ExpressionArgument;
using base::ExpressionArgumentKind;
using base::ExpressionOperation;

// Writes the text of one kernel.
class Writer : ElementWriter {
 public:
  using ElementWriter::ElementWriter;

  FusedSource run() {
    FusedSource made;
    if (has_reductions_ && !tensors_.shape.by_rows) {
      made.parts = column_parts(columns(), rows());
      for (const size_t i : reductions())
        made.folds.push_back(
            {*result_of(i), fold_of(expression_.operations[i]), folded_dtype(i), divisor(i)});
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
  int64_t column_groups() const {
    const int64_t all = columns() / pack_;
    return (all + kLanes - 1) / kLanes;
  }

  int64_t threads(int64_t parts) const {
    if (!has_reductions_) return columns() / pack_;
    return parts > 0 ? column_groups() * parts * kBlockThreads : rows() * lanes();
  }

  std::string element_loop() const {
    return loads_of_one() + "for (" + index_ + " i = cuda::first_element<" + index_ + ">(); i < " +
           number(columns() / pack_) + "; i += cuda::all_threads<" + index_ + ">()) {\n" +
           coordinates(along_, "c", "i", pack_) + pack_of_elements(phase(0)) + "}\n";
  }

  // Elements of a mean; otherwise 1.
  double divisor(size_t reduction) const {
    if (!overload(reduction).starts_with("mean.")) return 1;
    return static_cast<double>(tensors_.shape.by_rows ? columns() : rows());
  }

  template <typename F>
  std::string for_each_reduced(F f) const {
    std::string text;
    for (const size_t i : reductions())
      text += f(i, total_type(i), std::string("cuda::") + fold_of(expression_.operations[i]));
    return text;
  }

  // Threads of a row, and rows of a block.
  int64_t lanes() const { return row_lanes(columns()); }
  int64_t rows_of_block() const { return kBlockThreads / lanes(); }
  // Steps of a row: in each a thread has kChunk elements, as some packs.
  int64_t steps() const { return (columns() + lanes() * kChunk - 1) / (lanes() * kChunk); }

  std::string parts() const { return std::to_string(kChunk / pack_); }

  bool has_rows(size_t operand) const {
    const size_t t = tensors_.results.size() + operand;
    return window(operand) != nullptr ||
           std::ranges::any_of(
               across_, [t](const native::Iteration::Dim& dim) { return dim.strides[t] != 0; });
  }

  // Operands whose packs of a whole row a thread reads before the first phase, and keeps: first
  // those of each row that several phases read, then all that a later phase reads, so that it does
  // not wait for them. As many registers as leave a multiprocessor room for some blocks.
  std::vector<bool> kept_operands(const std::vector<Phase>& phases) const {
    constexpr int64_t kMostBytes = 384, kMostSteps = 16, kMostEarlyBytes = 128;
    std::vector<bool> kept(tensors_.operands.size()), early(kept.size());
    int64_t bytes = 0, early_bytes = 0;
    for (size_t i = 0; i < kept.size(); ++i) {
      const size_t t = tensors_.results.size() + i;
      const auto reads = [i](const Phase& phase) { return static_cast<bool>(phase.reads[i]); };
      if (!is_packed(t)) continue;
      const int64_t own = steps() * kChunk * base::byte_size(tensor(t).dtype);
      kept[i] = has_rows(i) && std::ranges::count_if(phases, reads) > 1;
      early[i] = kept[i] || std::any_of(phases.begin() + 1, phases.end(), reads);
      if (kept[i]) bytes += own;
      if (early[i]) early_bytes += own;
    }
    if (early_bytes <= kMostEarlyBytes) return early;
    if (bytes > kMostBytes || steps() > kMostSteps) kept.assign(kept.size(), false);
    return kept;
  }

  // What is done for the packs of the steps from `step` on, u being how many of them are done.
  std::string for_steps(int64_t count, const std::string& what) const {
    const std::string chunk = number(kChunk), lanes = number(this->lanes() * kChunk);
    const bool is_whole = columns() % (this->lanes() * kChunk) == 0 &&
                          rows() % rows_of_block() == 0 && steps() % count == 0;
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

  // What the threads of a row make of their totals; all of them have it.
  std::string end_of_fold(size_t reduction) const {
    const DType dtype = expression_.operations[reduction].dtype;
    const std::string own = "t" + std::to_string(reduction), value = "value_" + own;
    std::string text = "const auto " + value + " = cuda::of_total<" + element_type(dtype) +
                       ">(cuda::row_total<cuda::" + fold_of(expression_.operations[reduction]) +
                       ", " + std::to_string(lanes()) + ">(" + total(reduction) + "), " +
                       std::to_string(divisor(reduction)) + ");\n";
    if (const auto result = result_of(reduction))
      text += "if (lane == 0 && exists) parameters.r" + std::to_string(*result) + "[" +
              offset(*result) + "] = " + value + ";\n";
    if (is_read(reduction)) {
      const std::string lane = lane_type(native::lane_of(dtype));
      text += "const " + lane + " " + own + " = " + converted(lane, value) + ";\n";
    }
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

  // Reads the kept operands that each row has, or those that all rows share.
  std::string early_loads(const std::vector<bool>& kept, bool of_rows) const {
    std::string text, loads;
    for (size_t i = 0; i < kept.size(); ++i) {
      if (!kept[i] || has_rows(i) != of_rows) continue;
      text += packs_of(i, steps());
      loads += "packs_a" + std::to_string(i) + "[u][part] = " + pack_of(i) + ";\n";
    }
    if (loads.empty()) return "";
    return text + "{\nconstexpr int step = 0;\n" +
           (of_rows ? "" : "constexpr bool exists = true;\n") +
           for_steps(steps(), (of_rows ? ranges_text() : "") + loads) + "}\n";
  }

  // Folds as reduce_by_rows of kernels/reduce.h. A phase goes over the row once.
  std::string row_loop() const {
    const std::string all = number(rows());
    std::vector<Phase> phases;
    for (size_t i = 0; i < phases_.count; ++i) phases.push_back(phase(i));
    const std::vector<bool> kept = kept_operands(phases);
    const std::string lanes = number(this->lanes()), block = number(rows_of_block());
    std::string text =
        declared("row", "threadIdx.x / " + lanes) + declared("lane", "threadIdx.x % " + lanes);
    text += loads_of_one() + early_loads(kept, false);
    text += "for (" + index_ + " first = blockIdx.x * " + block + "; first < " + all +
            "; first += gridDim.x * " + block + ") {\nconst bool exists = first + row < " + all +
            ";\n";
    text += coordinates(across_, "row", "(exists ? first + row : first)", 1);
    for (size_t i = 0; i < kept.size(); ++i)
      if (is_of_row(i)) text += load(i);
    text += early_loads(kept, true);
    text += for_each_reduced([](size_t i, const std::string& type, const std::string& fold) {
      return type + " " + total(i) + " = " + fold + "::neutral<" + type + ">();\n";
    });
    for (size_t i = 0; i < phases.size(); ++i) {
      text += rows_before(i) + phase_of_row(phases[i], kept);
      for (const size_t reduction : phases[i].folds) text += end_of_fold(reduction);
    }
    return text + rows_before(phases.size()) + "}\n";
  }

  // As reduce_parts_by_columns of kernels/reduce.h, a pack of columns for each thread. Loads of
  // eight terms wait together.
  std::string column_loop(int64_t parts) const {
    constexpr int64_t kTermLanes = kBlockThreads / kLanes;
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
    const bool is_whole = columns() % (kLanes * pack_) == 0 && rows() % (parts * kTermLanes) == 0;
    text += "#pragma unroll 8\nfor (" + index_ + " u = 0; u < " +
            number((terms + kTermLanes - 1) / kTermLanes) + "; ++u) {\n";
    text += declared("term", "begin + lane + u * " + number(kTermLanes));
    text += is_whole ? "{\n" : "if (exists && term < end) {\n";
    text += coordinates(across_, "row", "term", 1) + pack_of_elements(phase(0)) + "}\n}\n";
    size_t number_of = 0;
    text += for_each_reduced([&](size_t i, const std::string& type, const std::string& fold) {
      const int64_t begin = static_cast<int64_t>(number_of++) * parts;
      return "cuda::for_each_column<" + fold + ">(" + total(i) +
             ", [&](uint32_t other, uint32_t k, " + type + " all) {\nconst " + index_ +
             " of_block = block % " + groups + " * 32 + other;\nif (of_block < " +
             number(columns() / pack_) + ") static_cast<" + type + "*>(parameters.totals)[(" +
             std::to_string(begin) + "l + part) * " + std::to_string(columns()) +
             "l + of_block * " + packs + " + k] = all;\n});\n";
    });
    return text + "}\n";
  }
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
