// sum, mean, amax, amin, prod, any and all over some dims.
#include "runtime/kernel/native/reductions/reduce.h"

namespace dc::runtime::kernel::native {
namespace {

template <template <typename> class Fold>
Made plain(Call& call) {
  return reduce<Fold>(call);
}

// A sum of truths is true where any is, a product where all are.
Made sum(Call& call) {
  return call.output(0).dtype == base::DType::Bool ? reduce<AnyFold>(call) : reduce<SumFold>(call);
}
Made product(Call& call) {
  return call.output(0).dtype == base::DType::Bool ? reduce<AllFold>(call)
                                                   : reduce<ProductFold>(call);
}

Made mean(Call& call) {
  call.require(base::is_floating(call.output(0).dtype), "its result must be floating-point");
  return reduce<SumFold>(call, true);
}

constexpr Row kRows[] = {
    {"aten.all.default", plain<AllFold>},  {"aten.all.dim", plain<AllFold>},
    {"aten.amax.default", plain<MaxFold>}, {"aten.amin.default", plain<MinFold>},
    {"aten.any.default", plain<AnyFold>},  {"aten.any.dim", plain<AnyFold>},
    {"aten.any.dims", plain<AnyFold>},     {"aten.max.default", plain<MaxFold>},
    {"aten.mean.default", mean},           {"aten.mean.dim", mean},
    {"aten.min.default", plain<MinFold>},  {"aten.prod.default", product},
    {"aten.prod.dim_int", product},        {"aten.sum.default", sum},
    {"aten.sum.dim_IntList", sum},
};

}  // namespace

std::span<const Row> reduction_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
