#include "runtime/kernel/onednn/product.h"

#include "runtime/kernel/onednn/plugin.h"
#include "runtime/kernel/onednn/product_maker.h"

namespace dc::runtime::kernel::onednn {
namespace {

using native::Call;
using native::Made;

Made multiply(Call& call) {
  return ProductMaker(call, call.tensor("self"), call.tensor("mat2"), call.output(0)).make();
}

Made multiply_and_add(Call& call, std::string_view left, std::string_view right) {
  const BoundTensor a = call.tensor(left), b = call.tensor(right), c = call.output(0);
  const double alpha = call.number("alpha", 1), beta = call.number("beta", 1);
  return ProductMaker(call, a, b, c, ProductSum{call.tensor("self"), alpha, beta}).make();
}

constexpr native::Row kRows[] = {
    {kOps[0], [](Call& call) { return multiply_and_add(call, "mat1", "mat2"); }},
    {kOps[1], [](Call& call) { return multiply_and_add(call, "batch1", "batch2"); }},
    {kOps[2], multiply},
    {kOps[3], multiply},
};

}  // namespace

std::span<const native::Row> product_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::onednn
