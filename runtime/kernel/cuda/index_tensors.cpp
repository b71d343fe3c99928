// index.Tensor, index_put and index_add: several index tensors, broadcast to one shape, that choose
// positions of some dims; the other dims are whole.
#include <algorithm>
#include <array>

#include "runtime/kernel/cuda/block.h"
#include "runtime/kernel/cuda/copy_kernels.h"
#include "runtime/kernel/cuda/element_type.h"
#include "runtime/kernel/cuda/hand_source.h"
#include "runtime/kernel/cuda/kernels/index_parameters.h"
#include "runtime/kernel/cuda/model_kernels.h"
#include "runtime/kernel/cuda/walks.h"
#include "runtime/kernel/native/copies/regions.h"
#include "src/base/shape.h"

namespace dc::runtime::kernel::cuda {
namespace {

using base::DType;
using base::Result;
using native::Call;
using native::Made;
using Indices = std::vector<std::optional<BoundTensor>>;

std::vector<int64_t> shape_of(Call& call, const Indices& indices) {
  size_t dims = 0;
  for (const auto& index : indices)
    if (index) dims = std::max(dims, index->sizes.size());
  std::vector<int64_t> shape(dims, 1);
  for (const auto& index : indices) {
    if (!index) continue;
    for (size_t d = 0; d < index->sizes.size(); ++d) {
      int64_t& size = shape[dims - index->sizes.size() + d];
      call.require(size == 1 || index->sizes[d] == 1 || size == index->sizes[d],
                   "its indices cannot be broadcast to one shape");
      if (index->sizes[d] != 1) size = index->sizes[d];
    }
  }
  return shape;
}

// Where the dims of the indices lie in the result: where the first indexed dim was, or in front if
// others lie between.
size_t front_of(Call& call, const Indices& indices) {
  size_t first = indices.size(), last = 0, count = 0;
  for (size_t d = 0; d < indices.size(); ++d) {
    if (!indices[d]) continue;
    first = std::min(first, d);
    last = d;
    ++count;
    call.require(indices[d]->dtype == DType::I64 || indices[d]->dtype == DType::I32,
                 "on GPUs indices must be i64 or i32");
  }
  call.require(count > 0 && count <= kMostIndices, "on GPUs it takes one to four indices");
  return last - first + 1 == count ? first : 0;
}

// `other` has the shape of index.Tensor's result, or may be broadcast to it; `sizes` becomes that
// shape.
IndexTensors choose(Call& call, Indices indices, const BoundTensor& chosen,
                    const BoundTensor& other, std::vector<int64_t>* sizes) {
  IndexTensors parameters{};
  if (call.ok())
    call.require(indices.size() <= chosen.sizes.size(), "it has more indices than dims");
  if (!call.ok()) return parameters;
  indices.resize(chosen.sizes.size());
  const size_t front = front_of(call, indices);
  const std::vector<int64_t> shape = shape_of(call, indices);
  std::vector<int64_t> whole_sizes, whole_strides;
  for (size_t d = 0; d < indices.size(); ++d) {
    if (indices[d]) continue;
    whole_sizes.push_back(chosen.sizes[d]);
    whole_strides.push_back(chosen.strides[d]);
  }
  if (!call.ok()) return parameters;
  *sizes = whole_sizes;
  sizes->insert(sizes->begin() + static_cast<ptrdiff_t>(front), shape.begin(), shape.end());
  const auto strides = native::broadcast_strides(other, *sizes);
  call.require(strides.has_value(), "its tensors differ in shape");
  if (!call.ok()) return parameters;
  const auto at = strides->begin() + static_cast<ptrdiff_t>(front);
  const auto behind = at + static_cast<ptrdiff_t>(shape.size());
  std::vector<std::vector<int64_t>> choice = {base::contiguous_strides(shape), {at, behind}};
  for (size_t d = 0; d < indices.size(); ++d) {
    if (!indices[d]) continue;
    choice.push_back(*native::broadcast_strides(*indices[d], shape));
    parameters.indices[parameters.count++] = {indices[d]->data, indices[d]->dtype == DType::I64,
                                              chosen.strides[d], chosen.sizes[d]};
  }
  std::vector<int64_t> other_whole(strides->begin(), at);
  other_whole.insert(other_whole.end(), behind, strides->end());
  parameters.choices = walk_of<1 + kMostIndices>(call, native::Iteration(shape, choice), 1);
  parameters.part =
      walk_of<2>(call, native::Iteration(whole_sizes, std::array{whole_strides, other_whole}));
  parameters.chosen = chosen.data;
  parameters.other = other.data;
  return parameters;
}

KernelSource source_of_index(const std::string& function, DType element, bool as_words) {
  const int64_t bytes = base::byte_size(element);
  const std::string type = as_words ? word_type(bytes) : element_type(element);
  return source_of("dc_" + function + "_" +
                       (as_words ? std::to_string(bytes) : std::string(base::name(element))),
                   "index.h", "IndexTensors", function + "<" + type + ">");
}

Made index_kernel(Workshop& workshop, Call& call, int32_t) {
  const BoundTensor self = call.tensor("self"), to = call.output(0);
  call.require(self.dtype == to.dtype, "the result has another element type");
  std::vector<int64_t> sizes;
  const IndexTensors parameters = choose(call, call.tensors("indices"), self, to, &sizes);
  call.require(std::ranges::equal(sizes, to.sizes), "its tensors differ in shape");
  if (!call.ok()) return call.made(nullptr);
  return workshop.kernel(source_of_index("index_read", to.dtype, true),
                         workshop.blocks_for(to.numel()), parameters);
}

// The result is `self`, and then what is chosen of it changes.
Made write_kernel(Workshop& workshop, Call& call, IndexTensors parameters, DType element, bool adds,
                  int32_t stream) {
  const BoundTensor self = call.tensor("self"), to = call.output(0);
  native::CopyRegions copy;
  copy.copy(call, native::Region(to), native::Region(self));
  call.require(parameters.choices.count < INT32_MAX, "there are more than 2^31 indices");
  if (!call.ok()) return call.made(nullptr);
  const int64_t choices = parameters.choices.count;
  DC_ASSIGN_OR_RETURN(std::byte* const links,
                      workshop.scratch(stream, choices * static_cast<int64_t>(sizeof(int32_t))));
  parameters.links = reinterpret_cast<int32_t*>(links);
  DC_ASSIGN_OR_RETURN(std::vector<Launch> launches, launches_of(workshop, call, copy));
  DC_ASSIGN_OR_RETURN(Launch find, workshop.launch(source_of("dc_index_links", "index.h",
                                                             "IndexTensors", "index_links"),
                                                   workshop.blocks_for(choices), parameters));
  launches.push_back(std::move(find));
  DC_ASSIGN_OR_RETURN(
      Launch write,
      workshop.launch(source_of_index(adds ? "index_add" : "index_put", element, !adds),
                      workshop.blocks_for(choices * parameters.part.count), parameters));
  launches.push_back(std::move(write));
  return workshop.kernel(std::move(launches));
}

Made index_put_kernel(Workshop& workshop, Call& call, int32_t stream) {
  const BoundTensor self = call.tensor("self"), values = call.tensor("values"), to = call.output(0);
  call.require(self.dtype == to.dtype && values.dtype == to.dtype,
               "its tensors have several element types");
  call.same_sizes(self, to);
  std::vector<int64_t> sizes;
  IndexTensors parameters = choose(call, call.tensors("indices"), to, values, &sizes);
  parameters.factor = 1;
  return write_kernel(workshop, call, parameters, to.dtype, call.integer("accumulate", 0) != 0,
                      stream);
}

Made index_add_kernel(Workshop& workshop, Call& call, int32_t stream) {
  const BoundTensor self = call.tensor("self"), index = call.tensor("index"),
                    source = call.tensor("source"), to = call.output(0);
  const size_t dim = call.dim("dim", self);
  call.require(self.dtype == to.dtype && source.dtype == to.dtype,
               "its tensors have several element types");
  call.require(index.sizes.size() == 1 && !to.sizes.empty(), "its index must have one dim");
  call.same_sizes(self, to);
  call.same_sizes(source, to, dim);
  if (!call.ok()) return call.made(nullptr);
  call.require(source.sizes[dim] == index.sizes[0], "its index and what is added differ in size");
  Indices indices(dim + 1);
  indices[dim] = index;
  std::vector<int64_t> sizes;
  IndexTensors parameters = choose(call, std::move(indices), to, source, &sizes);
  parameters.factor = call.number("alpha", 1);
  return write_kernel(workshop, call, parameters, to.dtype, true, stream);
}

constexpr ModelKernelRow kIndexTensorRows[] = {
    {"aten._unsafe_index.Tensor", index_kernel},
    {"aten._unsafe_index_put.default", index_put_kernel},
    {"aten.index.Tensor", index_kernel},
    {"aten.index_add.default", index_add_kernel},
    {"aten.index_put.default", index_put_kernel},
};

}  // namespace

std::span<const ModelKernelRow> index_tensor_kernels() { return kIndexTensorRows; }

}  // namespace dc::runtime::kernel::cuda
