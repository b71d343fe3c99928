// Elements and rows chosen by indices.
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
using Strides = std::vector<int64_t>;

void check_indices(Call& call, const BoundTensor& indices) {
  call.require(indices.dtype == DType::I64 || indices.dtype == DType::I32,
               "indices must be i64 or i32");
}

Strides first_of(std::span<const int64_t> strides, size_t count) {
  return {strides.begin(), strides.begin() + static_cast<ptrdiff_t>(count)};
}

// The indices, each with a row of `rows`, in row-major order whatever the strides: the first tensor
// of the iteration has no gaps.
native::Iteration index_places(Call& call, const BoundTensor& indices, const BoundTensor& rows) {
  check_indices(call, indices);
  const size_t dims = indices.sizes.size();
  call.require(rows.sizes.size() == dims + 1, "its tensors differ in dims");
  if (!call.ok()) return {};
  call.require(std::ranges::equal(indices.sizes, rows.sizes.first(dims)),
               "its tensors differ in shape");
  const Strides sizes(indices.sizes.begin(), indices.sizes.end());
  return native::Iteration(
      sizes, std::array{base::contiguous_strides(sizes), first_of(indices.strides, dims),
                        first_of(rows.strides, dims)});
}

// How many columns may be moved as one word.
int64_t columns_of_word(const Embedding& parameters, int64_t element) {
  if (parameters.stride != 1 || parameters.to_stride != 1) return 1;
  const Strides sizes = {parameters.rows, parameters.columns};
  const native::Iteration table(sizes, std::array{Strides{parameters.row_stride, 1}});
  int64_t bytes =
      bytes_of_words(table, element, std::array<const void* const, 1>{parameters.table});
  for (int64_t d = 0; d < parameters.places.dims; ++d)
    while (bytes > element && parameters.places.strides[d][1] * element % bytes != 0) bytes /= 2;
  while (bytes > element && (reinterpret_cast<uintptr_t>(parameters.to) % bytes != 0 ||
                             parameters.columns * element % bytes != 0))
    bytes /= 2;
  return bytes / element;
}

Made embedding_kernel(Workshop& workshop, Call& call, int32_t) {
  const BoundTensor table = call.tensor("weight"), indices = call.tensor("indices"),
                    to = call.output(0);
  call.require(table.sizes.size() == 2 && table.dtype == to.dtype, "the table must be a matrix");
  const native::Iteration places = index_places(call, indices, to);
  if (call.ok()) call.require(to.sizes.back() == table.sizes[1], "its tensors differ in shape");
  if (!call.ok()) return call.made(nullptr);
  Embedding parameters{
      indices.data,     table.data,     to.data,          walk_of<2>(call, places, 1),
      table.sizes[0],   table.sizes[1], table.strides[0], table.strides[1],
      to.strides.back()};
  if (!call.ok()) return call.made(nullptr);
  const int64_t element = base::byte_size(table.dtype);
  const int64_t together = columns_of_word(parameters, element);
  parameters.columns /= together;
  parameters.row_stride /= together;
  for (auto& strides : parameters.places.strides) strides[1] /= together;
  const std::string index = element_type(indices.dtype), word = word_type(element * together);
  return workshop.kernel(
      source_of("dc_embedding_" + std::string(base::name(indices.dtype)) + "_" +
                    std::to_string(element * together),
                "embedding.h", "Embedding", "embedding<" + index + ", " + word + ">"),
      workshop.blocks_for(parameters.places.count * parameters.columns), parameters);
}

