// Sums of what ranks contribute, on a GPU.
#pragma once

#include <array>
#include <memory>

#include "runtime/kernel/cuda/kernels/parameters.h"
#include "runtime/kernel/cuda/workshop.h"
#include "src/base/dtype.h"

namespace dc::runtime::kernel::cuda {

class RankSums {
 public:
  // Compiles the kernels. As Workshop::open and Workshop::launch.
  static base::Result<std::unique_ptr<RankSums>> open(device::CudaDevice& device);
  // Issues a sum of elements of a type: f32, bf16 or f16.
  void sum(const RankSum& of, base::DType dtype, device::Stream& stream) const;
  void sum(const MappedRankSum& of, base::DType dtype, device::Stream& stream) const;

 private:
  explicit RankSums(std::unique_ptr<Workshop> workshop) : workshop_(std::move(workshop)) {}
  static size_t place_of(base::DType dtype);
  static constexpr std::array kDTypes = {base::DType::F32, base::DType::BF16, base::DType::F16};

  std::unique_ptr<Workshop> workshop_;
  std::array<Launch, kDTypes.size()> staged_, mapped_;
};

}  // namespace dc::runtime::kernel::cuda
