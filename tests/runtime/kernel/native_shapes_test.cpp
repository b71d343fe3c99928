// Instructions whose tensors do not fit each other are refused while they are prepared: a kernel
// that ran them would read or write outside of its tensors.
#include <functional>
#include <limits>
#include <ostream>

#include "tests/runtime/kernel/kernel_bench.h"

namespace dc::runtime {
namespace {

using base::DType;
using Sizes = std::vector<int64_t>;

struct Meta {
  Sizes sizes;
  DType dtype = DType::F32;
  Sizes strides = {};  // none: contiguous
};
struct Operand {
  std::string name;
  Meta meta;
};

// An instruction that a kernel takes, but for what a case changes.
struct Step {
  std::string op;
  std::vector<Operand> operands;
  std::vector<Meta> results;
  std::vector<plan::Arg> attributes = {};
  std::vector<Meta> list = {};  // operands of one list
  std::string list_name = "tensors";
};

// As rank 2 of 3.
base::Status prepare(const Step& step) {
  KernelBench bench(2);
  std::vector<plan::Arg> args;
  const auto place = [&](const Meta& meta) {
    const int32_t id = bench.tensor(meta.dtype, meta.sizes, meta.strides);
    std::memset(
        bench.data<std::byte>(id), 0,
        static_cast<size_t>(KernelBench::bytes(bench.plan().tensors[static_cast<size_t>(id)])));
    return id;
  };
  for (const Operand& operand : step.operands)
    args.push_back(tensor_arg(place(operand.meta), operand.name));
  if (!step.list.empty()) {
    plan::Arg list;
    list.name = step.list_name;
    list.kind = plan::ArgKind::Tensors;
    for (const Meta& meta : step.list) list.ints.push_back(place(meta));
    args.push_back(list);
  }
  args.insert(args.end(), step.attributes.begin(), step.attributes.end());
  std::vector<int32_t> results;
  for (const Meta& meta : step.results) results.push_back(place(meta));
  const auto provider = kernel::make_native_provider();
  plan::Instruction made = instruction(step.op, args, results);
  const auto scratch = provider->measure_scratch(made, bench.addresses());
  if (scratch.ok() && *scratch > 0) made.scratch = bench.slice(*scratch);
  return provider->prepare(made, bench.addresses()).status();
}

struct Case {
  const char* name;
  Step step;
  std::function<void(Step&)> spoil;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

Meta ids(Sizes sizes) { return {std::move(sizes), DType::I64}; }

std::function<void(Step&)> result(size_t index, const Meta& meta) {
  return [index, meta](Step& step) { step.results[index] = meta; };
}
std::function<void(Step&)> operand(size_t index, const Meta& meta) {
  return [index, meta](Step& step) { step.operands[index].meta = meta; };
}
std::function<void(Step&)> part(size_t index, const Meta& meta) {
  return [index, meta](Step& step) { step.list[index] = meta; };
}
std::function<void(Step&)> attribute(size_t index, const plan::Arg& arg) {
  return [index, arg](Step& step) { step.attributes[index] = arg; };
}

plan::Arg ints_arg(std::string name, std::vector<int64_t> values) {
  plan::Arg arg;
  arg.name = std::move(name);
  arg.kind = plan::ArgKind::Ints;
  arg.ints = std::move(values);
  return arg;
}

const Step kEmbedding = {
    "aten.embedding.default", {{"weight", {{4, 8}}}, {"indices", ids({3})}}, {{{3, 8}}}};
const Step kEmbeddingBackward = {"aten.embedding_dense_backward.default",
                                 {{"grad_output", {{3, 8}}}, {"indices", ids({3})}},
                                 {{{4, 8}}},
                                 {int_arg("num_weights", 4), int_arg("padding_idx", -1)}};
const Step kGather = {"aten.gather.default",
                      {{"self", {{4, 8}}}, {"index", ids({4, 3})}},
                      {{{4, 3}}},
                      {int_arg("dim", 1)}};
const Step kScatter = {"aten.scatter_add.default",
                       {{"self", {{4, 8}}}, {"index", ids({4, 3})}, {"src", {{4, 3}}}},
                       {{{4, 8}}},
                       {int_arg("dim", 1)}};
const Step kIndexSelect = {"aten.index_select.default",
                           {{"self", {{4, 8}}}, {"index", ids({3})}},
                           {{{3, 8}}},
                           {int_arg("dim", 0)}};
const Step kIndex = {
    "aten.index.Tensor", {{"self", {{4, 8}}}}, {{{3, 8}}}, {}, {ids({3})}, "indices"};
const Step kIndexPut = {"aten.index_put.default",
                        {{"self", {{4, 8}}}, {"values", {{3, 8}}}},
                        {{{4, 8}}},
                        {},
                        {ids({3})},
                        "indices"};
const Step kCumsum = {"aten.cumsum.default", {{"self", {{4, 8}}}}, {{{4, 8}}}, {int_arg("dim", 1)}};
const Step kArgmax = {"aten.argmax.default", {{"self", {{4, 8}}}}, {ids({4})}, {int_arg("dim", 1)}};
const Step kArgmin = {"aten.argmin.default", {{"self", {{4, 8}}}}, {ids({})}};
const Step kMax = {
    "aten.max.dim", {{"self", {{4, 8}}}}, {{{4, 1}}, ids({4, 1})}, {int_arg("dim", 1)}};
const Step kMin = {"aten.min.dim", {{"self", {{4, 8}}}}, {{{8}}, ids({8})}, {int_arg("dim", 0)}};
const Step kSort = {"aten.sort.default", {{"self", {{4, 8}}}}, {{{4, 8}}, ids({4, 8})}};
const Step kTopk = {
    "aten.topk.default", {{"self", {{4, 8}}}}, {{{4, 3}}, ids({4, 3})}, {int_arg("k", 3)}};
const Step kHistogram = {"aten.histc.default",
                         {{"self", {{20}}}},
                         {{{5}}},
                         {int_arg("bins", 5), float_arg("min", -2), float_arg("max", 2)}};
const Step kLoss = {"aten.nll_loss_forward.default",
                    {{"self", {{4, 8}}}, {"target", ids({4})}, {"weight", {{8}}}},
                    {{{}}, {{}}},
                    {int_arg("reduction", 1)}};
const Step kLosses = {"aten.nll_loss_forward.default",
                      {{"self", {{4, 8}}}, {"target", ids({4})}},
                      {{{4}}, {{}}},
                      {int_arg("reduction", 0)}};
const Step kLossBackward = {"aten.nll_loss_backward.default",
                            {{"grad_output", {{}}},
                             {"self", {{4, 8}}},
                             {"target", ids({4})},
                             {"weight", {{8}}},
                             {"total_weight", {{}}}},
                            {{{4, 8}}},
                            {int_arg("reduction", 1)}};
const Step kLossesBackward = {
    "aten.nll_loss_backward.default",
    {{"grad_output", {{4}}}, {"self", {{4, 8}}}, {"target", ids({4})}, {"total_weight", {{}}}},
    {{{4, 8}}},
    {int_arg("reduction", 0)}};

const Step kTril = {
    "aten.tril.default", {{"self", {{4, 8}}}}, {{{4, 8}}}, {int_arg("diagonal", -1)}};
const Step kTriu = {"aten.triu.default", {{"self", {{2, 4, 8}}}}, {{{2, 4, 8}}}};
const Step kCat = {
    "aten.cat.default", {}, {{{4, 8}}}, {int_arg("dim", 0)}, {{{1, 8}}, {{0}}, {{3, 8}}}};
const Step kStack = {
    "aten.stack.default", {}, {{{2, 4, 8}}}, {int_arg("dim", 0)}, {{{4, 8}}, {{4, 8}}}};
const Step kSliceScatter = {"aten.slice_scatter.default",
                            {{"self", {{4, 8}}}, {"src", {{4, 3}}}},
                            {{{4, 8}}},
                            {int_arg("dim", 1), int_arg("start", 1), int_arg("step", 3)}};
const Step kSliceBackward = {"aten.slice_backward.default",
                             {{"grad_output", {{4, 3}}}},
                             {{{4, 8}}},
                             {int_arg("dim", 1), int_arg("start", 5), int_arg("step", 1)}};
const Step kPad = {
    "aten.constant_pad_nd.default", {{"self", {{4, 8}}}}, {{{4, 9}}}, {ints_arg("pad", {2, -1})}};
const Step kRepeat = {
    "aten.repeat.default", {{"self", {{4, 8}}}}, {{{3, 4, 16}}}, {ints_arg("repeats", {3, 1, 2})}};
const Step kAttention = {
    "aten._scaled_dot_product_flash_attention_for_cpu.default",
    {{"query", {{1, 4, 5, 8}}}, {"key", {{1, 2, 9, 8}}}, {"value", {{1, 2, 9, 8}}}},
    {{{1, 4, 5, 8}}, {{1, 4, 5}}}};
// Its causal mask ends with the last key.
const Step kCudaAttention = {
    "aten._scaled_dot_product_flash_attention.default",
    {{"query", {{1, 4, 5, 8}}}, {"key", {{1, 2, 5, 8}}}, {"value", {{1, 2, 5, 8}}}},
    {{{1, 4, 5, 8}}, {{1, 4, 5}}},
    {int_arg("is_causal", 1)}};
const Step kSum = {"aten.sum.default", {{"self", {{}}}}, {{{}}}};
const Step kSumOfTwo = {"aten.sum.default", {{"self", {{4, 8}}}}, {{{}}}};
const Step kSumOfRows = {
    "aten.sum.dim_IntList", {{"self", {{4, 8}}}}, {{{4}}}, {ints_arg("dim", {1})}};
const Step kClip = {
    "dc.clip_and_check",
    {{"", {{11}, DType::F64}}, {"", {{2, 5}, DType::F64}}, {"", {{24}, DType::F64}}},
    {},
    {int_arg("clip", 1)}};
const Step kAdamW = {"dc.adamw",
                     {{"", {{8}}},
                      {"", {{8}}},
                      {"", {{8}}},
                      {"", {{8}}},
                      {"", {{11}, DType::F64}},
                      {"", {{24}, DType::F64}}},
                     {},
                     {int_arg("param", 2), int_arg("group", 1), int_arg("clip", 1)}};
const Step kCheckFinite = {
    "dc.check_finite",
    {{"", {{11}, DType::F64}}, {"", {{5}, DType::F64}}, {"", {{2}, DType::F64}}},
    {},
    {int_arg("param", 2)}};

// Expanded dims take no memory.
constexpr int64_t kEndless = int64_t{1} << 58;

// Dims of two elements, neighbours of which are exchanged in memory: no two can be joined.
constexpr size_t kManyDims = 20;
Meta many_dims() {
  Meta meta{Sizes(kManyDims, 2), DType::F32, Sizes(kManyDims)};
  for (size_t dim = 0; dim < kManyDims; ++dim)
    meta.strides[dim] = int64_t{1} << (kManyDims - 1 - (dim ^ 1U));
  return meta;
}

const Case kCases[] = {
    {"embedding_narrow_result", kEmbedding, result(0, {{3, 7}})},
    {"embedding_short_result", kEmbedding, result(0, {{2, 8}})},
    {"embedding_other_type", kEmbedding, result(0, {{3, 8}, DType::BF16})},
    {"embedding_backward_narrow_result", kEmbeddingBackward, result(0, {{4, 7}})},
    {"embedding_backward_narrow_gradient", kEmbeddingBackward, operand(0, {{3, 7}})},
    {"gather_other_type", kGather, result(0, {{4, 3}, DType::BF16})},
    {"gather_small_result", kGather, result(0, {{4, 2}})},
    {"gather_large_result", kGather, result(0, {{4, 4}})},
    {"scatter_small_source", kScatter, operand(2, {{4, 2}})},
    {"scatter_small_result", kScatter, result(0, {{3, 8}})},
    {"scatter_broadcast_self", kScatter, operand(0, {{1, 8}})},
    {"scatter_other_type", kScatter, operand(0, {{4, 8}, DType::BF16})},
    {"index_select_short_result", kIndexSelect, result(0, {{2, 8}})},
    {"index_select_narrow_result", kIndexSelect, result(0, {{3, 7}})},
    {"index_select_narrow_operand", kIndexSelect, operand(0, {{4, 7}})},
    {"index_small_result", kIndex, result(0, {{1, 8}})},
    {"index_other_type", kIndex, result(0, {{3, 8}, DType::BF16})},
    {"index_put_broadcast_self", kIndexPut, operand(0, {{1, 8}})},
    {"index_put_narrow_values", kIndexPut, operand(1, {{3, 7}})},
    {"cumsum_small_result", kCumsum, result(0, {{4, 7}})},
    {"cumsum_large_result", kCumsum, result(0, {{5, 8}})},
    {"cumsum_many_dims", kCumsum,
     [](Step& step) {
       step.operands[0].meta = many_dims();
       step.results[0] = {Sizes(kManyDims, 2)};
     }},
    {"argmax_small_result", kArgmax, result(0, ids({3}))},
    {"argmax_large_result", kArgmax, result(0, ids({5}))},
    {"argmax_kept_dim", kArgmax, result(0, ids({4, 2}))},
    {"argmax_i32", kArgmax, result(0, {{4}, DType::I32})},
    {"argmin_of_all", kArgmin, result(0, ids({4}))},
    {"argmax_many_dims", kArgmax,
     [](Step& step) {
       step.operands[0].meta = many_dims();
       step.results[0] = ids(Sizes(kManyDims - 1, 2));
     }},
    {"max_small_values", kMax, result(0, {{3, 1}})},
    {"max_small_indices", kMax, result(1, ids({3, 1}))},
    {"max_values_without_the_dim", kMax, result(0, {{4}})},
    {"max_i32", kMax, result(1, {{4, 1}, DType::I32})},
    {"max_other_type", kMax, result(0, {{4, 1}, DType::BF16})},
    {"min_small_values", kMin, result(0, {{7}})},
    {"sort_small_values", kSort, result(0, {{3, 8}})},
    {"sort_small_indices", kSort, result(1, ids({4, 7}))},
    {"sort_small_operand", kSort, operand(0, {{3, 8}})},
    {"sort_other_type", kSort, result(0, {{4, 8}, DType::BF16})},
    {"topk_small_values", kTopk, result(0, {{4, 2}})},
    {"topk_small_indices", kTopk, result(1, ids({4, 2}))},
    {"topk_fewer_rows", kTopk, result(1, ids({3, 3}))},
    {"topk_small_operand", kTopk, operand(0, {{3, 8}})},
    {"topk_other_k", kTopk, attribute(0, int_arg("k", 4))},
    {"histc_no_bins", kHistogram, result(0, {{0}})},
    {"histc_wide", kHistogram,
     [](Step& step) {
       step.attributes[1] = float_arg("min", -std::numeric_limits<double>::max());
       step.attributes[2] = float_arg("max", std::numeric_limits<double>::max());
     }},
    {"loss_short_weight", kLoss, operand(2, {{7}})},
    {"loss_large_result", kLoss, result(0, {{4}})},
    {"loss_no_result", kLoss, result(0, {{0}})},
    {"loss_no_total", kLoss, result(1, {{0}})},
    {"loss_reduction", kLoss, attribute(0, int_arg("reduction", 3))},
    {"losses_one_result", kLosses, result(0, {{}})},
    {"losses_short_result", kLosses, result(0, {{3}})},
    {"loss_backward_no_gradient", kLossBackward, operand(0, {{0}})},
    {"loss_backward_short_weight", kLossBackward, operand(3, {{7}})},
    {"loss_backward_no_total", kLossBackward, operand(4, {{0}})},
    {"loss_backward_small_result", kLossBackward, result(0, {{4, 7}})},
    {"tril_large_result", kTril, result(0, {{5, 8}})},
    {"tril_small_operand", kTril, operand(0, {{3, 8}})},
    {"tril_broadcast_operand", kTril, operand(0, {{1, 8}})},
    {"triu_narrow_operand", kTriu, operand(0, {{2, 4, 7}})},
    {"triu_more_matrices", kTriu, result(0, {{3, 4, 8}})},
    {"cat_no_dims", kCat,
     [](Step& step) {
       step.results[0] = {{}};
       step.list.assign(1, Meta{});
     }},
    {"cat_fewer_dims", kCat, part(0, {{8}})},
    {"cat_more_dims", kCat, part(0, {{1, 1, 8}})},
    {"cat_narrow_operand", kCat, part(2, {{3, 1}})},
    {"cat_narrow_operand_without_elements", kCat, part(1, {{0, 7}})},
    {"cat_long_result", kCat, result(0, {{5, 8}})},
    {"cat_short_result", kCat, result(0, {{3, 8}})},
    {"stack_no_dims", kStack, result(0, {{}})},
    {"stack_narrow_operand", kStack, part(1, {{4, 7}})},
    {"stack_broadcast_operand", kStack, part(1, {{1, 8}})},
    {"stack_fewer_operands", kStack, result(0, {{3, 4, 8}})},
    {"slice_overflowing_step", kSliceScatter,
     attribute(2, int_arg("step", (int64_t{1} << 62) + 1))},
    {"slice_long", kSliceScatter, attribute(2, int_arg("step", 4))},
    {"slice_fewer_rows", kSliceScatter, operand(1, {{1, 3}})},
    {"slice_behind_the_end", kSliceBackward, attribute(1, int_arg("start", 6))},
    {"pad_small_result", kPad, result(0, {{4, 8}})},
    {"pad_overflow", kPad,
     attribute(0, ints_arg("pad", {std::numeric_limits<int64_t>::min(),
                                   std::numeric_limits<int64_t>::max()}))},
    {"pad_odd", kPad, attribute(0, ints_arg("pad", {1}))},
    {"repeat_other_size", kRepeat, result(0, {{3, 4, 15}})},
    {"attention_no_keys", kAttention,
     [](Step& step) {
       step.operands[1].meta = {{1, 2, 0, 8}};
       step.operands[2].meta = {{1, 2, 0, 8}};
     }},
    {"attention_endless_keys", kAttention,
     [](Step& step) {
       step.operands[1].meta = {{1, 2, kEndless, 8}, DType::F32, {0, 0, 0, 1}};
       step.operands[2].meta = {{1, 2, kEndless, 8}, DType::F32, {0, 0, 0, 1}};
     }},
    {"cuda_attention_more_keys", kCudaAttention,
     [](Step& step) {
       step.operands[1].meta = {{1, 2, 9, 8}};
       step.operands[2].meta = {{1, 2, 9, 8}};
     }},
    {"sum_no_result", kSum, result(0, {{0}})},
    {"sum_more_dims", kSumOfTwo, result(0, {{0, 0, 0}})},
    {"sum_of_rows_more_dims", kSumOfRows, result(0, {{4, 1, 2}})},
    {"clip_endless_table", kClip,
     operand(1, {{0, std::numeric_limits<int64_t>::max()}, DType::F64, {1, 1}})},
    {"adamw_param", kAdamW, attribute(0, int_arg("param", std::numeric_limits<int64_t>::max()))},
    {"adamw_group", kAdamW, attribute(1, int_arg("group", int64_t{1} << 61))},
    {"check_finite_param", kCheckFinite, attribute(0, int_arg("param", 3))},
    {"embedding_endless_table", kEmbedding, operand(0, {{kEndless, 8}, DType::F32, {0, 1}})},
    {"embedding_backward_endless_indices", kEmbeddingBackward,
     [](Step& step) {
       step.operands[0].meta = {{int64_t{1} << 40, 8}, DType::F32, {0, 1}};
       step.operands[1].meta = {{int64_t{1} << 40}, DType::I64, {0}};
     }},
    {"index_put_endless", kIndexPut,
     [](Step& step) {
       const int64_t large = int64_t{1} << 40;
       step.operands[1].meta = {{1}};
       step.list = {{{large, 1}, DType::I64, {0, 0}}, {{1, large}, DType::I64, {0, 0}}};
     }},
    {"losses_backward_short_gradient", kLossesBackward, operand(0, {{3}})},
};

class NativeShapes : public testing::TestWithParam<Case> {};

TEST_P(NativeShapes, ThatDoNotFitAreRefused) {
  Step step = GetParam().step;
  EXPECT_TRUE(prepare(step).ok()) << prepare(step).to_string();
  GetParam().spoil(step);
  const base::Status status = prepare(step);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.kind(), base::ErrorKind::Unsupported);
  EXPECT_EQ(status.code(), "DC6130") << status.to_string();
}

INSTANTIATE_TEST_SUITE_P(Table, NativeShapes, testing::ValuesIn(kCases),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace dc::runtime
