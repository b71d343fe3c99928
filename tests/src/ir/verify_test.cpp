// The verifier accepts the samples and refuses each of their damaged variants with its own code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "src/ir/step.h"
#include "tests/src/ir/sample_steps.h"

namespace dc::ir {
namespace {

using ::testing::HasSubstr;

Step parsed(const std::string& text) {
  base::Result<Step> step = parse(text);
  EXPECT_TRUE(step.ok()) << step.status().to_string();
  return step.ok() ? std::move(step).value() : Step{};
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << "the sample has no '" << from << "'";
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(Verify, AcceptsTheSamples) {
  EXPECT_EQ(verify(parsed(kImported), Stage::Imported).to_string(), "");
  EXPECT_EQ(verify(parsed(kScheduled), Stage::Scheduled).to_string(), "");
  EXPECT_EQ(verify(parsed(kOffloaded), Stage::Scheduled).to_string(), "");
  EXPECT_EQ(verify(parsed(kOnHost), Stage::Scheduled).to_string(), "");
  EXPECT_EQ(verify(parsed(kHosts), Stage::Scheduled).to_string(), "");
  EXPECT_EQ(verify(parsed(kOutputLayer), Stage::Normalized).to_string(), "");
  const std::string normalized = replaced(kImported, "stage=imported", "stage=normalized");
  EXPECT_EQ(verify(parsed(normalized), Stage::Normalized).to_string(), "");
}

TEST(Verify, RefusesAnotherStage) {
  EXPECT_EQ(verify(parsed(kImported), Stage::Normalized).code(), "DC2300");
}

TEST(Verify, RefusesAnEntryThatIsNotThere) {
  Step step = parsed(kImported);
  Graph& graph = step.programs[0].graph;
  for (NodeId id : graph.order()) {
    if (graph.node(id).kind == OpKind::State)
      graph.edit(id).args.edit() = {{Attr::Entry, StateId{99}}};
  }
  EXPECT_EQ(verify(step, Stage::Imported).code(), "DC2205");
}

// The schedule of the first looks at what the last leaves running.
TEST(Verify, LooksAtSchedulesOfSoundProgramsAlone) {
  const std::string start = "all_gather_into.start %norm_table, %row (elements=6, shard=3)";
  Step step = parsed(
      replaced(kScheduled, start, "all_gather_into.start (elements=6, shard=3, spans_steps=1)"));
  step.programs.insert(step.programs.begin(), parsed(kScheduled).programs[0]);
  EXPECT_FALSE(verify(step, Stage::Scheduled).ok());
}

TEST(Verify, ChecksWhatFusedKernelsFold) {
  const std::string text = R"(step @fused stage=normalized {
    input "x" : f32[2,8,16]
    program @micro_batch {
      %x = input(name="x") : f32[2,8,16] varying<#0>
      %g, %b = fused %x (body="t0:f32=silu.default(self=a0);t1:f32=sum.dim_IntList(self=t0,dim=[0,1]);->t0,t1") : f32[2,8,16] varying<#0>, f32[1,16] varying<#0>
      %h = aten.mul.Tensor(self=%g, other=%b) : f32[2,8,16] varying<#0>
      %loss = aten.mean.default(self=%h) : f32[] varying<#0>
      output loss %loss
    }
  })";
  const auto code = [&](const std::string& from, const std::string& to) {
    return verify(parsed(replaced(text, from, to)), Stage::Normalized).code();
  };
  EXPECT_EQ(verify(parsed(text), Stage::Normalized).to_string(), "");
  EXPECT_EQ(code("dim=[0,1]", "dim=[1]"), "DC2203");
  EXPECT_EQ(code("dim=[0,1]", "dim=[2]"), "DC2203");
  EXPECT_EQ(code("f32[1,16] varying", "f32[1,8] varying"), "DC2203");
  EXPECT_EQ(code("f32[1,16] varying", "bf16[1,16] varying"), "DC2203");
  EXPECT_EQ(code("dim=[0,1]", "dim=[1,0]"), "DC2205");
  EXPECT_EQ(code("->t0,t1", "->t0"), "DC2205");
}

TEST(Verify, RefusesAnAttributeOfAnotherOp) {
  Step step = parsed(kImported);
  Graph& graph = step.programs[0].graph;
  graph.edit(graph.first()).args.edit().push_back({Attr::Clip, int64_t{0}});
  EXPECT_EQ(verify(step, Stage::Imported).code(), "DC2205");
}

// Ranks that hold replicas of a shard update it alike: their cells say of all of it, not of a part,
// that it is finite.
TEST(Verify, RefusesReplicasThatMayDifferInTheirUpdates) {
  std::string text =
      replaced(kHosts, "  streams", "  state \"losses\" : f64[4] role=losses\n  streams");
  text =
      replaced(text, "    output loss",
               "    %losses = state(entry=\"losses\") : f64[4]\n"
               "    check_finite %scalars, %norm_row, %losses (param=0) update\n    output loss");
  EXPECT_EQ(verify(parsed(text), Stage::Scheduled).code(), "DC2318");
  const std::string decides = replaced(text, "part=32)", "part=32, decides=1)");
  EXPECT_EQ(verify(parsed(decides), Stage::Scheduled).to_string(), "");
  const std::string says_no = replaced(text, "part=32)", "part=32, decides=0)");
  EXPECT_EQ(verify(parsed(says_no), Stage::Scheduled).code(), "DC2318");
}

struct Damage {
  const char* name;
  const char* sample;
  const char* from;
  const char* to;
  const char* code;
};
void PrintTo(const Damage& damage, std::ostream* out) { *out << damage.name; }

class VerifyText : public ::testing::TestWithParam<Damage> {};

TEST_P(VerifyText, RefusesWithItsCode) {
  const Damage& damage = GetParam();
  const Step step = parsed(replaced(damage.sample, damage.from, damage.to));
  const base::Status status = verify(step, step.stage);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), damage.code) << status.to_string();
}

