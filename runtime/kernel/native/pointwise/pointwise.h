// One operator, applied element by element to operands of any strides that are broadcast to the
// result.
//
// An operator's meaning is a type of runtime/kernel/scalar, which GPUs share. Here it gets its
// arguments, as a type `Op<T>`, T being the lane that it computes in (DC_POINTWISE):
//   kName               of the type in namespace scalar
//   kNames              arguments, in the order in which operator() takes them; tensors or numbers
//   explicit Op(Call&)  reads its numbers, its only members, each a T
//   operator()(...)     T, or bool; pure, free of branches that keep it out of vector code
//   is_common(x), of_common(x)  of a float: whether of_common() gives the same bits in less time;
//                       optional, of operators of one operand
//   of_bf16(x)          of a bf16: the bits that operator() and one rounding give; optional,
//   likewise kMask               index of the operand that is a bool whatever T is; optional
//   kRounds             a mask of the operands that are rounded to the type that all have in common
//                       before they are computed with, as PyTorch does where no result hides it;
//                       optional
#pragma once

#include <array>
#include <cstring>
#include <tuple>
#include <utility>

#include "runtime/kernel/native/iteration.h"
#include "runtime/kernel/native/lanes.h"
#include "runtime/kernel/native/registry.h"
#include "runtime/kernel/native/vector_clones.h"
#include "runtime/kernel/scalar/activations.h"

namespace dc::runtime::kernel::native {

// An operand of a pointwise operator: a tensor, or a number of the instruction.
struct PointwiseOperand {
  std::string_view name;  // of the argument
  std::optional<BoundTensor> tensor;
  alignas(8) std::array<std::byte, 8> number{};
  Lane lane = Lane::F32;
  std::optional<base::DType> rounded_to;  // once it is read
};

// Rows of lanes in memory: where the next row of the result and of each operand begins, in
// elements.
struct Plane {
  int64_t rows = 1, length = 0;
  std::array<int64_t, kMaxTensors> steps{};
};

inline constexpr size_t kMostOperands = 3;

// An operator of namespace scalar as data: its type, the lane that it computes in, and its numbers,
// each an element of that lane.
struct ScalarOperator {
  std::string_view name;
  Lane lane = Lane::F32;
  std::vector<std::array<std::byte, 8>> numbers;
  bool knows_moderate = false;  // it has of_moderate() (runtime/kernel/scalar/activations.h)
};

class Pointwise : public Kernel {
 public:
  // Refuses what cannot be broadcast to the result. `takes_bf16`: there is plane_of_bf16().
  void bind(Call& call, const BoundTensor& result, Lane lane,
            std::span<const PointwiseOperand> operands, bool takes_bf16);
  base::Status launch(device::Stream& stream) final;

  // The same for lanes that lie elsewhere, as fused kernels need it. What the loop returns is in
  // `result` lanes, not yet rounded to the result's type.
  struct Loop {
    LoopOverLanes run = nullptr;
    const void* context = nullptr;  // alive as long as the kernel
    Lane result = Lane::F32;
  };
  virtual Loop loop() const = 0;
  virtual ScalarOperator scalar() const = 0;
  // The operands in the order in which the loop takes them; the tensors as they were bound.
  std::span<const PointwiseOperand> operands() const { return described_; }

 protected:
  // `ones`: a mask of the operands that have one element for a whole row; no bit or one.
  virtual void plane(const Plane& plane, int ones, std::byte* out,
                     const std::byte* const* in) const = 0;
  // The same of elements of bf16, which become lanes and back in one pass.
  virtual void plane_of_bf16(const Plane& plane, std::byte* out,
                             const std::byte* const* in) const = 0;

 private:
  using Addresses = std::array<const std::byte*, kMostOperands>;
  struct Bound {
    void* data = nullptr;
    LaneReader reader;
    int64_t lane_bytes = 0;
    StoreLanes narrow = nullptr;  // to the type that it is rounded to; null where it is not
    LoadLanes widen = nullptr;    // and back
    bool is_number = false;
    alignas(8) std::array<std::byte, 8> number{};
  };
  // Lanes of one block.
  struct Buffers {
    alignas(64) std::byte operands[kMostOperands][kBlock * 8];
    alignas(64) std::byte result[kBlock * 8];
  };
  // Rows that are together no longer than a block; converts what is no lane in memory. `is_first`:
  // of the blocks of one row, or of rows that lie behind each other.
  void block(std::byte* out, const Addresses& in, const Plane& rows, Buffers& buffers,
             bool is_first) const;
  // Of bf16, several rows that lie one behind the other; short ones that do not are packed.
  void short_rows_of_bf16(std::byte* out, const Addresses& in, const Plane& rows) const;
  // Block by block.
  void long_row(std::byte* out, const Addresses& in) const;

