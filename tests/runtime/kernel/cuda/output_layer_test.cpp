// dc.linear_cross_entropy on the doubles of a GPU and of cuBLASLt, next to the CPU's: all logits at
// once, some rows, some classes.
#include <gtest/gtest.h>

#include "src/base/logit_chunks.h"
#include "tests/runtime/kernel/cuda/gpu_bench.h"

namespace dc::runtime {
namespace {

using base::DType;

struct Case {
  int64_t rows, classes, depth;
  base::LogitChunk chunk;
};

void expect_layer_of_cpu(const Case& c, DType dtype, int64_t reduction, bool has_scratch) {
  KernelBench bench;
  std::vector<int64_t> classes(static_cast<size_t>(c.rows));
  for (int64_t r = 0; r < c.rows; ++r)
    classes[static_cast<size_t>(r)] = r % 5 == 4 ? -100 : r * 3 % c.classes;
  const int32_t hidden = noisy(bench, dtype, {c.rows, c.depth}, 1),
                weight = noisy(bench, dtype, {c.classes, c.depth}, 2),
                target = bench.filled(DType::I64, {c.rows}, classes),
                g = bench.filled<float>(DType::F32, {}, {0.75f});
  const std::vector<int32_t> results = {bench.tensor(DType::F32, {}), bench.tensor(DType::F32, {}),
                                        bench.tensor(dtype, {c.rows, c.depth}),
                                        bench.tensor(dtype, {c.classes, c.depth})};
  plan::Instruction step =
      instruction("dc.linear_cross_entropy",
                  {tensor_arg(hidden), tensor_arg(weight), tensor_arg(target), tensor_arg(g),
                   int_arg("reduction", reduction), int_arg("ignored", -100),
                   int_arg("rows", c.chunk.rows), int_arg("classes", c.chunk.classes)},
                  results);
  if (has_scratch) {
    const auto needed = base::logit_scratch({c.rows, c.classes, c.depth, dtype}, c.chunk);
    step.scratch = bench.slice(needed->bytes());
  }
  // The CPU rounds logits as cuBLASLt does, but sums in another order.
  expect_near_cpu(bench, step, results, 4 * tolerance_of(dtype));
}

TEST(CudaOutputLayer, GivesLossAndGradientsOfTheCpu) {
  // In the last, rows of 2048 logits are a warp's and those of 152 a block's.
  const Case cases[] = {{6, 10, 4, {6, 10}},    {6, 10, 4, {4, 10}},  {7, 10, 8, {7, 4}},
                        {40, 33, 8, {16, 33}},  {40, 33, 8, {40, 9}}, {1, 3, 2, {1, 3}},
                        {9, 2200, 4, {9, 2048}}};
  for (const Case& c : cases)
    for (const DType dtype : {DType::F32, DType::BF16})
      for (const int64_t reduction : {1, 2})
        for (const bool has_scratch : {false, true}) {
          SCOPED_TRACE(std::to_string(c.rows) + " rows, " + std::to_string(c.classes) +
                       " classes, at once " + std::to_string(c.chunk.rows) + " x " +
                       std::to_string(c.chunk.classes) + " " + std::string(base::name(dtype)));
          expect_layer_of_cpu(c, dtype, reduction, has_scratch);
        }
}

}  // namespace
}  // namespace dc::runtime
