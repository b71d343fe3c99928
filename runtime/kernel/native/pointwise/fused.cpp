// Fused kernels: the operations of a base::Expression, block by block.
//
// A block is a part of a row, or several short rows, of all operands and results at once: few
// enough elements for every value to stay in the first-level cache. Each operation is the native
// kernel of its overload, run on a block; values lie in registers of a block each, in their element
// type, so they are rounded as if they were stored. Operands without gaps are read, and results
// written, where they are.
#include <algorithm>
#include <cstring>

#include "runtime/kernel/native/pointwise/pointwise.h"
#include "src/base/expression.h"
#include "src/base/shape.h"

namespace dc::runtime::kernel::native {
namespace {

using base::Expression;
using base::ExpressionArgument;
using base::ExpressionArgumentKind;
using base::ExpressionOperation;

// Bytes of all registers: three quarters of a usual first-level cache, and what they may need at
// most, with the shortest blocks.
constexpr int64_t kRegisterBytes = 24 << 10;
constexpr int64_t kShortestBlock = 64;
constexpr int64_t kMostRegisterBytes =
    (Expression::kMostOperations + Expression::kMostTensors) * 8 * kShortestBlock;

// The same element of every row comes `stride` elements after the one before it, the same of the
// next row `step` elements later.
struct Rows {
  int64_t rows = 1, length = 0, step = 0, stride = 1;
  bool is_dense() const { return stride == 1 && (rows == 1 || step == length); }
};

template <typename T>
void gather_as(std::byte* to, const std::byte* from, const Rows& shape) {
  auto* out = reinterpret_cast<T*>(to);
  for (int64_t row = 0; row < shape.rows; ++row, out += shape.length) {
    const T* in = reinterpret_cast<const T*>(from) + row * shape.step;
    if (shape.stride == 1) {
      std::memcpy(out, in, static_cast<size_t>(shape.length) * sizeof(T));
    } else if (shape.stride == 0) {
      std::fill_n(out, shape.length, *in);
    } else {
      for (int64_t i = 0; i < shape.length; ++i) out[i] = in[i * shape.stride];
    }
  }
}
template <typename T>
void scatter_as(std::byte* to, const std::byte* from, const Rows& shape) {
  const auto* in = reinterpret_cast<const T*>(from);
  for (int64_t row = 0; row < shape.rows; ++row, in += shape.length) {
    T* out = reinterpret_cast<T*>(to) + row * shape.step;
    for (int64_t i = 0; i < shape.length; ++i) out[i * shape.stride] = in[i];
  }
}
using MoveRows = void (*)(std::byte* to, const std::byte* from, const Rows& shape);
MoveRows gatherer(int64_t element) {
  return element == 1   ? gather_as<uint8_t>
         : element == 2 ? gather_as<uint16_t>
         : element == 4 ? gather_as<uint32_t>
                        : gather_as<uint64_t>;
}
MoveRows scatterer(int64_t element) {
  return element == 1   ? scatter_as<uint8_t>
         : element == 2 ? scatter_as<uint16_t>
         : element == 4 ? scatter_as<uint32_t>
                        : scatter_as<uint64_t>;
}

// One operation. Where its operands lie: an operand of the kernel, or a value before it.
struct Step {
  std::unique_ptr<Kernel> owner;
  const Pointwise* kernel = nullptr;
  struct Source {
    bool is_value = false;
    size_t index = 0;
  };
  std::vector<Source> sources;  // of each operand of the kernel; counts where it is a tensor
};

// An operand or a result.
struct Side {
  void* data = nullptr;
  int64_t element = 1;   // bytes
  size_t tensor = 0;     // of the iteration
  int64_t stride = 1;    // along a row
  bool is_one = false;   // one element for a whole block
  size_t value = 0;      // of a result
  MoveRows move = nullptr;
  int64_t place = 0;     // of an operand's register
};

class Fused final : public Kernel {
 public:
  Iteration iteration;
  std::vector<Side> operands, results;
  std::vector<Step> steps;
  std::vector<int64_t> places;      // of each value's register
  std::vector<size_t> result_of;    // of each value; kNone
  int64_t block = 0;                // elements
  static constexpr size_t kNone = static_cast<size_t>(-1);