  Iteration iteration_;
  std::vector<PointwiseOperand> described_;
  std::vector<Bound> operands_;
  void* result_ = nullptr;
  StoreLanes store_ = nullptr;
  int64_t result_element_ = 0, result_lane_bytes_ = 0;
  int ones_ = 0;
  bool result_direct_ = false, all_direct_ = false;
  bool all_bf16_ = false;  // the result and all operands, in rows without gaps
};

// PyTorch's common type of operands: tensors without dims, and numbers even less, do not raise the
// type of tensors with dims, but to floating point; the result's, where it alone is floating-point.
base::DType common_type(Call& call, std::span<const std::string_view> names, int mask);
PointwiseOperand pointwise_operand(Call& call, std::string_view name, Lane lane,
                                   std::optional<base::DType> rounded_to);

template <typename... Names>
constexpr std::array<std::string_view, sizeof...(Names)> operand_names(Names... names) {
  return {names...};
}
// DC_POINTWISE(Name, ("argument", ...), number...): scalar::Name with its arguments and numbers.
#define DC_POINTWISE(Name, operands, ...)                                        \
  template <typename T>                                                          \
  struct Name : scalar::Name<T> {                                                \
    static constexpr std::string_view kName = #Name;                             \
    static constexpr auto kNames = operand_names operands;                       \
    explicit Name([[maybe_unused]] Call& call) : scalar::Name<T>{__VA_ARGS__} {} \
  };

namespace pointwise_detail {

template <typename Op>
constexpr int mask_of() {
  if constexpr (requires { Op::kMask; }) return Op::kMask;
  return -1;
}
template <typename Op>
constexpr int rounds() {
  if constexpr (requires { Op::kRounds; }) return Op::kRounds;
  return 0;
}
template <typename Op, typename T, int kIndex>
using Element = std::conditional_t<kIndex == mask_of<Op>(), Bool, T>;

template <typename T>
inline auto value(T x) {
  return x;
}
inline bool value(Bool x) { return x.value != 0; }
inline float value(BF16 x) { return load(x); }

template <typename Out, typename T>
inline Out element(T x) {
  if constexpr (std::is_same_v<Out, BF16>) {
    return narrow_bf16(x);
  } else {
    return Out{x};
  }
}

// The i-th element of a row, or its only one.
template <bool kOne, typename T>
inline auto at(const T* row, int64_t i) {
  return value(row[kOne ? 0 : i]);
}

// Whether of_common() will do for a row.
template <typename Op, typename A>
constexpr bool knows_common() {
  return requires(Op op, A x) { op.is_common(x); }
  &&std::is_same_v<A, float>;
}
template <typename Op>
[[gnu::always_inline]] inline bool all_common(const Op& op, const float* x, int64_t n) {
  uint32_t others = 0;
  for (int64_t i = 0; i < n; ++i) others |= op.is_common(x[i]) ? 0u : 1u;
  return others == 0;
}

template <typename Op, typename Out, typename A>
constexpr bool knows_bf16() {
  return requires(Op op, A x) { op.of_bf16(x); }
  &&std::is_same_v<A, BF16>&& std::is_same_v<Out, BF16>;
}

// kOnes: a mask of the operands that have one element for a whole row. Flat: an operator that was
// called, not inlined, would be code for the oldest CPU. A result is an operand's memory or does
// not overlap it, which GCC would find out before every row.
template <int kOnes, typename Op, typename Out, typename A>
[[gnu::flatten]] DC_VECTOR_CLONES void apply(Op op, const Plane& plane, Out* out, const A* a) {
  for (int64_t row = 0; row < plane.rows; ++row) {
    Out* __restrict to = out + row * plane.steps[0];
    const A* x = a + row * plane.steps[1];
    if constexpr (knows_common<Op, A>() && kOnes == 0) {
      if (all_common(op, x, plane.length)) {
        for (int64_t i = 0; i < plane.length; ++i) to[i] = op.of_common(x[i]);
        continue;
      }
    }
    if constexpr (knows_bf16<Op, Out, A>() && kOnes == 0) {
#pragma GCC ivdep
      for (int64_t i = 0; i < plane.length; ++i) to[i] = op.of_bf16(x[i]);
      continue;
    }
#pragma GCC ivdep
    for (int64_t i = 0; i < plane.length; ++i) to[i] = element<Out>(op(at<kOnes & 1>(x, i)));
  }
}
template <int kOnes, typename Op, typename Out, typename A, typename B>
[[gnu::flatten]] DC_VECTOR_CLONES void apply(Op op, const Plane& plane, Out* out, const A* a,
                                             const B* b) {
  for (int64_t row = 0; row < plane.rows; ++row) {
    Out* __restrict to = out + row * plane.steps[0];
    const A* x = a + row * plane.steps[1];
    const B* y = b + row * plane.steps[2];
#pragma GCC ivdep
    for (int64_t i = 0; i < plane.length; ++i)
      to[i] = element<Out>(op(at<kOnes & 1>(x, i), at<(kOnes & 2) != 0>(y, i)));
  }
}
template <int kOnes, typename Op, typename Out, typename A, typename B, typename C>
[[gnu::flatten]] DC_VECTOR_CLONES void apply(Op op, const Plane& plane, Out* out, const A* a,
                                             const B* b, const C* c) {
  for (int64_t row = 0; row < plane.rows; ++row) {
    Out* __restrict to = out + row * plane.steps[0];
    const A* x = a + row * plane.steps[1];
    const B* y = b + row * plane.steps[2];
    const C* z = c + row * plane.steps[3];
#pragma GCC ivdep
    for (int64_t i = 0; i < plane.length; ++i) {
      to[i] = element<Out>(
          op(at<kOnes & 1>(x, i), at<(kOnes & 2) != 0>(y, i), at<(kOnes & 4) != 0>(z, i)));
    }
  }
}

// Flat as well.
template <typename Op, typename Out, typename... Operands, size_t... kIndex>
[[gnu::flatten]] DC_VECTOR_CLONES void loop_of(const Op& op, Out* __restrict out,
                                               const void* const* in, int64_t n,
                                               std::index_sequence<kIndex...>) {
  const std::tuple<const Operands*...> from{static_cast<const Operands*>(in[kIndex])...};
  using First = std::tuple_element_t<0, std::tuple<Operands...>>;
  if constexpr (knows_common<Op, First>()) {
    const First* x = std::get<0>(from);
    if (all_common(op, x, n)) {
      for (int64_t i = 0; i < n; ++i) out[i] = op.of_common(x[i]);
      return;
    }
  }
  if (n == kLoopLanes) {
    for (int64_t i = 0; i < kLoopLanes; ++i)
      out[i] = Out{op(at<false>(std::get<kIndex>(from), i)...)};
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = Out{op(at<false>(std::get<kIndex>(from), i)...)};
  }
}

template <typename Op, typename T, size_t... kIndex>
auto result_type(std::index_sequence<kIndex...>)
    -> decltype(std::declval<Op>()(value(Element<Op, T, static_cast<int>(kIndex)>{})...));

template <typename Op, typename T>
class Of final : public Pointwise {
  static constexpr auto kOperands = std::make_index_sequence<Op::kNames.size()>();
  using Result = decltype(result_type<Op, T>(kOperands));

