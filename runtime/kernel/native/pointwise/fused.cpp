// dc.fused: makes the kernel of an instruction with a base::Expression. Each operation is the loop
// of its overload's native kernel.
#include <algorithm>

#include "runtime/kernel/native/pointwise/fused_kernel.h"

namespace dc::runtime::kernel::native {
namespace {

using base::DType;
using base::Expression;
using base::ExpressionArgument;
using base::ExpressionArgumentKind;
using base::ExpressionOperation;
using Conversion = FusedKernel::Conversion;
using Move = FusedKernel::Move;
using Side = FusedKernel::Side;
using Step = FusedKernel::Step;

void convert(const void* context, void* out, const void* const* in, int64_t n) {
  const auto& conversion = *static_cast<const Conversion*>(context);
  alignas(64) std::byte memory[FusedKernel::kRegisterBytes];
  conversion.store(memory, 1, in[0], n);
  conversion.load(out, memory, 1, n);
}
void load_only(const void* context, void* out, const void* const* in, int64_t n) {
  static_cast<const Conversion*>(context)->load(out, in[0], 1, n);
}
void store_only(const void* context, void* out, const void* const* in, int64_t n) {
  static_cast<const Conversion*>(context)->store(out, 1, in[0], n);
}

// What copies and conversions do to each lane.
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
    shape_blocks();
    describe();
    for (size_t i = 0; i < operands_.size(); ++i) add_operand(i);
    for (const ExpressionOperation& operation : expression_.operations)
      DC_RETURN_IF_ERROR(add(operation));
    allocate();
    return call_.made(std::move(fused_));
  }

