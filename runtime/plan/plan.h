// The plan in memory: what plan.fbs holds, as plain structs. The compiler fills and encodes it; the
// runtime decodes and replays it. All ids are indices into the tables of this struct; -1 means
// none. All sizes are elements unless named bytes. A new field is a member and, in the DC_FIELDS
// behind its struct (runtime/plan/field.h), its name: encoding, decoding, JSON, text and comparison
// then know it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/plan/field.h"
#include "src/base/device_kind.h"
#include "src/base/dtype.h"
#include "src/base/kernel_signature.h"
#include "src/base/remark.h"
#include "src/base/status.h"
#include "src/base/step_enums.h"

namespace dc::runtime::plan {

using base::AxisPlacement;
using base::CollectiveKind;
using base::DType;
using base::InitKind;
using base::InputRole;
using base::OptimizerKind;
using base::Phase;
using base::Provider;
using base::ScheduleKind;
using base::SliceKind;
using base::Space;
using base::StateRole;

inline constexpr size_t kSliceKinds = base::enum_count<SliceKind>();

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
DC_FIELDS(Slice, DC_FIELD(space), DC_FIELD(offset), DC_FIELD(bytes), DC_FIELD(program),
          DC_FIELD(first), DC_FIELD(last), DC_FIELD(kind));

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
DC_FIELDS(Tensor, DC_FIELD(name), DC_FIELD(dtype), DC_FIELD(sizes), DC_FIELD(strides),
          DC_FIELD(slice), DC_FIELD(offset), DC_FIELD(rank_stride), DC_FIELD(stride_axes));

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
// `f` is in the file a list of one.
DC_FIELDS(Arg, DC_FIELD(name), DC_FIELD(kind), DC_FIELD_AS(i, "value", "value"), DC_FIELD(ints),
          DC_FIELD(floats), DC_FIELD_AS(s, "text", "text"));

enum class InstructionKind : uint8_t { Kernel, Collective, Copy, Signal, Wait };

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
DC_FIELDS(CollectiveBuffer, DC_FIELD(input), DC_FIELD(output), DC_FIELD(elements), DC_FIELD(shard));

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
// What instructions of every kind have.
DC_FIELDS(Instruction, DC_FIELD(stream), DC_FIELD(reads), DC_FIELD(writes),
          DC_FIELD_AS(module, "module", "module_name"), DC_FIELD(phase));
// What only instructions of one kind have.
DC_BODY_FIELDS(Kernel, DC_FIELD(provider), DC_FIELD(op), DC_FIELD(args), DC_FIELD(outputs),
               DC_FIELD(scratch));
DC_BODY_FIELDS(Collective, DC_FIELD_AS(collective, "collective", "kind"), DC_FIELD(group),
               DC_FIELD(buffers));
DC_BODY_FIELDS(Copy, DC_FIELD(src), DC_FIELD(dst));
DC_BODY_FIELDS(Signal, DC_FIELD(event));
DC_BODY_FIELDS(Wait, DC_FIELD(event));

// Where a predicted time comes from: the very kernel, transfer or copy measured; measured sizes
// around it or below it; rates of a machine; of fused kernels, others that were measured, or their
// operations' times apart.
enum class FigureOrigin : uint8_t {
  Unknown,
  Measured,
  Interpolated,
  Extrapolated,
  Table,
  Learned,
  ClosedForm
};
inline constexpr int kFigureOriginCount = 7;

struct Program {
  std::string name;                         // "accumulate", "step"
  std::vector<Instruction> instructions;    // one total order
  std::vector<int64_t> duration_ns{};       // predicted, by instruction, 0 for signals and waits;
                                            // empty: the file does not say
  std::vector<uint8_t> duration_origins{};  // by instruction, a FigureOrigin each; or empty
  bool operator==(const Program&) const = default;
};
DC_FIELDS(Program, DC_FIELD(name), DC_FIELD(instructions), DC_FIELD(duration_ns),
          DC_FIELD(duration_origins));
struct ProgramRun {
  int32_t program = 0;
  int32_t repeat = 1;
  bool operator==(const ProgramRun&) const = default;
};
DC_FIELDS(ProgramRun, DC_FIELD(program), DC_FIELD(repeat));

// A name and a size.
using MeshAxis = std::pair<std::string, int32_t>;
DC_FIELDS(MeshAxis, DC_FIELD_AS(first, "name", "name"), DC_FIELD_AS(second, "size", "size"));

struct Stream {
  std::string name;
  Space space = Space::Device;  // that its kernels touch
  bool operator==(const Stream&) const = default;
};
DC_FIELDS(Stream, DC_FIELD(name), DC_FIELD(space));
// One communicator for each rank: the group along `axes` that the rank is in. -1: any stream.
struct Group {
  uint32_t axes = kAllAxes;
  int32_t stream = -1;
  bool operator==(const Group&) const = default;
};
// The file and JSON say the ranks and the axes' names too, which follow from the mesh.
DC_FIELDS(Group, DC_FIELD(stream), DC_FIELD(axes));

struct Initializer {
  InitKind kind = InitKind::Unknown;
  double a = 0, b = 0;
  int64_t zero_row = -1;  // index of the first dim whose elements are zeros, not drawn; -1: none
  bool operator==(const Initializer&) const = default;
};
DC_FIELDS(Initializer, DC_FIELD(kind), DC_FIELD(a), DC_FIELD(b), DC_FIELD(zero_row));
struct ArchiveRecord {
  std::string entry;
  DType dtype = DType::F32;
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;
  bool operator==(const ArchiveRecord&) const = default;
};
DC_FIELDS(ArchiveRecord, DC_FIELD(entry), DC_FIELD(dtype), DC_FIELD(sizes), DC_FIELD(strides),
          DC_FIELD(offset));

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
  // Floating tensor with the reduced gradient (whole or flat shard), which is yet to be scaled; -1
  // if frozen.
  int32_t gradient = -1;
  int32_t gradient_ready = -1;  // it is valid after this instruction of the step program
  bool operator==(const Parameter&) const = default;
};
DC_FIELDS(Parameter, DC_FIELD(fqn), DC_FIELD(aliases), DC_FIELD(dtype), DC_FIELD(sizes),
          DC_FIELD(trainable), DC_FIELD(initializer), DC_FIELD(record), DC_FIELD(group),
          DC_FIELD(shard), DC_FIELD(trainable_index), DC_FIELD(gradient), DC_FIELD(gradient_ready));