 public:
  using Out = std::conditional_t<std::is_same_v<Result, bool>, Bool, T>;
  static constexpr bool kTakesBf16 = std::is_same_v<Out, float> && std::is_same_v<T, float> &&
                                     mask_of<Op>() < 0 && !knows_common<Op, T>();
  explicit Of(Call& call) : op_(call) {}
  Loop loop() const override { return {over_lanes, &op_, kLaneOf<Out>}; }
  ScalarOperator scalar() const override {
    ScalarOperator described{Op::kName, kLaneOf<T>, {}, knows_moderate(kOperands)};
    if constexpr (!std::is_empty_v<Op>) {
      static_assert(std::is_trivially_copyable_v<Op> && sizeof(Op) % sizeof(T) == 0);
      described.numbers.resize(sizeof(Op) / sizeof(T));
      const auto* bytes = reinterpret_cast<const std::byte*>(&op_);
      for (size_t i = 0; i < described.numbers.size(); ++i)
        std::memcpy(described.numbers[i].data(), bytes + i * sizeof(T), sizeof(T));
    }
    return described;
  }

 protected:
  void plane(const Plane& plane, int ones, std::byte* out,
             const std::byte* const* in) const override {
    // At most one operand has one element per row in the masks that are compiled.
    if (ones == 1) return run<1>(plane, out, in, kOperands);
    if (ones == 2 && kArity > 1) return run<2 & kAll>(plane, out, in, kOperands);
    if (ones == 4 && kArity > 2) return run<4 & kAll>(plane, out, in, kOperands);
    run<0>(plane, out, in, kOperands);
  }
  void plane_of_bf16(const Plane& plane, std::byte* out,
                     const std::byte* const* in) const override {
    if constexpr (kTakesBf16) run_bf16(plane, out, in, kOperands);
  }