constexpr Damage kDamages[] = {
    {"output_twice", kImported, "output loss %loss\n", "output loss %loss\n    output loss %h\n",
     "DC2106"},
    {"output_without_parameter", kImported, "gradient \"w\"", "gradient \"u\"", "DC2106"},
    {"unknown_overload", kImported, "aten.mean.default", "aten.quantile.default", "DC2107"},
    {"mutation", kImported, "aten.mean.default", "aten.zero_.default", "DC2108"},
    {"data_dependent", kImported, "aten.mean.default", "aten.nonzero.default", "DC2109"},
    {"view_without_operand", kImported, "aten.t.default(self=%x)", "aten.t.default", "DC2105"},
    {"identity_that_turns", kImported, "aten.t.default(self=%x)", "aten.alias.default(self=%x)",
     "DC2105"},
    {"two_states_of_one_name", kImported, "  program",
     "  state \"w\" : f32[8,8] parameter=\"w\"\n  program", "DC2110"},
    {"missing_group", kImported, "parameter \"w\" : f32[8,8]", "parameter \"w\" : f32[8,8] group=3",
     "DC2110"},
    {"zero_row_outside", kImported, "parameter \"w\" : f32[8,8]",
     "parameter \"w\" : f32[8,8] init=normal(0.0,1.0) zero_row=8", "DC2110"},
    {"zero_row_negative", kImported, "parameter \"w\" : f32[8,8]",
     "parameter \"w\" : f32[8,8] init=normal(0.0,1.0) zero_row=-2", "DC2110"},
    {"zero_row_of_a_buffer", kImported,
     "  state \"w\" :", "  buffer \"b\" : f32[] init=ones zero_row=0\n  state \"w\" :", "DC2110"},
    {"state_of_unknown_role", kImported, "state \"w\" : f32[8,8] parameter=\"w\"",
     "state \"w\" : f32[8,8] role=unknown parameter=\"w\"", "DC2110"},
    {"unbound_entry", kImported, "state \"w\" : f32[8,8]", "state \"w\" : f32[-1,8]", "DC2201"},
    {"negative_stride", kImported, "f32[8,4] strides=(1,8)", "f32[8,4] strides=(1,-8)", "DC2201"},
    {"view_outside", kImported, "f32[8,4] strides=(1,8)", "f32[8,4] strides=(1,9)", "DC2202"},
    {"view_changes_dtype", kImported, "aten.t.default(self=%w) : f32[8,8] strides=(1,8)",
     "aten.t.default(self=%w) : f16[8,8] strides=(1,8)", "DC2202"},
    {"input_type", kImported, "%x = input(name=\"x\") : f32[4,8]",
     "%x = input(name=\"x\") : f32[5,8]", "DC2203"},
    {"state_type", kImported, "%w = state(entry=\"w\") : f32[8,8]",
     "%w = state(entry=\"w\") : f32[8,8] varying<dp>", "DC2203"},
    {"split_dim", kImported, "f32[4,8] in \"net\"", "f32[4,8] shard<dp,2> in \"net\"", "DC2204"},
    {"missing_attribute", kImported, "input(name=\"x\")", "input", "DC2205"},
    {"attribute_type", kImported, "state(entry=\"w\")", "state(entry=3)", "DC2205"},
    {"own_op_too_early", kImported, "    output loss", "    zero %gw\n    output loss", "DC2301"},
    {"identity", kScheduled, "%loss = aten.mean.default(self=%y) : f32[] varying<dp>",
     "%d = aten.detach.default(self=%y) : f32[4,8]\n    %loss = aten.mean.default(self=%d) : f32[] "
     "varying<dp>",
     "DC2302"},
    {"random", kScheduled, "aten.mean.default", "aten.rand_like.default", "DC2303"},
    {"unbound", kScheduled, "%loss = aten.mean.default(self=%y) : f32[]",
     "%loss = aten.mean.default(self=%y) : f32[-1]", "DC2304"},
    {"state_of_no_parameter", kScheduled,
     "state \"w\" : f32[32] flat_shard<dp> role=shard parameter=\"w\"",
     "state \"w\" : f32[32] flat_shard<dp> role=shard", "DC2110"},
    {"state_of_no_buffer", kImported, "state \"w\" : f32[8,8] parameter=\"w\"",
     "state \"w\" : f32[8,8] parameter=\"w\"\n  state \"b\" : f32[8] role=buffer", "DC2110"},
    {"parameter_without_state", kImported, "parameter \"w\" : f32[8,8]\n",
     "parameter \"w\" : f32[8,8]\n  parameter \"v\" : f32[8,8] frozen\n", "DC2305"},
    {"no_gradient", kImported, "    output gradient \"w\" %gw\n", "", "DC2106"},
    {"gradient_of_frozen", kImported, "parameter \"w\" : f32[8,8]",
     "parameter \"w\" : f32[8,8] frozen", "DC2106"},
    {"gradient_shape", kImported, "output gradient \"w\" %gw", "output gradient \"w\" %h",
     "DC2106"},
    {"wasteful_shard", kScheduled,
     "state \"w\" : f32[32] flat_shard<dp> role=shard parameter=\"w\"",
     "state \"w\" : f32[32] flat_shard<dp> role=shard parameter=\"w\" storage=64", "DC2201"},
    {"shard_that_is_whole", kScheduled, "state \"exp_avg.w\" : f32[32] flat_shard<dp> role=moment1",
     "state \"exp_avg.w\" : f32[32] role=shard", "DC2201"},
    {"range_too_long", kScheduled, "\"norm_row\" : f64[3]", "\"norm_row\" : f64[4]", "DC2201"},
    {"operand_count", kScheduled, "add_loss %loss_sum, %loss", "add_loss %loss_sum", "DC2105"},
    {"update_operand_count", kScheduled, "add_loss %loss_sum, %loss\n",
     "add_loss %loss_sum, %loss\n    adamw %w (param=0)\n", "DC2105"},
    {"gather_too_small", kScheduled, "(elements=64, shard=32) : f32[8,8] stream",
     "(elements=72, shard=32) : f32[9,8] stream", "DC2203"},
    {"gather_of_activation", kScheduled, "all_gather.start %w (elements=64, shard=32)",
     "all_gather.start %x (elements=64, shard=32)", "DC2204"},
    {"reduction_of_whole", kScheduled, "reduce_scatter.start %gw", "reduce_scatter.start %h",
     "DC2204"},
    {"reduction_dtype", kScheduled,
     "%r0 = reduce_scatter.start %gw (elements=32, shard=32) : f32[32]",
     "%r0 = reduce_scatter.start %gw (elements=32, shard=32) : bf16[32]", "DC2203"},
    {"missing_shard", kScheduled, "%gw (elements=32, shard=32)", "%gw", "DC2205"},
    {"dropout_probability", kScheduled, "p=0.5", "p=1.5", "DC2205"},
    {"layer_of_classes", kOutputLayer, "entropy %x, %w, %labels", "entropy %x, %labels, %labels",
     "DC2203"},
    {"layer_of_other_rows", kOutputLayer, "entropy %x, %w,", "entropy %w, %w,", "DC2203"},
    {"layer_gradient", kOutputLayer, "%labels, %scale (", "%labels, %x (", "DC2203"},
    {"layer_reduction", kOutputLayer, "reduction=1", "reduction=0", "DC2205"},
    {"layer_parts_of_both", kOutputLayer, "rows=8", "rows=4", "DC2205"},
    {"layer_part_of_nothing", kOutputLayer, "classes=5", "classes=0", "DC2205"},
    {"layer_part_too_large", kOutputLayer, "classes=5", "classes=17", "DC2205"},
    {"layer_result", kOutputLayer, "f32[8,4], f32[16,4] backward", "f32[4,8], f32[16,4] backward",
     "DC2203"},
    {"square_sum_without_slots", kScheduled, "%r1, %hyperparameters", "%r1, %scalars", "DC2203"},
    {"square_sum_of_integers", kScheduled, "square_sum %row, %r1", "square_sum %row, %rng",
     "DC2203"},
    {"square_sum_column", kScheduled, "%r1, %hyperparameters (param=0",
     "%r1, %hyperparameters (param=1", "DC2205"},
    {"copy_of_f32", kScheduled, "%hyperparameters (param=0, group",
     "%hyperparameters, %m (param=0, group", "DC2203"},
    {"copy_of_two", kScheduled, "%hyperparameters (param=0, group",
     "%hyperparameters, %m, %m (param=0, group", "DC2105"},
    {"square_sum_whole", kScheduled, "whole=0", "whole=1", "DC2203"},
    {"update_of_activation", kScheduled, "adamw %w, %m", "adamw %r1, %m", "DC2203"},
    {"update_group", kScheduled, "group=0", "group=1", "DC2205"},
    {"update_not_reduced", kScheduled, "adamw %w, %m, %v, %r1,", "adamw %w, %m, %v, %h,", "DC2306"},
    {"update_of_partial", kScheduled, "adamw %w, %m, %v, %r1,",
     "%p = aten.view.default(self=%r1) : f32[32] partial<dp>\n    adamw %w, %m, %v, %p,", "DC2306"},
    {"updated_never", kScheduled,
     "    adamw %w, %m, %v, %r1, %scalars, %hyperparameters (param=0, group=0, clip=0) update\n",
     "", "DC2307"},
    {"updated_twice", kScheduled, "    output loss",
     "    adamw %w, %m, %v, %r1, %scalars, %hyperparameters (param=0, group=0, clip=0) update\n    "
     "output "
     "loss",
     "DC2307"},
    {"done_of_another_start", kScheduled, "all_gather.done %g0", "all_reduce.done %g0", "DC2308"},
    {"done_of_no_start", kScheduled, "%r1 = reduce_scatter.done %r0",
     "%r1 = reduce_scatter.done %gw", "DC2308"},
    {"two_dones", kScheduled, "    release %f0\n",
     "    %f1 = all_gather.done %g0 : f32[8,8]\n    release %f0\n", "DC2308"},
    {"no_done", kScheduled, "    %t1 = all_gather_into.done %t0 : f64[2,3] update\n", "", "DC2308"},
    {"read_before_done", kScheduled, "aten.t.default(self=%f0)", "aten.t.default(self=%g0)",
     "DC2308"},
    {"use_after_release", kScheduled, "aten.mm.default(self=%xt, mat2=%y)",
     "aten.mm.default(self=%xt, mat2=%f0)", "DC2309"},
    {"view_after_release", kScheduled, "aten.mm.default(self=%xt, mat2=%y)",
     "aten.mm.default(self=%xt, mat2=%wt)", "DC2309"},
    {"output_released", kScheduled, "output loss %loss", "output loss %wt", "DC2309"},
    {"release_of_activation", kScheduled, "release %f0", "release %h", "DC2203"},
    {"unknown_stream", kScheduled, "stream=comm", "stream=#2", "DC2310"},
    {"write_in_flight", kScheduled, "    %f0 = all_gather.done",
     "    zero %w\n    %f0 = all_gather.done", "DC2311"},
    {"crosses_unawaited", kScheduled,
     "(elements=6, shard=3) : f64[2,3] update stream=comm\n    %t1 = all_gather_into.done %t0 : "
     "f64[2,3] update\n",
     "(elements=6, shard=3, spans_steps=1) : f64[2,3] update stream=comm\n", "DC2311"},
    {"awaited_without_crossing", kScheduled,
     "    %h = ", "    all_gather_into.wait_previous_step %m\n    %h = ", "DC2317"},
    {"joins_nothing", kScheduled, "all_gather.start %w (elements=64, shard=32)",
     "all_gather.start %w (elements=64, shard=32, joins=1)", "DC2314"},
    {"read_of_target_in_flight", kScheduled, "    %t1 = all_gather_into.done",
     "    clip_and_check %scalars, %norm_table, %hyperparameters (clip=0) update\n    %t1 = "
     "all_gather_into.done",
     "DC2311"},
    {"gather_of_other_group", kHosts, "all_gather.start %w (elements=64, shard=32, group=[1])",
     "all_gather.start %w (elements=64, shard=32, group=[0])", "DC2204"},
    {"gather_of_all_ranks", kHosts, "all_gather.start %w (elements=64, shard=32, group=[1])",
     "all_gather.start %w (elements=64, shard=32)", "DC2204"},
    {"group_of_no_axis", kHosts, "all_gather.start %w (elements=64, shard=32, group=[1])",
     "all_gather.start %w (elements=64, shard=32, group=[2])", "DC2205"},
    {"group_of_the_world", kHosts, "all_gather.start %w (elements=64, shard=32, group=[1])",
     "all_gather.start %w (elements=64, shard=32, group=[0,1])", "DC2205"},
    {"group_out_of_order", kHosts, "all_gather.start %w (elements=64, shard=32, group=[1])",
     "all_gather.start %w (elements=64, shard=32, group=[1,0])", "DC2205"},
    {"scattered_to_other_ranks", kHosts,
     "reduce_scatter.start %g (elements=64, shard=32, group=[1]) : f32[32] partial<host> "
     "flat_shard<dp>",
     "reduce_scatter.start %g (elements=64, shard=32, group=[0]) : f32[32] partial<dp> "
     "flat_shard<dp>",
     "DC2204"},
    {"summed_twice_inside", kHosts,
     "all_reduce_in_place.start %reduced.w (elements=32, shard=32, group=[0])",
     "all_reduce_in_place.start %reduced.w (elements=32, shard=32, group=[1])", "DC2204"},
    {"read_while_it_is_summed_in_place", kHosts, "    %reduced.w_1 = all_reduce_in_place.done",
     "    %early = cast %reduced.w : f32[32] partial<host> flat_shard<dp>\n    %reduced.w_1 = "
     "all_reduce_in_place.done",
     "DC2311"},
    {"sums_of_another_shape_in_place", kHosts, "shard=32, group=[0]) : f32[32] flat_shard<dp>",
     "shard=32, group=[0]) : f32[32,1] flat_shard<dp>", "DC2203"},
    {"bf16_summed_in_place", kHosts, "%reduced.w (elements=32, shard=32, group=[0]) : f32[32]",
     "%reduced.w (elements=32, shard=32, group=[0]) : bf16[32]", "DC2203"},
    {"never_summed_across", kHosts,
     "reduce_scatter.start %g (elements=64, shard=32, group=[1]) : f32[32] partial<host> "
     "flat_shard",
     "reduce_scatter.start %g (elements=64, shard=32, group=[1]) : f32[32] flat_shard", "DC2204"},
    {"replicas_counted_twice", kHosts, ", axes=[1], part=32", "", "DC2203"},
    {"replicas_of_other_axes", kHosts, "axes=[1], part=32", "axes=[0], part=32", "DC2205"},
    {"parts_too_small", kHosts, "axes=[1], part=32", "axes=[1], part=8", "DC2203"},
    {"copy_of_another_type", kOffloaded, "%o0 = offload.start %h : f32[4,8]",
     "%o0 = offload.start %h : f32[8,4]", "DC2203"},
    {"copy_with_gaps", kOffloaded, "%o0 = offload.start %h : f32[4,8]",
     "%e = aten.expand.default(self=%loss, size=[4,8]) : f32[4,8] strides=(0,0)\n"
     "    %o0 = offload.start %e : f32[4,8] strides=(0,0)",
     "DC2203"},
    {"offload_into_no_state", kOffloaded, "offload_into.start %m, %m1",
     "offload_into.start %o1, %m1", "DC2203"},
    {"offload_into_other_size", kOffloaded, "offload_into.start %m, %m1",
     "offload_into.start %m, %x", "DC2203"},
    {"update_of_reloaded_activation", kOffloaded, "adamw %w, %m1", "adamw %w, %r1", "DC2203"},
    {"copy_half_of_another", kOffloaded, "offload.done %o0", "reload.done %o0", "DC2308"},
    {"copy_without_done", kOffloaded, "    %m3 = offload_into.done %m2 : f32[8,8] update\n", "",
     "DC2308"},
    {"copy_read_before_done", kOffloaded, "mat2=%r1", "mat2=%r0", "DC2308"},
    {"write_in_flight_to_the_disk", kOffloaded, "    %o1 = offload.done",
     "    zero %h\n    %o1 = offload.done", "DC2311"},
    {"state_read_while_it_is_written", kOffloaded, "    %m3 = offload_into.done",
     "    %m4 = reload.start %m : f32[8,8] update stream=copy_in\n"
     "    %m5 = reload.done %m4 : f32[8,8] update\n    %m3 = offload_into.done",
     "DC2311"},
    {"change_not_written_back", kOffloaded,
     "    %m2 = offload_into.start %m, %m1 : f32[8,8] update stream=copy_out\n"
     "    %m3 = offload_into.done %m2 : f32[8,8] update\n",
     "", "DC2315"},
    {"changed_after_writing_back", kOffloaded, "    output loss", "    zero %m1\n    output loss",
     "DC2315"},
    {"kernel_outside_the_device", kOffloaded, "adamw %w, %m1", "adamw %w, %m", "DC2316"},
    {"view_outside_the_device", kOffloaded, "    %xt = aten.t",
     "    %ot = aten.t.default(self=%o1) : f32[8,4] strides=(1,8)\n    %xt = aten.t", "DC2316"},
    {"reload_of_device_value", kOffloaded, "reload.start %o1", "reload.start %h", "DC2316"},
    {"offload_of_outside_value", kOffloaded, "    %xt = aten.t",
     "    %o2 = offload.start %o1 : f32[4,8] at disk stream=copy_out\n"
     "    %o3 = offload.done %o2 : f32[4,8]\n    %xt = aten.t",
     "DC2316"},
    {"offload_to_the_device", kOffloaded, "f32[4,8] at disk", "f32[4,8]", "DC2316"},
    {"kernel_makes_outside_value", kOffloaded, "mat2=%w) : f32[4,8]", "mat2=%w) : f32[4,8] at host",
     "DC2316"},
    {"moment_of_a_host_update_on_the_device", kOnHost,
     "\"exp_avg.w\" : f32[8,8] role=moment1 parameter=\"w\" at host",
     "\"exp_avg.w\" : f32[8,8] role=moment1 parameter=\"w\"", "DC2316"},
    {"moment_of_a_host_update_on_disk", kOnHost,
     "\"exp_avg.w\" : f32[8,8] role=moment1 parameter=\"w\" at host",
     "\"exp_avg.w\" : f32[8,8] role=moment1 parameter=\"w\" at disk", "DC2316"},
    {"scalars_of_a_host_update_on_the_device", kOnHost, "%g1, %s1, %h1", "%g1, %scalars, %h1",
     "DC2316"},
    {"gradient_of_a_host_update_on_the_device", kOnHost, "%g1, %s1, %h1",
     "%gw, %scalars, %hyperparameters", "DC2316"},
    {"host_update_on_compute", kOnHost, "clip=0) update stream=host", "clip=0) update", "DC2316"},
    {"rounded_to_the_device", kOnHost, "%r = cast %p : bf16[8,8] at host",
     "%r = cast %p : bf16[8,8]", "DC2316"},
    {"rounded_on_host_from_the_device", kOnHost, "%r = cast %p", "%r = cast %gw", "DC2316"},
    {"host_value_read_by_compute", kOnHost, "copy %w, %r1", "copy %w, %r", "DC2316"},
    {"range_in_another_space", kScheduled,
     "\"norm_row\" : f64[3] role=norm_table range_of=\"norm_table\"",
     "\"norm_row\" : f64[3] role=norm_table range_of=\"norm_table\" at host", "DC2201"},
};
INSTANTIATE_TEST_SUITE_P(Verify, VerifyText, ::testing::ValuesIn(kDamages),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Verify, NamesTheNodeAndItsModule) {
  const Step step = parsed(replaced(kImported, "aten.mm.default(self=%x", "aten.mm.weird(self=%x"));
  const base::Status status = verify(step, Stage::Imported);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.kind(), base::ErrorKind::Unsupported);
  EXPECT_THAT(status.sentence(), HasSubstr("'%h = aten.mm.weird %x, %wt' of module 'net'"));
}

