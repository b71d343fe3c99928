// Op kinds: what a node does. The closed list, with the meaning of each, is ops.def; overloads of
// ATen are in aten_ops.def.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace dc::ir {

enum class AliasRule : uint8_t { Fresh, View, State, None };
enum class Provider : uint8_t { None, Aten, Native, Fused, Comm, Copy };
enum class Half : uint8_t { Whole, Start, Done, Arrival };
enum class OpTrait : uint8_t { Plain, Tail, Update };

enum class OpKind : uint8_t {
#define DC_OP(kind, text, alias, provider, half, trait, rule, results, operands, attributes) kind,
#include "src/ir/ops.def"
#undef DC_OP
};

inline constexpr size_t kOpKinds = 0
#define DC_OP(kind, text, alias, provider, half, trait, rule, results, operands, attributes) +1
#include "src/ir/ops.def"
#undef DC_OP
    ;

// What an op does with the bytes of an operand.
enum class Access : uint8_t { Read, Write, Update };
enum class OperandRole : uint8_t { Plain, Gradient, RowCell, ScalarCell };
struct OperandInfo {
  std::string_view name;
  Access access = Access::Read;
  OperandRole role = OperandRole::Plain;
  bool is_needed = true;  // else it is the last one, and may be missing
};

inline constexpr size_t kMaxOperands = 7;

// Attributes of our own ops.
enum class Attr : uint8_t {
  None,  // an argument of ATen
#define DC_ATTR(id, text, kind) id,
#include "src/ir/attributes.def"
#undef DC_ATTR
};
enum class AttrKind : uint8_t {
  Text,
  Entry,
  Count,
  Flag,
  Integer,
  Probability,
  Parameter,
  Group,
  Axes
};
struct AttrInfo {
  std::string_view text;
  AttrKind kind;
};
const AttrInfo& info(Attr attribute);  // not for None

struct AttributeUse {
  Attr attribute = Attr::None;
  bool is_needed = true;
};
inline constexpr size_t kMaxAttributes = 7;

// What every pass asks of every node: small, so that all kinds stay in the processor's first cache.
struct OpTraits {
  AliasRule alias = AliasRule::None;
  Provider provider = Provider::None;
  Half half = Half::Whole;
  OpTrait trait = OpTrait::Plain;
  uint32_t attributes = 0;  // a bit for each that it may have
  uint8_t writes = 0;       // a bit for each operand whose bytes it changes
  int8_t gradient_operand = -1, optional_operand = -1;

  bool takes(Attr attribute) const {
    return (attributes >> static_cast<unsigned>(attribute) & 1) != 0;
  }
};
extern const std::array<OpTraits, kOpKinds> kOpTraits;  // by OpKind
inline const OpTraits& traits(OpKind kind) { return kOpTraits[static_cast<size_t>(kind)]; }

struct OpInfo {
  std::string_view text;    // "adamw"
  std::string_view kernel;  // its name in a plan: "dc.adamw"
  OpTraits traits;
  size_t result_count = 0;
  std::array<OperandInfo, kMaxOperands> operand_list{};
  size_t operand_count = 0;
  std::array<AttributeUse, kMaxAttributes> attribute_list{};
  size_t attribute_count = 0;

  std::span<const OperandInfo> operands() const { return {operand_list.data(), operand_count}; }
  std::span<const AttributeUse> attributes() const {
    return {attribute_list.data(), attribute_count};
  }
};
const OpInfo& info(OpKind kind);
std::optional<OpKind> op_from_text(std::string_view text);  // not for "aten"
std::optional<OpKind> native_op(std::string_view kernel);   // "dc.adamw"

// Halves of asynchronous ops: collectives and copies between spaces.
inline bool is_start(OpKind kind) { return traits(kind).half == Half::Start; }
inline bool is_done(OpKind kind) { return traits(kind).half == Half::Done; }
// A done, or all_gather_into.wait_previous_step.
inline bool is_wait(OpKind kind) { return is_done(kind) || traits(kind).half == Half::Arrival; }
OpKind start_of(OpKind done);  // requires is_done
OpKind done_of(OpKind start);  // requires is_start

