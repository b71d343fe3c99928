// Weights drawn on the double of a GPU (tests/double) have the bits that the host draws.
#include <vector>

#include <gtest/gtest.h>

#include "runtime/kernel/drawing.h"
#include "tests/runtime/kernel/cuda/gpu_bench.h"

namespace dc::runtime {
namespace {

using base::DType;
using kernel::Drawing, kernel::DrawKind;

TEST(CudaDrawing, GivesTheBitsOfTheHost) {
  device::Device& gpu = double_of_gpu();
  const auto drawer = kernel::make_drawer(gpu);
  constexpr DType kTypes[] = {DType::F32, DType::BF16, DType::F16};
  Drawing what{.key = 0xfedcba9876543210,
               .zeros_begin = 300,
               .zeros_end = 400,
               .base = 0.5F,
               .scale = 0.02F};
  constexpr int64_t kMost = 200000;
  auto memory = gpu.allocate(4 * kMost + 8).value();
  for (const DrawKind kind : {DrawKind::Normal, DrawKind::Uniform, DrawKind::Constant}) {
    what.kind = kind;
    for (const DType through : kTypes) {
      for (const DType to : kTypes) {
        for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 1},
                                           {0, kMost},
                                           {77, 5000},
                                           {(int64_t{1} << 37) + 3, 999}}) {
          const auto bytes = static_cast<size_t>(count * base::byte_size(to));
          std::vector<std::byte> got(bytes + 4, std::byte{0x55}), expected = got;
          EXPECT_TRUE(gpu.upload(memory->base(), got).ok());
          auto status = drawer->draw(what, first, count, through, to, memory->base());
          if (status.ok()) status = drawer->finish();
          ASSERT_TRUE(status.ok()) << status.to_string();
          EXPECT_TRUE(gpu.download(got, memory->base()).ok());
          kernel::draw_elements(what, first, count, through, to, expected.data());
          ASSERT_EQ(got, expected) << base::name(through) << " " << base::name(to) << " " << first;
        }
      }
    }
  }
}

TEST(CudaDrawing, HostsThatAreTheDeviceHaveNoDrawer) {
  EXPECT_EQ(kernel::make_drawer(device::cpu_device()), nullptr);
}

}  // namespace
}  // namespace dc::runtime
