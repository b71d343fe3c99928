// Diagonals of matrices as regions: eye, and what writes a diagonal of a larger tensor.
#include <algorithm>

#include "runtime/kernel/native/copies/regions.h"

namespace dc::runtime::kernel::native {
namespace {

// The elements [.., i, i + offset, ..] of two dims (a negative offset: [i - offset, i]) as the last
// dim of a view without the two; `first` and `second` differ and are dims of the tensor.
Region diagonal_of(const BoundTensor& tensor, int64_t offset, size_t first, size_t second) {
  Region region(tensor);
  const int64_t rows = region.sizes[first], columns = region.sizes[second];
  offset = std::clamp(offset, -rows, columns);
  const int64_t count =
      std::min(offset < 0 ? rows + offset : rows, offset < 0 ? columns : columns - offset);
  const int64_t step = region.strides[first] + region.strides[second];
  if (count > 0) {
    region.data +=
        (offset < 0 ? -offset * region.strides[first] : offset * region.strides[second]) *
        base::byte_size(region.dtype);
  }
  for (const size_t dim : {std::max(first, second), std::min(first, second)}) {
    region.sizes.erase(region.sizes.begin() + static_cast<ptrdiff_t>(dim));
    region.strides.erase(region.strides.begin() + static_cast<ptrdiff_t>(dim));
  }
  region.sizes.push_back(count);
  region.strides.push_back(step);
  return region;
}

// That of the result which the arguments say, for `part`, which has its shape.
Region diagonal_for(Call& call, const BoundTensor& whole, const BoundTensor& part,
                    int64_t default_first, int64_t default_second) {
  call.require(whole.sizes.size() >= 2, "a diagonal is of two dims");
  if (!call.ok()) return Region();
  const size_t first = call.dim("dim1", whole, default_first);
  const size_t second = call.dim("dim2", whole, default_second);
  call.require(first != second, "a diagonal is of two dims");
  if (!call.ok()) return Region();
  Region region = diagonal_of(whole, call.integer("offset", 0), first, second);
  call.same_sizes(region.bound(), part);
  return region;
}

Made diagonal_in_zeros(Call& call, std::string_view name, int64_t first, int64_t second) {
  const BoundTensor part = call.tensor(name), to = call.output(0);
  const Region region = diagonal_for(call, to, part, first, second);
  auto kernel = std::make_unique<CopyRegions>();
  kernel->fill(call, Region(to), 0.0);
  kernel->copy(call, region, Region(part));
  return call.made(std::move(kernel));
}
Made diagonal_backward(Call& call) { return diagonal_in_zeros(call, "grad_output", 0, 1); }
Made diagonal_embed(Call& call) { return diagonal_in_zeros(call, "self", -2, -1); }

Made diagonal_scatter(Call& call) {
  const BoundTensor self = call.tensor("self"), src = call.tensor("src"), to = call.output(0);
  call.same_sizes(self, to);
  const Region region = diagonal_for(call, to, src, 0, 1);
  auto kernel = std::make_unique<CopyRegions>();
  kernel->copy(call, Region(to), Region(self));
  kernel->copy(call, region, Region(src));
  return call.made(std::move(kernel));
}

Made eye(Call& call) {
  const BoundTensor to = call.output(0);
  call.require(to.sizes.size() == 2, "its result must have two dims");
  auto kernel = std::make_unique<CopyRegions>();
  kernel->fill(call, Region(to), 0.0);
  if (call.ok()) kernel->fill(call, diagonal_of(to, 0, 0, 1), int64_t{1});
  return call.made(std::move(kernel));
}

constexpr Row kRows[] = {
    {"aten.diag_embed.default", diagonal_embed},
    {"aten.diagonal_backward.default", diagonal_backward},
    {"aten.diagonal_scatter.default", diagonal_scatter},
    {"aten.eye.default", eye},
    {"aten.eye.m", eye},
};

}  // namespace

std::span<const Row> diagonal_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