Made embedding_backward_kernel(Workshop& workshop, Call& call, int32_t stream) {
  const BoundTensor g = call.tensor("grad_output"), indices = call.tensor("indices"),
                    to = call.output(0);
  call.require(base::is_floating(g.dtype) && g.dtype != DType::F64,
               "it does not take this element type");
  call.require(to.sizes.size() == 2, "the result must be a matrix");
  const native::Iteration places = index_places(call, indices, g);
  if (call.ok()) call.require(g.sizes.back() == to.sizes[1], "its tensors differ in shape");
  call.require(places.count() < INT32_MAX, "there are more than 2^31 indices");
  native::CopyRegions zero;
  zero.fill(call, native::Region(to), 0.0);
  EmbeddingBackward parameters{};
  parameters.indices = indices.data;
  parameters.g = g.data;
  parameters.to = to.data;
  parameters.places = walk_of<2>(call, places, 1);
  if (!call.ok()) return call.made(nullptr);
  parameters.rows = to.sizes[0];
  parameters.columns = to.sizes[1];
  parameters.row_stride = to.strides[0];
  parameters.to_stride = to.strides[1];
  parameters.g_stride = g.strides.back();
  parameters.padding = call.integer("padding_idx", -1);
  parameters.by_frequency = call.integer("scale_grad_by_freq", 0) != 0;
  DC_ASSIGN_OR_RETURN(
      std::byte* const links,
      workshop.scratch(stream, places.count() * static_cast<int64_t>(sizeof(int32_t))));
  parameters.links = reinterpret_cast<int32_t*>(links);
  DC_ASSIGN_OR_RETURN(std::vector<Launch> launches, launches_of(workshop, call, zero));
  DC_ASSIGN_OR_RETURN(
      Launch find, workshop.launch(source_for({indices.dtype}, "dc_embedding_links", "embedding.h",
                                              "EmbeddingBackward", "embedding_links"),
                                   workshop.blocks_for(places.count() * kLinkThreads), parameters));
  launches.push_back(std::move(find));
  DC_ASSIGN_OR_RETURN(
      Launch add,
      workshop.launch(
          source_for({indices.dtype, to.dtype, g.dtype}, "dc_embedding_gradients", "embedding.h",
                     "EmbeddingBackward", "embedding_gradients"),
          workshop.blocks_for(places.count() *
                              ((parameters.columns + kColumnsOfGradient - 1) / kColumnsOfGradient)),
          parameters));
  launches.push_back(std::move(add));
  return workshop.kernel(std::move(launches));
}

KernelSource source_by_index(const std::string& function, const std::string& parameters,
                             DType index, DType element, bool as_words) {
  const int64_t bytes = base::byte_size(element);
  const std::string type = as_words ? word_type(bytes) : element_type(element);
  const std::string of = as_words ? std::to_string(bytes) : std::string(base::name(element));
  return source_of("dc_" + function + "_" + std::string(base::name(index)) + "_" + of, "gather.h",
                   parameters, function + "<" + element_type(index) + ", " + type + ">");
}

// chosen[index along dim] for every index; `indices` as large as the result.
Made gather_of(Workshop& workshop, Call& call, const BoundTensor& indices,
               const BoundTensor& chosen, const BoundTensor& to, size_t dim) {
  check_indices(call, indices);
  call.require(chosen.dtype == to.dtype, "the result has another element type");
  call.require(chosen.sizes.size() == to.sizes.size(), "its tensors differ in dims");
  if (!call.ok()) return call.made(nullptr);
  Strides chosen_strides(chosen.strides.begin(), chosen.strides.end());
  for (size_t d = 0; d < to.sizes.size(); ++d)
    call.require(d == dim || to.sizes[d] <= chosen.sizes[d],
                 "there are more indices than elements");
  if (!chosen_strides.empty()) chosen_strides[dim] = 0;
  const native::Iteration iteration(
      to.sizes,
      std::array{Strides(to.strides.begin(), to.strides.end()),
                 Strides(indices.strides.begin(), indices.strides.end()), chosen_strides});
  const Walk<3> walk = walk_of<3>(call, iteration);
  Gather parameters{indices.data,
                    chosen.data,
                    to.data,
                    walk,
                    chosen.sizes.empty() ? 1 : chosen.sizes[dim],
                    chosen.sizes.empty() ? 0 : chosen.strides[dim]};
  // Of the iteration the result is the first tensor, so that neighbouring threads write neighbours.
  for (auto& strides : parameters.walk.strides) {
    const int64_t to_stride = strides[0];
    strides[0] = strides[1], strides[1] = strides[2], strides[2] = to_stride;
  }
  if (!call.ok()) return call.made(nullptr);
  return workshop.kernel(source_by_index("gather", "Gather", indices.dtype, to.dtype, true),
                         workshop.blocks_for(walk.count), parameters);
}

Made gather_kernel(Workshop& workshop, Call& call, int32_t) {
  const BoundTensor self = call.tensor("self"), index = call.tensor("index"), to = call.output(0);
  call.same_sizes(index, to);
  return gather_of(workshop, call, index, self, to, call.dim("dim", self));
}