 private:
  template <size_t... kIndex>
  static constexpr bool knows_moderate(std::index_sequence<kIndex...>) {
    return scalar::kKnowsModerate<Op, Element<Op, T, static_cast<int>(kIndex)>...>;
  }
  static constexpr size_t kArity = Op::kNames.size();
  static constexpr int kAll = (1 << kArity) - 1;

  static void over_lanes(const void* context, void* out, const void* const* in, int64_t n) {
    loop_in(*static_cast<const Op*>(context), static_cast<Out*>(out), in, n, kOperands);
  }
  template <size_t... kIndex>
  static void loop_in(const Op& op, Out* out, const void* const* in, int64_t n,
                      std::index_sequence<kIndex...> indices) {
    loop_of<Op, Out, Element<Op, T, static_cast<int>(kIndex)>...>(op, out, in, n, indices);
  }

  template <int kOnes, size_t... kIndex>
  void run(const Plane& plane, std::byte* out, const std::byte* const* in,
           std::index_sequence<kIndex...>) const {
    apply<kOnes>(op_, plane, reinterpret_cast<Out*>(out),
                 reinterpret_cast<const Element<Op, T, static_cast<int>(kIndex)>*>(in[kIndex])...);
  }
  template <size_t... kIndex>
  void run_bf16(const Plane& plane, std::byte* out, const std::byte* const* in,
                std::index_sequence<kIndex...>) const {
    apply<0>(op_, plane, reinterpret_cast<BF16*>(out),
             reinterpret_cast<const BF16*>(in[kIndex])...);
  }
  Op op_;
};

template <template <typename> class Op, typename T>
Made make(Call& call, Lane lane, base::DType common, size_t index) {
  using K = Of<Op<T>, T>;
  std::vector<PointwiseOperand> operands;
  const bool is_narrow = base::is_floating(common) && common != dtype_of(lane);
  for (size_t i = 0; i < Op<T>::kNames.size(); ++i) {
    const bool is_mask = static_cast<int>(i) == mask_of<Op<T>>();
    const bool is_rounded = is_narrow && (rounds<Op<T>>() >> i & 1) != 0;
    operands.push_back(pointwise_operand(call, Op<T>::kNames[i], is_mask ? Lane::Bool : lane,
                                         is_rounded ? std::optional(common) : std::nullopt));
  }
  const BoundTensor result = call.output(index);
  auto kernel = std::make_unique<K>(call);
  if (call.ok()) kernel->bind(call, result, kLaneOf<typename K::Out>, operands, K::kTakesBf16);
  return call.made(std::move(kernel));
}

}  // namespace pointwise_detail

// The lanes in which an operator exists.
enum Lanes : int { kF32 = 1, kF64 = 2, kI64 = 4, kReal = kF32 | kF64, kAnyLane = 7 };

// kResult: which of the instruction's results it makes.
template <template <typename> class Op, int kLanes = kAnyLane, size_t kResult = 0>
Made pointwise(Call& call) {
  constexpr auto names = Op<float>::kNames;
  const base::DType common = common_type(call, names, pointwise_detail::mask_of<Op<float>>());
  const Lane lane = base::is_floating(common) ? lane_of(common) : Lane::I64;
  if constexpr ((kLanes & kF32) != 0)
    if (lane == Lane::F32) return pointwise_detail::make<Op, float>(call, lane, common, kResult);
  if constexpr ((kLanes & kF64) != 0)
    if (lane == Lane::F64) return pointwise_detail::make<Op, double>(call, lane, common, kResult);
  if constexpr ((kLanes & kI64) != 0)
    if (lane == Lane::I64) return pointwise_detail::make<Op, int64_t>(call, lane, common, kResult);
  call.require(false, "it does not take this element type");
  return call.made(nullptr);
}

}  // namespace dc::runtime::kernel::native
