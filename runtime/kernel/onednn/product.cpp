#include "runtime/kernel/onednn/product.h"

#include <algorithm>
#include <array>

#include "runtime/kernel/onednn/plugin.h"
#include "runtime/kernel/onednn/product_maker.h"
#include "src/base/shape.h"

namespace dc::runtime::kernel::onednn {
namespace {

using native::Call;
using native::Made;

class ProductInBlocks final : public Kernel {
 public:
  explicit ProductInBlocks(std::vector<std::unique_ptr<Kernel>> blocks)
      : blocks_(std::move(blocks)) {}
  base::Status launch(device::Stream& stream) override {
    for (const auto& block : blocks_) DC_RETURN_IF_ERROR(block->launch(stream));
    return {};
  }

 private:
  std::vector<std::unique_ptr<Kernel>> blocks_;
};

// The product of some rows of two dims, to be placed.
struct RowBlock {
  RowBlock(Call& call, const BoundTensor& left, const BoundTensor& right, const BoundTensor& result,
           int64_t rows)
      : left_sizes{rows, left.sizes[1]},
        result_sizes{rows, result.sizes[1]},
        maker(call, {nullptr, left.dtype, left_sizes, left.strides}, right,
              {nullptr, result.dtype, result_sizes, result.strides}) {}

  std::array<int64_t, 2> left_sizes, result_sizes;
  ProductMaker maker;
};

// Whether the left operand is copied to rows in several blocks of them.
bool goes_in_blocks(const BoundTensor& left, const BoundTensor& result) {
  if (left.sizes.size() != 2 || result.sizes.size() != 2) return false;
  const int64_t rows = left.sizes[0];
  return left.dtype == base::DType::BF16 && multiplies_bf16() && rows > kMostRowsCopied &&
         rows <= INT32_MAX && rows == result.sizes[0] && is_copied_to_rows(matrices_of(left)) &&
         base::is_contiguous(result.sizes, result.strides);
}

Made multiply_in_blocks(Call& call, const BoundTensor& left, const BoundTensor& right,
                        const BoundTensor& result) {
  const int64_t rows = left.sizes[0], at_once = rows_of_block(rows), rest = rows % at_once;
  RowBlock block(call, left, right, result, at_once);
  RowBlock last(call, left, right, result, rest == 0 ? at_once : rest);
  const int64_t bytes = std::max(block.maker.scratch_bytes(), last.maker.scratch_bytes());
  std::byte* scratch = call.scratch(bytes);
  if (!call.ok() || scratch == nullptr) return call.made(nullptr);
  const auto row_of = [](const BoundTensor& tensor, int64_t row) {
    return static_cast<std::byte*>(tensor.data) +
           row * tensor.strides[0] * base::byte_size(tensor.dtype);
  };
  std::vector<std::unique_ptr<Kernel>> blocks;
  for (int64_t first = 0; first < rows && call.ok(); first += at_once) {
    ProductMaker& maker = rows - first < at_once ? last.maker : block.maker;
    blocks.push_back(maker.place(scratch, row_of(left, first), static_cast<std::byte*>(right.data),
                                 row_of(result, first)));
  }
  return call.finish<ProductInBlocks>(std::move(blocks));
}

Made multiply(Call& call) {
  const BoundTensor left = call.tensor("self"), right = call.tensor("mat2"),
                    result = call.output(0);
  if (call.ok() && goes_in_blocks(left, result))
    return multiply_in_blocks(call, left, right, result);
  return ProductMaker(call, left, right, result).make();
}

Made multiply_and_add(Call& call, std::string_view left, std::string_view right) {
  const BoundTensor a = call.tensor(left), b = call.tensor(right), c = call.output(0);
  const double alpha = call.number("alpha", 1), beta = call.number("beta", 1);
  return ProductMaker(call, a, b, c, ProductSum{call.tensor("self"), alpha, beta}).make();
}

Made add_product(Call& call) {
  const BoundTensor sum = call.tensor("sum"), result = call.output(0);
  if (call.ok()) call.require(result.data == sum.data, "the result is not the sum");
  return ProductMaker(call, call.tensor("left"), call.tensor("right"), result, ProductSum{sum})
      .make();
}

Made multiply_two(Call& call) {
  const BoundTensor left = call.tensor("left"), right = call.tensor("right"),
                    result = call.output(0), left2 = call.tensor("left2"),
                    right2 = call.tensor("right2"), result2 = call.output(1);
  ProductMaker one(call, left, right, result), other(call, left2, right2, result2);
  const int64_t bytes = std::max(one.scratch_bytes(), other.scratch_bytes());
  std::byte* scratch = call.scratch(bytes);
  if (!call.ok() || (bytes > 0 && scratch == nullptr)) return call.made(nullptr);
  const auto data = [](const BoundTensor& tensor) { return static_cast<std::byte*>(tensor.data); };
  std::vector<std::unique_ptr<Kernel>> both;
  both.push_back(one.place(scratch, data(left), data(right), data(result)));
  both.push_back(other.place(scratch, data(left2), data(right2), data(result2)));
  return call.finish<ProductInBlocks>(std::move(both));
}

constexpr native::Row kRows[] = {
    {kOps[0], [](Call& call) { return multiply_and_add(call, "mat1", "mat2"); }},
    {kOps[1], [](Call& call) { return multiply_and_add(call, "batch1", "batch2"); }},
    {kOps[2], multiply},
    {kOps[3], multiply},
    {"dc.add_product", add_product},
    {"dc.two_products", multiply_two},
};

}  // namespace

std::span<const native::Row> product_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::onednn
