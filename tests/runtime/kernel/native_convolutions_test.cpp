// Convolutions on oneDNN against sums in double precision: groups, strides, padding and dilation,
// both orders of elements, and the three gradients.
#include <cmath>

#include "runtime/kernel/native/convert.h"
#include "src/base/shape.h"
#include "tests/runtime/kernel/kernel_bench.h"

namespace dc::runtime {
namespace {

using base::DType;
using Sizes = std::vector<int64_t>;

struct Shape {
  int64_t batch, in, out, groups, height, width, kernel, stride, padding, dilation;
  int64_t reach() const { return (kernel - 1) * dilation + 1; }
  int64_t out_height() const { return (height + 2 * padding - reach()) / stride + 1; }
  int64_t out_width() const { return (width + 2 * padding - reach()) / stride + 1; }
  int64_t per_group() const { return in / groups; }
};

constexpr Shape kShapes[] = {{2, 3, 16, 1, 9, 8, 5, 2, 2, 1},
                             {1, 17, 33, 1, 6, 5, 3, 1, 1, 1},
                             {2, 32, 16, 1, 5, 7, 1, 2, 0, 1},
                             {2, 8, 12, 4, 7, 9, 3, 1, 2, 2}};

class Convolutions : public testing::TestWithParam<DType> {
 protected:
  // A tensor of small numbers that bf16 holds exactly.
  int32_t filled(const Sizes& sizes, Sizes strides = {}) {
    const int32_t id = bench_.tensor(GetParam(), sizes, std::move(strides));
    for (int64_t i = 0; i < base::numel(sizes); ++i) {
      seed_ = seed_ * 1664525 + 1013904223;
      const double value = (static_cast<double>(seed_ >> 24) - 128) / 64;
      if (GetParam() == DType::F32)
        bench_.data<float>(id)[i] = static_cast<float>(value);
      else
        bench_.data<kernel::native::BF16>(id)[i] =
            kernel::native::narrow_bf16(static_cast<float>(value));
    }
    return id;
  }

  double get(int32_t id, const Sizes& at) {
    const plan::Tensor& tensor = bench_.plan().tensors[static_cast<size_t>(id)];
    int64_t place = 0;
    for (size_t dim = 0; dim < at.size(); ++dim) place += at[dim] * tensor.strides[dim];
    return GetParam() == DType::F32
               ? bench_.data<float>(id)[place]
               : kernel::native::widen(bench_.data<kernel::native::BF16>(id)[place]);
  }

  void run(plan::Instruction step, const Shape& s) {
    const auto add = [&step](const char* name, int64_t value) {
      plan::Arg arg;
      arg.name = name;
      arg.kind = plan::ArgKind::Ints;
      arg.ints = {value, value};
      step.args.push_back(arg);
    };
    add("stride", s.stride);
    add("padding", s.padding);
    add("dilation", s.dilation);
    plan::Arg groups;
    groups.name = "groups";
    groups.kind = plan::ArgKind::Int;
    groups.i = s.groups;
    step.args.push_back(groups);
    auto provider = kernel::make_native_provider();
    const auto bytes = provider->measure_scratch(step, bench_.addresses());
    ASSERT_TRUE(bytes.ok()) << bytes.status().to_string();
    if (*bytes > 0) step.scratch = bench_.slice(*bytes);
    auto kernel = provider->prepare(step, bench_.addresses());
    ASSERT_TRUE(kernel.ok()) << kernel.status().to_string();
    for (int repeat = 0; repeat < 2; ++repeat)
      ASSERT_TRUE((*kernel)->launch(*device::cpu_device().make_stream()).ok());
  }

  // f(n, o, i, c, y, x, ky, kx, iy, ix) for each product: output channel o at (y, x), weight's
  // input channel i, input channel c at (iy, ix).
  template <typename F>
  static void each_product(const Shape& s, F&& f) {
    for (int64_t n = 0; n < s.batch; ++n)
      for (int64_t o = 0; o < s.out; ++o)
        for (int64_t i = 0; i < s.per_group(); ++i)
          for (int64_t y = 0; y < s.out_height(); ++y)
            for (int64_t x = 0; x < s.out_width(); ++x)
              for (int64_t k = 0; k < s.kernel * s.kernel; ++k) {
                const int64_t ky = k / s.kernel, kx = k % s.kernel;
                const int64_t iy = y * s.stride - s.padding + ky * s.dilation;
                const int64_t ix = x * s.stride - s.padding + kx * s.dilation;
                if (iy < 0 || iy >= s.height || ix < 0 || ix >= s.width) continue;
                const int64_t c = o / (s.out / s.groups) * s.per_group() + i;
                f(n, o, i, c, y, x, ky, kx, iy, ix);
              }
  }

