// Every rule of verification has at least one plan that breaks it and nothing else, and the code
// that says so.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "runtime/plan/file.h"
#include "runtime/verify/verify.h"
#include "tests/runtime/plan/plan_builder.h"

namespace dc::runtime::plan {
namespace {

using namespace test;  // NOLINT: ids of the tiny plan

Instruction& at(Plan& p, int index) {
  return p.programs[0].instructions[static_cast<size_t>(index)];
}
Slice& slice_of(Plan& p, int tensor) {
  return p.slices[static_cast<size_t>(p.tensors[static_cast<size_t>(tensor)].slice)];
}

void move_to_host(Plan& p, int tensor) {
  p.arena_bytes.resize(2);
  Slice& slice = slice_of(p, tensor);
  slice.space = Space::Host;
  slice.offset = p.arena_bytes[1];
  p.arena_bytes[1] += 256;
}

// A native kernel whose arguments are all tensors.
Instruction native(std::string op, const std::vector<int32_t>& operands, std::vector<int32_t> reads,
                   std::vector<int32_t> writes) {
  Instruction in;
  in.provider = Provider::Native;
  in.op = std::move(op);
  for (int32_t id : operands) {
    Arg arg;
    arg.kind = ArgKind::Tensor;
    arg.i = id;
    in.args.push_back(arg);
  }
  in.reads = std::move(reads);
  in.writes = std::move(writes);
  return in;
}
// A call of an operator takes one more tensor, as its lists say.
void also_reads(Instruction& in, int32_t id) {
  in.reads.push_back(id);
  in.args.push_back(native("", {id}, {}, {}).args[0]);
}

// A fused kernel with the tensors that it has and this expression.
void fuse(Instruction& in, const char* expression) {
  in.provider = Provider::Fused;
  in.op = "dc.fused";
  std::erase_if(in.args, [](const Arg& arg) { return arg.kind != ArgKind::Tensor; });
  Arg body;
  body.kind = ArgKind::String;
  body.s = expression;
  in.args.push_back(body);
}
constexpr const char* kNegative = "t0:f32=neg.default(self=a0);->t0";
constexpr const char* kSum = "t0:f32=add.Tensor(self=a0,other=a1);->t0";
constexpr const char* kSumOfThree =
    "t0:f32=add.Tensor(self=a0,other=a1);t1:f32=add.Tensor(self=t0,other=a2);->t1";

struct Mutation {
  const char* name;
  const char* code;
  std::function<void(Plan&)> apply;
  const char* says;  // part of the sentence
};

// clang-format off
const std::vector<Mutation>& mutations() {
  static const std::vector<Mutation> list = {
      // Level 1: ids and counts
      {"stream_id", "DC3102", [](Plan& p) { at(p, kMatmul).stream = 7; }, "instruction 1 (aten.mm.default)"},
      {"argument_tensor", "DC3102", [](Plan& p) { at(p, kMatmul).args[0].i = 99; }, "tensor 99"},
      {"negative_argument_tensor", "DC3102", [](Plan& p) { at(p, kMatmul).args[0].i = -1; }, "tensor -1"},
      {"list_argument_tensor", "DC3102", [](Plan& p) { at(p, kMatmul).args[0].kind = ArgKind::Tensors; at(p, kMatmul).args[0].ints = {-1, 99}; }, "tensor 99"},
      {"output_id", "DC3102", [](Plan& p) { at(p, kMatmul).outputs = {-2}; }, "tensor -2"},
      {"read_id", "DC3102", [](Plan& p) { at(p, kMatmul).reads.push_back(-1); }, "tensor -1"},
      {"write_id", "DC3102", [](Plan& p) { at(p, kMatmul).writes.push_back(1 << 30); }, "tensor"},
      {"scratch_id", "DC3102", [](Plan& p) { at(p, kMatmul).scratch = 1000; }, "slice 1000"},
      {"group_id", "DC3102", [](Plan& p) { at(p, kGather).group = -1; }, "group -1"},
      {"collective_tensor", "DC3102", [](Plan& p) { at(p, kGather).buffers[0].output = -1; }, "tensor -1"},
      {"copy_tensor", "DC3102", [](Plan& p) { at(p, kAddLoss).kind = InstructionKind::Copy; }, "tensor -1"},
      {"event_id", "DC3102", [](Plan& p) { at(p, kWaitReduce).event = 2; }, "event 2"},
      {"tensor_slice", "DC3102", [](Plan& p) { p.tensors[kWhole].slice = -1; }, "tensor %10 (w)"},
      {"slice_program", "DC3102", [](Plan& p) { slice_of(p, kWhole).program = 1; }, "program 1"},
      {"step_program", "DC3102", [](Plan& p) { p.step[0].program = 1; }, "program 1"},
      {"state_tensor", "DC3102", [](Plan& p) { p.state[2].tensor = 500; }, "exp_avg_sq"},
      {"state_parameter", "DC3102", [](Plan& p) { p.state[0].parameter = 1; }, "parameter 1"},
      {"state_buffer", "DC3102", [](Plan& p) { p.state[0].buffer = 0; }, "buffer 0"},
      {"parameter_group", "DC3102", [](Plan& p) { p.parameters[0].group = 1; }, "optimizer group 1"},
      {"parameter_gradient", "DC3102", [](Plan& p) { p.parameters[0].gradient = 77; }, "tensor 77"},
      {"parameter_zero_row", "DC3102", [](Plan& p) { p.parameters[0].initializer.zero_row = 6; }, "parameter 'net.linear.weight' names zero row 6, and there are 6"},
      {"parameter_zero_row_negative", "DC3102", [](Plan& p) { p.parameters[0].initializer.zero_row = -2; }, "zero row -2"},
      {"buffer_zero_row", "DC3102", [](Plan& p) { p.buffers.resize(1); p.buffers[0].initializer.zero_row = 0; }, "zero row 0, and there are 0"},
      {"parameter_ready", "DC3102", [](Plan& p) { p.parameters[0].gradient_ready = 14; }, "instruction 14"},
      {"input_tensor", "DC3102", [](Plan& p) { p.inputs[0].tensor = -1; }, "input 'x'"},
      {"step_scalar_id", "DC3102", [](Plan& p) { p.rng = 99; }, "step scalar"},
      {"group_stream", "DC3102", [](Plan& p) { p.groups[0].stream = 2; }, "stream 2"},
      {"group_axis", "DC3102", [](Plan& p) { p.groups[0].axes = 0b11; }, "group 0 names mesh axis 1, and there are 1"},
      {"stride_axis", "DC3102", [](Plan& p) { p.tensors[kWhole].stride_axes = 0b100; }, "tensor %10 (w) names mesh axis 2"},
      {"level_axis", "DC3102", [](Plan& p) { p.sums.levels = {0b10}; }, "a level of the sums names mesh axis 1"},
      {"too_many_levels", "DC3103", [](Plan& p) { p.sums.levels = {kAllAxes, kAllAxes}; }, "on 2 levels of a mesh of 1 axes"},
      {"shards_axis", "DC3102", [](Plan& p) { p.sums.shards = 0b100; }, "the shards of the sums names mesh axis 2"},
      {"no_levels", "DC3243", [](Plan& p) { p.sums.levels.clear(); }, "sums do not go along 'dp'"},
      {"mesh_axes", "DC3104", [](Plan& p) { p.mesh.resize(9, {"one", 1}); }, "a mesh of 9 axes"},
      {"mesh_zero", "DC3104", [](Plan& p) { p.mesh[0].second = 0; }, "dp"},
      {"mesh_huge", "DC3104", [](Plan& p) { p.mesh = {{"a", 1 << 16}, {"b", 2}}; }, "'b'"},
      {"mesh_missing", "DC3104", [](Plan& p) { p.mesh.clear(); }, "mesh"},
      {"no_threads", "DC3103", [](Plan& p) { p.threads = 0; }, "threads"},
      {"no_micro_batch", "DC3103", [](Plan& p) { p.accumulation = 0; }, "micro-batches"},
      {"too_many_micro_batches", "DC3103", [](Plan& p) { p.accumulation = p.step[0].repeat = 65537; }, "65537 micro-batches"},
      {"no_stream", "DC3103", [](Plan& p) { p.streams.clear(); }, "compute stream"},
      {"too_many_streams", "DC3103", [](Plan& p) { p.streams.resize(65); }, "65 streams"},
      {"negative_events", "DC3103", [](Plan& p) { p.events = -1; }, "events"},
      {"too_many_arenas", "DC3103", [](Plan& p) { p.arena_bytes.resize(base::kSpaces.size() + 1); }, "arenas"},
      {"negative_arena", "DC3103", [](Plan& p) { p.arena_bytes[0] = -64; }, "an arena of -64 bytes"},
      {"huge_arena", "DC3103", [](Plan& p) { p.arena_bytes[0] = (int64_t{1} << 48) + 64; }, "an arena of 281474976710720 bytes"},
      {"wire_bytes_count", "DC3103", [](Plan& p) { p.prediction.wire_bytes.pop_back(); }, "wire"},
      {"durations_count", "DC3103", [](Plan& p) { p.programs[0].duration_ns.pop_back(); }, "predicted durations"},
      {"origins_count", "DC3103", [](Plan& p) { p.programs[0].duration_origins = {1}; }, "where 1 come from"},
      {"no_step", "DC3105", [](Plan& p) { p.step.clear(); }, "no program"},
      {"repeat_zero", "DC3105", [](Plan& p) { p.step[0].repeat = 0; }, "0 times"},
      {"more_runs_than_micro_batches", "DC3105", [](Plan& p) { p.step[0].repeat = 2; }, "runs 2 programs for 1 micro-batches"},
      {"fewer_runs_than_micro_batches", "DC3105", [](Plan& p) { p.accumulation = 3; p.step[0].repeat = 2; }, "runs 2 programs for 3 micro-batches"},
      {"strides_count", "DC3107", [](Plan& p) { p.tensors[kWhole].strides = {1}; }, "strides"},
      // Level 2: memory
      {"slice_past_arena", "DC3201", [](Plan& p) { p.arena_bytes[0] -= 64; }, "slice 14"},
      {"slice_negative", "DC3201", [](Plan& p) { slice_of(p, kShard).offset = -64; }, "slice 0"},
      {"slice_negative_bytes", "DC3201", [](Plan& p) { slice_of(p, kShard).bytes = -1; }, "slice 0"},
      {"slice_overflow", "DC3201", [](Plan& p) { slice_of(p, kShard).bytes = std::numeric_limits<int64_t>::max(); slice_of(p, kShard).offset = 64; }, "slice 0"},
      {"slice_space", "DC3201", [](Plan& p) { slice_of(p, kShard).space = Space::Host; }, "arena of 0"},
      {"slice_misaligned", "DC3202", [](Plan& p) { p.arena_bytes[0] += 64; p.slices[kScratchSlice].offset += 32; }, "multiple of 64"},
      {"slice_lives_backwards", "DC3203", [](Plan& p) { slice_of(p, kWhole).first = 2; }, "live from 2 to 1"},
      {"slice_lives_past_end", "DC3203", [](Plan& p) { slice_of(p, kReduced).last = 14; }, "14 instructions"},
      {"slices_overlap", "DC3204", [](Plan& p) { slice_of(p, kProduct).offset = slice_of(p, kWhole).offset; }, "share bytes"},
      {"slice_inside_another", "DC3204", [](Plan& p) { slice_of(p, kProduct).offset = slice_of(p, kWhole).offset + 128; }, "share bytes"},
      {"slice_around_another", "DC3204", [](Plan& p) { slice_of(p, kScratchSlice - 1).offset = 0; }, "share bytes"},
      {"transient_on_state", "DC3204", [](Plan& p) { slice_of(p, kProduct).offset = slice_of(p, kMoment1).offset; }, "share bytes"},
      {"state_on_state", "DC3204", [](Plan& p) { slice_of(p, kMoment2).offset = slice_of(p, kMoment1).offset; }, "share bytes"},
      {"negative_size", "DC3205", [](Plan& p) { p.tensors[kWhole].sizes[0] = -6; }, "negative"},
      {"negative_stride", "DC3205", [](Plan& p) { p.tensors[kWhole].strides[0] = -10; }, "negative"},
      {"negative_rank_stride", "DC3205", [](Plan& p) { p.tensors[kTableRow].rank_stride = -24; }, "negative"},
      {"size_overflow", "DC3206", [](Plan& p) { p.tensors[kWhole].sizes = {int64_t{1} << 40, int64_t{1} << 40}; }, "overflows"},
      {"expanded_size_overflow", "DC3206", [](Plan& p) { p.tensors[kWhole].sizes = {int64_t{1} << 40, int64_t{1} << 40}; p.tensors[kWhole].strides = {0, 0}; }, "overflows"},
      {"stride_overflow", "DC3206", [](Plan& p) { p.tensors[kWhole].strides[0] = std::numeric_limits<int64_t>::max(); }, "overflows"},
      {"rank_stride_overflow", "DC3206", [](Plan& p) { p.tensors[kTableRow].rank_stride = std::numeric_limits<int64_t>::max() - 8; p.tensors[kTableRow].offset = 24; }, "overflows"},
      {"tensor_past_slice", "DC3207", [](Plan& p) { p.tensors[kProduct].sizes[0] = 4; }, "reaches byte 160"},
      {"tensor_offset_past_slice", "DC3207", [](Plan& p) { p.tensors[kLoss].offset = 64; }, "(loss)"},
      {"last_rank_past_slice", "DC3207", [](Plan& p) { p.tensors[kTableRow].rank_stride = 48; }, "table.row"},
      {"tensor_misaligned", "DC3208", [](Plan& p) { p.tensors[kLoss].offset = 2; }, "element size"},
      {"rank_stride_misaligned", "DC3208", [](Plan& p) { p.tensors[kTableRow].rank_stride = 12; }, "element size"},
      // Level 2: instructions
      {"argument_not_read", "DC3211", [](Plan& p) { at(p, kMatmul).reads = {kInput}; }, "(w)"},
      {"list_argument_not_read", "DC3211", [](Plan& p) { Arg a; a.kind = ArgKind::Tensors; a.ints = {-1, kMoment1}; at(p, kMatmul).args.push_back(a); }, "(exp_avg:w)"},
      {"output_not_written", "DC3211", [](Plan& p) { at(p, kMatmul).writes = {kLossSum}; }, "written"},
      {"gathered_not_written", "DC3211", [](Plan& p) { at(p, kGather).writes.clear(); }, "written"},
      {"wire_not_read", "DC3211", [](Plan& p) { at(p, kReduce).reads.clear(); }, "read"},
      {"copy_not_read", "DC3211", [](Plan& p) { Instruction& in = at(p, kLossSumOf); in = {}; in.kind = InstructionKind::Copy; in.src = kMoment1; in.dst = kMoment2; in.writes = {kMoment2}; }, "read"},
      {"update_hides_a_write", "DC3211", [](Plan& p) { at(p, kAdamW).writes.pop_back(); }, "writes tensor %2 (exp_avg_sq:w) and does not list it as written"},
      {"update_hides_a_read", "DC3211", [](Plan& p) { std::erase(at(p, kAdamW).reads, kReduced); }, "reads tensor %13 (reduced:w) and does not list it as read"},
      {"read_listed_as_written", "DC3211", [](Plan& p) { at(p, kMatmul).reads = {kInput}; at(p, kMatmul).writes.push_back(kWhole); }, "reads tensor %10 (w)"},
      {"lists_a_read_too_many", "DC3211", [](Plan& p) { at(p, kMatmul).reads.push_back(kMoment1); }, "lists tensor %1 (exp_avg:w) as read"},
      {"lists_a_write_too_many", "DC3211", [](Plan& p) { at(p, kMatmul).writes.push_back(kMoment1); }, "lists tensor %1 (exp_avg:w) as written"},
      {"collective_hides_a_write", "DC3211", [](Plan& p) { at(p, kReduce).writes = {kGradient}; }, "writes tensor %13"},
      {"unknown_native_kernel", "DC3223", [](Plan& p) { at(p, kAdamW).op = "dc.lamb"; }, "is a native kernel that this version does not know"},
      {"native_kernel_with_fewer_operands", "DC3223", [](Plan& p) { at(p, kAdamW).args.erase(at(p, kAdamW).args.begin()); }, "has 5 tensors and 0 outputs, where this kernel takes 6 or 7 and 0"},
      {"native_kernel_with_more_outputs", "DC3223", [](Plan& p) { at(p, kAdamW).outputs = {kShard}; }, "has 6 tensors and 1 outputs"},
      {"native_kernel_with_a_list_of_tensors", "DC3223", [](Plan& p) { Arg a; a.kind = ArgKind::Tensors; at(p, kAdamW).args.push_back(a); }, "has 7 tensors"},
      {"operator_in_place", "DC3223", [](Plan& p) { at(p, kMatmul).op = "aten.relu_.default"; }, "changes its operands"},
      {"native_operator_in_place", "DC3223", [](Plan& p) { at(p, kMatmul).provider = Provider::Native, at(p, kMatmul).op = "aten.relu_.default"; }, "changes its operands"},
      {"native_operator_reads_more", "DC3211", [](Plan& p) { at(p, kMatmul).provider = Provider::Native, at(p, kMatmul).reads = {kInput}; }, "(w)"},
      {"operator_that_updates_silently", "DC3223", [](Plan& p) { at(p, kMatmul).op = "aten.native_batch_norm.default"; }, "changes its operands"},
      {"operator_of_others", "DC3223", [](Plan& p) { at(p, kMatmul).op = "mine.mm.default"; }, "no operator of ATen"},
      {"fused_kernel", "DC3223", [](Plan& p) { at(p, kMatmul).provider = Provider::Fused; }, "fused"},
      {"fused_result_on_operand", "DC3224", [](Plan& p) { Instruction& in = at(p, kLossSumOf); fuse(in, kNegative); in.outputs = in.writes = {kProduct}; }, "shares bytes with its operand"},
      {"fused_kernel_without_expression", "DC3223", [](Plan& p) { fuse(at(p, kMatmul), kSum); at(p, kMatmul).args.pop_back(); }, "without an expression"},
      {"fused_kernel_of_no_expression", "DC3223", [](Plan& p) { fuse(at(p, kMatmul), "t0"); }, "cannot be read"},
      {"fused_kernel_of_other_operands", "DC3223", [](Plan& p) { fuse(at(p, kMatmul), kSumOfThree); }, "has 3 operands and 1 results, and not its 2 and 1"},
      {"fused_kernel_without_result", "DC3223", [](Plan& p) { fuse(at(p, kMatmul), kSum); at(p, kMatmul).outputs = {-1}; }, "leaves out a result"},
      {"update_of_one_moment_twice", "DC3224", [](Plan& p) { Instruction& in = at(p, kAdamW); in.args[2].i = in.args[1].i; std::erase(in.reads, kMoment2); std::erase(in.writes, kMoment2); }, "which it touches too"},
      {"copy_onto_itself", "DC3224", [](Plan& p) { Instruction& in = at(p, kLossSumOf); in = {}; in.kind = InstructionKind::Copy; in.src = in.dst = kMoment1; in.reads = in.writes = {kMoment1}; }, "which it touches too"},
      {"two_gathers_into_one", "DC3224", [](Plan& p) { auto& buffers = at(p, kGather).buffers; buffers.push_back(buffers[0]); }, "which it touches too"},
      {"fused_kernel_hides_a_read", "DC3211", [](Plan& p) { Instruction& in = at(p, kMatmul); fuse(in, kSum); in.reads = {kInput}; }, "(w)"},
      {"result_on_operand", "DC3224", [](Plan& p) { at(p, kLossSumOf).outputs = at(p, kLossSumOf).writes = {kProduct}; }, "shares bytes with its operand"},
      {"in_place_result_elsewhere", "DC3224", [](Plan& p) { at(p, kSquareSum) = native("dc.cross_entropy_backward", {kReduced, kHyperparameters, kHyperparameters, kHyperparameters, kHyperparameters, kHyperparameters}, {kReduced, kHyperparameters}, {kReduced, kMoment1}); at(p, kSquareSum).outputs = {kMoment1}; }, "is not where its operand"},
      {"gather_without_room_on_the_last_rank", "DC3217", [](Plan& p) { slice_of(p, kWhole).bytes = 256; p.tensors[kWhole].rank_stride = 16; }, "no room"},
      {"kernel_without_op", "DC3214", [](Plan& p) { at(p, kMatmul).op.clear(); }, "names no operator"},
      {"kernel_without_effect", "DC3214", [](Plan& p) { at(p, kAddLoss).writes.clear(); }, "writes nothing"},
      {"kernel_with_too_many_arguments", "DC3214", [](Plan& p) { at(p, kMatmul).args.resize(65); }, "65 arguments"},
      {"scratch_dead", "DC3215", [](Plan& p) { at(p, kGradientOf).scratch = kScratchSlice; }, "scratch"},
      {"scratch_on_operand", "DC3215", [](Plan& p) { at(p, kMatmul).scratch = p.tensors[kWhole].slice; }, "scratch"},
      {"copy_of_other_size", "DC3216", [](Plan& p) { Instruction& in = at(p, kLossSumOf); in = {}; in.kind = InstructionKind::Copy; in.src = kInput; in.dst = kMoment2; in.reads = {kInput}; in.writes = {kMoment2}; }, "differ"},
      {"shards_too_small", "DC3217", [](Plan& p) { at(p, kReduce).buffers[0].shard = 29; }, "shards of 29"},
      {"gather_of_other_elements", "DC3217", [](Plan& p) { at(p, kGather).buffers[0].elements = 59; }, "needs 32 and 59"},
      {"reduce_of_other_shard", "DC3217", [](Plan& p) { at(p, kReduce).buffers[0].shard = 40; }, "needs 60 and 40"},
      {"shard_overflow", "DC3217", [](Plan& p) { at(p, kGather).buffers[0].shard = std::numeric_limits<int64_t>::max(); }, "shards"},
      {"gather_without_room", "DC3217", [](Plan& p) { slice_of(p, kWhole).bytes = 240; }, "no room"},
      {"gather_not_contiguous", "DC3217", [](Plan& p) { p.tensors[kWhole].strides = {1, 6}; }, "contiguous"},
      {"collective_without_buffers", "DC3217", [](Plan& p) { at(p, kGather).buffers.clear(); }, "no buffers"},
      {"broadcast_size", "DC3217", [](Plan& p) { at(p, kGather).collective = CollectiveKind::Broadcast; }, "needs 60 and 60"},
      {"all_to_all_size", "DC3217", [](Plan& p) { at(p, kGather).collective = CollectiveKind::AllToAll; }, "splits"},
      {"reduction_not_f32", "DC3218", [](Plan& p) { p.tensors[kReduced].dtype = DType::BF16; p.parameters[0].trainable = false; p.parameters[0].gradient = p.parameters[0].gradient_ready = p.parameters[0].trainable_index = -1; p.tensors[kScalars].sizes = {8}; p.tensors[kTable].sizes = {2, 2}; p.tensors[kTable].strides = {2, 1}; p.tensors[kTableRow].sizes = {2}; p.tensors[kTableRow].rank_stride = 16; at(p, kExchangeTable).buffers[0].elements = 4; at(p, kExchangeTable).buffers[0].shard = 2; }, "f32 into bf16"},
      {"gather_changes_dtype", "DC3218", [](Plan& p) { p.tensors[kWhole].dtype = DType::I32; }, "f32 into i32"},
      {"reduction_of_integers", "DC3218", [](Plan& p) { p.tensors[kGradient].dtype = DType::I32; }, "i32 into f32"},
      {"collective_on_other_stream", "DC3220", [](Plan& p) { at(p, kReduce).stream = 0; }, "stream"},
      {"kernel_outside_the_device", "DC3222", [](Plan& p) { move_to_host(p, kMoment1); }, "touches tensor %1 (exp_avg:w), which lies outside"},
      {"collective_outside_the_device", "DC3222", [](Plan& p) { move_to_host(p, kWhole); }, "instruction 0 (all_gather)"},
      {"scratch_outside_the_device", "DC3222", [](Plan& p) { p.arena_bytes.resize(2); p.arena_bytes[1] = 1024; p.slices[kScratchSlice].space = Space::Host; p.slices[kScratchSlice].offset = 0; }, "scratch outside"},
      {"host_kernel_on_the_device", "DC3222", [](Plan& p) { p.streams[1].space = Space::Host; at(p, kAdamW).stream = 1; }, "which lies outside the host, on whose memory stream 'reduce' works"},
      {"compute_on_the_host", "DC3222", [](Plan& p) { p.streams[0].space = Space::Host; }, "run kernels on the host, and it is compute"},
      {"kernels_on_disk", "DC3222", [](Plan& p) { p.streams[1].space = Space::Disk; }, "run kernels on the disk"},
      {"gradient_outside_the_device", "DC3232", [](Plan& p) { move_to_host(p, kReduced); }, "gradient outside"},
      {"step_scalar_outside_the_device", "DC3233", [](Plan& p) { move_to_host(p, kRng); }, "lie outside"},
      {"input_outside_the_device", "DC3234", [](Plan& p) { move_to_host(p, kInput); }, "lies outside"},
      {"signal_with_reads", "DC3221", [](Plan& p) { at(p, kSignalReduce).reads = {kGradient}; }, "signal"},
      // Level 2: order
      {"read_after_death", "DC3212", [](Plan& p) { slice_of(p, kWhole).last = 0; }, "outside the live range"},
      {"write_before_birth", "DC3212", [](Plan& p) { slice_of(p, kWhole).first = 1; }, "instruction 0 (all_gather)"},
      {"read_before_write", "DC3213", [](Plan& p) { at(p, kGather) = native("dc.zero", {kMoment1}, {}, {kMoment1}); }, "reads tensor %10 (w) before anything wrote it"},
      {"update_before_write", "DC3213", [](Plan& p) { at(p, kGather) = native("dc.accumulate", {kWhole, kMoment1}, {kWhole, kMoment1}, {kWhole}); }, "reads tensor %10 (w) before anything wrote it"},
      {"read_of_unfilled_persistent", "DC3213", [](Plan& p) { p.inputs.clear(); }, "(x)"},
      {"wait_without_signal", "DC3219", [](Plan& p) { std::swap(at(p, kSignalReduce), at(p, kWaitReduce)); }, "nothing before it signals"},
      {"wait_for_other_event", "DC3219", [](Plan& p) { p.events = 3; at(p, kWaitReduce).event = 2; }, "event 2"},
      // Level 3: order between streams. A wait on the stream of its own signal orders nothing.
      {"result_not_awaited", "DC3241", [](Plan& p) { at(p, kWaitReduced).stream = 1; }, "instruction 10 (dc.square_sum) of program 'step' reads bytes that instruction 7 (reduce_scatter) of program 'step' writes on stream 'reduce'"},
      {"starts_too_early", "DC3241", [](Plan& p) { at(p, kWaitReduce).stream = 0; }, "instruction 7 (reduce_scatter) of program 'step' reads bytes that instruction 3 (aten.mm.default) of program 'step' writes on stream 'compute'"},
      {"awaits_another", "DC3241", [](Plan& p) { at(p, kWaitReduced).event = 0; }, "instruction 10"},
      {"place_still_read", "DC3241", [](Plan& p) { at(p, kWaitReduced).stream = 1; at(p, kSquareSum) = native("dc.zero", {kTableRow}, {}, {kTableRow}); slice_of(p, kGradient).last = kReduce; p.slices.push_back({Space::Device, slice_of(p, kGradient).offset, 64, 0, kSquareSum, kSquareSum, SliceKind::Scratch}); at(p, kSquareSum).scratch = static_cast<int32_t>(p.slices.size() - 1); }, "writes bytes that instruction 7 (reduce_scatter) of program 'step' reads"},
      // Level 2: tables
      {"transient_state", "DC3231", [](Plan& p) { p.state[1].tensor = kProduct; }, "does not keep"},
      {"state_where_another_is", "DC3231", [](Plan& p) { p.state[2].tensor = p.state[1].tensor; }, "lies where state"},
      {"state_without_parameter", "DC3231", [](Plan& p) { p.state[1].parameter = -1; }, "role moment1 and names no parameter"},
      {"state_of_other_size", "DC3231", [](Plan& p) { p.state[1].placement.clear(); }, "has 32 elements, not those of parameter"},
      {"state_of_other_type", "DC3231", [](Plan& p) { p.tensors[kShard].dtype = DType::I32; }, "cannot hold"},
      {"state_data_size", "DC3231", [](Plan& p) { p.buffers.resize(1); p.buffers[0].sizes = {32}; p.state[1] = {"b", kMoment1, StateSource::Data, -1, 0, std::vector<uint8_t>(127), StateRole::Constant, {}}; }, "127 bytes"},
      {"state_unused_data", "DC3231", [](Plan& p) { p.state[1].data.resize(128); }, "does not use"},
      {"state_without_buffer", "DC3231", [](Plan& p) { p.state[1].parameter = -1; p.state[1].role = StateRole::Buffer; }, "role buffer and names no buffer"},
      {"state_of_other_buffer", "DC3231", [](Plan& p) { p.buffers.resize(1); p.buffers[0].sizes = {31}; p.state[1] = {"b", kMoment1, StateSource::Buffer, -1, 0, {}, StateRole::Buffer, {}}; }, "does not fit"},
      {"two_masters", "DC3232", [](Plan& p) { p.state[1] = p.state[0]; p.state[1].tensor = kMoment1; }, "2 state entries of role shard"},
      {"no_master", "DC3232", [](Plan& p) { p.state[0].role = StateRole::Moment1; p.state[0].source = StateSource::Zeros; p.state[1].role = StateRole::Momentum; }, "no value in the state"},
      {"remark_of_no_parameter", "DC3102", [](Plan& p) { p.remarks[0].subjects[0].id = 1; }, "remark 'parameters-sharded'"},
      {"update_rule", "DC3237", [](Plan& p) { p.updates_by_range = true; }, "permits none"},
      {"scratch_is_gradients", "DC3209", [](Plan& p) { p.slices[kScratchSlice].kind = SliceKind::Gradients; }, "is for gradients, but holds the workspace of aten.mm.default"},
      {"state_is_activations", "DC3209", [](Plan& p) { slice_of(p, kMoment1).kind = SliceKind::Activations; }, "is for activations, but holds state"},
      {"input_is_scalars", "DC3209", [](Plan& p) { slice_of(p, kInput).kind = SliceKind::Scalars; }, "is for scalars, but holds input"},
      {"tensor_in_scratch", "DC3209", [](Plan& p) { slice_of(p, kProduct).kind = SliceKind::Scratch; }, "is for scratch, but holds tensor"},
      {"state_without_role", "DC3231", [](Plan& p) { p.state[3].role = StateRole::Unknown; }, "what it is for"},
      {"state_role_of_no_parameter", "DC3231", [](Plan& p) { p.state[1].role = StateRole::Scalars; }, "role scalars and names a parameter"},
      {"state_source_of_other_role", "DC3231", [](Plan& p) { p.state[1].source = StateSource::ParameterShard; }, "role moment1 cannot start from source parameter_shard"},
      {"state_source_of_other_placement", "DC3231", [](Plan& p) { p.state[0].source = StateSource::ParameterWhole; }, "role shard cannot start from source parameter_whole"},
      {"state_of_other_shard", "DC3231", [](Plan& p) { p.state[1].placement[0].shard = 30; }, "30 elements, its tensor has 32"},
      {"state_placed_twice", "DC3231", [](Plan& p) { p.state[1].placement.push_back({0, AxisPlacement::Varying}); }, "two placements"},
      {"state_of_no_axis", "DC3102", [](Plan& p) { p.state[1].placement[0].axis = 1; }, "mesh axis"},
      {"state_split_by_dim", "DC3231", [](Plan& p) { p.state[1].placement[0] = {0, AxisPlacement::Shard, 0}; }, "is shard along mesh axis"},
      {"state_partial", "DC3231", [](Plan& p) { p.state[1].placement[0] = {0, AxisPlacement::Partial}; }, "role moment1 is partial along"},
      {"shard_of_no_axis", "DC3231", [](Plan& p) { p.state[0].placement.clear(); }, "is a shard along no mesh axis"},
      {"moment_not_f32", "DC3231", [](Plan& p) { p.tensors[kMoment2].dtype = DType::BF16; }, "is in bf16, not in f32"},
      {"range_of_no_entry", "DC3102", [](Plan& p) { p.state[1].range_of = 99; }, "state entry"},
      {"range_of_a_shard", "DC3231", [](Plan& p) { p.state[1].range_of = 0; }, "is a range of an entry that is no whole"},
      {"range_of_other_memory", "DC3231", [](Plan& p) { p.state.push_back({"row", kLossSum, StateSource::Zeros, -1, -1, {}, StateRole::NormTable, {{0, AxisPlacement::FlatShard, -1, 1}}, 6}); }, "is not the rank's range of 'table'"},
      {"stride_without_range", "DC3231", [](Plan& p) { p.state.push_back({"row", kTableRow, StateSource::Zeros, -1, -1, {}, StateRole::NormTable, {}}); }, "is a rank's range of no entry"},
      {"parameter_shard_too_small", "DC3232", [](Plan& p) { p.parameters[0].shard = 16; }, "shards of 16"},
      {"parameter_size_overflow", "DC3232", [](Plan& p) { p.parameters[0].sizes = {int64_t{1} << 40, int64_t{1} << 40}; }, "impossible"},
      {"parameter_negative_size", "DC3232", [](Plan& p) { p.parameters[0].sizes = {-6, -10}; }, "impossible"},
      {"parameter_record", "DC3232", [](Plan& p) { p.parameters[0].record.sizes = {10, 5}; }, "record"},
      {"trainable_index", "DC3232", [](Plan& p) { p.parameters[0].trainable_index = -1; }, "place"},
      {"trainable_without_gradient", "DC3232", [](Plan& p) { p.parameters[0].gradient = -1; }, "no gradient"},
      {"frozen_with_gradient", "DC3232", [](Plan& p) { p.parameters[0].trainable = false; }, "frozen"},
      {"gradient_of_other_size", "DC3232", [](Plan& p) { p.parameters[0].gradient = kProduct; }, "neither"},
      {"gradient_not_live", "DC3232", [](Plan& p) { p.parameters[0].gradient_ready = kMatmul; }, "not live"},
      {"slots_missing", "DC3233", [](Plan& p) { p.hyperparameters = -1; }, "'hyperparameters' are missing"},
      {"rng_of_other_type", "DC3233", [](Plan& p) { p.rng = kTableRow; }, "not i64[4]"},
      {"scalars_of_other_size", "DC3233", [](Plan& p) { p.scalars = kHyperparameters; }, "not f64[9]"},
      {"table_of_other_size", "DC3233", [](Plan& p) { p.table = kTableRow; }, "not f64[6]"},
      {"loss_sum_transient", "DC3233", [](Plan& p) { slice_of(p, kLossSum).program = 0; slice_of(p, kLossSum).last = 11; p.state.erase(p.state.begin() + 7); }, "keep"},
      {"input_role", "DC3234", [](Plan& p) { p.inputs[0].role = InputRole::Tokens; }, "integer"},
      {"input_loss_scale", "DC3234", [](Plan& p) { p.inputs[0].role = InputRole::LossScale; }, "one number"},
      {"input_next", "DC3234", [](Plan& p) { p.inputs[0].next = true; }, "no labels"},
      {"input_memory", "DC3234", [](Plan& p) { slice_of(p, kInput).program = 0; slice_of(p, kInput).first = 1; slice_of(p, kInput).last = 3; }, "its own"},
      {"input_range", "DC3234", [](Plan& p) { p.inputs[0].high = std::numeric_limits<double>::infinity(); }, "finite"},
      {"optimizer_without_groups", "DC3102", [](Plan& p) { p.optimizer.groups.clear(); }, "optimizer group"},
      {"optimizer_nan", "DC3235", [](Plan& p) { p.optimizer.groups[0].lr = std::numeric_limits<double>::quiet_NaN(); }, "finite"},
      {"schedule_negative", "DC3235", [](Plan& p) { p.optimizer.warmup_steps = -1; }, "schedule"},
      {"bounds_count", "DC3103", [](Plan& p) { p.prediction.bounds_ns.pop_back(); }, "3 bounds"},
      {"bounds_negative", "DC3236", [](Plan& p) { p.prediction.bounds_ns[2] = -1; }, "prediction"},
      {"prediction_negative", "DC3236", [](Plan& p) { p.prediction.step_ns = -1; }, "prediction"},
      {"prediction_overflows", "DC3236", [](Plan& p) { p.prediction.step_ns = int64_t{7809911855202529379}; }, "prediction"},
      {"duration_negative", "DC3236", [](Plan& p) { p.programs[0].duration_ns[kMatmul] = -1; }, "aten.mm.default"},
      {"duration_of_a_wait", "DC3236", [](Plan& p) { p.programs[0].duration_ns[kWaitReduce] = 1; }, "duration of 1 ns"},
      {"duration_of_no_origin", "DC3236", [](Plan& p) { p.programs[0].duration_origins.assign(p.programs[0].duration_ns.size(), plan::kFigureOriginCount); }, "no known origin"},
      {"learned_negative", "DC3236", [](Plan& p) { p.prediction.learned_ns = -1; }, "prediction"},
      {"library_memory_negative", "DC3236", [](Plan& p) { p.prediction.library_bytes = -1; }, "prediction"},
      {"durations_overflow", "DC3236", [](Plan& p) { p.programs[0].duration_ns[kMatmul] = std::numeric_limits<int64_t>::max(); }, "duration"},
  };
  return list;
}
// clang-format on

// What an operator of ATen reads and writes does not depend on whose kernel it is.
TEST(Verify, AnOperatorMayHaveANativeKernel) {
  Plan plan = tiny_plan();
  at(plan, kMatmul).provider = Provider::Native;
  EXPECT_TRUE(verify::verify_meaning(plan).ok()) << verify::verify_meaning(plan).to_string();
}

class Mutations : public testing::TestWithParam<size_t> {};

TEST_P(Mutations, IsRejected) {
  const Mutation& mutation = mutations()[GetParam()];
  Plan plan = tiny_plan();
  mutation.apply(plan);
  const base::Status status = verify::verify_meaning(plan);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), mutation.code) << status.to_string();
  EXPECT_EQ(status.kind(), base::ErrorKind::BadInput);
  EXPECT_NE(status.sentence().find(mutation.says), std::string::npos) << status.sentence();
  EXPECT_NE(status.sentence().find("recompile the model"), std::string::npos) << status.sentence();
  // The same plan as a file is rejected with the same words, at level 1 by decode and at level 2
  // after it.
  const std::string file = encode(plan);
  auto decoded = decode({reinterpret_cast<const uint8_t*>(file.data()), file.size()});
  const base::Status again = decoded.ok() ? verify::verify_meaning(*decoded) : decoded.status();
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.sentence(), status.sentence());
  EXPECT_EQ(decoded.ok(), std::string_view(mutation.code) >= "DC3200");
}

