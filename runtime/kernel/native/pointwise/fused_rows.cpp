#include "runtime/kernel/native/pointwise/fused_rows.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "src/base/expression_phases.h"

namespace dc::runtime::kernel::native {
namespace {

using base::Expression;
using base::ExpressionArgument;
using base::ExpressionArgumentKind;
using base::ExpressionOperation;

// Of the elements that some rows read and write.
constexpr int64_t kBytesAtOnce = int64_t{64} << 10;

// A tensor of a part: one of the whole kernel's (results, then operands), or a row value.
struct Source {
  bool is_row_value = false;
  size_t index = 0;
  bool operator==(const Source&) const = default;
};

// Some of an expression's operations, as an expression that reads no row values but as operands.
struct PartOf {
  Expression expression;
  std::vector<Source> results, operands;
};

class Splitter {
 public:
  explicit Splitter(const Expression& expression)
      : expression_(expression), phases_(base::phases_of(expression)) {}

  std::vector<PartOf> run() const {
    std::vector<PartOf> parts;
    const auto add = [&](PartOf part) {
      if (!part.expression.results.empty()) parts.push_back(std::move(part));
    };
    for (size_t phase = 0; phase < phases_.count; ++phase) {
      add(rows_before(phase));
      add(elements_of(phase));
    }
    add(rows_before(phases_.count));
    return parts;
  }

 private:
  // Where the value lies: in its result, if it is one.
  Source source_of(size_t value) const {
    const auto result = std::ranges::find(expression_.results, value);
    if (result == expression_.results.end()) return {true, value};
    return {false, static_cast<size_t>(result - expression_.results.begin())};
  }
  bool is_result(size_t value) const { return std::ranges::count(expression_.results, value) != 0; }

  // Row values that phases from this one on can read, and earlier ones could not.
  PartOf rows_before(size_t phase) const {
    const size_t count = expression_.operations.size();
    std::vector<bool> stored(count), computed(count);
    for (size_t i = 0; i < count; ++i) {
      const ExpressionOperation& operation = expression_.operations[i];
      if (operation.is_row && phases_.first[i] == phase && is_result(i)) stored[i] = true;
      if (operation.is_row) continue;
      for (const ExpressionArgument& read : operation.arguments) {
        const auto index = static_cast<size_t>(read.integer);
        if (read.kind == ExpressionArgumentKind::Value && expression_.operations[index].is_row &&
            phases_.first[index] == phase)
          stored[index] = true;
      }
    }
    computed = stored;
    for (size_t i = count; i-- > 0;) {
      if (!computed[i]) continue;
      for (const ExpressionArgument& read : expression_.operations[i].arguments) {
        const auto index = static_cast<size_t>(read.integer);
        if (read.kind == ExpressionArgumentKind::Value && expression_.operations[index].is_row)
          computed[index] = true;
      }
    }
    return part_of(computed, stored);
  }

  PartOf elements_of(size_t phase) const {
    std::vector<bool> computed = base::computed_in(expression_, phases_, phase);
    std::vector<bool> stored(computed.size());
    for (size_t i = 0; i < computed.size(); ++i) {
      const bool folds = base::is_reduction(expression_.operations[i].overload);
      if (folds && phases_.of_reduction(i) == phase) computed[i] = stored[i] = true;
      if (!folds && computed[i]) stored[i] = is_result(i) && phases_.first[i] == phase;
    }
    return part_of(computed, stored);
  }

  PartOf part_of(const std::vector<bool>& computed, const std::vector<bool>& stored) const {
    PartOf part;
    std::map<size_t, size_t> inside;
    const auto operand = [&part](Source source) {
      const auto known = std::ranges::find(part.operands, source);
      const auto index = known - part.operands.begin();
      if (known == part.operands.end()) part.operands.push_back(source);
      return index;
    };
    for (size_t i = 0; i < computed.size(); ++i) {
      if (!computed[i]) continue;
      ExpressionOperation operation = expression_.operations[i];
      operation.is_row = false;
      for (ExpressionArgument& read : operation.arguments) {
        const auto index = static_cast<size_t>(read.integer);
        if (read.kind == ExpressionArgumentKind::Operand) {
          read.integer = operand({false, expression_.results.size() + index});
        } else if (read.kind == ExpressionArgumentKind::Value && inside.contains(index)) {
          read.integer = static_cast<int64_t>(inside[index]);
        } else if (read.kind == ExpressionArgumentKind::Value) {
          read.kind = ExpressionArgumentKind::Operand;
          read.integer = operand(source_of(index));
        }
      }
      inside[i] = part.expression.operations.size();
      if (stored[i]) {
        part.expression.results.push_back(inside[i]);
        part.results.push_back(source_of(i));
      }
      part.expression.operations.push_back(std::move(operation));
    }
    return part;
  }

  const Expression& expression_;
  const base::ExpressionPhases phases_;
};

// Makes the parts of a kernel.
class RowsMaker {
 public:
  RowsMaker(Call& call, const Expression& expression, ExpressionTensors tensors)
      : call_(call), expression_(expression), tensors_(std::move(tensors)) {}

  base::Result<std::unique_ptr<FusedRows>> run() {
    made_->across = tensors_.across;
    const int64_t rows = std::min(rows_at_once(), made_->across.inner());
    const std::vector<PartOf> parts = Splitter(expression_).run();
    for (const PartOf& part : parts)
      for (const Source& result : part.results)
        if (result.is_row_value) memory_of(result.index, rows);
    made_->whole.rows = rows;
    made_->rest.rows = made_->across.inner() % rows;
    DC_RETURN_IF_ERROR(add(parts, made_->whole));
    if (made_->rest.rows > 0) DC_RETURN_IF_ERROR(add(parts, made_->rest));
    return std::move(made_);
  }

