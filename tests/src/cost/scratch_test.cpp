// Scratch bounds against what PyTorch 2.11.0's CPU kernels were seen to hold at once next to their
// results (its profiler's memory events, libtorch from the PyPI wheel, AVX-512 with bf16). A bound
// must never be short, and not more than half as much again plus 128 KiB.
#include "src/cost/scratch.h"

#include <gtest/gtest.h>

#include "src/ir/kernel_signature.h"
#include "tests/src/analysis/small_steps.h"

namespace dc::cost {
namespace {

using ir::DType;
using ir::Shape;
using ir::TensorType;

TensorType plain(DType dtype, Shape shape) { return ir::contiguous(dtype, std::move(shape)); }
// The same shape, stored with dims `a` and `b` exchanged.
TensorType swapped(DType dtype, Shape shape, size_t a, size_t b) {
  Shape stored = shape;
  std::swap(stored[a], stored[b]);
  TensorType type = ir::contiguous(dtype, stored);
  std::swap(type.strides[a], type.strides[b]);
  type.shape = std::move(shape);
  return type;
}

int64_t bound(ir::StepBuilder& b, ir::ValueId id, int threads) {
  const ir::Node& node = b.graph().node(b.graph().value(id).producer);
  return estimate_scratch(ir::signature_of(b.graph(), node), threads).v;
}

int64_t bound(const std::string& overload, const std::vector<TensorType>& operands,
              const TensorType& result, int threads = 1) {
  ir::StepBuilder builder(1);
  std::vector<ir::ValueId> values;
  values.reserve(operands.size());
  for (const TensorType& type : operands) values.push_back(builder.input("x", type));
  ir::ValueId id = builder.aten(overload, values, {"y", result});
  return bound(builder, id, threads);
}

struct Seen {
  std::string overload;
  std::vector<TensorType> operands;
  TensorType result;
  int64_t bytes;
  int threads = 1;
};

void expect_bounds(const std::vector<Seen>& table) {
  for (const Seen& seen : table) {
    int64_t estimate = bound(seen.overload, seen.operands, seen.result, seen.threads);
    std::string what =
        seen.overload + " of " + std::to_string(seen.operands[0].numel()) + " elements";
    EXPECT_GE(estimate, seen.bytes) << what;
    EXPECT_LE(estimate, seen.bytes + seen.bytes / 2 + (128 << 10)) << what;
  }
}

// What oneDNN 2.6.3 asked for on the same CPU, for native convolutions.
int64_t native_bound(const Seen& seen) {
  ir::StepBuilder builder(1);
  std::vector<ir::ValueId> values;
  values.reserve(seen.operands.size());
  for (const TensorType& type : seen.operands) values.push_back(builder.input("x", type));
  const ir::ValueId id = builder.aten(seen.overload, values, {"y", seen.result});
  ir::Graph& graph = builder.graph();
  const ir::NodeId node = graph.value(id).producer;
  graph.set_provider(node, base::Provider::Native);
  return estimate_scratch(ir::signature_of(graph, graph.node(node)), seen.threads).v;
}

constexpr DType kF32 = DType::F32, kBF16 = DType::BF16, kI64 = DType::I64;

TEST(Scratch, NativeConvolutions) {
  const auto seen = [](DType dtype, Shape x, Shape weight, Shape y, int64_t bytes) {
    return Seen{"aten.convolution.default",
                {plain(dtype, std::move(x)), plain(dtype, std::move(weight))},
                plain(dtype, std::move(y)),
                bytes};
  };
  const Seen table[] = {
      seen(kF32, {2, 3, 224, 224}, {64, 3, 7, 7}, {2, 64, 112, 112}, 6460160),
      seen(kF32, {2, 512, 7, 7}, {512, 512, 3, 3}, {2, 512, 7, 7}, 9838592),
      seen(kF32, {2, 256, 56, 56}, {512, 256, 1, 1}, {2, 512, 28, 28}, 10961024),
      seen(kF32, {2, 1024, 14, 14}, {2048, 1024, 1, 1}, {2, 2048, 7, 7}, 10997888),
      seen(kBF16, {2, 64, 56, 56}, {256, 64, 1, 1}, {2, 256, 56, 56}, 7258240),
      seen(kBF16, {2, 256, 56, 56}, {512, 256, 1, 1}, {2, 512, 28, 28}, 7086336),
  };
  for (const Seen& one : table) {
    const int64_t estimate = native_bound(one);
    EXPECT_GE(estimate, one.bytes);
    EXPECT_LE(estimate, one.bytes + one.bytes / 2 + (128 << 10));
  }
}

// A plane in f32 where windows may overlap, as the kernel asks for it.
TEST(Scratch, NativePoolingSumsInF32) {
  const auto seen = [](DType dtype, Shape in, Shape out) {
    const TensorType windows = plain(dtype, out);
    return Seen{"aten.max_pool2d_with_indices_backward.default",
                {windows, plain(dtype, in), plain(kI64, out)},
                plain(dtype, in),
                0};
  };
  EXPECT_EQ(native_bound(seen(kBF16, {2, 3, 16, 20}, {2, 3, 8, 10})), 16 * 20 * 4);
  EXPECT_EQ(native_bound(seen(kBF16, {3, 16, 20}, {3, 8, 10})), 16 * 20 * 4);
  EXPECT_EQ(native_bound(seen(kF32, {2, 3, 16, 20}, {2, 3, 8, 10})), 0);
}

TEST(Scratch, NativeEquationsNeedNone) {
  EXPECT_EQ(native_bound({"aten.linalg_solve_triangular.default",
                          {plain(kF32, {2, 64, 64}), plain(kF32, {2, 64, 64})},
                          swapped(kF32, {2, 64, 64}, 1, 2),
                          0}),
            0);
}

TEST(Scratch, Products) {
  TensorType strided = plain(kF32, {64, 128});
  strided.strides = {512, 4};
  TensorType expanded = plain(kF32, {64, 128});
  expanded.strides = {0, 1};
  TensorType padded = plain(kF32, {64, 128});
  padded.strides = {512, 1};
  TensorType right = plain(kF32, {128, 256}), result = plain(kF32, {64, 256});
  expect_bounds({{"aten.mm.default", {strided, right}, result, 32768},
                 {"aten.mm.default", {expanded, right}, result, 32768},
                 {"aten.mm.default", {padded, right}, result, 0},
                 {"aten.mm.default",
                  {swapped(kF32, {64, 128}, 0, 1), swapped(kF32, {128, 256}, 0, 1)},
                  result,
                  0},
                 {"aten.baddbmm.default",
                  {plain(kF32, {1, 1, 64}), plain(kF32, {8, 64, 32}), plain(kF32, {8, 32, 64})},
                  plain(kF32, {8, 64, 64}),
                  256}});
  // Transposed operands of f32 products are taken as they are: nothing but the small constant.
  EXPECT_LE(bound("aten.mm.default", {swapped(kF32, {4096, 4096}, 0, 1), plain(kF32, {4096, 4096})},
                  plain(kF32, {4096, 4096})),
            8192);
}

TEST(Scratch, SixteenBitProducts) {
  struct Case {
    int64_t m, k, n, plain, transposed;
  };
  for (const Case& c : std::initializer_list<Case>{{64, 64, 64, 25600, 33920},
                                                   {64, 128, 256, 33792, 50304},
                                                   {512, 512, 512, 132096, 410752},
                                                   {512, 864, 320, 132096, 672896},
                                                   {320, 512, 864, 107520, 281728},
                                                   {864, 512, 320, 121856, 356992},
                                                   {256, 4096, 1024, 197632, 1393792},
                                                   {2048, 1024, 4096, 132096, 1393792},
                                                   {64, 2048, 512, 148480, 267392},
                                                   {33, 70, 129, 21760, 28224},
                                                   {8192, 64, 64, 74752, 107648}}) {
    TensorType right = plain(kBF16, {c.k, c.n}), result = plain(kBF16, {c.m, c.n});
    expect_bounds(
        {{"aten.mm.default", {plain(kBF16, {c.m, c.k}), right}, result, c.plain},
         {"aten.mm.default", {swapped(kBF16, {c.m, c.k}, 0, 1), right}, result, c.transposed}});
  }
  expect_bounds({{"aten.mm.default",
                  {swapped(kBF16, {512, 512}, 0, 1), plain(kBF16, {512, 512})},
                  plain(kBF16, {512, 512}),
                  820992,
                  2},
                 {"aten.bmm.default",
                  {plain(kBF16, {8, 64, 32}), plain(kBF16, {8, 32, 64})},
                  plain(kBF16, {8, 64, 64}),
                  21504},
                 {"aten.bmm.default",
                  {swapped(kBF16, {20, 256, 256}, 1, 2), plain(kBF16, {20, 256, 32})},
                  plain(kBF16, {20, 256, 32}),
                  197760},
                 {"aten.addmm.default",
                  {plain(kBF16, {256}), plain(kBF16, {64, 128}), plain(kBF16, {128, 256})},
                  plain(kBF16, {64, 256}),
                  33792}});
}

TEST(Scratch, FlashAttention) {
  const std::string forward = "aten._scaled_dot_product_flash_attention_for_cpu.default";
  const std::string backward = "aten._scaled_dot_product_flash_attention_for_cpu_backward.default";
  auto seen = [&](DType dtype, Shape shape, int64_t forward_bytes, int64_t backward_bytes,
                  int64_t backward_copying, int threads) {
    TensorType heads = plain(dtype, shape), lengths = swapped(dtype, shape, 1, 2);
    TensorType lse = plain(kF32, {shape[0], shape[1], shape[2]});
    expect_bounds(
        {{forward, {heads, heads, heads}, heads, forward_bytes, threads},
         {backward,
          {lengths, lengths, lengths, lengths, lengths, lse},
          lengths,
          backward_bytes,
          threads},
         {backward, {heads, heads, heads, heads, lengths, lse}, heads, backward_copying, threads}});
  };
  seen(kF32, {2, 8, 128, 64}, 24832, 32896, 557184, 1);
  seen(kF32, {2, 8, 128, 64}, 49664, 65664, 589952, 2);
  seen(kF32, {2, 10, 256, 32}, 74240, 131328, 786688, 1);
  seen(kF32, {2, 4, 32, 16}, 6400, 8320, 24704, 1);
  seen(kF32, {1, 2, 800, 64}, 591872, 1049600, 1459200, 1);
  seen(kF32, {2, 4, 500, 64}, 144896, 256256, 1280256, 1);
  seen(kBF16, {2, 4, 32, 16}, 8448, 21764, 29956, 1);
  seen(kBF16, {1, 2, 800, 64}, 854016, 1804420, 2009220, 1);
  seen(kBF16, {2, 4, 500, 64}, 208896, 489604, 1001604, 1);
}

TEST(Scratch, NormsAndSoftmax) {
  for (auto [dtype, sums] : {std::pair{kF32, 4096}, std::pair{kBF16, 2048}}) {
    TensorType x = plain(dtype, {256, 512}), w = plain(dtype, {512}), rows = plain(dtype, {256, 1});
    expect_bounds({{"aten.native_layer_norm.default", {x, w, w}, x, 0},
                   {"aten.native_layer_norm_backward.default", {x, x, rows, rows, w, w}, x, sums},
                   {"aten._softmax.default", {x}, x, 0},
                   {"aten._log_softmax_backward_data.default", {x, x}, x, 0}});
  }
  TensorType x = plain(kF32, {256, 512}), turned = swapped(kF32, {512, 256}, 0, 1),
             image = plain(kF32, {8, 16, 16, 16});
  expect_bounds(
      {{"aten._log_softmax.default", {turned}, turned, 538688},
       {"aten._safe_softmax.default", {x}, x, 131332},
       {"aten.native_layer_norm.default",
        {swapped(kF32, {256, 512}, 0, 1), plain(kF32, {512}), plain(kF32, {512})},
        x,
        524288 + 14400},
       {"aten._native_batch_norm_legit_functional.default", {image, plain(kF32, {16})}, image, 128},
       {"aten.native_batch_norm_backward.default",
        {image, image, plain(kF32, {16})},
        image,
        131072},
       {"aten.native_group_norm_backward.default", {image, image}, image, 1280}});
  expect_bounds({{"aten._fused_rms_norm.default",
                  {plain(kBF16, {256, 512}), plain(kBF16, {512})},
                  plain(kBF16, {256, 512}),
                  1312768}});
}

TEST(Scratch, Convolutions) {
  struct Case {
    Shape x, w, y;
    int64_t forward, backward;
  };
  auto of = [](DType dtype, const Case& c) {
    TensorType x = plain(dtype, c.x), w = plain(dtype, c.w), y = plain(dtype, c.y);
    EXPECT_GE(bound("aten.convolution.default", {x, w}, y), c.forward);
    EXPECT_LE(bound("aten.convolution.default", {x, w}, y), 2 * c.forward + (128 << 10));
    EXPECT_GE(bound("aten.convolution_backward.default", {y, x, w}, x), c.backward);
    EXPECT_LE(bound("aten.convolution_backward.default", {y, x, w}, x),
              2 * c.backward + (128 << 10));
  };
  of(kF32, {{8, 16, 16, 16}, {32, 16, 3, 3}, {8, 32, 16, 16}, 262144, 393216});
  of(kF32, {{8, 3, 32, 32}, {64, 3, 7, 7}, {8, 64, 16, 16}, 524288, 524288});
  of(kF32, {{8, 256, 4, 4}, {512, 256, 1, 1}, {8, 512, 2, 2}, 659584, 524288});
  of(kF32, {{8, 512, 2, 2}, {512, 512, 3, 3}, {8, 512, 2, 2}, 9502720, 9437184});
  of(kBF16, {{8, 16, 16, 16}, {32, 16, 3, 3}, {8, 32, 16, 16}, 131072, 249220});
  of(kBF16, {{8, 3, 32, 32}, {64, 3, 7, 7}, {8, 64, 16, 16}, 262144, 341128});
  of(kBF16, {{8, 256, 4, 4}, {512, 256, 1, 1}, {8, 512, 2, 2}, 338176, 627200});
  of(kBF16, {{8, 512, 2, 2}, {512, 512, 3, 3}, {8, 512, 2, 2}, 4751360, 9523588});
}

TEST(Scratch, ElementsReductionsAndIndices) {
  TensorType x = plain(kF32, {256, 512}), h = plain(kBF16, {256, 512}),
             indices = plain(kI64, {256, 8});
  expect_bounds(
      {{"aten.gelu.default", {x}, x, 0},
       {"aten.add.Tensor", {x, plain(kF32, {512})}, x, 0},
       {"aten.mul.Tensor", {h, plain(kF32, {512})}, x, 524288},
       {"aten.where.self", {plain(DType::Bool, {256, 512}), x, plain(kF32, {})}, x, 0},
       {"aten.sum.dim_IntList", {x}, plain(kF32, {512}), 0},
       {"aten.sum.dim_IntList", {h}, plain(kBF16, {512}), 0},
       {"aten.sum.dim_IntList", {h}, plain(kF32, {512}), 524288},
       {"aten.mean.dim", {h}, plain(kBF16, {256, 1}), 525312},
       {"aten.mse_loss.default", {x, x}, plain(kF32, {}), 524300},
       {"aten.mse_loss.default", {h, h}, plain(kBF16, {}), 786436},
       {"aten.binary_cross_entropy_with_logits.default", {x, x}, plain(kF32, {}), 1048588},
       {"aten.native_dropout_backward.default", {x, plain(DType::Bool, {256, 512})}, x, 1048588},
       {"aten.isfinite.default", {x}, plain(DType::Bool, {256, 512}), 786444},
       {"aten.any.dim", {x}, plain(DType::Bool, {256}), 131072},
       {"aten.sum.default", {plain(DType::Bool, {256, 512})}, plain(kI64, {}), 1048576},
       {"aten.cumsum.default", {plain(DType::Bool, {256, 512})}, plain(kI64, {256, 512}), 1048576},
       {"aten.nll_loss_forward.default", {x, plain(kI64, {256})}, plain(kF32, {}), 0},
       {"aten.clone.default", {swapped(kF32, {512, 256}, 0, 1)}, x, 14400},
       {"aten.sort.default", {x}, x, 4096},
       {"aten.topk.default", {x}, plain(kF32, {256, 4}), 0},
       {"aten.cumsum.default", {x}, x, 0},
       {"aten.embedding_dense_backward.default",
        {plain(kF32, {4, 64, 512}), plain(kI64, {4, 64})},
        plain(kF32, {1000, 512}),
        0},
       {"aten.index_put.default", {x, plain(kI64, {100}), plain(kF32, {100, 512})}, x, 0},
       {"aten.scatter_add.default", {h, indices, plain(kBF16, {256, 8})}, h, 524288},
       {"aten.gather.default", {h, indices}, plain(kBF16, {256, 8}), 8192}});
}

TEST(Scratch, ViewsAndNativeKernelsNeedNone) {
  ir::StepBuilder b(1);
  ir::ValueId x = b.input("x", plain(kF32, {64, 64}));
  ir::ValueId v = b.aten("aten.t.default", {x}, {"v", swapped(kF32, {64, 64}, 0, 1)});
  ir::ValueId c = b.op(ir::OpKind::Cast, {x}, {{"c", plain(kBF16, {64, 64})}});
  for (ir::ValueId id : {v, c}) EXPECT_EQ(bound(b, id, 1), 0);
}

}  // namespace
}  // namespace dc::cost