INSTANTIATE_TEST_SUITE_P(Verify, Mutations, testing::Range<size_t>(0, mutations().size()),
                         [](const auto& info) {
                           return std::string(mutations()[info.param].name);
                         });

struct EvaluationMutation {
  const char* code;
  std::function<void(Plan&)> apply;
  const char* says;
};

// A file has no way to say so.
TEST(Verify, GroupsAndStridesNeedAnAxis) {
  Plan plan = test::tiny_plan();
  plan.groups[1].axes = 0;
  EXPECT_EQ(verify::verify_meaning(plan).code(), "DC3106");
  plan = test::tiny_plan();
  plan.tensors[kWhole].stride_axes = 0;
  EXPECT_EQ(verify::verify_meaning(plan).code(), "DC3106");
}

TEST(Verify, EvaluationsThatAreRejected) {
  const auto eval = [](Plan& p, int index) -> Instruction& {
    return p.programs[1].instructions[static_cast<size_t>(index)];
  };
  // clang-format off
  const std::vector<EvaluationMutation> list = {
      {"DC3102", [](Plan& p) { p.variants[0].step[0].program = 2; }, "the variant for 'evaluate' names program 2"},
      {"DC3105", [](Plan& p) { p.variants[0].step.clear(); }, "the variant for 'evaluate' has no program"},
      {"DC3102", [](Plan& p) { p.variants[0].inputs[0].tensor = 500; }, "input 'x'"},
      {"DC3103", [](Plan& p) { p.variants[0].prediction.bounds_ns.pop_back(); }, "3 bounds"},
      {"DC3236", [](Plan& p) { p.variants[0].prediction.step_ns = -1; }, "prediction"},
      {"DC3234", [](Plan& p) { slice_of(p, kEvalInput).first = 1; }, "before its memory is its own"},
      {"DC3209", [](Plan& p) { slice_of(p, kEvalInput).kind = SliceKind::Activations; }, "but holds input 'x'"},
      {"DC3242", [](Plan& p) { p.variants.push_back(p.variants[0]); }, "two variants for 'evaluate'"},
      {"DC3242", [](Plan& p) { p.variants[0].purpose = Purpose::Train; }, "which this version lacks"},
      {"DC3242", [](Plan& p) { p.variants[0].step[0].program = 0; }, "runs program 'step', which is the step's"},
      {"DC3242", [](Plan& p) { p.variants[0].inputs.push_back({"y", InputRole::Float, 0, 1, kInput}); }, "does not lie in memory of its one program"},
      {"DC3242", [&](Plan& p) { eval(p, kEvalAddLoss) = native("dc.zero", {kMoment1}, {}, {kMoment1}); }, "instruction 3 (dc.zero) of program 'evaluation' writes tensor %1 (exp_avg:w)"},
      {"DC3213", [&](Plan& p) { std::swap(eval(p, kEvalMatmul), eval(p, kEvalSum)); }, "before anything wrote it"},
      {"DC3241", [&](Plan& p) { eval(p, kEvalGather).stream = eval(p, kEvalGather).group = 1; }, "no event says which of them comes first"},
  };
  // clang-format on
  for (const EvaluationMutation& mutation : list) {
    Plan plan = evaluating_plan();
    mutation.apply(plan);
    const base::Status status = verify::verify_meaning(plan);
    EXPECT_EQ(status.code(), mutation.code) << mutation.says << ": " << status.to_string();
    EXPECT_NE(status.sentence().find(mutation.says), std::string::npos) << status.sentence();
  }
}