 private:
  int64_t rows_at_once() const {
    int64_t bytes = 1;  // of a row
    for (size_t t = 0; t < count(); ++t) {
      const auto dims = tensors_.along.dims();
      const bool is_row =
          std::ranges::all_of(dims, [&](const auto& dim) { return dim.strides[t] == 0; });
      if (!is_row) bytes += tensors_.along.count() * base::byte_size(tensor(t).dtype);
    }
    return std::clamp(kBytesAtOnce / bytes, int64_t{1}, kBlock);
  }

  size_t count() const { return tensors_.results.size() + tensors_.operands.size(); }
  const BoundTensor& tensor(size_t t) const {
    const size_t results = tensors_.results.size();
    return t < results ? tensors_.results[t] : tensors_.operands[t - results];
  }

  void memory_of(size_t value, int64_t rows) {
    made_->row_values.emplace_back(static_cast<size_t>(rows));
    memory_[value] = made_->row_values.back().data();
  }

  base::Status add(const std::vector<PartOf>& parts, FusedRows::Parts& to) {
    for (const PartOf& part : parts) {
      const bool is_of_rows = !has_elements(part);
      ExpressionTensors bound = bind(part, to.rows, is_of_rows);
      Expression own = part.expression;
      for (ExpressionOperation& operation : own.operations)
        if (base::is_reduction(operation.overload)) operation.arguments[1].integers = dims();
      FusedRows::Part made;
      for (const std::vector<Source>& sources : {part.results, part.operands})
        for (const Source& source : sources)
          made.tensors.push_back(source.is_row_value ? FusedRows::kNone : source.index);
      DC_ASSIGN_OR_RETURN(made.kernel, fused_kernel(call_, own, std::move(bound)));
      to.parts.push_back(std::move(made));
    }
    return {};
  }

  // Whether it goes over elements: whether it folds or makes results that are no row values.
  bool has_elements(const PartOf& part) const {
    return part.expression.has_reductions() ||
           std::ranges::any_of(part.results, [&](const Source& result) {
             return !result.is_row_value &&
                    !expression_.is_row_value(expression_.results[result.index]);
           });
  }

  // Those that are folded in a part: all but the first.
  std::vector<int64_t> dims() const {
    std::vector<int64_t> dims(std::max<size_t>(tensors_.along.dims().size(), 1));
    std::iota(dims.begin(), dims.end(), 1);
    return dims;
  }

  ExpressionTensors bind(const PartOf& part, int64_t rows, bool is_of_rows) {
    ExpressionTensors bound;
    base::ExpressionShape& shape = bound.shape;
    shape.elements = {rows};
    const auto along = tensors_.along.dims();
    if (!is_of_rows) {
      for (const Iteration::Dim& dim : along) shape.elements.push_back(dim.size);
      if (along.empty()) shape.elements.push_back(1);
    }
    std::vector<std::vector<int64_t>> strides;
    const auto add = [&](const Source& source, std::vector<BoundTensor>& to) {
      std::vector<int64_t> own(shape.elements.size(), 0);
      if (source.is_row_value) {
        to.push_back(
            {memory_.at(source.index), expression_.operations[source.index].dtype, {}, {}});
        own[0] = 1;
      } else {
        to.push_back(tensor(source.index));
        own[0] = tensors_.across.inner_stride(source.index);
        for (size_t dim = 0; dim < along.size() && !is_of_rows; ++dim)
          own[dim + 1] = along[dim].strides[source.index];
      }
      // Of a tensor's sizes counts whether it has any.
      if (source.is_row_value || !to.back().sizes.empty()) to.back().sizes = kSomeSizes;
      strides.push_back(std::move(own));
    };
    for (const Source& result : part.results) add(result, bound.results);
    for (const Source& operand : part.operands) add(operand, bound.operands);
    if (!part.expression.has_reductions()) {
      bound.iteration = Iteration(shape.elements, strides);
      return bound;
    }
    shape.folded.assign(shape.elements.size(), true);
    shape.folded[0] = false;
    shape.first_column = 1;
    std::vector<std::vector<int64_t>> of_rows = strides, of_columns = strides;
    for (auto& own : of_rows) own.resize(1);
    for (auto& own : of_columns) own.erase(own.begin());
    const std::span<const int64_t> sizes = shape.elements;
    bound.across = Iteration(sizes.first(1), of_rows, DimOrder::AsTheyAre);
    bound.along = Iteration(sizes.subspan(1), of_columns, DimOrder::AsTheyAre);
    return bound;
  }

  static constexpr int64_t kSomeSizes[] = {1};

  Call& call_;
  const Expression& expression_;
  const ExpressionTensors tensors_;
  std::map<size_t, double*> memory_;  // by row value
  std::unique_ptr<FusedRows> made_ = std::make_unique<FusedRows>();
};

}  // namespace

base::Status FusedRows::launch(device::Stream& stream) {
  across.for_each_row([&](const Offsets& at) {
    for (int64_t row = 0; row < across.inner();) {
      const Parts& some = row + whole.rows <= across.inner() ? whole : rest;
      for (const Part& part : some.parts) {
        Offsets from{};
        for (size_t t = 0; t < part.tensors.size(); ++t) {
          const size_t own = part.tensors[t];
          if (own != kNone) from[t] = at[own] + row * across.inner_stride(own);
        }
        part.kernel->run_from(stream, from);
      }
      row += some.rows;
    }
  });
  return {};
}

base::Result<std::unique_ptr<FusedRows>> fused_rows(Call& call, const Expression& expression,
                                                    ExpressionTensors tensors) {
  return RowsMaker(call, expression, std::move(tensors)).run();
}

}  // namespace dc::runtime::kernel::native
