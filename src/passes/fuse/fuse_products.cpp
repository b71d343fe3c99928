// fuse-products: fewer and larger products on GPUs, whose kernels the library has.
//
// A gradient of several products is a sum of products, each as large as the activations: a product
// that adds reads and writes that once instead of three times. Two products of the same sizes that
// read the same matrix fill a GPU better than one after the other: the last tiles of one leave
// multiprocessors idle, and those with few columns do so all the time.
//
// Sums are rounded once instead of twice, so bits change: the pass comes in every chain at the same
// place, and asks for nothing but the profile.
#include <string>

#include "src/passes/fuse/add_in_products.h"
#include "src/passes/fuse/pair_products.h"

namespace dc::passes {

base::Result<Change> fuse_products(ir::Step& step, const PassContext& context) {
  if (context.options.device != base::DeviceKind::Cuda ||
      context.options.fuse_products == FuseProducts::Never)
    return Change::No;
  int64_t additions = 0, pairs = 0;
  for (ir::Program& program : step.programs) {
    additions += add_in_products(program.graph, context);
    pairs += pair_products(program.graph, context);
  }
  if (additions + pairs == 0) return Change::No;
  context.remarks.push_back({"fuse-products",
                             "products-fused",
                             {},
                             {{"additions", additions}, {"pairs", pairs}},
                             std::to_string(additions) +
                                 " additions are made by the product before them, " +
                                 std::to_string(pairs) + " pairs of products are one kernel each"});
  return Change::Yes;
}

}  // namespace dc::passes
