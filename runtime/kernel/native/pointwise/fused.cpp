// dc.fused: makes the kernel of an instruction with a base::Expression. Each operation is the loop
// of its overload's native kernel, each reduction the folds of its.
#include <algorithm>

#include "runtime/kernel/native/pointwise/fused_reduction.h"
#include "runtime/kernel/native/pointwise/fused_rows.h"
#include "runtime/kernel/native/reductions/reduce.h"

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
template <typename T>
void copy_lanes(const void*, void* out, const void* const* in, int64_t n) {
  std::copy_n(static_cast<const T*>(in[0]), n, static_cast<T*>(out));
}

// Makes the kernel of an instruction with an expression.
class Maker {
 public:
  Maker(Call& call, const Expression& expression) : call_(call), expression_(expression) {}

  base::Result<std::unique_ptr<FusedKernel>> run(ExpressionTensors tensors) {
    bind(std::move(tensors));
    shape_blocks();
    add_index();
    for (size_t i = 0; i < operands_.size(); ++i) add_operand(i);
    DC_ASSIGN_OR_RETURN(fused_->operations, Operations::of(expression_, operands_, true));
    for (size_t i = 0; i < fused_->operations.size(); ++i) {
      const bool folds = base::is_reduction(expression_.operations[i].overload);
      if (const auto range = base::index_range(expression_.operations[i]))
        add_range(*range, i);
      else
        folds ? add_reduction(i) : add(i);
    }
    allocate();
    return std::move(fused_);
  }

 private:
  void bind(ExpressionTensors tensors) {
    operands_ = std::move(tensors.operands);
    results_ = std::move(tensors.results);
    elements_ = tensors.shape.elements;
    fused_->iteration = std::move(tensors.iteration);
    if (tensors.shape.folded.empty()) return;
    auto reduction = std::make_unique<FusedReduction>();
    reduction_ = reduction.get();
    reduction_->by_rows = tensors.shape.by_rows;
    reduction_->across = std::move(tensors.across);
    reduction_->along = std::move(tensors.along);
    fused_ = std::move(reduction);
  }

  // Along a row of elements, and from a row to the next.
  int64_t inner() const {
    return reduction_ != nullptr ? reduction_->along.inner() : fused_->iteration.inner();
  }
  int64_t inner_stride(size_t number) const {
    return reduction_ != nullptr ? reduction_->along.inner_stride(number)
                                 : fused_->iteration.inner_stride(number);
  }
  int64_t outer_stride(size_t number) const {
    return reduction_ != nullptr ? reduction_->across.inner_stride(number)
                                 : fused_->iteration.outer_stride(number);
  }

  void shape_blocks() {
    int64_t row = std::max<int64_t>(1, inner());
    fused_->rows_at_once = std::max<int64_t>(1, kLoopLanes / row);
    if (reduction_ != nullptr) {
      // A row of several parts is folded as one.
      if (reduction_->by_rows && !reduction_->along.is_row()) fused_->rows_at_once = 1;
      row = std::min(row, kBlock);
    }
    const int64_t blocks = (row + kLoopLanes - 1) / kLoopLanes;  // of equal lengths
    fused_->length = std::min(row, ((row + blocks - 1) / blocks + 15) / 16 * 16);
  }

  size_t index_tensor() const { return results_.size() + operands_.size(); }
  void add_index() {
    const size_t number = index_tensor();
    if (expression_.window_dim())
      fused_->index = {nullptr, number, 0, 1, inner_stride(number), outer_stride(number)};
  }

  Side side_of(const BoundTensor& tensor, size_t number, size_t slot) const {
    const int64_t element = base::byte_size(tensor.dtype);
    return {tensor.data,
            number,
            slot,
            element,
            inner_stride(number) * element,
            outer_stride(number) * element};
  }
  // Whether the elements of a block are next to each other.
  bool is_dense(size_t number) const {
    return inner_stride(number) == 1 &&
           (fused_->rows_at_once == 1 || outer_stride(number) == inner());
  }
  static bool is_lane(DType dtype) { return dtype_of(lane_of(dtype)) == dtype; }

  Move move_of(const BoundTensor& tensor, size_t number, size_t slot) const {
    const Lane lane = lane_of(tensor.dtype);
    Move move;
    move.side = side_of(tensor, number, slot);
    move.stride = inner_stride(number);
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
    const auto window = expression_.windows.find(index);
    if (window != expression_.windows.end()) {
      fused_->loads.push_back(windowed(move_of(tensor, number, slot), window->second, index));
    } else if (is_dense(number) && is_lane(tensor.dtype)) {
      fused_->in_place.push_back(side_of(tensor, number, slot));
    } else {
      fused_->loads.push_back(move_of(tensor, number, slot));
    }
  }

