#include "src/cost/fused_kernel.h"

#include <algorithm>
#include <span>
#include <string>

#include "src/base/expression_shape.h"
#include "src/base/kernel_items.h"
#include "src/base/shape.h"
#include "src/ir/native_ops.h"

namespace dc::cost {
namespace {

using base::DType;
using base::Expression;
using base::ExpressionArgument;
using base::ExpressionArgumentKind;
using base::TensorMeta;

constexpr double kBlockLanes = 256;  // runtime/kernel/native/lanes.h: kLoopLanes

// A dim of the results, with the step of each tensor along it; results come first.
struct Loop {
  double size = 1;
  std::vector<int64_t> steps;
};

std::string_view body_of(const base::KernelSignature& signature) {
  base::KernelItems items(signature);
  while (const auto item = items.next()) {
    if (item->kind == base::KernelItemKind::String && item->name == "body") return item->text;
  }
  return {};
}

// Steps along the dims of `shape` of a tensor with these sizes, 0 where it is broadcast. Nothing if
// it cannot be.
std::optional<std::vector<int64_t>> steps_of(const TensorMeta& tensor,
                                             std::span<const int64_t> sizes,
                                             std::span<const int64_t> shape) {
  if (sizes.size() > shape.size()) return std::nullopt;
  const size_t added = shape.size() - sizes.size();
  std::vector<int64_t> steps(shape.size());
  for (size_t dim = added; dim < shape.size(); ++dim) {
    const int64_t size = sizes[dim - added];
    if (size != shape[dim] && size != 1) return std::nullopt;
    if (size != 1) steps[dim] = tensor.strides[dim - added];
  }
  return steps;
}

// The operator whose kernel does the work: a power by some numbers is another operator
// (runtime/kernel/native/pointwise/arithmetic.cpp: power_by_number).
std::string working_operator(const base::ExpressionOperation& operation) {
  std::string name = "aten." + operation.overload;
  if (base::index_range(operation)) return "aten.ge.Scalar";
  if (name != "aten.pow.Tensor_Scalar") return name;
  for (const ExpressionArgument& argument : operation.arguments) {
    const bool is_whole = argument.kind == ExpressionArgumentKind::Int;
    if (argument.name != "exponent") continue;
    if (!is_whole && argument.kind != ExpressionArgumentKind::Float) continue;
    const double exponent = is_whole ? static_cast<double>(argument.integer) : argument.number;
    if (exponent == 1) return "aten.clone.default";
    if (exponent == 2 || exponent == 3) return "aten.mul.Tensor";
    if (exponent == 0.5) return "aten.sqrt.default";
    if (exponent == -0.5) return "aten.rsqrt.default";
    if (exponent == -1 || exponent == -2) return "aten.reciprocal.default";
  }
  return name;
}

class FusedDescription {
 public:
  FusedDescription(const base::KernelSignature& signature, const Expression& expression,
                   const KernelTime& time)
      : signature_(signature),
        expression_(expression),
        time_(time),
        tensors_(signature.tensors()) {}

  std::optional<FusedKernel> run() {
    if (!fits()) return std::nullopt;
    if (!walk()) return std::nullopt;
    add_tensors();
    for (size_t i = 0; i < expression_.operations.size(); ++i) {
      if (!add_operation(i)) return std::nullopt;
    }
    return std::move(made_);
  }

 private:
  bool fits() {
    std::vector<std::span<const int64_t>> operands, results;
    for (const TensorMeta& operand : tensors_.inputs) operands.emplace_back(operand.shape);
    for (const std::optional<TensorMeta>& result : tensors_.results) {
      if (!result) return false;
      results.emplace_back(result->shape);
    }
    if (results.empty()) return false;
    const auto shape = base::shape_of(expression_, operands, results);
    if (!shape || shape->elements.empty()) return false;
    shape_ = *shape;
    return true;
  }