TEST(Verify, SlicesOfDifferentProgramsMayShareBytes) {
  Plan plan = tiny_plan();
  const auto t = static_cast<int32_t>(plan.tensors.size());
  const Instruction zero = native("dc.zero", {t}, {}, {t});
  Slice slice = slice_of(plan, kWhole);
  slice.program = 1;
  slice.first = slice.last = 0;
  plan.slices.push_back(slice);
  plan.tensors.push_back(
      {"t", DType::F32, {4}, {1}, static_cast<int32_t>(plan.slices.size() - 1), 0, 0});
  plan.programs.push_back({"accumulate", {zero}});
  plan.step = {{1, 3}, {0, 1}};
  plan.accumulation = 4;
  EXPECT_TRUE(verify::verify_meaning(plan).ok()) << verify::verify_meaning(plan).to_string();
  // What one program leaves in a transient slice is gone in the next.
  also_reads(plan.programs[0].instructions[kMatmul], t);
  EXPECT_EQ(verify::verify_meaning(plan).code(), "DC3212");
}

TEST(Verify, SlicesMayShareBytesOneAfterTheOther) {
  Plan plan = tiny_plan();
  slice_of(plan, kReduced).offset = slice_of(plan, kWhole).offset;
  EXPECT_TRUE(verify::verify_meaning(plan).ok()) << verify::verify_meaning(plan).to_string();
  slice_of(plan, kReduced).first = slice_of(plan, kWhole).last;  // ranges are inclusive
  EXPECT_EQ(verify::verify_meaning(plan).code(), "DC3204");
}

