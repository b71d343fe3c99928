// An instruction of pooling while its kernel is being prepared: its operators by name, and what
// kernels of CPUs and of GPUs read of it.
#pragma once

#include <optional>
#include <string_view>

#include "runtime/kernel/native/pooling/windows.h"

namespace dc::runtime::kernel::native {

enum class PoolingKind { Largest, LargestGradient, Average, AverageGradient };

struct PoolingOperator {
  std::string_view op;
  PoolingKind kind;
  size_t dims;  // that are pooled: 2 or 3
  bool is_adaptive;
};
inline constexpr PoolingOperator kPoolingOperators[] = {
    {"aten._adaptive_avg_pool2d.default", PoolingKind::Average, 2, true},
    {"aten._adaptive_avg_pool2d_backward.default", PoolingKind::AverageGradient, 2, true},
    {"aten.adaptive_max_pool2d.default", PoolingKind::Largest, 2, true},
    {"aten.adaptive_max_pool2d_backward.default", PoolingKind::LargestGradient, 2, true},
    {"aten.avg_pool2d.default", PoolingKind::Average, 2, false},
    {"aten.avg_pool2d_backward.default", PoolingKind::AverageGradient, 2, false},
    {"aten.avg_pool3d.default", PoolingKind::Average, 3, false},
    {"aten.avg_pool3d_backward.default", PoolingKind::AverageGradient, 3, false},
    {"aten.max_pool2d_with_indices.default", PoolingKind::Largest, 2, false},
    {"aten.max_pool2d_with_indices_backward.default", PoolingKind::LargestGradient, 2, false},
    {"aten.max_pool3d_with_indices.default", PoolingKind::Largest, 3, false},
    {"aten.max_pool3d_with_indices_backward.default", PoolingKind::LargestGradient, 3, false},
};

struct PoolingCall {
  PoolingKind kind;
  size_t dims;          // the last ones, which are pooled
  BoundTensor in, out;  // of the input's and of the output's shape; of a gradient, `in` is made
  std::optional<BoundTensor> indices;  // i64, of the shape of `out`; largest elements alone
  std::optional<int64_t> divisor;      // of every window, not 0; averages alone
  Pooled windows;
};

// Of an instruction whose operator is in the table. Nothing if it is refused.
std::optional<PoolingCall> read_pooling(Call& call);

}  // namespace dc::runtime::kernel::native