  std::span<const int64_t> shape() const { return shape_.elements; }
  bool is_reduction(size_t operation) const {
    return base::is_reduction(expression_.operations[operation].overload);
  }
  std::optional<std::vector<int64_t>> steps(size_t number) const {
    const bool folds =
        number < tensors_.results.size() && expression_.is_row_value(expression_.results[number]);
    const TensorMeta& own = tensor(number);
    if (folds) return base::strides_of_reduced(shape_, own.shape, own.strides);
    if (number < tensors_.results.size()) return steps_of(own, own.shape, shape());
    const size_t operand = number - tensors_.results.size();
    return steps_of(own, base::whole_sizes(expression_, operand, own.shape, shape_), shape());
  }
  size_t count() const { return tensors_.results.size() + tensors_.inputs.size(); }
  const TensorMeta& tensor(size_t number) const {
    const size_t results = tensors_.results.size();
    return number < results ? *tensors_.results[number] : tensors_.inputs[number - results];
  }

  // Dims in the order in which the kernel walks them, those joined that are one for all tensors.
  bool walk() {
    std::vector<std::vector<int64_t>> steps;
    for (size_t i = 0; i < count(); ++i) {
      auto own = this->steps(i);
      if (!own) return false;
      steps.push_back(*std::move(own));
    }
    if (const auto dim = expression_.window_dim()) {  // its indices are counted
      steps.emplace_back(shape().size(), 0);
      steps.back()[static_cast<size_t>(*dim)] = 1;
    }
    std::vector<Loop> dims;
    for (size_t dim = 0; dim < shape().size(); ++dim) {
      if (shape()[dim] == 1) continue;
      Loop loop{static_cast<double>(shape()[dim]), {}};
      for (const std::vector<int64_t>& own : steps) loop.steps.push_back(own[dim]);
      dims.push_back(std::move(loop));
    }
    if (shape_.folded.empty())
      std::ranges::stable_sort(dims, std::ranges::greater(),
                               [](const Loop& dim) { return dim.steps[0]; });
    for (Loop& dim : dims) {
      const auto joins = [&](const Loop& outer) {
        for (size_t i = 0; i < steps.size(); ++i) {
          if (static_cast<double>(outer.steps[i]) != static_cast<double>(dim.steps[i]) * dim.size)
            return false;
        }
        return true;
      };
      if (!loops_.empty() && joins(loops_.back())) {
        loops_.back().size *= dim.size;
        loops_.back().steps = std::move(dim.steps);
      } else {
        loops_.push_back(std::move(dim));
      }
    }
    made_.elements = 1;
    for (const Loop& loop : loops_) made_.elements *= loop.size;
    if (loops_.empty()) loops_.push_back({1, std::vector<int64_t>(steps.size(), 1)});
    const double inner = std::max(loops_.back().size, 1.0);
    rows_at_once_ = std::max(1.0, static_cast<double>(static_cast<int64_t>(kBlockLanes / inner)));
    made_.rows = made_.elements / inner;
    const double parts = static_cast<double>(static_cast<int64_t>((inner - 1) / kBlockLanes) + 1);
    made_.blocks = made_.rows / rows_at_once_ * parts;
    return true;
  }

  void add_tensors() {
    for (size_t i = 0; i < count(); ++i) {
      FusedTensor added;
      added.dtype = tensor(i).dtype;
      added.access = access(i);
      added.bytes = static_cast<double>(base::byte_size(added.dtype));
      for (const Loop& loop : loops_) added.bytes *= loop.steps[i] == 0 ? 1 : loop.size;
      added.bytes *= part_of(i);
      (i < tensors_.results.size() ? made_.results : made_.operands).push_back(added);
    }
  }

  // Of an operand with a window, as much as that is of its dim.
  double part_of(size_t number) const {
    if (number < tensors_.results.size()) return 1;
    const auto window = expression_.windows.find(number - tensors_.results.size());
    if (window == expression_.windows.end()) return 1;
    const base::IndexRange& range = window->second;
    return static_cast<double>(range.end - range.begin) /
           static_cast<double>(shape()[static_cast<size_t>(range.dim)]);
  }

