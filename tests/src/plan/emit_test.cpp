#include "src/plan/emit.h"
#include "runtime/report/report.h"
#include "runtime/verify/verify.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/plan/file.h"
#include "runtime/plan/timeline.h"
#include "src/cost/analytic.h"
#include "src/cost/fixed.h"
#include "src/layout/allocate.h"
#include "src/plan/traffic.h"
#include "tests/src/analysis/small_steps.h"
#include "tests/src/ir/sample_steps.h"

namespace dc::plan {
namespace {

namespace rp = runtime::plan;
using base::DType;
using ir::f32;
using ir::OpKind;
using ir::StateRole;
using ir::TensorType;
using ir::ValueId;

TensorType f64(ir::Shape shape) { return ir::contiguous(DType::F64, std::move(shape)); }
TensorType flat_shard(int64_t elements) {
  TensorType type = f32({elements});
  type.sharding[0].placement = ir::AxisPlacement::FlatShard;
  return type;
}

constexpr int kWorld = 3;
constexpr int64_t kElements = 70, kShard = 32;

// One parameter w[7, 10], gathered per use, its gradient reduced, AdamW on the shard.
class GatheredStep : public ir::StepBuilder {
 public:
  explicit GatheredStep(int accumulation = 1) : StepBuilder(kWorld) {
    step.accumulation = accumulation;
    ir::Parameter w;
    w.fqn = "layer.weight";
    w.shape = {7, 10};
    w.shard = kShard;
    w.gradient = ir::GradientPlacement::ShardedEachMicroBatch;
    step.parameters.edit().push_back(w);
    shard_ = parameter_entry("w", StateRole::Shard);
    moment1_ = parameter_entry("exp_avg.w", StateRole::Moment1);
    moment2_ = parameter_entry("exp_avg_sq.w", StateRole::Moment2);
    hyperparameters_ = entry("hyperparameters", StateRole::Hyperparameters, f64({16}));
    rng_ = entry("rng", StateRole::Random, ir::contiguous(DType::I64, {4}));
    scalars_ = entry("scalars", StateRole::Scalars, f64({9}));
    loss_sum_ = entry("loss_sum", StateRole::LossSum, f64({1}));
    table_ = entry("table", StateRole::NormTable, f64({kWorld, 3}));
    row_ = entry("norm_row", StateRole::NormTable, f64({3}), table_);
    if (accumulation > 1) {
      accumulator_ = parameter_entry("gradient.w", StateRole::Accumulator);
      graph().set_name("accumulate");
      step.programs[0].repeat = accumulation - 1;
      micro_batch();
      step.programs.push_back({ir::Graph("step"), 1});
    }
    ValueId gradient = micro_batch();
    if (accumulation > 1) gradient = sum_;
    update(gradient);
  }