 private:
  void bind() {
    const size_t count = expression_.operands();
    call_.require(call_.tensor_count() == count && call_.outputs() == expression_.results.size(),
                  "its expression has other numbers of operands or results");
    for (size_t i = 0; i < count; ++i) operands_.push_back(call_.tensor("a" + std::to_string(i)));
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
      auto own = broadcast_strides(operand, results_[0].sizes);
      call_.require(own.has_value(), "an operand cannot be broadcast to the shape of the results");
      if (!call_.ok()) return;
      strides.push_back(*std::move(own));
    }
    fused_->iteration = Iteration(results_[0].sizes, strides);
    call_.require(fused_->iteration.fits(), "its tensors have too many dims");
  }

  void shape_blocks() {
    const int64_t inner = std::max<int64_t>(1, fused_->iteration.inner());
    fused_->rows_at_once = std::max<int64_t>(1, kLoopLanes / inner);
    const int64_t blocks = (inner + kLoopLanes - 1) / kLoopLanes;  // of equal lengths
    fused_->length = std::min(inner, ((inner + blocks - 1) / blocks + 15) / 16 * 16);
  }

  // The tensors that kernels of operations are made for. What counts is their element types, and
  // whether they have dims.
  void describe() {
    const auto add = [this](DType dtype, bool has_dims) {
      plan::Tensor& tensor = described_.tensors.emplace_back();
      tensor.dtype = dtype;
      if (has_dims) tensor.sizes = {kLoopLanes}, tensor.strides = {1};
      tensor.slice = 0;
    };
    for (const BoundTensor& operand : operands_) add(operand.dtype, !operand.sizes.empty());
    for (const ExpressionOperation& operation : expression_.operations) add(operation.dtype, true);
    described_.slices.emplace_back();
  }

  Side side_of(const BoundTensor& tensor, size_t number, size_t slot) const {
    const int64_t element = base::byte_size(tensor.dtype);
    return {tensor.data,
            number,
            slot,
            element,
            fused_->iteration.inner_stride(number) * element,
            fused_->iteration.outer_stride(number) * element};
  }
  // Whether the elements of a block are next to each other.
  bool is_dense(size_t number) const {
    const Iteration& iteration = fused_->iteration;
    return iteration.inner_stride(number) == 1 &&
           (fused_->rows_at_once == 1 || iteration.outer_stride(number) == iteration.inner());
  }
  static bool is_lane(DType dtype) { return dtype_of(lane_of(dtype)) == dtype; }

  Move move_of(const BoundTensor& tensor, size_t number, size_t slot) const {
    const Lane lane = lane_of(tensor.dtype);
    Move move;
    move.side = side_of(tensor, number, slot);
    move.stride = fused_->iteration.inner_stride(number);
    move.load = loader(lane, tensor.dtype);
    move.store = storer(lane, tensor.dtype);
    move.lane_bytes = base::byte_size(dtype_of(lane));
    if (move.stride == 1) move.copy = row_copier(tensor.dtype);
    if (move.stride == 0 && fused_->rows_at_once == 1) move.when = Move::When::EachRow;
    if (move.stride == 0 && move.side.step == 0) move.when = Move::When::EachPlane;
    return move;
  }

  void add_operand(size_t index) {
    const BoundTensor& tensor = operands_[index];
    const size_t number = results_.size() + index, slot = new_slot();
    operand_slots_.push_back(slot);
    if (is_dense(number) && is_lane(tensor.dtype)) {
      fused_->in_place.push_back(side_of(tensor, number, slot));
    } else {
      fused_->loads.push_back(move_of(tensor, number, slot));
    }
  }

  // The slot of a value, made from the lanes that its operation returns. A result without gaps is
  // rounded where it is stored.
  size_t add_value(size_t slot, Lane lane, size_t value) {
    const DType dtype = expression_.operations[value].dtype;
    const auto result = std::ranges::find(expression_.results, value);
    if (result == expression_.results.end()) return rounded(slot, lane, dtype);
    const auto number = static_cast<size_t>(result - expression_.results.begin());
    if (!is_dense(number)) {
      slot = rounded(slot, lane, dtype);
      fused_->stores.push_back(move_of(results_[number], number, slot));
      return slot;
    }
    if (lane_of(dtype) != lane || !is_lane(dtype))
      slot = append(store_only, {storer(lane, dtype), nullptr}, slot);
    fused_->in_place.push_back(side_of(results_[number], number, slot));
    const bool is_read = std::ranges::any_of(expression_.operations, [&](const auto& operation) {
      return std::ranges::any_of(operation.arguments, [&](const ExpressionArgument& argument) {
        return argument.kind == ExpressionArgumentKind::Value &&
               static_cast<size_t>(argument.integer) == value;
      });
    });
    if (is_lane(dtype) || !is_read) return slot;
    return append(load_only, {nullptr, loader(lane_of(dtype), dtype)}, slot);
  }

  size_t new_slot() { return slots_++; }

  base::Status add(const ExpressionOperation& operation) {
    const size_t number = value_slots_.size();
    plan::Instruction instruction;
    instruction.op = "aten." + operation.overload;
    for (const ExpressionArgument& argument : operation.arguments)
      instruction.args.push_back(argument_of(argument));
    instruction.outputs = {static_cast<int32_t>(operands_.size() + number)};
    const Factory factory = factory_of(instruction.op);
    if (factory == nullptr) {
      return base::Status(base::ErrorKind::Unsupported, "DC6131",
                          "there is no native kernel named '" + instruction.op +
                              "' for fused kernels; compile the plan with the dcc that belongs to "
                              "this dcrun");
    }
    const AddressMap nowhere(described_, nullptr, 0);
    Call call(instruction, nowhere, nullptr);
    Made made = factory(call);
    if (!made.ok()) {
      return std::move(made).status().add_context("in operation t" + std::to_string(number) +
                                                  " of a fused kernel");
    }
    const auto* kernel = dynamic_cast<const Pointwise*>(made->get());
    DC_CHECK(kernel != nullptr);
    const Pointwise::Loop loop = kernel->loop();
    Step step{loop.run, loop.context, 0, {}};
    for (size_t i = 0; i < kernel->operands().size(); ++i)
      step.in[i] = operand_of(operation, kernel->operands()[i]);
    fused_->kernels.push_back(std::move(*made));
    value_slots_.push_back(add_value(append(step), loop.result, number));
    return {};
  }

  size_t append(Step step) {
    step.out = new_slot();
    fused_->steps.push_back(step);
    return step.out;
  }
  size_t append(LoopOverLanes run, const Conversion& conversion, size_t from) {
    fused_->conversions.push_back(conversion);
    return append(Step{run, &fused_->conversions.back(), 0, {from}});
  }

  static Conversion through(Lane lane, DType dtype) {
    return {storer(lane, dtype), loader(lane, dtype)};
  }

  // The slot of lanes of `dtype`, made from those of another lane or with more bits.
  size_t rounded(size_t slot, Lane lane, DType dtype) {
    const Lane to = lane_of(dtype);
    if (lane == to && dtype_of(to) == dtype) return slot;
    if (dtype_of(to) == dtype) return append(store_only, {storer(lane, dtype), nullptr}, slot);
    if (const LoopOverLanes round = rounder(lane, dtype))
      return append(Step{round, nullptr, 0, {slot}});
    return append(convert, {storer(lane, dtype), loader(to, dtype)}, slot);
  }

  // The slot of an operation's operand, in the lanes that it computes with.
  size_t operand_of(const ExpressionOperation& operation, const PointwiseOperand& operand) {
    if (!operand.tensor) return number_of(operand);
    const auto argument =
        std::ranges::find(operation.arguments, operand.name, &ExpressionArgument::name);
    const auto index = static_cast<size_t>(argument->integer);
    const bool is_value = argument->kind == ExpressionArgumentKind::Value;
    size_t slot = is_value ? value_slots_[index] : operand_slots_[index];
    const Lane lane = lane_of(operand.tensor->dtype);
    if (lane != operand.lane)
      slot = append(load_only, {nullptr, loader(operand.lane, dtype_of(lane))}, slot);
    if (operand.rounded_to)
      slot = append(convert, through(operand.lane, *operand.rounded_to), slot);
    return slot;
  }
  size_t number_of(const PointwiseOperand& operand) {
    std::byte* lanes = fused_->numbers.emplace_back().lanes.data();
    loader(operand.lane, dtype_of(operand.lane))(lanes, operand.number.data(), 0, kLoopLanes);
    if (operand.rounded_to) {
      const Conversion conversion = through(operand.lane, *operand.rounded_to);
      const void* from = lanes;
      convert(&conversion, lanes, &from, kLoopLanes);
    }
    fused_->fixed.emplace_back(new_slot(), lanes);
    return fused_->fixed.back().first;
  }

  // Gives slots registers: one that nothing reads any more, else a new one.
  void allocate() {
    call_.require(slots_ <= FusedKernel::kMostSlots, "its expression is too large");
    if (!call_.ok()) return;
    const size_t end = fused_->steps.size();
    std::vector<size_t> last_read(slots_, 0);
    for (size_t i = 0; i < end; ++i)
      for (const size_t slot : fused_->steps[i].in) last_read[slot] = i;
    std::vector<bool> is_placed(slots_);
    for (const auto& [slot, lanes] : fused_->fixed) is_placed[slot] = true;
    for (const Side& side : fused_->in_place) is_placed[side.slot] = true;
    for (const Move& store : fused_->stores) last_read[store.side.slot] = end;
    std::vector<size_t> busy_until;  // of each register
    const auto place = [&](size_t slot, size_t from, size_t until) {
      if (is_placed[slot]) return;
      is_placed[slot] = true;
      auto free = std::ranges::find_if(busy_until, [&](size_t last) { return last < from; });
      if (free == busy_until.end()) free = busy_until.insert(free, 0);
      *free = until;
      fused_->registers.emplace_back(slot, static_cast<size_t>(free - busy_until.begin()));
    };
    for (const Move& load : fused_->loads) {
      const bool stays = load.when != Move::When::EachBlock;
      place(load.side.slot, 0, stays ? end : last_read[load.side.slot]);
    }
    for (size_t i = 0; i < end; ++i)
      place(fused_->steps[i].out, i, last_read[fused_->steps[i].out]);
    call_.require(busy_until.size() <= FusedKernel::kMostRegisters, "its expression is too large");
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
  plan::Plan described_;  // the tensors of operations: operands, then values
  std::vector<size_t> operand_slots_, value_slots_;
  size_t slots_ = 0;
  std::unique_ptr<FusedKernel> fused_ = std::make_unique<FusedKernel>();
};

Made fused(Call& call) {
  auto expression = Expression::parse(call.text("body", ""));
  if (!expression.ok())
    return std::move(expression)
        .status()
        .add_context("recompile the plan with the dcc that belongs to this dcrun");
  return Maker(call, *expression).run();
}

constexpr Row kRows[] = {{"dc.fused", fused}};

}  // namespace

std::span<const Row> fused_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
