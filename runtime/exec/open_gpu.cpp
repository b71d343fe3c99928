#include "runtime/exec/open_gpu.h"

#include <algorithm>

#include "runtime/device/cuda/cuda_device.h"
#include "runtime/kernel/cuda/rank_sums.h"

namespace dc::runtime::exec {
namespace {

class GpuSums final : public comm::DeviceSums {
 public:
  explicit GpuSums(std::unique_ptr<kernel::cuda::RankSums> sums) : sums_(std::move(sums)) {}
  void sum(const comm::Contributions& of, float* sum, device::Stream& stream) override {
    sums_->sum({of.own, of.others, of.stride, of.rank, of.ranks, of.count, sum}, of.dtype, stream);
  }
  void sum(const comm::MappedContributions& of, float* sum, device::Stream& stream) override {
    static_assert(comm::kMostMappedRanks == kernel::cuda::kMostMappedRanks);
    kernel::cuda::MappedRankSum all{{}, static_cast<int64_t>(of.inputs.size()), of.count, sum};
    std::ranges::copy(of.inputs, all.inputs);
    sums_->sum(all, of.dtype, stream);
  }

 private:
  std::unique_ptr<kernel::cuda::RankSums> sums_;
};

}  // namespace

base::Result<comm::GpuOptions> open_gpu(int local_rank, std::chrono::milliseconds timeout) {
  comm::GpuOptions gpu;
  gpu.timeout = timeout;
  DC_ASSIGN_OR_RETURN(gpu.device, device::open_device(base::DeviceKind::Cuda, local_rank));
  DC_ASSIGN_OR_RETURN(auto sums,
                      kernel::cuda::RankSums::open(static_cast<device::CudaDevice&>(*gpu.device)));
  gpu.sums = std::make_unique<GpuSums>(std::move(sums));
  return gpu;
}

}  // namespace dc::runtime::exec
