#include "runtime/kernel/onednn/plugin.h"

#include <algorithm>
#include <array>

#include "runtime/kernel/onednn/convolution.h"
#include "runtime/kernel/onednn/linear_cross_entropy.h"
#include "runtime/kernel/onednn/product.h"
#include "src/base/interface_id.h"

namespace {

using dc::runtime::kernel::native::Row;

std::span<const Row> all_kernels() {
  static const auto rows = [] {
    std::array<Row, std::size(dc::runtime::kernel::onednn::kOps)> all{};
    auto* end = all.data();
    for (const auto kernels : {dc::runtime::kernel::onednn::product_kernels(),
                               dc::runtime::kernel::onednn::convolution_kernels(),
                               dc::runtime::kernel::onednn::linear_cross_entropy_kernels()})
      end = std::ranges::copy(kernels, end).out;
    return all;
  }();
  return rows;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void dcrun_onednn_kernels(
    dc::runtime::kernel::onednn::Kernels* kernels) {
  *kernels = all_kernels();
}

DC_PLUGIN_INTERFACE