struct Buffer {
  std::string fqn;
  DType dtype = DType::F32;
  std::vector<int64_t> sizes;
  bool persistent = true;
  Initializer initializer;
  ArchiveRecord record;
  bool operator==(const Buffer&) const = default;
};
DC_FIELDS(Buffer, DC_FIELD(fqn), DC_FIELD(dtype), DC_FIELD(sizes), DC_FIELD(persistent),
          DC_FIELD(initializer), DC_FIELD(record));

// What a state tensor is filled with before step 1.
enum class StateSource : uint8_t { Zeros, ParameterWhole, ParameterShard, Buffer, Data, Runtime };
// How a value is placed along one axis of the mesh.
struct PlacedAxis {
  int32_t axis = 0;  // index into Plan::mesh
  AxisPlacement placement = AxisPlacement::Replicated;
  int32_t dim = -1;   // Shard
  int64_t shard = 0;  // FlatShard: elements, padding included; coordinate c holds [c * shard,
                      // (c + 1) * shard)
  bool operator==(const PlacedAxis&) const = default;
};
DC_FIELDS(PlacedAxis, DC_FIELD(axis), DC_FIELD(placement), DC_FIELD(dim), DC_FIELD(shard));
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
DC_FIELDS(StateEntry, DC_FIELD(name), DC_FIELD(tensor), DC_FIELD(source), DC_FIELD(parameter),
          DC_FIELD(buffer), DC_FIELD(data), DC_FIELD(role), DC_FIELD(placement),
          DC_FIELD(range_of));

struct Input {
  std::string name;
  InputRole role = InputRole::Float;
  double low = 0, high = 1;
  int32_t tensor = -1;
  bool next = false;     // Labels: the token after each position, because the model does not shift
  bool guessed = false;  // the range says what to draw; a file may hold other numbers
  int64_t ignored = base::kIgnoredLabel;  // Labels and Class: what the loss leaves out
  bool operator==(const Input&) const = default;
};
DC_FIELDS(Input, DC_FIELD(name), DC_FIELD(role), DC_FIELD(low), DC_FIELD(high), DC_FIELD(tensor),
          DC_FIELD(next), DC_FIELD(guessed), DC_FIELD(ignored));

