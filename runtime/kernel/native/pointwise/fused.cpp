// Fused kernels: the operations of a base::Expression, block by block.
//
// A block is a part of a row, or several short rows. So few elements keep the processor's reads of
// all operands going while it computes, and every value in the first-level cache. Values lie in
// registers of one block each, as lanes rounded to their element type: their bits are those that
// the kernels apart store and load. Each operation is the loop of its overload's kernel. Lanes of
// operands and results that are next to each other in memory are read and written where they are.
#include <algorithm>
#include <deque>

#include "runtime/kernel/native/pointwise/pointwise.h"
#include "src/base/expression.h"
#include "src/base/shape.h"

namespace dc::runtime::kernel::native {
namespace {

using base::DType;
using base::Expression;
using base::ExpressionArgument;
using base::ExpressionArgumentKind;
using base::ExpressionOperation;

// Values, operands in registers, and at each operation what converts its operands.
constexpr size_t kMostRegisters = Expression::kMostOperations + Expression::kMostTensors + 8;
constexpr int64_t kRegisterBytes = kLoopLanes * 8;
constexpr size_t kMostSlots = 8 * Expression::kMostOperations;

// A result or an operand. Where its lanes in memory have gaps or another type, they are moved from
// or to a register.
struct Side {
  void* data = nullptr;
  size_t tensor = 0, slot = 0;   // in the iteration, in a block
  int64_t element = 1;           // bytes
  int64_t stride = 1, step = 0;  // bytes, along a row and from a row to the next
};
// Copies rows of n elements without gaps; steps from a row to the next in bytes.
using CopyRows = void (*)(std::byte* to, int64_t to_step, const std::byte* from, int64_t from_step,
                          int64_t rows, int64_t n);
template <typename T>
DC_VECTOR_CLONES void copy_rows(std::byte* to, int64_t to_step, const std::byte* from,
                                int64_t from_step, int64_t rows, int64_t n) {
  for (; rows > 0; --rows, to += to_step, from += from_step) {
    T* __restrict out = reinterpret_cast<T*>(to);
    const T* in = reinterpret_cast<const T*>(from);
    for (int64_t i = 0; i < n; ++i) out[i] = in[i];
  }
}

struct Move {
  Side side;
  int64_t stride = 1;       // elements
  CopyRows copy = nullptr;  // where rows have no gaps and lanes lie in memory as they are
  LoadLanes load = nullptr;
  StoreLanes store = nullptr;
  int64_t lane_bytes = 0;
  // The block where an operand is read: each, the first of a row, the first of many rows.
  enum class When : uint8_t { EachBlock, EachRow, EachPlane } when = When::EachBlock;
};

// Through an element type: what is stored in it and loaded again.
struct Conversion {
  StoreLanes store = nullptr;
  LoadLanes load = nullptr;
};
void convert(const void* context, void* out, const void* const* in, int64_t n) {
  const auto& conversion = *static_cast<const Conversion*>(context);
  alignas(64) std::byte memory[kRegisterBytes];
  conversion.store(memory, 1, in[0], n);
  conversion.load(out, memory, 1, n);
}
void load_only(const void* context, void* out, const void* const* in, int64_t n) {
  static_cast<const Conversion*>(context)->load(out, in[0], 1, n);
}
void store_only(const void* context, void* out, const void* const* in, int64_t n) {
  static_cast<const Conversion*>(context)->store(out, 1, in[0], n);
}

struct Step {
  LoopOverLanes run = nullptr;
  const void* context = nullptr;
  size_t out = 0;
  std::array<size_t, kMostOperands> in{};
};

class Fused final : public Kernel {
 public:
  Iteration iteration;
  std::vector<Side> in_place;       // read or written where they are
  std::vector<Move> loads, stores;  // of the others
  std::vector<Step> steps;
  std::vector<std::pair<size_t, size_t>> registers;        // slot, register
  std::vector<std::pair<size_t, const std::byte*>> fixed;  // slot, lanes of a number
  // What steps refer to.
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::deque<Conversion> conversions;
  struct Number {
    alignas(64) std::array<std::byte, kRegisterBytes> lanes;
  };
  std::deque<Number> numbers;
  int64_t rows_at_once = 1, length = 1;  // of a block, at most

