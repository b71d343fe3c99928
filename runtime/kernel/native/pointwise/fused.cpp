// dc.fused: makes the kernel of an instruction with a base::Expression. Each operation is the loop
// of its overload's native kernel.
#include <algorithm>

#include "runtime/kernel/native/pointwise/expression_tensors.h"
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

// Makes the kernel of an instruction with an expression.
class Maker {
 public:
  Maker(Call& call, const Expression& expression) : call_(call), expression_(expression) {}

  Made run() {
    bind();
    if (!call_.ok()) return call_.made(nullptr);
    shape_blocks();
    for (size_t i = 0; i < operands_.size(); ++i) add_operand(i);
    DC_ASSIGN_OR_RETURN(fused_->operations, Operations::of(expression_, operands_, true));
    for (size_t i = 0; i < fused_->operations.size(); ++i) add(i);
    allocate();
    return call_.made(std::move(fused_));
  }

 private:
  void bind() {
    ExpressionTensors tensors = expression_tensors(call_, expression_, fused_operands(expression_));
    if (!call_.ok()) return;
    call_.require(!tensors.results[0].sizes.empty(), "its results have no dims");
    operands_ = std::move(tensors.operands);
    results_ = std::move(tensors.results);
    fused_->iteration = std::move(tensors.iteration);
  }

  void shape_blocks() {
    const int64_t inner = std::max<int64_t>(1, fused_->iteration.inner());
    fused_->rows_at_once = std::max<int64_t>(1, kLoopLanes / inner);
    const int64_t blocks = (inner + kLoopLanes - 1) / kLoopLanes;  // of equal lengths
    fused_->length = std::min(inner, ((inner + blocks - 1) / blocks + 15) / 16 * 16);
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

  void add(size_t number) {
    const Pointwise& kernel = fused_->operations[number];
    const Pointwise::Loop loop = kernel.loop();
    Step step{loop.run, loop.context, 0, {}};
    for (size_t i = 0; i < kernel.operands().size(); ++i)
      step.in[i] = operand_of(expression_.operations[number], kernel.operands()[i]);
    value_slots_.push_back(add_value(append(step), loop.result, number));
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

  Call& call_;
  const Expression& expression_;
  std::vector<BoundTensor> operands_, results_;
  std::vector<size_t> operand_slots_, value_slots_;
  size_t slots_ = 0;
  std::unique_ptr<FusedKernel> fused_ = std::make_unique<FusedKernel>();
};

Made fused(Call& call) {
  DC_ASSIGN_OR_RETURN(const Expression expression, read_expression(call));
  return Maker(call, expression).run();
}

constexpr Row kRows[] = {{"dc.fused", fused}};

}  // namespace

std::span<const Row> fused_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