  base::Status launch(device::Stream& stream) override {
    Bases bases;
    for (size_t i = 0; i < operands.size(); ++i)
      bases.operands[i] = static_cast<std::byte*>(stream.resolve(operands[i].data));
    for (size_t i = 0; i < results.size(); ++i)
      bases.results[i] = static_cast<std::byte*>(stream.resolve(results[i].data));
    const int64_t length = iteration.inner();
    const int64_t rows_at_once = std::max<int64_t>(1, block / std::max<int64_t>(1, length));
    alignas(64) std::byte registers[kMostRegisterBytes];
    iteration.for_each_plane([&](const Offsets& offsets, int64_t rows, const Offsets& row_steps) {
      for (int64_t row = 0; row < rows; row += rows_at_once) {
        const int64_t count = std::min(rows_at_once, rows - row);
        const int64_t most = rows_at_once == 1 ? std::min(block, length) : length;
        for (int64_t first = 0; first < length; first += most) {
          const Rows shape{count, std::min(most, length - first), 0, 1};
          const auto at = [&](std::byte* base, const Side& side) {
            const int64_t offset = offsets[side.tensor] + row * row_steps[side.tensor];
            return base + (offset + first * side.stride) * side.element;
          };
          run_block(bases, at, row_steps, shape, registers);
        }
      }
    });
    return {};
  }

 private:
  struct Bases {
    std::array<std::byte*, Expression::kMostTensors> operands{}, results{};
  };

  template <typename At>
  void run_block(const Bases& bases, const At& at, const Offsets& row_steps, const Rows& shape,
                 std::byte* registers) const {
    std::array<const std::byte*, Expression::kMostTensors> operand_at{};
    std::array<std::byte*, Expression::kMostOperations> value_at{};
    for (size_t i = 0; i < operands.size(); ++i) {
      const Side& side = operands[i];
      const std::byte* from = at(bases.operands[i], side);
      const Rows there{shape.rows, shape.length, row_steps[side.tensor], side.stride};
      operand_at[i] = from;
      if (side.is_one || there.is_dense()) continue;
      std::byte* to = registers + side.place * block;
      side.move(to, from, there);
      operand_at[i] = to;
    }
    const int64_t n = shape.rows * shape.length;
    for (size_t i = 0; i < steps.size(); ++i) {
      value_at[i] = registers + places[i] * block;
      const Side* result = result_of[i] == kNone ? nullptr : &results[result_of[i]];
      std::byte* to = result == nullptr ? nullptr : at(bases.results[result_of[i]], *result);
      Rows there = shape;
      if (result != nullptr) there.step = row_steps[result->tensor], there.stride = result->stride;
      if (result != nullptr && there.is_dense()) value_at[i] = to;
      std::array<const std::byte*, 3> in{};
      for (size_t j = 0; j < steps[i].sources.size(); ++j) {
        const Step::Source& source = steps[i].sources[j];
        in[j] = source.is_value ? value_at[source.index] : operand_at[source.index];
      }
      steps[i].kernel->block(value_at[i], in, n);
      if (result != nullptr && !there.is_dense()) result->move(to, value_at[i], there);
    }
  }
};

// What copies and conversions do to each element.
template <typename T>
struct Same {
  static constexpr std::array<std::string_view, 1> kNames{"self"};
  explicit Same(Call&) {}
  T operator()(T x) const { return x; }
};
constexpr Row kConversions[] = {
    {"aten._to_copy.default", pointwise<Same>},
    {"aten.clone.default", pointwise<Same>},
};

Factory factory_of(std::string_view op) {
  for (const std::span<const Row> rows : {activation_kernels(), arithmetic_kernels(),
                                          choice_kernels(), std::span<const Row>(kConversions)}) {
    const auto row = std::ranges::find_if(rows, [&](const Row& each) { return each.op == op; });
    if (row != rows.end()) return row->factory;
  }
  return nullptr;
}

// Makes the kernel of an instruction with an expression.
class Maker {
 public:
  Maker(Call& call, const Expression& expression) : call_(call), expression_(expression) {}

