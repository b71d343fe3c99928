// index.Tensor, index_put and index_add: several index tensors, broadcast to one shape, that choose
// positions of some dims; the other dims are whole.
#include "runtime/kernel/cuda/copy_kernels.h"
#include "runtime/kernel/cuda/element_type.h"
#include "runtime/kernel/cuda/hand_source.h"
#include "runtime/kernel/cuda/kernels/index_parameters.h"
#include "runtime/kernel/cuda/model_kernels.h"
#include "runtime/kernel/cuda/walks.h"
#include "runtime/kernel/native/copies/regions.h"
#include "runtime/kernel/native/indexing/index_call.h"

namespace dc::runtime::kernel::cuda {
namespace {

using base::DType;
using native::Call;
using native::Made;

IndexTensors parameters_of(Call& call, const native::IndexCall& of) {
  IndexTensors parameters{};
  call.require(of.indices.size() <= kMostIndices, "on GPUs it takes at most four indices");
  if (!call.ok()) return parameters;
  for (const native::DimIndices& dim : of.indices)
    parameters.indices[parameters.count++] = {dim.tensor.data, dim.tensor.dtype == DType::I64,
                                              dim.step, dim.size};
  parameters.choices = walk_of<1 + kMostIndices>(call, of.choices, 1);
  parameters.part = walk_of<2>(call, of.part);
  parameters.chosen = of.chosen.data;
  parameters.other = of.other.data;
  parameters.factor = of.factor;
  parameters.has_nan = base::is_floating(of.chosen.dtype) && of.chosen.numel() > 0;
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
  const native::IndexCall of = native::read_index(call);
  const IndexTensors parameters = parameters_of(call, of);
  if (!call.ok()) return call.made(nullptr);
  return workshop.kernel(source_of_index("index_read", of.other.dtype, true),
                         workshop.blocks_for(of.other.numel()), parameters);
}

// The result is as before, and then what is chosen of it changes.
Made write_kernel(Workshop& workshop, Call& call, const native::IndexCall& of, int32_t stream) {
  IndexTensors parameters = parameters_of(call, of);
  const int64_t choices = parameters.choices.count;
  call.require(choices < INT32_MAX, "there are more than 2^31 indices");
  native::CopyRegions copy;
  if (call.ok()) copy.copy(call, native::Region(of.chosen), native::Region(*of.before));
  if (!call.ok()) return call.made(nullptr);
  DC_ASSIGN_OR_RETURN(std::byte* const links,
                      workshop.scratch(stream, choices * static_cast<int64_t>(sizeof(int32_t))));
  parameters.links = reinterpret_cast<int32_t*>(links);
  DC_ASSIGN_OR_RETURN(std::vector<Launch> launches, launches_of(workshop, call, copy));
  DC_ASSIGN_OR_RETURN(
      Launch find,
      workshop.launch(source_of("dc_index_links", "index.h", "IndexTensors", "index_links"),
                      workshop.blocks_for(choices * kLinkThreads), parameters));
  launches.push_back(std::move(find));
  const std::string function = of.accumulates ? "index_add" : "index_put";
  DC_ASSIGN_OR_RETURN(
      Launch write,
      workshop.launch(source_of_index(function, of.chosen.dtype, !of.accumulates),
                      workshop.blocks_for(choices * parameters.part.count), parameters));
  launches.push_back(std::move(write));
  return workshop.kernel(std::move(launches));
}

Made index_put_kernel(Workshop& workshop, Call& call, int32_t stream) {
  return write_kernel(workshop, call, native::read_index_put(call), stream);
}
Made index_add_kernel(Workshop& workshop, Call& call, int32_t stream) {
  return write_kernel(workshop, call, native::read_index_add(call), stream);
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