TEST(Verify, BoolIndicesDependOnData) {
  const std::string text =
      replaced(kImported, "    output loss",
               "    %b = aten.gt.Scalar(self=%h, other=0) : bool[4,8]\n"
               "    %i = aten.index.Tensor(self=%h, indices=[%b]) : f32[3]\n    output loss");
  EXPECT_EQ(verify(parsed(text), Stage::Imported).code(), "DC2109");
}

// Damage that no text can express.
TEST(Verify, SeesBrokenUseLists) {
  Step step = parsed(kImported);
  Graph& graph = step.programs[0].graph;
  graph.edit(graph.find_value("x")).uses.pop_back();
  EXPECT_EQ(verify(step, Stage::Imported).code(), "DC2103");
  step = parsed(kImported);
  Graph& other = step.programs[0].graph;
  other.edit(other.find_value("loss")).uses.push_back(Use{other.last(), 0});
  EXPECT_EQ(verify(step, Stage::Imported).code(), "DC2103");
}

TEST(Verify, SeesUseBeforeDefinition) {
  Step step = parsed(kImported);
  Graph& graph = step.programs[0].graph;
  graph.move_before(graph.value(graph.find_value("wt")).producer, NodeId{});
  EXPECT_EQ(verify(step, Stage::Imported).code(), "DC2102");
}

