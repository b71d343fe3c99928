// sum, mean, amax, amin, prod, any and all over some dims.
#include "runtime/kernel/native/reductions/reduce.h"

namespace dc::runtime::kernel::native {
namespace {

template <template <typename> class Fold>
Made plain(Call& call) {
  return reduce<Fold>(call);
}

Made mean(Call& call) {
  call.require(base::is_floating(call.output(0).dtype), "its result must be floating-point");
  return reduce<SumFold>(call, true);
}

constexpr Row kRows[] = {
    {"aten.all.default", plain<AllFold>},
    {"aten.all.dim", plain<AllFold>},
    {"aten.amax.default", plain<MaxFold>},
    {"aten.amin.default", plain<MinFold>},
    {"aten.any.default", plain<AnyFold>},
    {"aten.any.dim", plain<AnyFold>},
    {"aten.any.dims", plain<AnyFold>},
    {"aten.max.default", plain<MaxFold>},
    {"aten.mean.default", mean},
    {"aten.mean.dim", mean},
    {"aten.min.default", plain<MinFold>},
    {"aten.prod.default", plain<ProductFold>},
    {"aten.prod.dim_int", plain<ProductFold>},
    {"aten.sum.default", plain<SumFold>},
    {"aten.sum.dim_IntList", plain<SumFold>},
};

}  // namespace

std::span<const Row> reduction_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
