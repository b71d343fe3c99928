// The native kernels by name. Each file of this folder holds one idea and says here which kernels
// it has.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "runtime/kernel/native/call.h"

namespace dc::runtime::kernel::native {

using Made = base::Result<std::unique_ptr<Kernel>>;
using Factory = Made (*)(Call& call);
struct Row {
  std::string_view op;  // "dc.adamw"
  Factory factory;
};

// Those of the plug-in libdcrun_onednn.so. Unavailable (69), DC6135, without it.
base::Result<std::span<const Row>> open_onednn_kernels();

std::span<const Row> activation_kernels();
std::span<const Row> arange_kernels();
std::span<const Row> arithmetic_kernels();
std::span<const Row> attention_kernels();
std::span<const Row> cast_kernels();
std::span<const Row> choice_kernels();
std::span<const Row> copy_kernels();
std::span<const Row> cross_entropy_kernels();
std::span<const Row> diagonal_kernels();
std::span<const Row> dropout_kernels();
std::span<const Row> elementwise_kernels();
std::span<const Row> embedding_kernels();
std::span<const Row> fused_kernels();
std::span<const Row> gather_kernels();
std::span<const Row> index_kernels();
std::span<const Row> logsumexp_kernels();
std::span<const Row> loss_kernels();
std::span<const Row> norm_kernels();
std::span<const Row> order_kernels();
std::span<const Row> reduce_kernels();
std::span<const Row> reduction_kernels();
std::span<const Row> scan_kernels();
std::span<const Row> softmax_kernels();
std::span<const Row> triangular_kernels();
std::span<const Row> update_kernels();
std::span<const Row> variance_kernels();
std::span<const Row> vector_norm_kernels();

}  // namespace dc::runtime::kernel::native
