#include "tests/runtime/plan/plan_builder.h"

#include "runtime/plan/state_entries.h"
#include "src/base/step_scalars.h"
#include "src/base/units.h"

namespace dc::runtime::plan::test {
namespace {

std::vector<int64_t> row_major(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * sizes[d];
  return strides;
}

// Places slices one after the other.
class Builder {
 public:
  Plan plan;

  int32_t slice(int64_t bytes, SliceKind kind, int32_t program = -1, int32_t first = 0,
                int32_t last = 0) {
    const int64_t room = base::round_up(bytes, base::kAlignment);
    plan.slices.push_back({Space::Device, end_, room, program, first, last, kind});
    end_ += room;
    plan.arena_bytes = {end_};
    return static_cast<int32_t>(plan.slices.size() - 1);
  }
  int32_t view(std::string name, DType dtype, std::vector<int64_t> sizes, int32_t slice,
               int64_t rank_stride = 0) {
    auto strides = row_major(sizes);
    plan.tensors.push_back(
        {std::move(name), dtype, std::move(sizes), std::move(strides), slice, 0, rank_stride});
    return static_cast<int32_t>(plan.tensors.size() - 1);
  }
  int32_t state(const std::string& name, DType dtype, std::vector<int64_t> sizes, int64_t bytes,
                StateRole role, StateSource source = StateSource::Runtime) {
    const int32_t id = view(name, dtype, std::move(sizes), slice(bytes, slice_kind(role)));
    StateEntry entry;
    entry.name = name;
    entry.tensor = id;
    entry.source = source;
    entry.role = role;
    plan.state.push_back(entry);
    return id;
  }
  int32_t temporary(std::string name, DType dtype, std::vector<int64_t> sizes, int64_t bytes,
                    int32_t first, int32_t last, SliceKind kind = SliceKind::Activations) {
    return view(std::move(name), dtype, std::move(sizes), slice(bytes, kind, 0, first, last));
  }