Made index_select_kernel(Workshop& workshop, Call& call, int32_t) {
  const BoundTensor self = call.tensor("self"), index = call.tensor("index"), to = call.output(0);
  const size_t dim = call.dim("dim", self);
  call.require(index.sizes.size() <= 1 && !to.sizes.empty(), "its tensors do not fit each other");
  call.same_sizes(self, to, dim);
  if (!call.ok()) return call.made(nullptr);
  call.require(to.sizes[dim] == index.numel(), "the result does not fit the indices");
  // As large as the result.
  Strides strides(to.sizes.size(), 0);
  strides[dim] = index.sizes.empty() ? 0 : index.strides[0];
  const BoundTensor all{index.data, index.dtype, to.sizes, strides};
  return gather_of(workshop, call, all, self, to, dim);
}

Made scatter_kernel(Workshop& workshop, Call& call, bool adds) {
  const BoundTensor self = call.tensor("self"), index = call.tensor("index"), to = call.output(0);
  const bool has_src = call.is_tensor("src");
  const BoundTensor src = has_src ? call.tensor("src") : BoundTensor();
  const size_t dim = call.dim("dim", self), dims = index.sizes.size();
  check_indices(call, index);
  call.require(self.dtype == to.dtype && (!has_src || src.dtype == to.dtype),
               "its tensors have several element types");
  call.same_sizes(self, to);
  call.require(to.sizes.size() == dims && (!has_src || src.sizes.size() == dims),
               "its tensors differ in dims");
  if (!call.ok()) return call.made(nullptr);
  native::CopyRegions copy;
  copy.copy(call, native::Region(to), native::Region(self));
  const auto strides_of = [](const BoundTensor& tensor) {
    return Strides(tensor.strides.begin(), tensor.strides.end());
  };
  Strides sizes(index.sizes.begin(), index.sizes.end());
  for (size_t d = 0; d < dims; ++d)
    call.require((d == dim || sizes[d] <= to.sizes[d]) && (!has_src || sizes[d] <= src.sizes[d]),
                 "there are more indices than elements");
  if (!call.ok()) return call.made(nullptr);
  Scatter parameters{};
  parameters.indices = index.data;
  parameters.to = to.data;
  parameters.from = has_src ? src.data : nullptr;
  parameters.is_floating = base::is_floating(to.dtype);
  parameters.size = 1;
  parameters.lines.length = dims == 0 ? 1 : sizes[dim];
  if (dims > 0) {
    parameters.lines.strides[0] = index.strides[dim];
    parameters.lines.strides[1] = to.strides[dim];
    parameters.lines.strides[2] = has_src ? src.strides[dim] : 0;
    parameters.size = to.sizes[dim];
    sizes[dim] = 1;
  }
  const native::Iteration lines(sizes, std::array{strides_of(index), strides_of(to),
                                                  has_src ? strides_of(src) : Strides(dims)});
  parameters.lines.rows = walk_of<3>(call, lines);
  if (!has_src) {
    const native::Element value = native::element_of(call, to.dtype, "value");
    std::memcpy(&parameters.value, value.bytes.data(), sizeof parameters.value);
  }
  DC_ASSIGN_OR_RETURN(std::vector<Launch> launches, launches_of(workshop, call, copy));
  if (!call.ok()) return call.made(nullptr);
  DC_ASSIGN_OR_RETURN(
      Launch launch, workshop.launch(source_by_index(adds ? "scatter_add" : "scatter", "Scatter",
                                                     index.dtype, to.dtype, !adds),
                                     workshop.blocks_for(parameters.lines.rows.count), parameters));
  launches.push_back(std::move(launch));
  return workshop.kernel(std::move(launches));
}
Made scatter_values_kernel(Workshop& workshop, Call& call, int32_t) {
  return scatter_kernel(workshop, call, false);
}
Made scatter_add_kernel(Workshop& workshop, Call& call, int32_t) {
  return scatter_kernel(workshop, call, true);
}

constexpr ModelKernelRow kIndexRows[] = {
    {"aten.embedding.default", embedding_kernel},
    {"aten.embedding_dense_backward.default", embedding_backward_kernel},
    {"aten.gather.default", gather_kernel},
    {"aten.index_select.default", index_select_kernel},
    {"aten.scatter.src", scatter_values_kernel},
    {"aten.scatter.value", scatter_values_kernel},
    {"aten.scatter_add.default", scatter_add_kernel},
};

}  // namespace

std::span<const ModelKernelRow> index_kernels() { return kIndexRows; }

}  // namespace dc::runtime::kernel::cuda
