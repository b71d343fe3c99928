#include "runtime/kernel/cuda/rank_sums.h"

#include <algorithm>

#include "runtime/kernel/cuda/element_type.h"

namespace dc::runtime::kernel::cuda {
namespace {

std::string rank_sum_name(base::DType dtype) {
  return "dc_rank_sum_" + std::string(base::name(dtype));
}

}  // namespace

base::Result<std::unique_ptr<RankSums>> RankSums::open(device::CudaDevice& device) {
  DC_ASSIGN_OR_RETURN(auto workshop, Workshop::open(device));
  std::unique_ptr<RankSums> made(new RankSums(std::move(workshop)));
  std::string text =
      "#include \"runtime/kernel/cuda/kernels/sums.h\"\n\nnamespace dc::runtime::kernel::cuda "
      "{\n\n";
  for (const base::DType dtype : kDTypes)
    text += "DC_KERNEL(" + rank_sum_name(dtype) + ", RankSum) { rank_sum<" + element_type(dtype) +
            ">(parameters); }\n";
  text += "\n}  // namespace dc::runtime::kernel::cuda\n";
  for (size_t i = 0; i < kDTypes.size(); ++i) {
    DC_ASSIGN_OR_RETURN(made->launches_[i],
                        made->workshop_->launch({rank_sum_name(kDTypes[i]), text, 0}, 0, {}));
  }
  return made;
}

void RankSums::sum(const RankSum& of, base::DType dtype, device::Stream& stream) const {
  const auto which = static_cast<size_t>(std::ranges::find(kDTypes, dtype) - kDTypes.begin());
  workshop_->issue(launches_[which], workshop_->blocks_for(of.count), &of, stream);
}

}  // namespace dc::runtime::kernel::cuda