  Move windowed(Move move, const base::IndexRange& range, size_t operand) const {
    const BoundTensor& tensor = operands_[operand];
    const size_t dim =
        static_cast<size_t>(range.dim) + tensor.sizes.size() - elements_.size();  // its own
    move.window = {range.begin, range.end, tensor.strides[dim] * move.side.element};
    // It changes with the index too.
    if (fused_->index.stride != 0) move.when = Move::When::EachBlock;
    if (fused_->index.step != 0) move.when = std::min(move.when, Move::When::EachRow);
    return move;
  }

  // As a tensor of the kernel's own, of one byte for each index.
  void add_range(const base::IndexRange& range, size_t value) {
    std::vector<std::byte>& mask =
        fused_->masks.emplace_back(elements_[static_cast<size_t>(range.dim)]);
    std::fill(mask.begin() + range.begin, mask.begin() + range.end, std::byte{1});
    const BoundTensor tensor{mask.data(), DType::Bool, {}, {}};
    size_t slot = new_slot();
    fused_->loads.push_back(move_of(tensor, index_tensor(), slot));
    if (std::ranges::count(expression_.results, value) != 0)
      slot = append({copy_lanes<uint8_t>, nullptr, 0, {slot}});
    value_slots_.push_back(add_value(slot, Lane::Bool, value));
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

  void add_reduction(size_t number) {
    const ExpressionOperation& operation = expression_.operations[number];
    const ExpressionArgument& self = operation.arguments[0];
    const auto index = static_cast<size_t>(self.integer);
    const bool is_value = self.kind == ExpressionArgumentKind::Value;
    size_t slot = is_value ? value_slots_[index] : operand_slots_[index];
    const DType from = is_value ? expression_.operations[index].dtype : operands_[index].dtype;
    const Lane lane = lane_of_reduction(from, operation.dtype);
    if (lane_of(from) != lane)
      slot = append(load_only, {nullptr, loader(lane, dtype_of(lane_of(from)))}, slot);
    call_.require(!operation.overload.starts_with("mean.") || base::is_floating(operation.dtype),
                  "the result of a mean must be floating-point");
    const auto found = std::ranges::find(expression_.results, number);
    const auto result = static_cast<size_t>(found - expression_.results.begin());
    const int64_t count =
        reduction_->by_rows ? reduction_->along.count() : reduction_->across.count();
    FusedReduction::Fold fold;
    fold.fold = fused_fold(operation.overload, lane, count, operation.dtype);
    fold.folded = buffer_of(slot, base::byte_size(dtype_of(lane)));
    fold.result = side_of(results_[result], result, 0);
    fold.stride = reduction_->by_rows ? outer_stride(result) : inner_stride(result);
    fold.store = storer(lane, operation.dtype);
    reduction_->folds.push_back(std::move(fold));
    value_slots_.push_back(0);  // nothing reads it
  }
  // The buffer that the slot's lanes go to. Those that lie elsewhere are copied.
  size_t buffer_of(size_t slot, int64_t lane_bytes) {
    auto& folded = reduction_->folded;
    const auto known = std::ranges::find(folded, slot, &FusedReduction::Folded::slot);
    if (known != folded.end()) return static_cast<size_t>(known - folded.begin());
    const bool is_made = std::ranges::count(fused_->steps, slot, &Step::out) != 0;
    if (!is_made || std::ranges::count(fused_->in_place, slot, &Side::slot) != 0)
      slot = append({lane_bytes == 8 ? copy_lanes<double> : copy_lanes<float>, nullptr, 0, {slot}});
    folded.push_back({slot, lane_bytes});
    return folded.size() - 1;
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
    if (reduction_ != nullptr)
      for (const auto& value : reduction_->folded) is_placed[value.slot] = true;
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
  std::vector<int64_t> elements_;  // the shape of values
  std::vector<size_t> operand_slots_, value_slots_;
  size_t slots_ = 0;
  std::unique_ptr<FusedKernel> fused_ = std::make_unique<FusedKernel>();
  FusedReduction* reduction_ = nullptr;  // `fused_`, where the expression has reductions
};

Made fused(Call& call) {
  DC_ASSIGN_OR_RETURN(const Expression expression, read_expression(call));
  ExpressionTensors tensors = expression_tensors(call, expression, fused_operands(expression));
  if (!call.ok()) return call.made(nullptr);
  call.require(!tensors.shape.elements.empty(), "its values have no dims");
  if (!call.ok()) return call.made(nullptr);
  if (expression.reads_rows()) {
    DC_ASSIGN_OR_RETURN(auto kernel, fused_rows(call, expression, std::move(tensors)));
    return call.made(std::move(kernel));
  }
  DC_ASSIGN_OR_RETURN(auto kernel, fused_kernel(call, expression, std::move(tensors)));
  return call.made(std::move(kernel));
}

constexpr Row kRows[] = {{"dc.fused", fused}};

}  // namespace

base::Result<std::unique_ptr<FusedKernel>> fused_kernel(Call& call, const Expression& expression,
                                                        ExpressionTensors tensors) {
  return Maker(call, expression).run(std::move(tensors));
}

std::span<const Row> fused_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