  FusedTensor::Access access(size_t number) const {
    const Loop& inner = loops_.back();
    if (inner.steps[number] == 0) return FusedTensor::Access::Repeated;
    if (inner.steps[number] != 1) return FusedTensor::Access::Strided;
    const bool one_row = rows_at_once_ <= 1 || loops_.size() < 2;
    const bool follow =
        one_row || static_cast<double>(loops_[loops_.size() - 2].steps[number]) == inner.size;
    return follow ? FusedTensor::Access::Dense : FusedTensor::Access::Rows;
  }

  bool add_operation(size_t number) {
    const base::ExpressionOperation& operation = expression_.operations[number];
    const std::string name = "aten." + operation.overload;
    const std::vector<std::string_view>& known = fused_primitives();
    FusedOperation made;
    const bool folds = is_reduction(number);
    if (folds) ++made_.reductions;
    if (!folds) {
      made.primitive = static_cast<size_t>(std::ranges::find(known, working_operator(operation)) -
                                           known.begin());
      if (made.primitive == known.size()) return false;
    }
    made.dtype = made.computes = operation.dtype;
    if (base::index_range(operation)) {  // by itself it would be no kernel
      made_.operations.push_back(std::move(made));
      return true;
    }
    const auto result = std::ranges::find(expression_.results, number);
    made.is_result = result != expression_.results.end();
    const std::vector<int64_t> own_shape = shape_of(number);
    made.written_bytes = static_cast<double>(base::numel(own_shape)) *
                         static_cast<double>(base::byte_size(operation.dtype));
    base::KernelSignature apart(name, base::Provider::Native, signature_.space());
    bool is_first = true;
    for (const ExpressionArgument& argument : operation.arguments) {
      if (!add_argument(argument, number, made, apart)) return false;
      const bool reads = argument.kind == ExpressionArgumentKind::Operand ||
                         argument.kind == ExpressionArgumentKind::Value;
      made.tensors += reads ? 1 : 0;
      if (reads && (is_first || base::is_floating(read_dtype(argument))))
        made.computes = read_dtype(argument);
      is_first = is_first && !reads;
    }
    // What the type of the value says is not in the text.
    if (operation.overload == "_to_copy.default")
      apart.add_attribute("dtype", static_cast<int64_t>(operation.dtype));
    apart.begin_results();
    apart.add_tensor(operation.dtype, own_shape, strides_of(number));
    made.apart = time_(apart);
    made_.operations.push_back(std::move(made));
    return true;
  }

  // Of a value, as the kernels apart would have it.
  std::vector<int64_t> shape_of(size_t value) const {
    std::vector<int64_t> sizes(shape().begin(), shape().end());
    if (!expression_.is_row_value(value)) return sizes;
    const auto result = std::ranges::find(expression_.results, value);
    if (result != expression_.results.end()) {
      const TensorMeta& own = tensor(static_cast<size_t>(result - expression_.results.begin()));
      return {own.shape.begin(), own.shape.end()};
    }
    for (size_t dim = 0; dim < sizes.size(); ++dim)
      if (shape_.folded[dim]) sizes[dim] = 1;
    return sizes;
  }
  std::vector<int64_t> strides_of(size_t value) const {
    const bool is_row = expression_.is_row_value(value);
    const auto result = std::ranges::find(expression_.results, value);
    const bool is_first = !is_row && !expression_.is_row_value(expression_.results[0]);
    if (!is_first && (!is_row || result == expression_.results.end()))
      return base::contiguous_strides(shape_of(value));
    const size_t of = is_first ? 0 : static_cast<size_t>(result - expression_.results.begin());
    const std::span<const int64_t> strides = tensors_.results[of]->strides;
    return {strides.begin(), strides.end()};
  }