struct OptimizerGroup {
  std::string match;
  double lr = 0, weight_decay = 0, beta1 = 0, beta2 = 0, eps = 0, momentum = 0, dampening = 0;
  bool nesterov = false;
  bool operator==(const OptimizerGroup&) const = default;
};
DC_FIELDS(OptimizerGroup, DC_FIELD(match), DC_FIELD(lr), DC_FIELD(weight_decay), DC_FIELD(beta1),
          DC_FIELD(beta2), DC_FIELD(eps), DC_FIELD(momentum), DC_FIELD(dampening),
          DC_FIELD(nesterov));
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
DC_FIELDS(Optimizer, DC_FIELD(kind), DC_FIELD(groups), DC_FIELD(clip), DC_FIELD(clip_norm),
          DC_FIELD(seed), DC_FIELD(schedule), DC_FIELD(warmup_steps), DC_FIELD(total_steps),
          DC_FIELD(final_lr_fraction));

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
  // Of fused kernels: the part of interpolated figures that was learned from other fused kernels,
  // and of the table's that is worked out from the operations apart.
  int64_t learned_ns = 0, closed_form_ns = 0;
  int64_t library_bytes = 0;  // of a GPU, beyond the arena, by each rank; 0: unknown
  bool operator==(const Prediction&) const = default;
};
DC_FIELDS(Prediction, DC_FIELD(compute_ns), DC_FIELD(communication_ns), DC_FIELD(step_ns),
          DC_FIELD(peak_bytes), DC_FIELD(live_bytes), DC_FIELD(wire_bytes), DC_FIELD(origin),
          DC_FIELD(copy_ns), DC_FIELD(copied_out_bytes), DC_FIELD(copied_in_bytes),
          DC_FIELD(contention_ns), DC_FIELD(bounds_ns), DC_FIELD(without_norm_ns),
          DC_FIELD(figures_ns), DC_FIELD(learned_ns), DC_FIELD(closed_form_ns),
          DC_FIELD(library_bytes));

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
DC_FIELDS(SumOrder, DC_FIELD(reductions), DC_FIELD(levels), DC_FIELD(shards));

// What else the plan can do with the state of its training step.
enum class Purpose : uint8_t {
  Train,     // the step at other shapes; no plan has it yet
  Evaluate,  // the loss in eval mode; state stays as it is
};
// Runs between two steps, when all streams have ended, and ends all that it starts. Its programs
// are in Plan::programs and not in Plan::step.
struct Variant {
  Purpose purpose = Purpose::Evaluate;
  std::vector<ProgramRun> step;
  std::vector<Input> inputs;
  Prediction prediction;
  bool operator==(const Variant&) const = default;
};
DC_FIELDS(Variant, DC_FIELD(purpose), DC_FIELD(step), DC_FIELD(inputs), DC_FIELD(prediction));

// What a pass or the search decided.
DC_FIELDS(base::RemarkSubject, DC_FIELD(kind), DC_FIELD(id));
DC_FIELDS(base::RemarkNumber, DC_FIELD(name), DC_FIELD(value));
DC_FIELDS(base::Remark, DC_FIELD(pass), DC_FIELD(code), DC_FIELD(subjects), DC_FIELD(numbers),
          DC_FIELD(text));

// The step's small tensors, see src/base/step_scalars.h.
struct StepTensors {
  int32_t hyperparameters = -1, rng = -1, scalars = -1, table = -1, loss_sum = -1;
  bool operator==(const StepTensors&) const = default;
};
DC_FIELDS(StepTensors, DC_FIELD(hyperparameters), DC_FIELD(rng), DC_FIELD(scalars),
          DC_FIELD_AS(table, "table", "rank_table"), DC_FIELD(loss_sum));

struct Plan : StepTensors {
  std::string name;
  std::string model_digest, profile_digest, options_digest,
      compiler;                    // hex, hex or empty, hex, build id
  std::vector<std::string> notes;  // warnings recorded at compile time
  std::string options;             // canonical text of the options
  std::vector<MeshAxis> mesh;
  base::DeviceKind device = base::DeviceKind::Cpu;  // that the kernels run on
  int32_t threads = 1;                              // per rank
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
// All but what the rank class holds: programs and step.
DC_FIELDS(Plan, DC_FIELD(slices), DC_FIELD(tensors), DC_FIELD(state), DC_FIELD(parameters),
          DC_FIELD(buffers), DC_FIELD(inputs), DC_FIELD(mesh), DC_FIELD(streams), DC_FIELD(groups),
          DC_FIELD(optimizer), DC_BASE(StepTensors, "step_tensors"), DC_FIELD(prediction),
          DC_FIELD(name), DC_FIELD(model_digest), DC_FIELD(profile_digest),
          DC_FIELD(options_digest), DC_FIELD(compiler), DC_FIELD(notes), DC_FIELD(options),
          DC_FIELD_AS(remarks, "remarks", "decisions"), DC_FIELD(passes), DC_FIELD(chain),
          DC_FIELD(arena_bytes), DC_FIELD(budgets), DC_FIELD(step_digest), DC_FIELD(variants),
          DC_FIELD(threads), DC_FIELD(accumulation), DC_FIELD(sums), DC_FIELD(events),
          DC_FIELD(updates_by_range), DC_FIELD(device));

#undef DC_FIELDS
#undef DC_BODY_FIELDS
#undef DC_FIELD
#undef DC_FIELD_AS
#undef DC_BASE

}  // namespace dc::runtime::plan