TEST(Verify, CarriedSlicesNeedAWriteEarlierInTheStep) {
  Plan plan = tiny_plan();
  // A persistent slice that no table fills, written by the first program and read by the second.
  plan.slices.push_back({Space::Device, plan.arena_bytes[0], 64, -1, 0, 0});
  plan.arena_bytes[0] += 64;
  const auto carried = static_cast<int32_t>(plan.tensors.size());
  plan.tensors.push_back(
      {"carried", DType::F32, {4}, {1}, static_cast<int32_t>(plan.slices.size() - 1), 0, 0});
  const Instruction zero = native("dc.zero", {carried}, {}, {carried});
  plan.programs.push_back({"first", {zero}});
  also_reads(plan.programs[0].instructions[kMatmul], carried);
  plan.step = {{1, 1}, {0, 1}};
  plan.accumulation = 2;
  EXPECT_TRUE(verify::verify_meaning(plan).ok()) << verify::verify_meaning(plan).to_string();
  plan.step = {{0, 1}, {1, 1}};
  plan.parameters[0].gradient_ready = -1;
  EXPECT_EQ(verify::verify_meaning(plan).code(),
            "DC3232");  // the step's last program has no gradient
  plan.step = {{0, 1}, {1, 1}, {0, 1}};
  plan.accumulation = 3;
  plan.parameters[0].gradient_ready = kReduce;
  EXPECT_EQ(verify::verify_meaning(plan).code(), "DC3213");
}