  Made run() {
    bind();
    if (!call_.ok()) return call_.made(nullptr);
    fused_->block = block_length();
    describe_sides();
    for (const ExpressionOperation& operation : expression_.operations)
      DC_RETURN_IF_ERROR(add(operation));
    return call_.made(std::move(fused_));
  }

 private:
  void bind() {
    const size_t count = expression_.operands();
    call_.require(call_.tensor_count() == count && call_.outputs() == expression_.results.size(),
                  "its expression has other numbers of operands or results");
    for (size_t i = 0; i < count; ++i)
      operands_.push_back(call_.tensor("a" + std::to_string(i)));
    for (size_t i = 0; i < expression_.results.size(); ++i) {
      results_.push_back(call_.output(i));
      if (!call_.ok()) return;
      call_.same_sizes(results_[0], results_[i]);
      call_.require(results_[i].dtype == expression_.operations[expression_.results[i]].dtype,
                    "a result has another element type than its value");
    }
    if (!call_.ok()) return;
    call_.require(!results_[0].sizes.empty(), "its results have no dims");
    std::vector<std::vector<int64_t>> strides;
    for (const BoundTensor& result : results_)
      strides.emplace_back(result.strides.begin(), result.strides.end());
    for (const BoundTensor& operand : operands_) {
      strides.push_back(broadcast_strides(operand, results_[0].sizes));
      call_.require(strides.back().size() == results_[0].sizes.size(),
                    "an operand cannot be broadcast to the shape of the results");
    }
    if (!call_.ok()) return;
    fused_->iteration = Iteration(results_[0].sizes, strides);
    call_.require(fused_->iteration.fits(), "its tensors have too many dims");
  }

  // Each operand has a register, in case it has gaps; a value takes one that nothing reads any more.
  int64_t block_length() {
    int64_t bytes = 0;  // of an element of every register
    for (const BoundTensor& operand : operands_) {
      operand_places_.push_back(bytes);
      bytes += base::byte_size(operand.dtype);
    }
    std::vector<size_t> last_read(expression_.operations.size());
    for (size_t i = 0; i < expression_.operations.size(); ++i) {
      last_read[i] = std::max(last_read[i], i);
      for (const ExpressionArgument& argument : expression_.operations[i].arguments) {
        if (argument.kind == ExpressionArgumentKind::Value)
          last_read[static_cast<size_t>(argument.integer)] = i;
      }
    }
    struct Register {
      int64_t place = 0, element = 0;
      size_t busy_until = 0;
    };
    std::vector<Register> registers;
    for (size_t i = 0; i < expression_.operations.size(); ++i) {
      const int64_t element = base::byte_size(expression_.operations[i].dtype);
      auto free = std::ranges::find_if(registers, [&](const Register& one) {
        return one.element == element && one.busy_until < i;
      });
      if (free == registers.end()) {
        registers.push_back({bytes, element, 0});
        bytes += element;
        free = registers.end() - 1;
      }
      free->busy_until = last_read[i];
      fused_->places.push_back(free->place);
    }
    const int64_t length = kRegisterBytes / std::max<int64_t>(bytes, 1) / kShortestBlock;
    return std::clamp(length * kShortestBlock, kShortestBlock, kBlock);
  }

  void describe_sides() {
    const bool long_rows = fused_->iteration.inner() > fused_->block / 2;
    fused_->result_of.assign(expression_.operations.size(), Fused::kNone);
    for (size_t i = 0; i < results_.size(); ++i) {
      Side side = side_of(results_[i], i);
      side.value = expression_.results[i];
      side.move = scatterer(side.element);
      fused_->result_of[side.value] = i;
      fused_->results.push_back(side);
    }
    for (size_t i = 0; i < operands_.size(); ++i) {
      Side side = side_of(operands_[i], results_.size() + i);
      side.is_one = operands_[i].numel() == 1 || (long_rows && side.stride == 0);
      side.move = gatherer(side.element);
      side.place = operand_places_[i];
      fused_->operands.push_back(side);
      tensors_.push_back(in_block(operands_[i].dtype, side.is_one, operands_[i].sizes.empty()));
    }
    for (const ExpressionOperation& operation : expression_.operations)
      tensors_.push_back(in_block(operation.dtype, false, false));
  }

