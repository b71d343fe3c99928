// Convolutions and their gradients on the double of a GPU, next to their definition in f64: more
// channels and places than a tile has of each width, and more places than a part.
#include <gtest/gtest.h>

#include <array>

#include "src/base/shape.h"
#include "tests/runtime/kernel/cuda/gpu_bench.h"

namespace dc::runtime {
namespace {

using base::DType;
using Sizes = KernelBench::Sizes;

// Of two dims.
struct Case {
  const char* name;
  int64_t batch, groups, channels, maps;  // of all groups
  std::array<int64_t, 2> image, filter, stride, padding, dilation;
  bool transposed = false, channels_last = false;
  std::array<int64_t, 2> beyond{};  // output_padding
};
void PrintTo(const Case& one, std::ostream* stream) { *stream << one.name; }

constexpr Case kCases[] = {
    {"Many", 2, 1, 37, 40, {9, 7}, {3, 2}, {1, 1}, {1, 0}, {1, 1}},
    {"Most", 1, 1, 100, 66, {4, 3}, {2, 2}, {2, 1}, {1, 0}, {1, 1}},
    {"Groups", 3, 2, 40, 36, {8, 7}, {3, 2}, {2, 1}, {1, 0}, {1, 2}},
    {"ByChannels", 2, 20, 20, 20, {7, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {"LongParts", 3, 1, 3, 5, {30, 29}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {"Pointwise", 2, 1, 20, 17, {6, 5}, {1, 1}, {2, 2}, {0, 0}, {1, 1}},
    {"ChannelsLast", 2, 1, 18, 20, {6, 5}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, false, true},
    {"Transposed", 2, 2, 36, 20, {9, 8}, {3, 2}, {2, 2}, {1, 0}, {1, 1}, true},
    {"Beyond", 2, 1, 5, 4, {12, 7}, {3, 2}, {2, 1}, {1, 0}, {4, 2}, true, false, {3, 1}},
};

// The image, the maps and the filters between them, whichever of them an instruction makes.
class Convolved {
 public:
  Convolved(DType dtype, const Case& one) : one_(one) {
    for (size_t d = 0; d < 2; ++d)
      out_[d] = (one.image[d] - one.beyond[d] + 2 * one.padding[d] -
                 (one.filter[d] - 1) * one.dilation[d] - 1) /
                    one.stride[d] +
                1;
    const Sizes of_image = {one.batch, one.channels, one.image[0], one.image[1]},
                of_maps = {one.batch, one.maps, out_[0], out_[1]},
                of_filters = {one.maps, one.channels / one.groups, one.filter[0], one.filter[1]};
    const auto strides = [&](const Sizes& sizes) {
      return one.channels_last
                 ? Sizes{sizes[1] * sizes[2] * sizes[3], 1, sizes[1] * sizes[3], sizes[1]}
                 : KernelBench::contiguous(sizes);
    };
    image = noisy(bench, dtype, of_image, 1, strides(of_image));
    maps = noisy(bench, dtype, of_maps, 2, strides(of_maps));
    filters = noisy(bench, dtype, of_filters, 3);
    bias = noisy(bench, dtype, {one.transposed ? one.channels : one.maps}, 4);
    made_image = bench.tensor(dtype, of_image, strides(of_image));
    made_maps = bench.tensor(dtype, of_maps, strides(of_maps));
    made_filters = bench.tensor(dtype, of_filters);
    made_bias = bench.tensor(dtype, {one.transposed ? one.channels : one.maps});
  }

  std::vector<plan::Arg> numbers() const {
    const auto list = [](const std::array<int64_t, 2>& values) {
      return std::vector<int64_t>(values.begin(), values.end());
    };
    return {list_arg("stride", list(one_.stride)),         list_arg("padding", list(one_.padding)),
            list_arg("dilation", list(one_.dilation)),     int_arg("transposed", one_.transposed),
            list_arg("output_padding", list(one_.beyond)), int_arg("groups", one_.groups)};
  }

  // f(place in the image, place in the maps, place in the filters) for every product.
  template <typename F>
  void for_each_product(F f) const {
    const int64_t in = one_.channels / one_.groups, out = one_.maps / one_.groups;
    for (int64_t n = 0; n < one_.batch; ++n)
      for (int64_t map = 0; map < one_.maps; ++map)
        for (int64_t c = 0; c < in; ++c)
          for (int64_t y = 0; y < out_[0]; ++y)
            for (int64_t x = 0; x < out_[1]; ++x)
              for (int64_t i = 0; i < one_.filter[0]; ++i)
                for (int64_t j = 0; j < one_.filter[1]; ++j) {
                  const int64_t channel = map / out * in + c,
                                iy = y * one_.stride[0] - one_.padding[0] + i * one_.dilation[0],
                                ix = x * one_.stride[1] - one_.padding[1] + j * one_.dilation[1];
                  if (iy < 0 || iy >= one_.image[0] || ix < 0 || ix >= one_.image[1]) continue;
                  f(((n * one_.channels + channel) * one_.image[0] + iy) * one_.image[1] + ix,
                    ((n * one_.maps + map) * out_[0] + y) * out_[1] + x,
                    ((map * in + c) * one_.filter[0] + i) * one_.filter[1] + j);
                }
  }
  // The sums of the products of two of the three, each at its place in the third.
  enum Which : size_t { kImage, kMaps, kFilters };
  std::vector<double> sums(Which wanted) {
    const std::array<int32_t, 3> tensors = {image, maps, filters};
    std::array<std::vector<double>, 3> values;
    for (size_t t = 0; t < 3; ++t) values[t] = elements_of(bench, bench.used(), tensors[t]);
    std::vector<double> all(values[wanted].size());
    for_each_product([&](int64_t in_image, int64_t in_maps, int64_t in_filters) {
      const std::array<int64_t, 3> at = {in_image, in_maps, in_filters};
      const size_t a = (wanted + 1) % 3, b = (wanted + 2) % 3;
      all[static_cast<size_t>(at[wanted])] +=
          values[a][static_cast<size_t>(at[a])] * values[b][static_cast<size_t>(at[b])];
    });
    return all;
  }
  // Of [batch, channels, places]: what each channel has in all.
  std::vector<double> channel_sums(int32_t tensor) {
    const std::vector<double> values = elements_of(bench, bench.used(), tensor);
    const auto& sizes = bench.plan().tensors[static_cast<size_t>(tensor)].sizes;
    const auto channels = static_cast<size_t>(sizes[1]);
    const auto places = static_cast<size_t>(sizes[2] * sizes[3]);
    std::vector<double> all(channels);
    for (size_t i = 0; i < values.size(); ++i) all[i / places % channels] += values[i];
    return all;
  }

  KernelBench bench;
  int32_t image = 0, maps = 0, filters = 0, bias = 0;
  int32_t made_image = 0, made_maps = 0, made_filters = 0, made_bias = 0;

 private:
  Case one_;
  std::array<int64_t, 2> out_{};
};

// Sums of hundreds of products of numbers around 1.
double tolerance_of_sums(DType dtype) {
  return dtype == DType::F64 ? 1e-12 : dtype == DType::F32 ? 3e-5 : 2 * tolerance_of(dtype);
}

class CudaConvolutions : public ::testing::TestWithParam<std::tuple<Case, DType>> {};

TEST_P(CudaConvolutions, AreTheSumsOfTheirDefinition) {
  const auto& [one, dtype] = GetParam();
  Convolved c(dtype, one);
  const int32_t x = one.transposed ? c.maps : c.image,
                y = one.transposed ? c.made_image : c.made_maps;
  std::vector<plan::Arg> arguments = {tensor_arg(x, "input"), tensor_arg(c.filters, "weight"),
                                      tensor_arg(c.bias, "bias")};
  for (const plan::Arg& arg : c.numbers()) arguments.push_back(arg);
  const auto memory =
      after_on_gpu(c.bench, instruction("aten.convolution.default", arguments, {y}));
  std::vector<double> expected = c.sums(one.transposed ? Convolved::kImage : Convolved::kMaps);
  const std::vector<double> bias = elements_of(c.bench, c.bench.used(), c.bias);
  const auto& sizes = c.bench.plan().tensors[static_cast<size_t>(y)].sizes;
  const auto places = static_cast<size_t>(sizes[2] * sizes[3]);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += bias[i / places % bias.size()];
  expect_near(elements_of(c.bench, memory, y), expected, tolerance_of_sums(dtype));
}

TEST_P(CudaConvolutions, HaveTheGradientsOfTheirDefinition) {
  const auto& [one, dtype] = GetParam();
  Convolved c(dtype, one);
  const int32_t x = one.transposed ? c.maps : c.image, g = one.transposed ? c.image : c.maps,
                of_x = one.transposed ? c.made_maps : c.made_image;
  std::vector<plan::Arg> arguments = {tensor_arg(g, "grad_output"), tensor_arg(x, "input"),
                                      tensor_arg(c.filters, "weight")};
  for (const plan::Arg& arg : c.numbers()) arguments.push_back(arg);
  const auto step = instruction("aten.convolution_backward.default", arguments,
                                {of_x, c.made_filters, c.made_bias});
  const auto memory = after_on_gpu(c.bench, step);
  EXPECT_EQ(memory, after_on_gpu(c.bench, step)) << "another run has other bits";
  const double tolerance = tolerance_of_sums(dtype);
  expect_near(elements_of(c.bench, memory, of_x),
              c.sums(one.transposed ? Convolved::kMaps : Convolved::kImage), tolerance);
  expect_near(elements_of(c.bench, memory, c.made_filters), c.sums(Convolved::kFilters), tolerance);
  expect_near(elements_of(c.bench, memory, c.made_bias), c.channel_sums(g), tolerance);
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaConvolutions,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::Values(DType::F32, DType::BF16, DType::F64)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_" +
                                  std::string(base::name(std::get<1>(info.param)));
                         });

}  // namespace
}  // namespace dc::runtime