  base::Status launch(device::Stream& stream) override {
    Block block;
    alignas(64) std::byte memory[kMostRegisters * kRegisterBytes];
    for (const auto& [slot, index] : registers) block.slots[slot] = memory + index * kRegisterBytes;
    for (const auto& [slot, lanes] : fixed) block.slots[slot] = const_cast<std::byte*>(lanes);
    const auto resolve = [&stream](const Side& side) {
      return static_cast<std::byte*>(stream.resolve(side.data));
    };
    Addresses in_place_bases, load_bases, store_bases;
    std::ranges::transform(in_place, in_place_bases.begin(), resolve);
    std::ranges::transform(loads, load_bases.begin(), resolve, &Move::side);
    std::ranges::transform(stores, store_bases.begin(), resolve, &Move::side);
    iteration.for_each_plane([&](const Offsets& offsets, int64_t rows, const Offsets&) {
      for (int64_t row = 0; row < rows; row += rows_at_once) {
        const auto offset = [&](const Side& side) {
          return offsets[side.tensor] * side.element + row * side.step;
        };
        for (size_t i = 0; i < in_place.size(); ++i)
          block.slots[in_place[i].slot] = in_place_bases[i] + offset(in_place[i]);
        for (size_t i = 0; i < loads.size(); ++i)
          block.loads[i] = load_bases[i] + offset(loads[i].side);
        for (size_t i = 0; i < stores.size(); ++i)
          block.stores[i] = store_bases[i] + offset(stores[i].side);
        block.rows = std::min(rows_at_once, rows - row);
        block.when = row == 0 ? Move::When::EachPlane : Move::When::EachRow;
        for (int64_t left = iteration.inner(); left > 0; left -= length) {
          block.length = std::min(length, left);
          run(block);
          block.when = Move::When::EachBlock;
          for (const Side& side : in_place) block.slots[side.slot] += length * side.stride;
        }
      }
    });
    return {};
  }

 private:
  using Addresses = std::array<std::byte*, Expression::kMostTensors>;
  struct Block {
    std::array<std::byte*, kMostSlots> slots;
    Addresses loads, stores;  // of their first elements
    int64_t rows = 1, length = 0;
    Move::When when = Move::When::EachBlock;
  };

  void run(Block& block) const {
    std::byte** at = block.loads.data();
    for (const Move& move : loads) {
      if (move.when <= block.when) read(move, *at, block);
      *at++ += length * move.side.stride;
    }
    const int64_t n = block.rows * block.length;
    for (const Step& step : steps) {
      const void* in[kMostOperands] = {block.slots[step.in[0]], block.slots[step.in[1]],
                                       block.slots[step.in[2]]};
      step.run(step.context, block.slots[step.out], in, n);
    }
    at = block.stores.data();
    for (const Move& move : stores) {
      write(move, *at, block);
      *at++ += length * move.side.stride;
    }
  }

  void read(const Move& move, const std::byte* from, const Block& block) const {
    // What stays for several blocks is read for the longest.
    const int64_t n = move.when == Move::When::EachBlock ? block.length : length;
    const int64_t rows = move.when == Move::When::EachPlane ? rows_at_once : block.rows;
    std::byte* to = block.slots[move.side.slot];
    if (move.copy != nullptr)
      return move.copy(to, n * move.lane_bytes, from, move.side.step, rows, n);
    for (int64_t row = 0; row < rows; ++row, from += move.side.step, to += n * move.lane_bytes)
      move.load(to, from, move.stride, n);
  }
  void write(const Move& move, std::byte* to, const Block& block) const {
    const std::byte* from = block.slots[move.side.slot];
    const int64_t n = block.length;
    if (move.copy != nullptr)
      return move.copy(to, move.side.step, from, n * move.lane_bytes, block.rows, n);
    for (int64_t row = 0; row < block.rows; ++row, to += move.side.step) {
      move.store(to, move.stride, from, n);
      from += n * move.lane_bytes;
    }
  }
};

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
    if (move.stride == 1 && is_lane(tensor.dtype)) {
      move.copy = lane == Lane::Bool  ? copy_rows<uint8_t>
                  : lane == Lane::F32 ? copy_rows<float>
                                      : copy_rows<double>;
    }
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
    if (operand.rounded_to) {
      slot = append(
          convert,
          {storer(operand.lane, *operand.rounded_to), loader(operand.lane, *operand.rounded_to)},
          slot);
    }
    return slot;
  }
  size_t number_of(const PointwiseOperand& operand) {
    std::byte* lanes = fused_->numbers.emplace_back().lanes.data();
    loader(operand.lane, dtype_of(operand.lane))(lanes, operand.number.data(), 0, kLoopLanes);
    if (operand.rounded_to) {
      const Conversion conversion{storer(operand.lane, *operand.rounded_to),
                                  loader(operand.lane, *operand.rounded_to)};
      const void* from = lanes;
      convert(&conversion, lanes, &from, kLoopLanes);
    }
    fused_->fixed.emplace_back(new_slot(), lanes);
    return fused_->fixed.back().first;
  }

  // Gives slots registers: one that nothing reads any more, else a new one.
  void allocate() {
    call_.require(slots_ <= kMostSlots, "its expression is too large");
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
    call_.require(busy_until.size() <= kMostRegisters, "its expression is too large");
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