  Side side_of(const BoundTensor& tensor, size_t number) const {
    Side side;
    side.data = tensor.data;
    side.element = base::byte_size(tensor.dtype);
    side.tensor = number;
    side.stride = fused_->iteration.inner_stride(number);
    return side;
  }

  // A tensor as an operation sees it, of a block.
  static plan::Tensor in_block(base::DType dtype, bool is_one, bool without_dims) {
    plan::Tensor tensor;
    tensor.dtype = dtype;
    if (!without_dims) tensor.sizes = {is_one ? 1 : kBlock};
    if (!without_dims) tensor.strides = {1};
    tensor.slice = 0;
    return tensor;
  }

  base::Status add(const ExpressionOperation& operation) {
    plan::Instruction instruction;
    instruction.op = "aten." + operation.overload;
    Step step;
    for (const ExpressionArgument& argument : operation.arguments)
      instruction.args.push_back(argument_of(argument));
    const size_t number = fused_->steps.size();
    instruction.outputs = {static_cast<int32_t>(operands_.size() + number)};
    const Factory factory = factory_of(instruction.op);
    if (factory == nullptr) {
      return base::Status(base::ErrorKind::Unsupported, "DC6131",
                          "there is no native kernel named '" + instruction.op +
                              "' for fused kernels; compile the plan with the dcc that belongs to "
                              "this dcrun");
    }
    plan::Plan block;
    block.tensors = tensors_;
    block.slices.emplace_back();
    const AddressMap nowhere(block, nullptr, 0);
    Call call(instruction, nowhere, nullptr);
    Made made = factory(call);
    if (!made.ok()) {
      return std::move(made).status().add_context("in operation t" + std::to_string(number) +
                                                  " of a fused kernel");
    }
    step.owner = std::move(*made);
    step.kernel = dynamic_cast<const Pointwise*>(step.owner.get());
    DC_CHECK(step.kernel != nullptr);
    for (size_t i = 0; i < step.kernel->operand_count(); ++i)
      step.sources.push_back(source_of(operation, step.kernel->operand_name(i)));
    fused_->steps.push_back(std::move(step));
    return {};
  }

  static Step::Source source_of(const ExpressionOperation& operation, std::string_view name) {
    const auto argument = std::ranges::find(operation.arguments, name, &ExpressionArgument::name);
    if (argument == operation.arguments.end()) return {};
    return {argument->kind == ExpressionArgumentKind::Value,
            static_cast<size_t>(argument->integer)};
  }

  plan::Arg argument_of(const ExpressionArgument& argument) const {
    plan::Arg arg;
    arg.name = argument.name;
    arg.i = argument.integer;
    arg.f = argument.number;
    arg.s = argument.word;
    switch (argument.kind) {
      case ExpressionArgumentKind::None:
        arg.kind = plan::ArgKind::None;
        break;
      case ExpressionArgumentKind::Operand:
        arg.kind = plan::ArgKind::Tensor;
        break;
      case ExpressionArgumentKind::Value:
        arg.kind = plan::ArgKind::Tensor;
        arg.i += static_cast<int64_t>(operands_.size());
        break;
      case ExpressionArgumentKind::Bool:
        arg.kind = plan::ArgKind::Bool;
        break;
      case ExpressionArgumentKind::Int:
        arg.kind = plan::ArgKind::Int;
        break;
      case ExpressionArgumentKind::Float:
        arg.kind = plan::ArgKind::Float;
        break;
      case ExpressionArgumentKind::Word:
        arg.kind = plan::ArgKind::String;
        break;
    }
    return arg;
  }

  Call& call_;
  const Expression& expression_;
  std::vector<BoundTensor> operands_, results_;
  std::vector<int64_t> operand_places_;
  std::vector<plan::Tensor> tensors_;
  std::unique_ptr<Fused> fused_ = std::make_unique<Fused>();
};

Made fused(Call& call) {
  DC_ASSIGN_OR_RETURN(const Expression expression, Expression::parse(call.text("body", "")));
  return Maker(call, expression).run();
}

constexpr Row kRows[] = {{"dc.fused", fused}};

}  // namespace

std::span<const Row> fused_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