  DType read_dtype(const ExpressionArgument& argument) const {
    const auto number = static_cast<size_t>(argument.integer);
    return argument.kind == ExpressionArgumentKind::Value ? made_.operations[number].dtype
                                                          : tensors_.inputs[number].dtype;
  }

  bool add_argument(const ExpressionArgument& argument, size_t operation, FusedOperation& made,
                    base::KernelSignature& apart) {
    const auto number = static_cast<size_t>(argument.integer);
    switch (argument.kind) {
      case ExpressionArgumentKind::None:
        apart.add_attribute(argument.name);
        return true;
      case ExpressionArgumentKind::Operand: {
        const TensorMeta& read = tensors_.inputs[number];
        // With zeros around its window, as the kernel apart would read it.
        apart.add_tensor(read.dtype, base::whole_sizes(expression_, number, read.shape, shape_),
                         read.strides);
        made.read_bytes += made_.operands[number].bytes;
        made.streams += made_.is_stream(made_.operands[number]) ? 1 : 0;
        return true;
      }
      case ExpressionArgumentKind::Value: {
        if (number >= operation) return false;
        const DType dtype = made_.operations[number].dtype;
        apart.add_tensor(dtype, shape_of(number), strides_of(number));
        made.read_bytes += made_.operations[number].written_bytes;
        made.reads.push_back(number);
        return true;
      }
      case ExpressionArgumentKind::Bool:
      case ExpressionArgumentKind::Int:
        apart.add_attribute(argument.name, argument.integer);
        return true;
      case ExpressionArgumentKind::Float:
        apart.add_attribute(argument.name, argument.number);
        return true;
      case ExpressionArgumentKind::Word:
        apart.add_attribute(argument.name, std::string_view(argument.word));
        return true;
      case ExpressionArgumentKind::Ints:
        apart.add_attribute(argument.name, std::span<const int64_t>(argument.integers));
        return true;
    }
    return false;
  }

  const base::KernelSignature& signature_;
  const Expression& expression_;
  const KernelTime& time_;
  const base::KernelTensors tensors_;
  base::ExpressionShape shape_;
  std::vector<Loop> loops_;  // outermost first, never empty after walk()
  double rows_at_once_ = 1;
  FusedKernel made_;
};

}  // namespace

const std::vector<std::string_view>& fused_primitives() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> list;
    for (const ir::NativeOp& op : ir::native_ops()) {
      if (op.is_elementwise) list.push_back(op.overload);
    }
    return list;
  }();
  return names;
}

double FusedKernel::bytes() const {
  double sum = 0;
  for (const FusedTensor& operand : operands) sum += operand.bytes;
  for (const FusedTensor& result : results) sum += result.bytes;
  return sum;
}

bool FusedKernel::is_stream(const FusedTensor& operand) const {
  return operand.bytes == elements * static_cast<double>(base::byte_size(operand.dtype));
}

base::Nanos closed_form_time(const FusedKernel& kernel, base::Nanos start, double bytes_per_ns) {
  const auto once = static_cast<double>(start.v);
  double apart = 0, together = once + kernel.bytes() / bytes_per_ns;
  for (const FusedOperation& operation : kernel.operations) {
    const auto time = static_cast<double>(operation.apart.time.v);
    const double moving = (operation.read_bytes + operation.written_bytes) / bytes_per_ns;
    apart += time;
    together += std::max(time - once - moving, 0.0);
  }
  return {static_cast<int64_t>(std::min({apart, together, 1e15}))};
}

std::optional<FusedKernel> describe_fused(const base::KernelSignature& signature,
                                          const KernelTime& time) {
  if (signature.provider() != base::Provider::Fused) return std::nullopt;
  const base::Result<Expression> expression = Expression::parse(body_of(signature));
  if (!expression.ok()) return std::nullopt;
  return FusedDescription(signature, *expression, time).run();
}

}  // namespace dc::cost