  // Row-major sums against the tensor: one rounding of the result and those of sums in f32.
  void expect_near(int32_t id, const Sizes& sizes, const std::vector<double>& sums) {
    double largest = 1;
    for (const double sum : sums) largest = std::max(largest, std::fabs(sum));
    const double bound = largest * (GetParam() == DType::F32 ? 1e-5 : 0x1p-8);
    Sizes at(sizes.size(), 0);
    for (const double sum : sums) {
      ASSERT_NEAR(get(id, at), sum, bound);
      for (size_t dim = sizes.size(); dim-- > 0;) {
        if (++at[dim] < sizes[dim]) break;
        at[dim] = 0;
      }
    }
  }

  // Strides with the channels innermost.
  static Sizes channels_last(const Sizes& sizes) {
    return {sizes[1] * sizes[2] * sizes[3], 1, sizes[1] * sizes[3], sizes[1]};
  }

  KernelBench bench_;
  uint32_t seed_ = 7;
};

TEST_P(Convolutions, GiveTheSums) {
  for (const Shape& s : kShapes) {
    const Sizes x_sizes = {s.batch, s.in, s.height, s.width};
    const Sizes w_sizes = {s.out, s.per_group(), s.kernel, s.kernel};
    const Sizes y_sizes = {s.batch, s.out, s.out_height(), s.out_width()};
    for (const bool last : {false, true}) {
      const int32_t x = filled(x_sizes, last ? channels_last(x_sizes) : Sizes{});
      const int32_t w = filled(w_sizes), bias = filled({s.out}), y = filled(y_sizes);
      plan::Instruction step =
          instruction("aten.convolution.default",
                      {tensor_arg(x, "input"), tensor_arg(w, "weight"), tensor_arg(bias, "bias")});
      step.outputs = {y};
      run(step, s);
      std::vector<double> sums;
      const int64_t plane = s.out_height() * s.out_width();
      for (int64_t i = 0; i < s.batch * s.out * plane; ++i)
        sums.push_back(get(bias, {i / plane % s.out}));
      each_product(s, [&](int64_t n, int64_t o, int64_t i, int64_t c, int64_t oy, int64_t ox,
                          int64_t ky, int64_t kx, int64_t iy, int64_t ix) {
        sums[static_cast<size_t>(((n * s.out + o) * s.out_height() + oy) * s.out_width() + ox)] +=
            get(x, {n, c, iy, ix}) * get(w, {o, i, ky, kx});
      });
      expect_near(y, y_sizes, sums);
    }
  }
}

TEST_P(Convolutions, GiveTheGradients) {
  for (const Shape& s : kShapes) {
    const Sizes x_sizes = {s.batch, s.in, s.height, s.width};
    const Sizes w_sizes = {s.out, s.per_group(), s.kernel, s.kernel};
    const Sizes y_sizes = {s.batch, s.out, s.out_height(), s.out_width()};
    const int32_t g = filled(y_sizes, channels_last(y_sizes)), x = filled(x_sizes);
    const int32_t w = filled(w_sizes);
    const int32_t of_x = filled(x_sizes), of_w = filled(w_sizes), of_bias = filled({s.out});
    plan::Instruction step = instruction(
        "aten.convolution_backward.default",
        {tensor_arg(g, "grad_output"), tensor_arg(x, "input"), tensor_arg(w, "weight")});
    step.outputs = {of_x, of_w, of_bias};
    run(step, s);
    // Without the gradient of x, as in a first layer.
    const int32_t alone = filled(w_sizes), bias_alone = filled({s.out});
    step.outputs = {-1, alone, bias_alone};
    run(step, s);
    std::vector<double> x_sums(static_cast<size_t>(base::numel(x_sizes)));
    std::vector<double> w_sums(static_cast<size_t>(base::numel(w_sizes)));
    std::vector<double> sums(static_cast<size_t>(s.out));
    each_product(s, [&](int64_t n, int64_t o, int64_t i, int64_t c, int64_t oy, int64_t ox,
                        int64_t ky, int64_t kx, int64_t iy, int64_t ix) {
      const double gradient = get(g, {n, o, oy, ox});
      x_sums[static_cast<size_t>(((n * s.in + c) * s.height + iy) * s.width + ix)] +=
          gradient * get(w, {o, i, ky, kx});
      w_sums[static_cast<size_t>(((o * s.per_group() + i) * s.kernel + ky) * s.kernel + kx)] +=
          gradient * get(x, {n, c, iy, ix});
    });
    for (int64_t n = 0; n < s.batch; ++n)
      for (int64_t o = 0; o < s.out; ++o)
        for (int64_t oy = 0; oy < s.out_height(); ++oy)
          for (int64_t ox = 0; ox < s.out_width(); ++ox)
            sums[static_cast<size_t>(o)] += get(g, {n, o, oy, ox});
    expect_near(of_x, x_sizes, x_sums);
    expect_near(of_w, w_sizes, w_sums);
    expect_near(of_bias, {s.out}, sums);
    expect_near(alone, w_sizes, w_sums);
    expect_near(bias_alone, {s.out}, sums);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Convolutions, testing::Values(DType::F32, DType::BF16),
                         [](const auto& info) { return std::string(base::name(info.param)); });

}  // namespace
}  // namespace dc::runtime