bool is_model_op(OpKind kind);  // an operator of ATen, or several in one kernel
// adamw, sgd
inline bool is_update(OpKind kind) { return traits(kind).trait == OpTrait::Update; }
// accumulate, square_sum
inline bool is_tail(OpKind kind) { return traits(kind).trait == OpTrait::Tail; }
// True if the op changes the bytes of that operand in place; ATen's never do.
inline bool writes(OpKind kind, size_t operand) {
  return operand < kMaxOperands && (traits(kind).writes >> operand & 1) != 0;
}
inline bool writes_any(OpKind kind) { return traits(kind).writes != 0; }
// The attribute that the op has under that name.
std::optional<Attr> attribute_of(OpKind kind, std::string_view text);
// Position of the operand that is a gradient.
inline std::optional<size_t> gradient_operand(OpKind kind) {
  const int8_t operand = traits(kind).gradient_operand;
  return operand < 0 ? std::nullopt : std::optional(static_cast<size_t>(operand));
}
// Position of the operand that may be missing.
inline std::optional<size_t> optional_operand(OpKind kind) {
  const int8_t operand = traits(kind).optional_operand;
  return operand < 0 ? std::nullopt : std::optional(static_cast<size_t>(operand));
}

// Rough class of an ATen overload: the analytic cost model and the scratch estimate go by it.
enum class AtenClass : uint8_t {
  View,
  Create,
  Copy,
  Pointwise,
  Reduce,
  Norm,
  Softmax,
  Matmul,
  Convolution,
  Attention,
  Index,
  Identity
};

// What a kernel does that others of its class do not, where it decides about its arithmetic or the
// memory it takes for itself.
enum class AtenWork : uint8_t {
  Plain,             // as its class
  Reorders,          // results that lie in another order than the graph says, if operands have gaps
  BiasFirst,         // Matmul: operand 0 is added to the product of the next two
  Solve,             // Matmul: row by row, without a copy of an operand
  Backward,          // Attention: its gradients
  Flash,             // Attention: in blocks, PyTorch's kernels for CPUs and CUDA
  FlashBackward,     // its gradients
  Convolve,          // Convolution: the others pool or unfold
  ConvolveBackward,  // its gradients
  LargestBackward,   // Convolution: the gradient of a window's largest element
  Resample,          // Convolution: interpolates
  MaskGradient,      // Pointwise: the gradient times a mask; reorders
  Classify,          // Pointwise: finite, infinite
  Choose,            // Pointwise: operand 0 chooses between the others
  Loss,              // Reduce: a loss and its gradient; reorders
  CrossEntropy,      // Reduce: binary cross entropy and its gradient
  PickedLoss,        // Reduce: a loss of one class of each row, and its gradient; reorders
  AnyAll,            // Reduce
  Extreme,           // Reduce: least or greatest, and where
  Sum,               // Reduce
  TwoPasses,         // Reduce: over the elements twice
  Rms,               // Norm
  RmsBackward,       // Norm
  LayerBackward,     // Norm
  Batch,             // Norm; reorders
  BatchBackward,     // Norm; reorders
  Group,             // Norm
  Safe,              // Softmax: rows that are masked whole
  Sort,              // Index
  Widen,             // Index: sums in f32
};

struct AtenInfo {
  std::string_view overload;  // "aten.mm.default"
  AtenClass cls;
  AliasRule alias;  // View: every result aliases operand 0 (split has several)
  bool random;
  bool data_dependent;  // the result's shape depends on data: always refused
  bool mutates;         // writes an argument: always refused (graphs are functional)
  int8_t operands;      // tensors that a node reads at least, first in argument order
  int8_t results;       // as many as a node has, None among them; kManyResults: any number
  AtenWork work;
};
inline constexpr int8_t kManyResults = -1;
// Null when the overload is not supported.
const AtenInfo* aten_info(std::string_view overload);

}  // namespace dc::ir
