#include "runtime/kernel/native/indexing/index_call.h"

#include <algorithm>
#include <array>

#include "src/base/checked.h"
#include "src/base/shape.h"

namespace dc::runtime::kernel::native {
namespace {

using Indices = std::vector<std::optional<BoundTensor>>;  // one per dim; none: the dim is whole

std::vector<int64_t> broadcast_shape(Call& call, const Indices& indices) {
  size_t dims = 0;
  for (const auto& index : indices)
    if (index) dims = std::max(dims, index->sizes.size());
  std::vector<int64_t> shape(dims, 1);
  for (const auto& index : indices) {
    if (!index) continue;
    const size_t added = dims - index->sizes.size();
    for (size_t d = 0; d < index->sizes.size(); ++d) {
      int64_t& size = shape[added + d];
      call.require(size == 1 || index->sizes[d] == 1 || size == index->sizes[d],
                   "its indices cannot be broadcast to one shape");
      if (index->sizes[d] != 1) size = index->sizes[d];
    }
  }
  std::optional<int64_t> count = 1;
  for (const int64_t size : shape)
    count = count ? base::checked_mul(*count, std::max<int64_t>(size, 1)) : count;
  call.require(count.has_value(), "there are too many indices");
  return shape;
}

// Where the dims of the indices are in what is chosen: where the first indexed dim was, or in front
// if others lie between.
size_t front_of(Call& call, const Indices& indices) {
  size_t first = indices.size(), last = 0, count = 0;
  for (size_t d = 0; d < indices.size(); ++d) {
    if (!indices[d]) continue;
    first = std::min(first, d);
    last = d;
    ++count;
    call.require(indices[d]->dtype == base::DType::I64 || indices[d]->dtype == base::DType::I32,
                 "only indices of i64 and i32 have a kernel");
  }
  call.require(count > 0 && count + 2 <= kMaxTensors, "it has none or too many indices");
  return last - first + 1 == count ? first : 0;
}

// The shape of what is chosen.
std::vector<int64_t> choose(Call& call, IndexCall& of, Indices indices) {
  if (call.ok())
    call.require(indices.size() <= of.chosen.sizes.size(), "it has more indices than dims");
  if (!call.ok()) return {};
  indices.resize(of.chosen.sizes.size());
  const std::vector<int64_t> shape = broadcast_shape(call, indices);
  const size_t front = front_of(call, indices);
  std::vector<int64_t> whole_sizes, whole_strides;
  for (size_t d = 0; d < indices.size(); ++d) {
    if (indices[d]) continue;
    whole_sizes.push_back(of.chosen.sizes[d]);
    whole_strides.push_back(of.chosen.strides[d]);
  }
  if (!call.ok()) return {};
  std::vector<int64_t> sizes = whole_sizes;
  sizes.insert(sizes.begin() + static_cast<ptrdiff_t>(front), shape.begin(), shape.end());
  const auto strides = broadcast_strides(of.other, sizes);
  call.require(strides.has_value(), "its tensors differ in shape");
  if (!call.ok()) return {};
  const auto at = strides->begin() + static_cast<ptrdiff_t>(front);
  const auto behind = at + static_cast<ptrdiff_t>(shape.size());
  std::vector<std::vector<int64_t>> choice{base::contiguous_strides(shape), {at, behind}};
  for (size_t d = 0; d < indices.size(); ++d) {
    if (!indices[d]) continue;
    choice.push_back(*broadcast_strides(*indices[d], shape));
    of.indices.push_back({*indices[d], of.chosen.strides[d], of.chosen.sizes[d]});
  }
  std::vector<int64_t> other_whole(strides->begin(), at);
  other_whole.insert(other_whole.end(), behind, strides->end());
  of.choices = Iteration(shape, choice);
  of.part = Iteration(whole_sizes, std::array{whole_strides, other_whole});
  call.require(of.choices.fits() && of.part.fits(), "its tensors have too many dims");
  return sizes;
}

// What index_put and index_add have: a result that is `self`, but where it is written to.
IndexCall read_written(Call& call, std::string_view written) {
  IndexCall of;
  of.before = call.tensor("self");
  of.other = call.tensor(written);
  of.chosen = call.output(0);
  call.require(of.before->dtype == of.chosen.dtype && of.other.dtype == of.chosen.dtype,
               "its tensors have several element types");
  call.same_sizes(*of.before, of.chosen);
  return of;
}

}  // namespace

IndexCall read_index(Call& call) {
  IndexCall of;
  of.chosen = call.tensor("self");
  of.other = call.output(0);
  call.require(of.chosen.dtype == of.other.dtype, "the result has another element type");
  const std::vector<int64_t> sizes = choose(call, of, call.tensors("indices"));
  call.require(std::ranges::equal(sizes, of.other.sizes), "its tensors differ in shape");
  return of;
}

IndexCall read_index_put(Call& call) {
  IndexCall of = read_written(call, "values");
  of.accumulates = call.integer("accumulate", 0) != 0;
  choose(call, of, call.tensors("indices"));
  return of;
}

IndexCall read_index_add(Call& call) {
  IndexCall of = read_written(call, "source");
  of.accumulates = true;
  of.factor = call.number("alpha", 1);
  const BoundTensor index = call.tensor("index");
  const size_t dim = call.dim("dim", of.chosen);
  call.require(index.sizes.size() == 1 && !of.chosen.sizes.empty(), "its index must have one dim");
  call.same_sizes(of.other, of.chosen, dim);
  if (!call.ok()) return of;
  call.require(of.other.sizes[dim] == index.sizes[0], "its index and what is added differ in size");
  Indices indices(dim + 1);
  indices[dim] = index;
  choose(call, of, std::move(indices));
  return of;
}

}  // namespace dc::runtime::kernel::native
