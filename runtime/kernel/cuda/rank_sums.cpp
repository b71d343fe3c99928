#include "runtime/kernel/cuda/rank_sums.h"

#include <algorithm>

#include "runtime/kernel/cuda/element_type.h"

namespace dc::runtime::kernel::cuda {
namespace {

struct Family {
  std::string_view function, parameters;
  std::string kernel(base::DType dtype) const {
    return "dc_" + std::string(function) + "_" + std::string(base::name(dtype));
  }
};
constexpr Family kStaged{"rank_sum", "RankSum"}, kMapped{"mapped_rank_sum", "MappedRankSum"};

}  // namespace

base::Result<std::unique_ptr<RankSums>> RankSums::open(device::CudaDevice& device) {
  DC_ASSIGN_OR_RETURN(auto workshop, Workshop::open(device));
  std::unique_ptr<RankSums> made(new RankSums(std::move(workshop)));
  std::string text =
      "#include \"runtime/kernel/cuda/kernels/sums.h\"\n\nnamespace dc::runtime::kernel::cuda "
      "{\n\n";
  for (const Family& family : {kStaged, kMapped}) {
    for (const base::DType dtype : kDTypes)
      text += "DC_KERNEL(" + family.kernel(dtype) + ", " + std::string(family.parameters) + ") { " +
              std::string(family.function) + "<" + element_type(dtype) + ">(parameters); }\n";
  }
  text += "\n}  // namespace dc::runtime::kernel::cuda\n";
  for (size_t i = 0; i < kDTypes.size(); ++i) {
    DC_ASSIGN_OR_RETURN(made->staged_[i],
                        made->workshop_->launch({kStaged.kernel(kDTypes[i]), text, 0}, 0, {}));
    DC_ASSIGN_OR_RETURN(made->mapped_[i],
                        made->workshop_->launch({kMapped.kernel(kDTypes[i]), text, 0}, 0, {}));
  }
  return made;
}

size_t RankSums::place_of(base::DType dtype) {
  return static_cast<size_t>(std::ranges::find(kDTypes, dtype) - kDTypes.begin());
}
void RankSums::sum(const RankSum& of, base::DType dtype, device::Stream& stream) const {
  workshop_->issue(staged_[place_of(dtype)], workshop_->blocks_for(of.count), &of, stream);
}
void RankSums::sum(const MappedRankSum& of, base::DType dtype, device::Stream& stream) const {
  workshop_->issue(mapped_[place_of(dtype)], workshop_->blocks_for(of.count), &of, stream);
}

}  // namespace dc::runtime::kernel::cuda