 private:
  int parameter_entry(const std::string& name, StateRole role) {
    int index = entry(name, role, flat_shard(kShard));
    step.state.edit(static_cast<size_t>(index)).parameter = 0;
    return index;
  }
  ValueId micro_batch() {
    origin = {"layer", ir::Phase::Forward, false};
    ValueId x = op(OpKind::Input, {}, {{"x", f32({5, 7})}}, {{ir::Attr::Name, std::string("x")}});
    if (step.inputs.empty()) step.inputs.push_back({"x", ir::InputRole::Float, 0, 1, f32({5, 7})});
    ValueId shard = state(shard_), sum = state(loss_sum_);
    if (accumulator_ >= 0) sum_ = state(accumulator_);
    ValueId w = collective(OpKind::AllGatherStart, OpKind::AllGatherDone, {shard}, "whole",
                           f32({7, 10}), kElements, kShard);
    ValueId t = aten("aten.mm.default", {x, w}, {"y", f32({5, 10})});
    op(OpKind::Release, {w}, {});
    ValueId loss = graph()
                       .insert_aten({}, "aten.sum.dim_IntList", {t}, {{"loss", f32({})}},
                                    {{"self", ir::OperandRef{0}},
                                     {"dim", std::vector<int64_t>{0, 1}},
                                     {"keepdim", false},
                                     {"dtype", DType::F32, true}},
                                    origin)
                       .results[0];
    graph().outputs = {{ir::OutputKind::Loss, "", loss}};
    op(OpKind::AddLoss, {sum, loss}, {});
    origin.phase = ir::Phase::Backward;
    TensorType turned = f32({7, 5});
    turned.strides = {1, 7};
    ValueId xt = aten("aten.t.default", {x}, {"xt", turned});
    ValueId g = aten("aten.mm.default", {xt, t}, {"g", f32({7, 10})});
    ValueId reduced = collective(OpKind::ReduceScatterStart, OpKind::ReduceScatterDone, {g},
                                 "reduced", flat_shard(kShard), kElements, kShard);
    if (accumulator_ >= 0) op(OpKind::Accumulate, {sum_, reduced}, {});
    return reduced;
  }
  void update(ValueId gradient) {
    origin = {"layer", ir::Phase::Update, false};
    ValueId hyperparameters = state(hyperparameters_), row = state(row_), table = state(table_),
            scalars = state(scalars_), shard = state(shard_);
    op(OpKind::SquareSum, {row, gradient, hyperparameters}, {},
       {{ir::Attr::Param, int64_t{0}},
        {ir::Attr::Shard, kShard},
        {ir::Attr::Elements, kElements},
        {ir::Attr::Whole, int64_t{0}}});
    ir::Node& start = graph().insert(
        {}, OpKind::AllGatherIntoStart, {table, row}, {{"table_started", f64({kWorld, 3})}},
        {{ir::Attr::Elements, int64_t{9}}, {ir::Attr::Shard, int64_t{3}}}, origin);
    start.stream = 1;
    op(OpKind::AllGatherIntoDone, {start.results[0]}, {{"table_done", f64({kWorld, 3})}});
    op(OpKind::ClipAndCheck, {scalars, table, hyperparameters}, {}, {{ir::Attr::Clip, int64_t{1}}});
    ValueId m = state(moment1_), v = state(moment2_);
    op(OpKind::AdamW, {shard, m, v, gradient, scalars, hyperparameters}, {},
       {{ir::Attr::Param, int64_t{0}},
        {ir::Attr::Group, int64_t{0}},
        {ir::Attr::Clip, int64_t{1}}});
    if (accumulator_ >= 0) op(OpKind::Zero, {sum_}, {});
  }
  int shard_, moment1_, moment2_, hyperparameters_, rng_, scalars_, loss_sum_, table_, row_,
      accumulator_ = -1;
  ValueId sum_;
};

rp::Plan emitted(GatheredStep&& built, const cost::CostModel& cost) {
  EXPECT_TRUE(layout::allocate(built.step, cost).ok());
  auto plan = emit(built.step, {2, "zero3"}, cost);
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  return std::move(plan).value();
}

const rp::Instruction& find(const rp::Program& program, const std::string& op) {
  for (const rp::Instruction& instruction : program.instructions) {
    if (instruction.op == op) return instruction;
  }
  ADD_FAILURE() << "no " << op;
  return program.instructions.front();
}

TEST(Emit, PlansPassTheVerifierAndSurviveTheFile) {
  cost::AnalyticCost cost(2);
  for (int accumulation : {1, 4}) {
    rp::Plan plan = emitted(GatheredStep(accumulation), cost);
    base::Status status = runtime::verify::verify_meaning(plan);
    EXPECT_TRUE(status.ok()) << status.to_string() << runtime::report::to_text(plan);
    std::string bytes = rp::encode(plan);
    auto decoded = rp::decode({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
    ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
    EXPECT_EQ(runtime::report::to_text(*decoded), runtime::report::to_text(plan));
    EXPECT_EQ(bytes, rp::encode(emitted(GatheredStep(accumulation), cost)));
  }
}

TEST(Emit, CollectivesRunOnTheirStreamBetweenEvents) {
  rp::Plan plan = emitted(GatheredStep(), cost::AnalyticCost(1));
  const auto& list = plan.programs[0].instructions;
  using K = rp::InstructionKind;
  std::vector<K> kinds;
  std::vector<int32_t> streams, events;
  for (size_t i = 0; i < 6; ++i) {
    kinds.push_back(list[i].kind);
    streams.push_back(list[i].stream);
    events.push_back(list[i].event);
  }
  EXPECT_EQ(kinds,
            (std::vector<K>{K::Signal, K::Wait, K::Collective, K::Signal, K::Wait, K::Kernel}));
  EXPECT_EQ(streams, (std::vector<int32_t>{0, 1, 1, 1, 0, 0}));
  EXPECT_EQ(events, (std::vector<int32_t>{0, 0, -1, 1, 1, -1}));
  EXPECT_EQ(plan.events, 6);  // three collectives
  ASSERT_EQ(plan.groups.size(), 1u);
  EXPECT_EQ(plan.groups[0].axes, rp::kAllAxes);
  EXPECT_EQ(plan.groups[0].stream, 1);
  const rp::CollectiveBuffer& buffer = list[2].buffers.at(0);
  EXPECT_EQ(buffer.elements, kElements);
  EXPECT_EQ(buffer.shard, kShard);
  const rp::Slice& gathered =
      plan.slices[static_cast<size_t>(plan.tensors[static_cast<size_t>(buffer.output)].slice)];
  EXPECT_EQ(gathered.bytes, kWorld * kShard * 4);
  EXPECT_EQ(gathered.first, 0);
  EXPECT_EQ(gathered.last, 5);  // the product is its last reader
}

TEST(Emit, AReductionHoldsItsOperandUntilItsDone) {
  rp::Plan plan = emitted(GatheredStep(), cost::AnalyticCost(1));
  const auto& list = plan.programs[0].instructions;
  auto at = std::find_if(list.begin(), list.end(), [](const rp::Instruction& i) {
    return i.kind == rp::InstructionKind::Collective &&
           i.collective == rp::CollectiveKind::ReduceScatter;
  });
  ASSERT_NE(at, list.end());
  auto index = static_cast<int32_t>(at - list.begin());
  EXPECT_EQ(list[static_cast<size_t>(index) + 2].kind, rp::InstructionKind::Wait);
  const rp::Slice& operand = plan.slices[static_cast<size_t>(
      plan.tensors[static_cast<size_t>(at->buffers[0].input)].slice)];
  EXPECT_EQ(operand.last, index + 2);
}

TEST(Emit, KernelsCarryArgumentsReadsAndWrites) {
  rp::Plan plan = emitted(GatheredStep(), cost::AnalyticCost(1));
  const rp::Instruction& sum = find(plan.programs[0], "aten.sum.dim_IntList");
  ASSERT_EQ(sum.args.size(), 4u);
  EXPECT_EQ(sum.args[0].kind, rp::ArgKind::Tensor);
  EXPECT_EQ(sum.args[1].ints, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(sum.args[2].kind, rp::ArgKind::Bool);
  EXPECT_EQ(sum.args[3].kind, rp::ArgKind::DType);
  EXPECT_EQ(sum.args[3].i, static_cast<int64_t>(DType::F32));
  EXPECT_EQ(sum.module, "layer");
  EXPECT_GE(sum.scratch, 0);
  const rp::Instruction& adamw = find(plan.programs[0], "dc.adamw");
  EXPECT_EQ(adamw.provider, rp::Provider::Native);
  ASSERT_EQ(adamw.args.size(), 9u);
  EXPECT_EQ(adamw.args[0].name, "p");
  EXPECT_EQ(adamw.args[6].name, "param");
  EXPECT_EQ(adamw.writes.size(), 3u);
  EXPECT_EQ(adamw.reads.size(), 6u);
  EXPECT_EQ(adamw.scratch, -1);
  EXPECT_EQ(find(plan.programs[0], "dc.clip_and_check").reads.size(),
            2u);  // the scalars are only written
  EXPECT_EQ(adamw.phase, rp::Phase::Update);
}

// The plan's own timeline, replayed from durations, is the simulator's.
TEST(Emit, DurationsGiveTheSimulatedTimes) {
  const auto cost = cost::parse_fixed_cost(
      "fixed(mm=200us, sum=40us, all_gather=150us, reduce_scatter=70us, adamw=3us)");
  ASSERT_TRUE(cost.ok());
  for (int accumulation : {1, 4}) {
    const rp::Plan plan = emitted(GatheredStep(accumulation), *cost);
    ASSERT_TRUE(rp::has_timeline(plan));
    int64_t step = 0, exposed = 0;
    for (size_t p = 0; p < plan.programs.size(); ++p) {
      const rp::ProgramTimeline line = rp::predicted_timeline(plan, plan.programs[p]);
      step += line.time_ns * plan.step[p].repeat;
      exposed += line.exposed_ns * plan.step[p].repeat;
      for (size_t i = 0; i < plan.programs[p].instructions.size(); ++i) {
        const rp::Instruction& in = plan.programs[p].instructions[i];
        const int64_t expected = in.op == "aten.mm.default"                           ? 200'000
                                 : in.op == "dc.adamw"                                ? 3'000
                                 : in.op == "aten.sum.dim_IntList"                    ? 40'000
                                 : in.kind != rp::InstructionKind::Collective         ? 0
                                 : in.collective == rp::CollectiveKind::ReduceScatter ? 70'000
                                                                                      : 150'000;
        EXPECT_EQ(plan.programs[p].duration_ns[i], expected) << i;
      }
    }
    EXPECT_EQ(step, plan.prediction.step_ns);
    EXPECT_EQ(exposed, plan.prediction.communication_ns);  // just in time: all of it
  }
}

TEST(Emit, StateTablesNameSourcesAndTheRanksRow) {
  rp::Plan plan = emitted(GatheredStep(), cost::AnalyticCost(1));
  EXPECT_EQ(plan.state[0].source, rp::StateSource::ParameterShard);
  EXPECT_EQ(plan.state[0].role, rp::StateRole::Shard);
  EXPECT_EQ(plan.state[0].placement,
            (std::vector<rp::PlacedAxis>{{0, rp::AxisPlacement::FlatShard, -1, kShard}}));
  EXPECT_EQ(plan.state[1].source, rp::StateSource::Zeros);
  EXPECT_EQ(plan.state[1].role, rp::StateRole::Moment1);
  const rp::Tensor& row = plan.tensors[static_cast<size_t>(plan.state.back().tensor)];
  EXPECT_EQ(plan.state.back().name, "norm_row");
  EXPECT_EQ(row.rank_stride, 3 * 8);
  EXPECT_EQ(row.slice, plan.tensors[static_cast<size_t>(plan.table)].slice);
  EXPECT_EQ(plan.tensors[static_cast<size_t>(plan.table)].rank_stride, 0);
  ASSERT_EQ(plan.parameters.size(), 1u);
  const rp::Parameter& w = plan.parameters[0];
  const rp::Instruction& ready =
      plan.programs[0].instructions[static_cast<size_t>(w.gradient_ready)];
  EXPECT_EQ(ready.op, "dc.square_sum");
  EXPECT_EQ(ready.args[1].i, w.gradient);
  EXPECT_EQ(plan.threads, 2);
  EXPECT_EQ(plan.chain, "zero3");
}

TEST(Emit, InputsHaveOnePlaceForAllPrograms) {
  rp::Plan one = emitted(GatheredStep(), cost::AnalyticCost(1));
  auto slice = [](const rp::Plan& plan) {
    return plan.slices[static_cast<size_t>(
        plan.tensors[static_cast<size_t>(plan.inputs.at(0).tensor)].slice)];
  };
  EXPECT_EQ(slice(one).program, 0);
  EXPECT_EQ(slice(one).first, 0);
  rp::Plan two = emitted(GatheredStep(4), cost::AnalyticCost(1));
  EXPECT_EQ(slice(two).program, -1);
  for (const rp::Program& program : two.programs) {
    const auto& reads = find(program, "aten.mm.default").reads;
    EXPECT_NE(std::find(reads.begin(), reads.end(), two.inputs[0].tensor), reads.end());
  }
  ASSERT_EQ(two.step.size(), 2u);
  EXPECT_EQ(two.step[0].repeat, 3);
  EXPECT_EQ(two.step[1].repeat, 1);
}

rp::Plan offloaded(const cost::CostModel& cost) {
  base::Result<ir::Step> step = ir::parse(ir::kOffloaded);
  EXPECT_TRUE(step.ok()) << step.status().to_string();
  EXPECT_TRUE(layout::allocate(*step, cost).ok());
  auto plan = emit(*step, {1, "zero0"}, cost);
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  return std::move(plan).value();
}

TEST(Emit, CopiesBetweenSpacesRunOnTheirStreams) {
  const auto cost = cost::parse_fixed_cost("fixed(copy=100us)");
  const rp::Plan plan = offloaded(*cost);
  EXPECT_EQ(runtime::verify::verify_meaning(plan).to_string(), "");
  EXPECT_EQ(plan.arena_bytes[1], 256);
  EXPECT_EQ(plan.arena_bytes[2], 128);
  EXPECT_TRUE(plan.groups.empty());
  ASSERT_EQ(plan.streams.size(), 3u);
  EXPECT_EQ(plan.streams[1].name, "copy_out");
  const auto& list = plan.programs[0].instructions;
  const auto first = std::find_if(list.begin(), list.end(), [](const rp::Instruction& i) {
    return i.kind == rp::InstructionKind::Copy;
  });
  ASSERT_NE(first, list.end());
  const auto index = static_cast<size_t>(first - list.begin());
  using K = rp::InstructionKind;
  EXPECT_EQ(list[index - 2].kind, K::Signal);
  EXPECT_EQ(list[index - 1].kind, K::Wait);
  EXPECT_EQ(list[index - 1].stream, 1);
  EXPECT_EQ(list[index + 1].kind, K::Signal);
  EXPECT_EQ(list[index + 2].kind, K::Wait);
  EXPECT_EQ(list[index + 2].stream, 0);
  const auto slice = [&](int32_t tensor) {
    return plan.slices[static_cast<size_t>(plan.tensors[static_cast<size_t>(tensor)].slice)];
  };
  EXPECT_EQ(slice(first->src).space, rp::Space::Device);
  EXPECT_EQ(slice(first->src).last, static_cast<int32_t>(index) + 2);
  EXPECT_EQ(slice(first->dst).space, rp::Space::Disk);
  EXPECT_EQ(plan.prediction.copy_ns, 400'000);
  EXPECT_EQ(plan.prediction.copied_out_bytes, 128 + 256);
  EXPECT_EQ(plan.prediction.copied_in_bytes, 128 + 256);
  const std::string text = runtime::report::to_text(plan);
  EXPECT_NE(text.find(" disk@0+128"), std::string::npos) << text;
  EXPECT_NE(
      runtime::report::summary(plan).find("copied per step    384 B from the device, 384 B to it"),
      std::string::npos)
      << runtime::report::summary(plan);
}

TEST(Emit, ACopyTakesPermutedBytesAsTheyLie) {
  std::string text = ir::kOffloaded;
  for (const char* name : {"%h", "%o0", "%o1", "%r0", "%r1"}) {
    const size_t at = text.find("f32[4,8]", text.find(std::string("    ") + name + " = "));
    text.insert(at + 8, " strides=(1,4)");
  }
  base::Result<ir::Step> step = ir::parse(text);
  ASSERT_TRUE(step.ok()) << step.status().to_string();
  ASSERT_EQ(ir::verify(*step, ir::Stage::Scheduled).to_string(), "");
  const cost::AnalyticCost cost(1);
  ASSERT_TRUE(layout::allocate(*step, cost).ok());
  auto plan = emit(*step, {1, "zero0"}, cost);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ(runtime::verify::verify_meaning(*plan).to_string(), "");
  for (const rp::Instruction& in : plan->programs[0].instructions) {
    if (in.kind != rp::InstructionKind::Copy) continue;
    EXPECT_EQ(plan->tensors[static_cast<size_t>(in.src)].strides.back(), 1);
  }
}

// Signal, wait, kernel, signal on the host's stream; what needs its end waits for that alone.
TEST(Emit, AKernelOfTheHostRunsOnItsStream) {
  base::Result<ir::Step> step = ir::parse(ir::kOnHost);
  ASSERT_TRUE(step.ok()) << step.status().to_string();
  const cost::AnalyticCost cost(1);
  ASSERT_TRUE(layout::allocate(*step, cost).ok());
  auto plan = emit(*step, {1, "zero0"}, cost);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ(runtime::verify::verify_meaning(*plan).to_string(), "");
  const int32_t host = 3;
  ASSERT_EQ(plan->streams.size(), 4U);
  EXPECT_EQ(plan->streams[host].space, rp::Space::Host);
  EXPECT_EQ(plan->streams[0].space, rp::Space::Device);
  std::vector<rp::InstructionKind> kinds;
  int32_t rounded = -1;
  for (const rp::Instruction& in : plan->programs[0].instructions) {
    if (in.stream == host) kinds.push_back(in.kind);
    if (in.stream == host && in.kind == rp::InstructionKind::Signal) rounded = in.event;
  }
  using Kind = rp::InstructionKind;
  EXPECT_EQ(kinds, (std::vector<Kind>{Kind::Wait, Kind::Kernel, Kind::Signal, Kind::Wait,
                                      Kind::Kernel, Kind::Signal}));
  const auto awaits_it = [&](const rp::Instruction& in) {
    return in.kind == Kind::Wait && in.event == rounded &&
           plan->streams[in.stream].name == "copy_in";
  };
  EXPECT_EQ(std::ranges::count_if(plan->programs[0].instructions, awaits_it), 1);
}

TEST(Emit, RefusesAKernelOfTheDeviceOutsideCompute) {
  GatheredStep built;
  ir::Graph& graph = built.graph();
  for (ir::NodeId id : graph.order()) {
    if (graph.node(id).kind == OpKind::SquareSum) graph.edit(id).stream = 1;
  }
  const cost::AnalyticCost cost(1);
  ASSERT_TRUE(layout::allocate(built.step, cost).ok());
  auto plan = emit(built.step, {1, "zero3"}, cost);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), "DC8001");
  EXPECT_NE(plan.status().sentence().find("square_sum"), std::string::npos);
}

TEST(Emit, RefusesAStepWithoutAddresses) {
  GatheredStep built;
  auto plan = emit(built.step, {}, cost::AnalyticCost(1));
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), "DC8001");
}

TEST(Traffic, CountsWhatEachRankSends) {
  GatheredStep built(4);  // four micro-batches: 4 gathers, 4 reductions, 1 exchange of the table
  auto gathers = [](int64_t own) { return 4 * own * 2 * 4 + int64_t{3} * 8 * 2; };
  auto reductions = [](int64_t own) { return 4 * (kElements - own) * 4; };
  for (auto [rank, own] : {std::pair{0, 32}, std::pair{1, 32}, std::pair{2, 6}}) {
    auto bytes = wire_bytes(built.step, rank);
    EXPECT_EQ(bytes[static_cast<size_t>(rp::CollectiveKind::AllGather)], gathers(own));
    EXPECT_EQ(bytes[static_cast<size_t>(rp::CollectiveKind::ReduceScatter)], reductions(own));
    EXPECT_EQ(bytes[static_cast<size_t>(rp::CollectiveKind::AllReduce)], 0);
  }
}

TEST(Traffic, AllReduceSendsF32Sums) {
  ir::StepBuilder b(2);
  ValueId x = b.input("x", ir::contiguous(DType::BF16, {50}));
  b.collective(OpKind::AllReduceStart, OpKind::AllReduceDone, {x}, "sum", f32({50}), 50, 32);
  EXPECT_EQ(wire_bytes(b.step, 0)[static_cast<size_t>(rp::CollectiveKind::AllReduce)],
            18 * 2 + 32 * 4);
  EXPECT_EQ(wire_bytes(b.step, 1)[static_cast<size_t>(rp::CollectiveKind::AllReduce)],
            32 * 2 + 18 * 4);
}

TEST(Traffic, SerialTimeCountsRepeats) {
  auto cost =
      cost::parse_fixed_cost("fixed(mm=200us, all_gather=150us, reduce_scatter=70us, adamw=3us)");
  ASSERT_TRUE(cost.ok());
  GatheredStep built(4);
  SerialTime time = serial_time(built.step, *cost);
  EXPECT_EQ(time.compute.v, 4 * 2 * 200000 + 3000);
  EXPECT_EQ(time.communication.v, 4 * (150000 + 70000) + 150000);
  EXPECT_EQ(time.count(cost::Source::Analytic), 0);
  const SerialTime table = serial_time(built.step, cost::AnalyticCost(1));
  EXPECT_EQ(table.count(cost::Source::Analytic), table.figures());
  EXPECT_EQ(table.by_source[static_cast<size_t>(cost::Source::Analytic)],
            table.compute + table.communication);
  EXPECT_EQ(table.figures(), time.figures());
}

}  // namespace
}  // namespace dc::plan