 private:
  int64_t end_ = 0;
};

Arg tensor_arg(std::string name, int64_t id) {
  Arg arg;
  arg.name = std::move(name);
  arg.kind = ArgKind::Tensor;
  arg.i = id;
  return arg;
}
Arg int_arg(std::string name, int64_t value) {
  Arg arg = tensor_arg(std::move(name), value);
  arg.kind = ArgKind::Int;
  return arg;
}

Instruction kernel(Provider provider, std::string op, std::vector<Arg> args,
                   std::vector<int32_t> reads, std::vector<int32_t> writes, Phase phase) {
  Instruction in;
  in.provider = provider;
  in.op = std::move(op);
  in.args = std::move(args);
  in.reads = std::move(reads);
  in.writes = std::move(writes);
  in.phase = phase;
  return in;
}

Instruction aten(std::string op, std::vector<Arg> args, std::vector<int32_t> reads, int32_t output,
                 Phase phase, std::string module) {
  Instruction in =
      kernel(Provider::Aten, std::move(op), std::move(args), std::move(reads), {output}, phase);
  in.outputs = {output};
  in.module = std::move(module);
  return in;
}

Instruction collective(CollectiveKind kind, int32_t stream, int32_t group, CollectiveBuffer buffer,
                       Phase phase) {
  Instruction in;
  in.kind = InstructionKind::Collective;
  in.collective = kind;
  in.stream = stream;
  in.group = group;
  in.buffers = {buffer};
  in.reads = {buffer.input};
  in.writes = {buffer.output};
  in.phase = phase;
  return in;
}

Instruction sync(InstructionKind kind, int32_t stream, int32_t event) {
  Instruction in;
  in.kind = kind;
  in.stream = stream;
  in.event = event;
  in.phase = Phase::Backward;
  return in;
}

// Tensors in the order of TinyTensor.
void add_tensors(Builder& b) {
  b.state("shard:w", DType::F32, {32}, 128, StateRole::Shard, StateSource::ParameterShard);
  b.state("exp_avg:w", DType::F32, {32}, 128, StateRole::Moment1, StateSource::Zeros);
  b.state("exp_avg_sq:w", DType::F32, {32}, 128, StateRole::Moment2, StateSource::Zeros);
  for (StateEntry& entry : b.plan.state) {
    entry.parameter = 0;
    entry.placement = {{0, AxisPlacement::FlatShard, -1, 32}};
  }
  b.state("hyperparameters", DType::F64, {base::kHyperGroups + base::kHyperPerGroup}, 128,
          StateRole::Hyperparameters);
  b.state("rng", DType::I64, {4}, 32, StateRole::Random);
  b.state("scalars", DType::F64, {base::kScalarFinite + 1}, 72, StateRole::Scalars);
  const int32_t table = b.state("table", DType::F64, {2, 3}, 48, StateRole::NormTable);
  b.view("table.row", DType::F64, {3}, b.plan.tensors[static_cast<size_t>(table)].slice, 24);
  b.state("loss_sum", DType::F64, {1}, 8, StateRole::LossSum, StateSource::Zeros);
  b.view("x", DType::F32, {2, 6}, b.slice(48, SliceKind::Inputs));
  b.temporary("w", DType::F32, {6, 10}, 256, kGather, kMatmul, SliceKind::Gathered);
  b.temporary("y", DType::F32, {2, 10}, 80, kMatmul, kGradientOf);
  b.temporary("grad:w", DType::F32, {6, 10}, 240, kGradientOf, kReduce, SliceKind::Gradients);
  b.temporary("reduced:w", DType::F32, {32}, 128, kReduce, kAdamW, SliceKind::Gradients);
  b.temporary("loss", DType::F32, {}, 4, kLossSumOf, kAddLoss);
  b.slice(1024, SliceKind::Scratch, 0, kMatmul, kMatmul);
}

// In the order of TinyInstruction.
std::vector<Instruction> tiny_instructions() {
  std::vector<Instruction> list;
  list.push_back(
      collective(CollectiveKind::AllGather, 0, 0, {kShard, kWhole, 60, 32}, Phase::Forward));
  list.push_back(aten("aten.mm.default", {tensor_arg("self", kInput), tensor_arg("mat2", kWhole)},
                      {kInput, kWhole}, kProduct, Phase::Forward, "net.linear"));
  list.back().scratch = kScratchSlice;
  list.push_back(aten("aten.sum.default", {tensor_arg("self", kProduct)}, {kProduct}, kLoss,
                      Phase::Forward, "net"));
  Instruction gradient =
      aten("aten.mm.default", {tensor_arg("self", kInput), tensor_arg("mat2", kProduct)},
           {kInput, kProduct}, kGradient, Phase::Backward, "net.linear");
  list.push_back(gradient);
  list.push_back(kernel(Provider::Native, "dc.add_loss",
                        {tensor_arg("sum", kLossSum), tensor_arg("loss", kLoss)}, {kLossSum, kLoss},
                        {kLossSum}, Phase::Backward));
  list.push_back(sync(InstructionKind::Signal, 0, 0));
  list.push_back(sync(InstructionKind::Wait, 1, 0));
  list.push_back(collective(CollectiveKind::ReduceScatter, 1, 1, {kGradient, kReduced, 60, 32},
                            Phase::Backward));
  list.push_back(sync(InstructionKind::Signal, 1, 1));
  list.push_back(sync(InstructionKind::Wait, 0, 1));
  list.push_back(kernel(Provider::Native, "dc.square_sum",
                        {tensor_arg("row", kTable), tensor_arg("g", kReduced),
                         tensor_arg("hyperparameters", kHyperparameters), int_arg("param", 0),
                         int_arg("shard", 32), int_arg("elements", 60)},
                        {kTable, kReduced, kHyperparameters}, {kTable}, Phase::Update));
  list.push_back(
      collective(CollectiveKind::AllGather, 0, 0, {kTableRow, kTable, 6, 3}, Phase::Update));
  Arg clip = int_arg("clip", 1);
  clip.kind = ArgKind::Bool;
  list.push_back(kernel(Provider::Native, "dc.clip_and_check",
                        {tensor_arg("scalars", kScalars), tensor_arg("table", kTable),
                         tensor_arg("hyperparameters", kHyperparameters), clip},
                        {kTable, kHyperparameters}, {kScalars}, Phase::Update));
  const std::vector<int32_t> state = {kShard, kMoment1, kMoment2};
  list.push_back(kernel(
      Provider::Native, "dc.adamw",
      {tensor_arg("p", kShard), tensor_arg("m", kMoment1), tensor_arg("v", kMoment2),
       tensor_arg("g", kReduced), tensor_arg("scalars", kScalars),
       tensor_arg("hyperparameters", kHyperparameters), int_arg("group", 0)},
      {kShard, kMoment1, kMoment2, kReduced, kScalars, kHyperparameters}, state, Phase::Update));
  return list;
}

void describe(Plan& plan) {
  plan.name = "tiny";
  plan.model_digest = std::string(64, 'a');
  plan.options_digest = std::string(64, 'b');
  plan.compiler = "dcc test";
  plan.notes = {"no profile: times come from the generic CPU table"};
  plan.options = "zero=3 world=2";
  plan.mesh = {{"dp", 2}};
  plan.sums = {ReductionOrder::PerMicroBatch, {kAllAxes}, kAllAxes};
  plan.chain = "zero3";
  plan.streams = {{"compute", Space::Device}, {"reduce", Space::Device}};
  plan.events = 2;
  plan.groups = {{kAllAxes, 0}, {kAllAxes, 1}};
  plan.optimizer.groups = {{"*", 1e-3, 0.01, 0.9, 0.999, 1e-8, 0, 0, false}};
  plan.optimizer.clip = true;
  plan.hyperparameters = kHyperparameters;
  plan.rng = kRng;
  plan.scalars = kScalars;
  plan.table = kTable;
  plan.loss_sum = kLossSum;
  plan.prediction = {1'200'000,
                     300'000,
                     1'500'000,
                     plan.arena_bytes[0],
                     2048,
                     {256, 120, 0, 0, 0},
                     "generic cpu table",
                     0,
                     0,
                     0,
                     0,
                     {1'200'000, 1'400'000, 1'410'000, 1'420'000},
                     1'350'000,
                     {900'000, 300'000, 200'000, 100'000}};
  plan.passes = "shard-parameters=3";
  plan.remarks = {{"shard-parameters",
                   "parameters-sharded",
                   {{base::SubjectKind::Parameter, 0}},
                   {{"shards", 2}, {"elements", 32}},
                   "w in 2 shards of 32"}};
}

}  // namespace

Plan tiny_plan() {
  Builder b;
  add_tensors(b);
  Plan& plan = b.plan;
  describe(plan);
  Parameter w;
  w.fqn = "net.linear.weight";
  w.aliases = {"tied.weight"};
  w.sizes = {6, 10};
  w.initializer = {InitKind::Normal, 0, 0.02};
  w.record = {"data/weights/weight_0", DType::F32, {6, 10}, {10, 1}, 0};
  w.shard = 32;
  w.trainable_index = 0;
  w.gradient = kReduced;
  w.gradient_ready = kReduce;
  plan.parameters = {w};
  plan.inputs = {{"x", InputRole::Float, -1, 1, kInput}};
  plan.programs = {{"step", tiny_instructions()}};
  for (const Instruction& in : plan.programs[0].instructions) {
    const bool syncs = in.kind == InstructionKind::Signal || in.kind == InstructionKind::Wait;
    plan.programs[0].duration_ns.push_back(syncs ? 0 : kTinyDuration);
  }
  plan.step = {{0, 1}};
  return plan;
}

Plan evaluating_plan() {
  Builder b;
  b.plan = tiny_plan();
  int64_t at = b.plan.slices[static_cast<size_t>(b.plan.tensors[kWhole].slice)].offset;
  const auto transient = [&](std::string name, std::vector<int64_t> sizes, int64_t bytes,
                             SliceKind kind, int32_t first, int32_t last) {
    b.plan.slices.push_back({Space::Device, at, bytes, 1, first, last, kind});
    at += bytes;
    return b.view(std::move(name), DType::F32, std::move(sizes),
                  static_cast<int32_t>(b.plan.slices.size()) - 1);
  };
  transient("eval.x", {2, 6}, 64, SliceKind::Inputs, 0, kEvalMatmul);
  transient("eval.w", {6, 10}, 256, SliceKind::Gathered, kEvalGather, kEvalMatmul);
  transient("eval.y", {2, 10}, 128, SliceKind::Activations, kEvalMatmul, kEvalSum);
  transient("eval.loss", {}, 64, SliceKind::Activations, kEvalSum, kEvalAddLoss);
  Program evaluation{"evaluation", {}, std::vector<int64_t>(4, kTinyDuration)};
  evaluation.instructions = {
      collective(CollectiveKind::AllGather, 0, 0, {kShard, kEvalWhole, 60, 32}, Phase::Forward),
      aten("aten.mm.default", {tensor_arg("self", kEvalInput), tensor_arg("mat2", kEvalWhole)},
           {kEvalInput, kEvalWhole}, kEvalProduct, Phase::Forward, "net.linear"),
      aten("aten.sum.default", {tensor_arg("self", kEvalProduct)}, {kEvalProduct}, kEvalLoss,
           Phase::Forward, "net"),
      kernel(Provider::Native, "dc.add_loss",
             {tensor_arg("sum", kLossSum), tensor_arg("loss", kEvalLoss)}, {kLossSum, kEvalLoss},
             {kLossSum}, Phase::Forward)};
  b.plan.programs.push_back(std::move(evaluation));
  Variant variant;
  variant.step = {{1, 1}};
  variant.purpose = Purpose::Evaluate;
  variant.inputs = {{"x", InputRole::Float, -1, 1, kEvalInput}};
  variant.prediction = b.plan.prediction;
  variant.prediction.step_ns = 400'000;
  b.plan.variants = {variant};
  return b.plan;
}

Plan large_plan(int instructions) {
  Plan plan = tiny_plan();
  Builder b;
  b.plan = plan;
  // A chain: each instruction reads the value before it. Values alternate between two places.
  const int64_t base_offset = plan.arena_bytes[0];
  auto& list = b.plan.programs[0].instructions;
  int32_t previous = kInput;
  for (int i = 0; i < instructions; ++i) {
    const auto index = static_cast<int32_t>(list.size());
    const int32_t last = i + 1 < instructions ? index + 1 : index;
    const auto slice = static_cast<int32_t>(b.plan.slices.size());
    b.plan.slices.push_back(
        {Space::Device, base_offset + int64_t{i % 2} * 1024, 1024, 0, index, last});
    const int32_t value = b.view("v" + std::to_string(i), DType::F32, {16, 16}, slice);
    list.push_back(aten("aten.relu.default", {tensor_arg("self", previous)}, {previous}, value,
                        Phase::Forward, "net.layers." + std::to_string(i / 100)));
    b.plan.programs[0].duration_ns.push_back(kTinyDuration);
    previous = value;
  }
  b.plan.arena_bytes[0] = base_offset + 2048;
  return b.plan;
}

}  // namespace dc::runtime::plan::test