TEST(Verify, SeesForeignProducersAndNames) {
  Step step = parsed(kImported);
  Graph& graph = step.programs[0].graph;
  graph.edit(graph.find_value("h")).producer = graph.first();
  EXPECT_EQ(verify(step, Stage::Imported).code(), "DC2104");
  step = parsed(kImported);
  Graph& other = step.programs[0].graph;
  other.edit(other.find_value("h")).name = "x";
  EXPECT_EQ(verify(step, Stage::Imported).code(), "DC2104");
}

TEST(Verify, SeesOperandsThatAreNoValues) {
  Step step = parsed(kImported);
  Graph& graph = step.programs[0].graph;
  Node& mean = graph.edit(graph.value(graph.find_value("loss")).producer);
  auto& uses = graph.edit(mean.operands[0]).uses;
  uses.erase(std::find(uses.begin(), uses.end(), Use{mean.id, 0}));
  mean.operands[0] = ValueId{};
  EXPECT_EQ(verify(step, Stage::Imported).code(), "DC2102");
}

// Gives every state entry and value another place.
Step allocated() {
  Step step = parsed(replaced(kScheduled, "stage=scheduled", "stage=allocated"));
  int64_t end = 0;
  const auto place = [&](int64_t bytes) {
    const Location location{Space::Device, end, bytes};
    end += base::round_up(bytes, base::kAlignment);
    return location;
  };
  for (size_t i = 0; i < step.state.size(); ++i)
    step.state.edit(i).location = place(step.state[i].type.bytes().v);
  Graph& graph = step.programs[0].graph;
  for (NodeId id : graph.order()) {
    for (ValueId result : graph.node(id).results) {
      graph.edit_location(result) = place(graph.value(result).type.bytes().v);
    }
  }
  step.arena_bytes[Space::Device] = end;
  return step;
}

TEST(Verify, DemandsPlacesOnceAllocated) {
  EXPECT_EQ(verify(allocated(), Stage::Allocated).to_string(), "");
  Step step = allocated();
  step.state.edit(0).location = Location{};
  EXPECT_EQ(verify(step, Stage::Allocated).code(), "DC2312");
  step = allocated();
  Graph& graph = step.programs[0].graph;
  graph.edit_location(graph.find_value("h")).bytes = 8;
  EXPECT_EQ(verify(step, Stage::Allocated).code(), "DC2312");
  step = allocated();
  step.arena_bytes[Space::Device] = 100;
  EXPECT_EQ(verify(step, Stage::Allocated).code(), "DC2313");
  step = allocated();
  Graph& other = step.programs[0].graph;
  other.edit_location(other.find_value("h")).offset += 4;
  EXPECT_EQ(verify(step, Stage::Allocated).code(), "DC2313");
}

TEST(Verify, UnusedValuesNeedNoPlace) {
  Step step = allocated();
  Graph& graph = step.programs[0].graph;
  graph.edit_location(graph.find_value("mask")) = Location{};
  EXPECT_EQ(verify(step, Stage::Allocated).to_string(), "");
}

}  // namespace
}  // namespace dc::ir
