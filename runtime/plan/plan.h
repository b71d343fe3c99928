// The plan in memory: what plan.fbs holds, as plain structs. The compiler fills and encodes it; the
// runtime decodes and replays it. All ids are indices into the tables of this struct; -1 means
// none. All sizes are elements unless named bytes. A new field is declared here and named in
// fields.h; encoding, decoding, JSON, text and comparison then know it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/device_kind.h"
#include "src/base/dtype.h"
#include "src/base/kernel_signature.h"
#include "src/base/remark.h"
#include "src/base/status.h"
#include "src/base/step_enums.h"

namespace dc::runtime::plan {

using base::AxisPlacement;
using base::DType;
using base::InitKind;
using base::InputRole;
using base::OptimizerKind;
using base::Phase;
using base::Provider;
using base::ScheduleKind;
using base::Space;

// What the bytes of a slice are for.
enum class SliceKind : uint8_t {
  Parameters,      // masters, shards, copies in the model's dtype
  OptimizerState,  // moments, momentum
  Gradients,       // accumulators, gradients of parameters before and after their reduction
  Buffers,         // module buffers and constants
  Inputs,
  Scalars,      // the step's small tensors
  Gathered,     // whole values that a gather made for a while
  Activations,  // every other value of a program
  Scratch,      // kernel workspace
};
inline constexpr size_t kSliceKinds = static_cast<size_t>(SliceKind::Scratch) + 1;

// A range of an arena. Transient slices belong to one program; live ranges are inclusive
// instruction indices of that program.
struct Slice {
  Space space = Space::Device;
  int64_t offset = 0;  // bytes from the start of the arena, multiple of 64
  int64_t bytes = 0;
  int32_t program = -1;  // -1: persistent state, live throughout
  int32_t first = 0, last = 0;
  SliceKind kind = SliceKind::Activations;
  bool operator==(const Slice&) const = default;
};

// A set of axes of the mesh: bit i is axis i (runtime/plan/mesh.h). All of them make the world.
inline constexpr uint32_t kAllAxes = ~uint32_t{0};

// A strided view of a slice. A rank sees it at slice.offset + offset + index * rank_stride bytes,
// index being its place in its group along stride_axes.
struct Tensor {
  std::string name;
  DType dtype = DType::F32;
  std::vector<int64_t> sizes, strides;
  int32_t slice = -1;
  int64_t offset = 0;       // bytes
  int64_t rank_stride = 0;  // bytes; nonzero for "this rank's range of a whole value"
  uint32_t stride_axes = kAllAxes;
  bool operator==(const Tensor&) const = default;
};

enum class ArgKind : uint8_t {
  None,
  Tensor,
  Tensors,
  Int,
  Ints,
  Float,
  Floats,
  Bool,
  Bools,
  String,
  DType,
  Device,
  Layout,
  MemoryFormat
};
struct Arg {
  std::string name;
  ArgKind kind = ArgKind::None;
  int64_t i = 0;  // Tensor id, Int, Bool, DType, Layout, MemoryFormat (export numbering)
  double f = 0;   // Float
  std::vector<int64_t> ints;   // Tensors (-1 = None in the list), Ints, Bools
  std::vector<double> floats;  // Floats
  std::string s;               // String
  bool operator==(const Arg&) const = default;
};

enum class InstructionKind : uint8_t { Kernel, Collective, Copy, Signal, Wait };
enum class CollectiveKind : uint8_t { AllGather, ReduceScatter, AllReduce, Broadcast, AllToAll };

// One buffer of a (possibly fused) collective. `elements` is the whole value without padding;
// member r of the group owns [r * shard, min((r + 1) * shard, elements)). AllGather: input flat
// shard (or this rank's range of output), output whole. ReduceScatter: input whole in the wire
// dtype, output f32 shard, tail zero. AllReduce: input whole in the wire dtype, output whole f32
// (may be the input if that is f32).
struct CollectiveBuffer {
  int32_t input = -1, output = -1;  // tensors
  int64_t elements = 0, shard = 0;
  bool operator==(const CollectiveBuffer&) const = default;
};

struct Instruction {
  InstructionKind kind = InstructionKind::Kernel;
  int32_t stream = 0;
  // Kernel
  Provider provider = Provider::Aten;
  std::string op;         // "aten.mm.default", "dc.adamw"
  std::vector<Arg> args;  // schema order
  std::vector<int32_t>
      outputs;  // tensors, one per result; -1 where the op returns None or an unused non-tensor
  int32_t scratch = -1;  // slice
  // Collective
  CollectiveKind collective = CollectiveKind::AllGather;
  int32_t group = -1;
  std::vector<CollectiveBuffer> buffers;
  // Copy: src to dst
  int32_t src = -1, dst = -1;
  // Signal, Wait
  int32_t event = -1;
  // All
  std::vector<int32_t> reads, writes;  // tensors; complete, so that hazards can be computed
  std::string module;                  // FQN of the model's module, may be empty
  Phase phase = Phase::Forward;
  bool operator==(const Instruction&) const = default;
};

struct Program {
  std::string name;                       // "accumulate", "step"
  std::vector<Instruction> instructions;  // one total order
  std::vector<int64_t> duration_ns{};     // predicted, by instruction, 0 for signals and waits;
                                          // empty: the file does not say
  bool operator==(const Program&) const = default;
};
struct ProgramRun {
  int32_t program = 0;
  int32_t repeat = 1;
  bool operator==(const ProgramRun&) const = default;
};

struct Stream {
  std::string name;
  Space space = Space::Device;
  bool operator==(const Stream&) const = default;
};
// One communicator for each rank: the group along `axes` that the rank is in. -1: any stream.
struct Group {
  uint32_t axes = kAllAxes;
  int32_t stream = -1;
  bool operator==(const Group&) const = default;
};

struct Initializer {
  InitKind kind = InitKind::Unknown;
  double a = 0, b = 0;
  int64_t zero_row = -1;  // index of the first dim whose elements are zeros, not drawn; -1: none
  bool operator==(const Initializer&) const = default;
};
struct ArchiveRecord {
  std::string entry;
  DType dtype = DType::F32;
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;
  bool operator==(const ArchiveRecord&) const = default;
};

struct Parameter {
  std::string fqn;
  std::vector<std::string> aliases;
  DType dtype = DType::F32;
  std::vector<int64_t> sizes;
  bool trainable = true;
  Initializer initializer;
  ArchiveRecord record;  // empty entry: the archive has no bytes
  int32_t group = 0;
  int64_t shard = 0;             // elements of a flat shard
  int32_t trainable_index = -1;  // column of the table
  int32_t gradient =
      -1;  // f32 tensor with the reduced, scaled gradient (whole or flat shard); -1 if frozen
  int32_t gradient_ready = -1;  // it is valid after this instruction of the step program
  bool operator==(const Parameter&) const = default;
};
struct Buffer {
  std::string fqn;
  DType dtype = DType::F32;
  std::vector<int64_t> sizes;
  bool persistent = true;
  Initializer initializer;
  ArchiveRecord record;
  bool operator==(const Buffer&) const = default;
};

// What a state tensor is filled with before step 1.
enum class StateSource : uint8_t { Zeros, ParameterWhole, ParameterShard, Buffer, Data, Runtime };
// What a state tensor is for. Parameter to Carried belong to a parameter, Buffer and Constant to a
// buffer.
enum class StateRole : uint8_t {
  Unknown,          // the file does not say; no plan that is run
  Parameter,        // whole, in the parameter's dtype, as the model reads it
  Shard,            // of the parameter, in its dtype
  Master,           // f32 copy that the update keeps exact, where the dtype is another
  Moment1,          // f32, AdamW
  Moment2,          // f32, AdamW
  Momentum,         // f32, SGD
  Accumulator,      // f32, sum of gradients over the micro-batches of one step
  Carried,          // a gathered parameter that stays whole from one program to the next
  Buffer,           // a module's buffer
  Constant,         // a lifted constant
  Hyperparameters,  // the rest: see src/base/step_scalars.h
  Random,
  Scalars,
  NormTable,
  LossSum,
  Losses,  // loss sums of all ranks
};
// How a value is placed along one axis of the mesh.
struct PlacedAxis {
  int32_t axis = 0;  // index into Plan::mesh
  AxisPlacement placement = AxisPlacement::Replicated;
  int32_t dim = -1;   // Shard
  int64_t shard = 0;  // FlatShard: elements, padding included; coordinate c holds [c * shard,
                      // (c + 1) * shard)
  bool operator==(const PlacedAxis&) const = default;
};
struct StateEntry {
  std::string name;
  int32_t tensor = -1;  // its slice says the memory space
  StateSource source = StateSource::Zeros;
  int32_t parameter = -1, buffer = -1;  // by role; ParameterWhole and ParameterShard are cast to
                                        // the tensor's dtype, tail zero
  std::vector<uint8_t> data{};          // Data: contiguous bytes (constants)
  StateRole role = StateRole::Unknown;  // see state_entries.h
  std::vector<PlacedAxis> placement{};  // axes that are not listed: replicated
  int32_t range_of = -1;  // index into Plan::state: this is the rank's range of that entry's memory
  bool operator==(const StateEntry&) const = default;
};

struct Input {
  std::string name;
  InputRole role = InputRole::Float;
  double low = 0, high = 1;
  int32_t tensor = -1;
  bool next = false;  // Labels: the token after each position, because the model does not shift
  bool operator==(const Input&) const = default;
};

struct OptimizerGroup {
  std::string match;
  double lr = 0, weight_decay = 0, beta1 = 0, beta2 = 0, eps = 0, momentum = 0, dampening = 0;
  bool nesterov = false;
  bool operator==(const OptimizerGroup&) const = default;
};
struct Optimizer {
  OptimizerKind kind = OptimizerKind::AdamW;
  std::vector<OptimizerGroup> groups;
  bool clip = false;
  double clip_norm = 1;
  uint64_t seed = 0;
  ScheduleKind schedule = ScheduleKind::Constant;
  int64_t warmup_steps = 0, total_steps = 0;
  double final_lr_fraction = 0;
  bool operator==(const Optimizer&) const = default;
};

inline constexpr size_t kBounds = 4, kFigureOrigins = 4;
inline constexpr std::string_view kBoundNames[kBounds] = {"full_overlap", "with_ends",
                                                          "within_memory", "with_contention"};
struct Prediction {
  int64_t compute_ns = 0, communication_ns = 0, step_ns = 0;
  int64_t peak_bytes = 0, live_bytes = 0;  // arena size; largest sum of live values
  std::vector<int64_t> wire_bytes;         // per CollectiveKind, sent by one rank per step
  std::string origin;                      // "profile <digest>" or "generic cpu table"
  // Copies between memory spaces, per step and rank: their serial time, bytes from and to the
  // device.
  int64_t copy_ns = 0, copied_out_bytes = 0, copied_in_bytes = 0;
  int64_t contention_ns = 0;  // of the step: what transfers next to it added to compute
  // What no other order of the same work beats (src/sim/bounds.h): full_overlap to with_contention;
  // with_ends if no update waited for the norm. Empty: unknown.
  std::vector<int64_t> bounds_ns;
  int64_t without_norm_ns = 0;
  // Serial time by where its figures come from: measured, interpolated, extrapolated, a table.
  // Empty: unknown.
  std::vector<int64_t> figures_ns;
  bool operator==(const Prediction&) const = default;
};

// When gradients of micro-batches are summed over ranks.
enum class ReductionOrder : uint8_t {
  Unknown,        // the file does not say
  PerStep,        // each rank sums its micro-batches, then ranks are summed
  PerMicroBatch,  // ranks are summed along the first level in each micro-batch, then micro-batches
};
// In which order a gradient is summed over ranks and micro-batches. Of plans of one model for one
// world and accumulation, those with equal orders give equal bits with the same kernels, whatever
// their chain, budgets and schedule; others agree within rounding.
struct SumOrder {
  ReductionOrder reductions = ReductionOrder::Unknown;
  // Sets of mesh axes that share none and span the world together: ranks are summed in rank order
  // along the first, these sums along the next. Levels after the first: once per step.
  std::vector<uint32_t> levels;
  // Axes along which parameters and what belongs to them are cut into shards, where they are; the
  // norm is summed by these ranges anyway.
  uint32_t shards = kAllAxes;
  bool operator==(const SumOrder&) const = default;
};

// What else the plan can do with the state of its training step.
enum class Purpose : uint8_t {
  Train,     // the step at other shapes; no plan has it yet
  Evaluate,  // the loss in eval mode; state stays as it is
};
// Runs between two steps, when all streams have ended, and ends all of its own. Its programs are in
// Plan::programs and not in Plan::step.
struct Variant {
  Purpose purpose = Purpose::Evaluate;
  std::vector<ProgramRun> step;
  std::vector<Input> inputs;
  Prediction prediction;
  bool operator==(const Variant&) const = default;
};

// The step's small tensors, see src/base/step_scalars.h.
struct StepTensors {
  int32_t hyperparameters = -1, rng = -1, scalars = -1, table = -1, loss_sum = -1;
  bool operator==(const StepTensors&) const = default;
};

struct Plan : StepTensors {
  std::string name;
  std::string model_digest, profile_digest, options_digest,
      compiler;                                       // hex, hex or empty, hex, build id
  std::vector<std::string> notes;                     // warnings recorded at compile time
  std::string options;                                // canonical text of the options
  std::vector<std::pair<std::string, int32_t>> mesh;  // axis name, size
  base::DeviceKind device = base::DeviceKind::Cpu;    // that the kernels run on
  int32_t threads = 1;                                // per rank
  int32_t accumulation = 1;
  SumOrder sums;
  std::string chain;                 // as it was asked for: "zero3", "auto"
  std::string passes;                // what ran, as `dcc compile --passes` takes it
  std::vector<int64_t> arena_bytes;  // per Space
  std::vector<int64_t> budgets;      // per Space, that the compiler was given; 0: none
  std::vector<Slice> slices;
  std::vector<Tensor> tensors;
  std::vector<StateEntry> state;
  std::vector<Parameter> parameters;
  std::vector<Buffer> buffers;
  std::vector<Input> inputs;
  std::vector<Stream> streams;  // stream 0 is compute
  int32_t events = 0;
  std::vector<Group> groups;
  std::vector<Program> programs;
  std::vector<ProgramRun> step;
  std::vector<Variant> variants;
  Optimizer optimizer;
  // Whether each rank decides alone if its range of a parameter may be updated, so that a step
  // whose numbers are not all finite may update some; else all parameters are updated or none.
  bool updates_by_range = false;
  Prediction prediction;
  std::vector<base::Remark> remarks;
  // Of the archive (src/base/archive/step_digest.h): what --weights FILE.pt2 must equal.
  std::vector<std::string> step_digest;

  int32_t world() const;
  const Variant* variant(Purpose purpose) const;  // null if there is none
  bool operator==(const Plan&) const = default;
};

}  // namespace dc::runtime::plan
