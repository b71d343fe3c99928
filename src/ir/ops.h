// Op kinds: what a node does. The closed list is ops.def; overloads of ATen are in aten_ops.def.
//
// clang-format off
// Meaning of the project's own ops. W is the world size, N the number of ranks that meet in a
// collective: the world's, or with group=[axis, ...] those that differ along these mesh axes only.
// s is the shard elements of a parameter (whole elements divided by the N that hold its shards,
// rounded up, rounded up to 32), P the number of trainable parameters. "x!" is mutated in place.
// Attributes are named args.
//
//   input() name=
//       a graph input that the data loader (or the runtime, for loss_scale) fills
//   state() entry=
//       the storage of a state entry
//   all_gather.start %shard elements= shard=
//       flat_shard[s] -> whole value of `elements` elements, storage padded to N*s; the result is
//       typed as the gathered value
//   all_gather_into.start %dst! %shard elements= shard=
//       fills the whole state %dst in place (this rank's range may be %shard itself); result is %dst
//   reduce_scatter.start %g shard=
//       partial[n] of the wire dtype -> f32 flat_shard[s]; sums in rank order, tail zero; along the
//       axes of other groups the result stays partial
//   all_reduce.start %g shard=
//       partial -> f32 replicated; a reduce_scatter followed by an all_gather of the f32 sums. A
//       flat shard along other axes stays one
//   *.done %started
//       waits; the value may be read from here on, and the start's operand may be reused
//   all_gather_into.arrived %dst!
//       waits until %dst has what the last run of the step gathered into it
//   release %gathered
//       the gathered value and all views of it are dead
//
// A start may have joins=1: it travels with the start right before it, of the same kind, stream and
// group, as one collective (a bucket). An all_gather_into.start may have crosses=1: it goes on into the
// next step, has no done, and the first program has the arrived (crossing.h).
//
//   dropout %x %rng p= op_id=
//       -> y, mask(bool): counter-based Philox; rng is i64[4] = seed, step, micro-batch, rank
//   cast %x
//       -> same elements in the result's dtype; both contiguous
//   copy %dst! %src
//       dst = src, same dtype and element count, both contiguous
//   zero %x!
//       x = 0
//   accumulate %acc! %g
//       acc(f32) += g (f32, bf16 or f16), element by element
//   add_loss %sum! %loss
//       sum(f64[1]) += loss
//   scale %x! %slots
//       x(f32) *= slots[kSlotGradScale]; result is x
//   flatten %x
//       the contiguous value x seen as one dim
//   square_sum %row! %g param= shard= elements= whole=
//       row[param] = sum of squares in f64 of this rank's range of g, padding excluded. g is the
//       flat shard (whole=0) or the whole value (whole=1). row is f64[P + 2], this rank's row of the
//       table: P square sums, loss sum, stop flag. With axes=[axis, ...] part= the shards are spread
//       along these mesh axes only, and the ranks that hold the same one count `part` elements of
//       it each, in rank order: every element is counted once
//   permit %scalars! %row %losses param=
//       scalars[kScalarFinite + param] = 1 if row[param], of this rank's range, and the losses of
//       all ranks (f64[W]) are finite, else 0
//   finalize %scalars! %table %slots clip=
//       sums the table in rank order, then parameter order; base/step_scalars.h has the result
//   adamw %p! %m! %v! %g %scalars %slots param= group= clip=
//       all f32, same element count; torch.optim.AdamW's formula
//   sgd %p! %buf! %g %scalars %slots param= group= clip= momentum= nesterov=
//       torch.optim.SGD; %buf is %p's stand-in and untouched without momentum
//
// Copies between memory spaces. A value outside the device lies where its location says (`at host`,
// `at disk`); nothing but these ops may touch it:
//
//   offload.start %x
//       a copy of the device value %x, without gaps, in another space
//   offload_into.start %dst! %x
//       fills the whole state %dst, which lies in another space; result is %dst
//   reload.start %h
//       a device copy of a value or state of another space. A reloaded state that is then changed
//       must be written back by offload_into
//
// clang-format on
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace dc::ir {

enum class AliasRule : uint8_t { Fresh, View, State, None };
enum class Provider : uint8_t { None, Aten, Native, Comm, Copy };

enum class OpKind : uint8_t {
#define DC_OP(kind, text, alias, mutated, random, provider) kind,
#include "src/ir/ops.def"
#undef DC_OP
};

struct OpInfo {
  std::string_view text;
  AliasRule alias;
  uint32_t mutated;  // bit i: operand i is written in place
  bool random;
  Provider provider;
};
const OpInfo& info(OpKind kind);
std::optional<OpKind> op_from_text(std::string_view text);  // not for "aten"
// Halves of asynchronous ops: collectives and copies between spaces.
bool is_start(OpKind kind);
bool is_done(OpKind kind);
bool is_wait(OpKind kind);     // a done, or the arrived of the next step
OpKind start_of(OpKind done);  // requires is_done
bool is_update(OpKind kind);   // adamw, sgd

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

struct AtenInfo {
  std::string_view overload;  // "aten.mm.default"
  AtenClass cls;
  AliasRule alias;  // View: every result aliases operand 0 (split has several)
  bool random;
  bool data_dependent;  // the result's shape depends on data: always refused
  bool mutates;         // writes an argument: always refused (graphs are functional)
  int8_t operands;      // tensors that a node reads at least, first in argument order
  int8_t results;       // as many as a node has, None among them; kManyResults: any number
};
inline constexpr int8_t kManyResults = -1;
// Null when the overload is not supported.
const AtenInfo* aten_info(std::string_view overload);

}  // namespace dc::ir
