// The order of sums that a plan says, against what a small hierarchical step does: two hosts of two
// ranks, two micro-batches.
#include <gtest/gtest.h>

#include <functional>

#include "runtime/plan/plan.h"
#include "runtime/verify/checks.h"

namespace dc::runtime::verify {
namespace {

using plan::CollectiveKind;
using plan::Instruction;
using plan::InstructionKind;
using plan::Plan;
using plan::ReductionOrder;

constexpr uint32_t kHost = 0b01, kInside = 0b10;
enum TensorId : int32_t { kGradient, kSummand, kSum, kAccumulator, kOnHost };
enum GroupId : int32_t { kGroupInside, kGroupAcross, kGroupWorld };

Instruction reduction(CollectiveKind kind, int32_t group, int32_t input, int32_t output) {
  Instruction in;
  in.kind = InstructionKind::Collective;
  in.collective = kind;
  in.group = group;
  in.buffers = {{input, output, 64, 32}};
  in.reads = {input};
  in.writes = {output};
  return in;
}
Instruction scatter() {
  return reduction(CollectiveKind::ReduceScatter, kGroupInside, kGradient, kSummand);
}
Instruction all_reduce(int32_t input) {
  return reduction(CollectiveKind::AllReduce, kGroupAcross, input, kSum);
}
Instruction accumulate(int32_t sum, int32_t value) {
  Instruction in;
  in.provider = plan::Provider::Native;
  in.op = "dc.accumulate";
  for (const int32_t id : {sum, value}) {
    plan::Arg arg;
    arg.kind = plan::ArgKind::Tensor;
    arg.i = id;
    in.args.push_back(arg);
  }
  in.reads = {sum, value};
  in.writes = {sum};
  return in;
}
Instruction copy(int32_t src, int32_t dst) {
  Instruction in;
  in.kind = InstructionKind::Copy;
  in.src = src;
  in.dst = dst;
  in.reads = {src};
  in.writes = {dst};
  return in;
}

// Shards of sums over a host's ranks are accumulated, and meet those of the other host once.
Plan hierarchical() {
  Plan p;
  p.mesh = {{"host", 2}, {"dp", 2}};
  p.accumulation = 2;
  p.sums = {ReductionOrder::PerMicroBatch, {kInside, kHost}, kInside};
  p.groups = {{kInside, 0}, {kHost, 0}, {plan::kAllAxes, 0}};
  for (const char* name : {"gradient", "summand", "sum", "accumulator", "on_host"}) {
    plan::Tensor tensor;
    tensor.name = name;
    tensor.slice = static_cast<int32_t>(p.slices.size());
    p.tensors.push_back(tensor);
    p.slices.emplace_back();
  }
  p.slices[kOnHost].space = plan::Space::Host;
  plan::StateEntry entry;
  entry.name = "gradient.w";
  entry.tensor = kAccumulator;
  entry.role = plan::StateRole::Accumulator;
  entry.parameter = 0;
  entry.placement = {{0, plan::AxisPlacement::Partial},
                     {1, plan::AxisPlacement::FlatShard, -1, 64}};
  p.state = {entry};
  p.programs = {
      {"accumulate", {scatter(), accumulate(kAccumulator, kSummand)}},
      {"step", {scatter(), accumulate(kAccumulator, kSummand), all_reduce(kAccumulator)}}};
  p.step = {{0, 1}, {1, 1}};
  return p;
}

// One micro-batch, so no accumulator.
Plan once() {
  Plan p = hierarchical();
  p.accumulation = 1;
  p.state.clear();
  p.programs = {{"step", {scatter(), all_reduce(kSummand)}}};
  p.step = {{0, 1}};
  return p;
}

// Micro-batches are summed before ranks.
Plan per_step() {
  Plan p = hierarchical();
  p.sums.reductions = ReductionOrder::PerStep;
  p.state[0].placement = {{0, plan::AxisPlacement::Partial}, {1, plan::AxisPlacement::Partial}};
  p.programs = {{"accumulate", {accumulate(kAccumulator, kGradient)}},
                {"step",
                 {accumulate(kAccumulator, kGradient),
                  reduction(CollectiveKind::ReduceScatter, kGroupInside, kAccumulator, kSummand),
                  all_reduce(kSummand)}}};
  return p;
}

TEST(Sums, AreDoneAsThePlanSays) {
  for (const Plan& p : {hierarchical(), once(), per_step()})
    EXPECT_TRUE(check_sums(p).ok()) << check_sums(p).to_string();
}

TEST(Sums, OfAnAccumulatorThatWasOffloaded) {
  Plan p = hierarchical();
  p.state[0].tensor = kOnHost;
  for (plan::Program& program : p.programs) {
    program.instructions.insert(program.instructions.begin(), copy(kOnHost, kAccumulator));
  }
  p.programs[0].instructions.push_back(copy(kAccumulator, kOnHost));
  EXPECT_TRUE(check_sums(p).ok()) << check_sums(p).to_string();
}

TEST(Sums, OfFilesThatDoNotSayThem) {
  Plan p = hierarchical();
  p.sums = {};
  EXPECT_TRUE(check_sums(p).ok()) << check_sums(p).to_string();
}

struct Fault {
  const char* name;
  std::function<Plan()> plan;
  std::function<void(Plan&)> apply;
  const char* says;
};

// clang-format off
const std::vector<Fault>& faults() {
  static const std::vector<Fault> list = {
      {"levels_without_order", hierarchical, [](Plan& p) { p.sums.reductions = ReductionOrder::Unknown; }, "no order over micro-batches"},
      {"no_level_along_an_axis", hierarchical, [](Plan& p) { p.sums.levels = {kInside}; }, "sums do not go along 'host'"},
      {"twice_along_an_axis", hierarchical, [](Plan& p) { p.sums.levels = {kInside, plan::kAllAxes}; }, "sums go twice along 'dp'"},
      {"said_the_other_way_round", once, [](Plan& p) { p.sums.levels = {kHost, kInside}; }, "sums along 'dp' what is summed along 0 of the 1 levels before it"},
      {"done_the_other_way_round", once, [](Plan& p) { p.programs[0].instructions = {reduction(CollectiveKind::AllReduce, kGroupAcross, kGradient, kSummand), scatter()}; }, "sums along 'host' what is summed along 0 of the 1 levels before it"},
      {"said_flat", once, [](Plan& p) { p.sums.levels = {plan::kAllAxes}; }, "sums along 'dp', which is no level"},
      {"done_flat", once, [](Plan& p) { p.programs[0].instructions = {reduction(CollectiveKind::ReduceScatter, kGroupWorld, kGradient, kSum)}; }, "sums along 'host+dp', which is no level"},
      {"summed_twice", once, [](Plan& p) { p.programs[0].instructions.insert(p.programs[0].instructions.begin() + 1, reduction(CollectiveKind::AllReduce, kGroupInside, kSummand, kSummand)); }, "sums along 'dp' what is summed along 1 of the 0 levels"},
      {"never_summed_across", once, [](Plan& p) { p.programs[0].instructions.pop_back(); }, "tensor %1 (summand) is not summed along 'host' when the step ends"},
      {"accumulator_never_summed_across", hierarchical, [](Plan& p) { p.programs[1].instructions.pop_back(); }, "tensor %3 (accumulator) is not summed along 'host'"},
      {"summand_forgotten", hierarchical, [](Plan& p) { p.programs[1].instructions[1] = accumulate(kAccumulator, kGradient); }, "tensor %1 (summand) is not summed along 'host'"},
      {"across_in_each_micro_batch", hierarchical, [](Plan& p) { p.programs[0].instructions.push_back(all_reduce(kAccumulator)); }, "instruction 2 (all_reduce) of program 'accumulate' sums along 'host' before the last micro-batch"},
      {"said_per_step", hierarchical, [](Plan& p) { p.sums.reductions = ReductionOrder::PerStep; }, "state 'gradient.w' awaits sums along 'host', and with order per-step it awaits those along 'host+dp'"},
      {"said_per_micro_batch", per_step, [](Plan& p) { p.sums.reductions = ReductionOrder::PerMicroBatch; }, "awaits sums along 'host+dp', and with order per-micro-batch it awaits those along 'host'"},
      {"inside_before_the_last", per_step, [](Plan& p) { p.programs[0].instructions.push_back(scatter()); }, "of program 'accumulate' sums along 'dp' before the last micro-batch"},
      {"other_shards", hierarchical, [](Plan& p) { p.sums.shards = plan::kAllAxes; }, "state 'gradient.w' is cut along 'dp', and shards are said to lie along 'host+dp'"},
  };
  return list;
}
// clang-format on

class Faulty : public testing::TestWithParam<size_t> {};

TEST_P(Faulty, SumsAreRefused) {
  const Fault& fault = faults()[GetParam()];
  Plan p = fault.plan();
  fault.apply(p);
  const base::Status status = check_sums(p);
  EXPECT_EQ(status.code(), "DC3243");
  EXPECT_NE(status.sentence().find(fault.says), std::string::npos) << status.sentence();
}
INSTANTIATE_TEST_SUITE_P(All, Faulty, testing::Range<size_t>(0, faults().size()),
                         [](const testing::TestParamInfo<size_t>& info) {
                           return faults()[info.param].name;
                         });

}  // namespace
}  // namespace dc::runtime::verify
