// Batch norm and pooling on the double of a GPU, next to the CPU's kernels.
#include <gtest/gtest.h>

#include "tests/runtime/kernel/cuda/gpu_bench.h"

namespace dc::runtime {
namespace {

using base::DType;
using Sizes = KernelBench::Sizes;

Sizes channels_last(const Sizes& sizes) {
  return {sizes[1] * sizes[2] * sizes[3], 1, sizes[1] * sizes[3], sizes[1]};
}

// Channels of fewer and of more elements than a part, and than all parts of the least length.
TEST(CudaBatchNorm, GivesTheNumbersOfTheCpu) {
  for (const Sizes& sizes : {Sizes{3, 5, 4, 7}, Sizes{9, 3, 23, 41}, Sizes{2, 1, 400, 400}}) {
    for (const DType dtype : {DType::F32, DType::BF16}) {
      for (const bool is_last : {false, true}) {
        SCOPED_TRACE(std::string(base::name(dtype)) + " " + std::to_string(sizes[3]) +
                     (is_last ? " channels last" : ""));
        const Sizes strides = is_last ? channels_last(sizes) : Sizes();
        const int64_t channels = sizes[1];
        KernelBench bench;
        const int32_t x = noisy(bench, dtype, sizes, 1, strides),
                      g = noisy(bench, dtype, sizes, 2, strides),
                      weight = noisy(bench, DType::F32, {channels}, 3),
                      bias = noisy(bench, DType::F32, {channels}, 4),
                      mean = noisy(bench, DType::F32, {channels}, 5),
                      var = bench.filled(DType::F32, {channels},
                                         std::vector<float>(static_cast<size_t>(channels), 2.0f)),
                      y = bench.tensor(dtype, sizes, strides),
                      to = bench.tensor(dtype, sizes, strides);
        std::vector<int32_t> of_channels;
        of_channels.reserve(6);
        for (int i = 0; i < 6; ++i) of_channels.push_back(bench.tensor(DType::F32, {channels}));
        const auto& [saved, rstd, new_mean, new_var, of_weight, of_bias] =
            std::tie(of_channels[0], of_channels[1], of_channels[2], of_channels[3], of_channels[4],
                     of_channels[5]);
        const double tolerance = 4 * tolerance_of(dtype);
        const std::vector<plan::Arg> statistics = {
            tensor_arg(weight, "weight"), tensor_arg(mean, "running_mean"),
            tensor_arg(var, "running_var"), float_arg("eps", 1e-5)};
        std::vector<plan::Arg> arguments = statistics;
        arguments.insert(arguments.end(), {tensor_arg(x, "input"), tensor_arg(bias, "bias"),
                                           int_arg("training", 1), float_arg("momentum", 0.1)});
        expect_near_cpu(bench,
                        instruction("aten._native_batch_norm_legit_functional.default", arguments,
                                    {y, saved, rstd, new_mean, new_var}),
                        {y, saved, rstd, new_mean, new_var}, tolerance);
        expect_near_cpu(bench,
                        instruction("aten._native_batch_norm_legit_no_training.default", arguments,
                                    {y, -1, -1}),
                        {y}, tolerance);
        for (const bool trains : {true, false}) {
          arguments = statistics;
          arguments.insert(
              arguments.end(),
              {tensor_arg(x, "input"), tensor_arg(g, "grad_out"), tensor_arg(saved, "save_mean"),
               tensor_arg(rstd, "save_invstd"), int_arg("train", trains)});
          // Sums of as many numbers around 1 as a channel has elements: relative to their number.
          const std::vector<int32_t> results = {to, of_weight, of_bias};
          expect_near_cpu(
              bench, instruction("aten.native_batch_norm_backward.default", arguments, results),
              results, 10 * tolerance);
        }
      }
    }
  }
}

struct Windows {
  std::vector<int64_t> size, stride, padding, dilation;
  Sizes out;
};

// Every element has the order of the CPU's sums, so its bits.
TEST(CudaPooling, GivesTheBitsOfTheCpu) {
  const Sizes in = {2, 3, 9, 8};
  const std::vector<Windows> all = {{{3, 3}, {2, 2}, {1, 1}, {1, 1}, {5, 4}},
                                    {{2, 2}, {2, 2}, {0, 0}, {1, 1}, {4, 4}},
                                    {{3, 2}, {1, 3}, {1, 0}, {2, 1}, {7, 3}},
                                    {{2, 2}, {3, 3}, {0, 0}, {1, 1}, {3, 3}}};
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16, DType::F64}) {
    for (const bool is_last : {false, true}) {
      for (const Windows& windows : all) {
        SCOPED_TRACE(std::string(base::name(dtype)) + " " + std::to_string(windows.size[0]) +
                     (is_last ? " channels last" : ""));
        KernelBench bench;
        const Sizes out = {2, 3, windows.out[0], windows.out[1]};
        const auto strides = [&](const Sizes& sizes) {
          return is_last ? channels_last(sizes) : KernelBench::contiguous(sizes);
        };
        const int32_t x = noisy(bench, dtype, in, 1, strides(in)),
                      g = noisy(bench, dtype, out, 2, strides(out)),
                      y = bench.tensor(dtype, out, strides(out)),
                      indices = bench.tensor(DType::I64, out, strides(out)),
                      to = bench.tensor(dtype, in, strides(in));
        std::vector<plan::Arg> arguments = {
            tensor_arg(x, "self"), list_arg("kernel_size", windows.size),
            list_arg("stride", windows.stride), list_arg("padding", windows.padding)};
        std::vector<plan::Arg> with_dilation = arguments;
        with_dilation.push_back(list_arg("dilation", windows.dilation));
        const auto largest =
            instruction("aten.max_pool2d_with_indices.default", with_dilation, {y, indices});
        expect_bits_of_cpu(bench, largest);
        ASSERT_TRUE(run_native(bench, largest).ok());
        with_dilation.push_back(tensor_arg(g, "grad_output"));
        with_dilation.push_back(tensor_arg(indices, "indices"));
        plan::Instruction back =
            instruction("aten.max_pool2d_with_indices_backward.default", with_dilation, {to});
        back.scratch = bench.slice(in[2] * in[3] * 4);  // of the CPU's kernel
        const std::vector<std::byte> got = after_on_gpu(bench, back);
        ASSERT_TRUE(run_native(bench, back).ok());
        EXPECT_EQ(elements_of(bench, got, to), elements_of(bench, bench.used(), to));
        if (windows.dilation != std::vector<int64_t>{1, 1}) continue;
        for (const bool counts : {true, false}) {
          std::vector<plan::Arg> average = arguments;
          average.push_back(int_arg("count_include_pad", counts));
          expect_bits_of_cpu(bench, instruction("aten.avg_pool2d.default", average, {y}));
          average.push_back(tensor_arg(g, "grad_output"));
          expect_bits_of_cpu(bench, instruction("aten.avg_pool2d_backward.default", average, {to}));
        }
      }
      for (const Sizes& out : {Sizes{2, 3, 1, 1}, Sizes{2, 3, 4, 3}, Sizes{2, 3, 11, 5}}) {
        KernelBench bench;
        const int32_t x = noisy(bench, dtype, in, 1), g = noisy(bench, dtype, out, 2),
                      y = bench.tensor(dtype, out), to = bench.tensor(dtype, in);
        expect_bits_of_cpu(
            bench, instruction("aten._adaptive_avg_pool2d.default", {tensor_arg(x, "self")}, {y}));
        expect_bits_of_cpu(
            bench, instruction("aten._adaptive_avg_pool2d_backward.default",
                               {tensor_arg(g, "grad_output"), tensor_arg(x, "self")}, {to}));
      }
    }
  }
}

}  // namespace
}  // namespace dc::runtime
