// What libdcrun_onednn.so and the native provider agree on. Free of oneDNN.
#pragma once

#include <span>
#include <string_view>

#include "runtime/kernel/native/registry.h"

namespace dc::runtime::kernel::onednn {

inline constexpr const char* kLibrary = "libdcrun_onednn.so";
inline constexpr const char* kEntry = "dcrun_onednn_kernels";

// The operators whose native kernels are in the library.
inline constexpr std::string_view kOps[] = {
    "aten.addmm.default",      "aten.baddbmm.default",     "aten.bmm.default",
    "aten.mm.default",         "aten.convolution.default", "aten.convolution_backward.default",
    "dc.linear_cross_entropy", "dc.add_product",           "dc.two_products"};

// The library's entry: the rows of kOps.
using Kernels = std::span<const native::Row>;
using Entry = void (*)(Kernels* kernels);

}  // namespace dc::runtime::kernel::onednn