// Under autocast parameters are cast before they are gathered.
TEST(Verify, CarriedParametersMayHaveTheTypeOfTheirReaders) {
  Plan plan = tiny_plan();
  plan.slices.push_back({Space::Device, plan.arena_bytes[0], 128, -1, 0, 0, SliceKind::Gathered});
  plan.arena_bytes[0] += 128;
  const auto carried = static_cast<int32_t>(plan.tensors.size());
  plan.tensors.push_back({"carried",
                          DType::BF16,
                          {6, 10},
                          {10, 1},
                          static_cast<int32_t>(plan.slices.size() - 1),
                          0,
                          0});
  plan.state.push_back({"carried", carried, StateSource::Zeros, 0, -1, {}, StateRole::Carried, {}});
  EXPECT_TRUE(verify::verify_meaning(plan).ok()) << verify::verify_meaning(plan).to_string();
  plan.state.back().role = StateRole::Momentum;
  EXPECT_EQ(verify::verify_meaning(plan).code(), "DC3231");
}

TEST(Verify, EmptyTensorsAreFine) {
  Plan plan = tiny_plan();
  plan.slices.push_back({Space::Device, 0, 0, -1, 0, 0});
  plan.tensors.push_back({"empty",
                          DType::F32,
                          {0, int64_t{1} << 62, 4},
                          {1, 4, 1},
                          static_cast<int32_t>(plan.slices.size() - 1),
                          0,
                          0});
  EXPECT_TRUE(verify::verify_meaning(plan).ok()) << verify::verify_meaning(plan).to_string();
}

TEST(Verify, ALargePlanIsGoodAndItsLastOverlapIsFound) {
  Plan plan = large_plan(20000);
  EXPECT_TRUE(verify::verify_meaning(plan).ok()) << verify::verify_meaning(plan).to_string();
  plan.slices.back().offset -= 64;
  EXPECT_EQ(verify::verify_meaning(plan).code(), "DC3204");
}

}  // namespace
}  // namespace dc::runtime::plan
