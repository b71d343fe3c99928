#include "runtime/kernel/cuda/copy_kernels.h"

#include <algorithm>
#include <array>

#include "runtime/kernel/cuda/element_type.h"
#include "runtime/kernel/cuda/hand_source.h"
#include "runtime/kernel/cuda/kernels/copy_parameters.h"
#include "runtime/kernel/cuda/walks.h"
#include "runtime/kernel/native/copies/regions.h"
#include "runtime/kernel/native/registry.h"

namespace dc::runtime::kernel::cuda {
namespace {

using base::DType;
using base::Result;
using native::Call;
using native::CopyRegions;
using native::Made;

constexpr int64_t kMostWordBytes = sizeof(Word16);

KernelSource source_of_words(const std::string& function, const std::string& parameters,
                             int64_t bytes, int tensors) {
  const std::string word = word_type(bytes);
  return source_of("dc_" + function + "_" + std::to_string(bytes), "copies.h", parameters,
                   function + "<" + word + (tensors == 2 ? ", " + word : "") + ">");
}

Result<Launch> launch_of(Workshop& workshop, Call& call, const CopyRegions::Fill& fill) {
  const void* const tensors[] = {fill.to};
  const int64_t bytes = bytes_of_words(fill.iteration, fill.element, tensors);
  FillRegion parameters{{}, fill.to, walk_of<1>(call, fill.iteration)};
  if (!call.ok()) return call.made(nullptr).status();
  parameters.walk = in_words(parameters.walk, bytes / fill.element);
  std::array<std::byte, kMostWordBytes> value{};
  for (int64_t at = 0; at < kMostWordBytes; at += fill.element)
    std::copy_n(fill.value.bytes.begin(), fill.element, value.begin() + at);
  std::memcpy(&parameters.value, value.data(), sizeof parameters.value);
  return workshop.launch(source_of_words("fill_region", "FillRegion", bytes, 1),
                         workshop.blocks_for(parameters.walk.count), parameters);
}

Result<Launch> launch_of(Workshop& workshop, Call& call, const CopyRegions::Copy& copy) {
  CopyRegion parameters{copy.to, copy.from, walk_of<2>(call, copy.iteration)};
  if (!call.ok()) return call.made(nullptr).status();
  if (copy.converts)
    return workshop.launch(source_for({copy.to_dtype, copy.from_dtype}, "dc_copy_region",
                                      "copies.h", "CopyRegion", "copy_region"),
                           workshop.blocks_for(parameters.walk.count), parameters);
  const void* const tensors[] = {copy.to, copy.from};
  const int64_t bytes = bytes_of_words(copy.iteration, copy.to_element, tensors);
  parameters.walk = in_words(parameters.walk, bytes / copy.to_element);
  return workshop.launch(source_of_words("copy_region", "CopyRegion", bytes, 2),
                         workshop.blocks_for(parameters.walk.count), parameters);
}

// What the CPU's kernel of the operator moves.
Made regions_kernel(Workshop& workshop, Call& call, int32_t) {
  native::Factory factory = nullptr;
  for (const auto rows : {native::copy_kernels(), native::diagonal_kernels()}) {
    const auto row = std::ranges::find(rows, call.op(), &native::Row::op);
    if (row != rows.end()) factory = row->factory;
  }
  DC_ASSIGN_OR_RETURN(const std::unique_ptr<Kernel> on_cpu, factory(call));
  DC_ASSIGN_OR_RETURN(std::vector<Launch> launches,
                      launches_of(workshop, call, static_cast<const CopyRegions&>(*on_cpu)));
  return workshop.kernel(std::move(launches));
}

// The CPU's copies are one for each row.
Made triangle_kernel(Workshop& workshop, Call& call, int32_t) {
  const BoundTensor from = call.tensor("self"), to = call.output(0);
  const size_t dims = to.sizes.size();
  call.require(dims >= 2 && from.dtype == to.dtype, "it needs two dims, and one element type");
  call.same_sizes(from, to);
  if (!call.ok()) return call.made(nullptr);
  const auto outer = [&](std::span<const int64_t> all) {
    return std::vector<int64_t>(all.begin(), all.end() - 2);
  };
  const native::Iteration matrices(to.sizes.first(dims - 2),
                                   std::array{outer(to.strides), outer(from.strides)});
  const Triangle parameters{
      to.data,
      from.data,
      walk_of<2>(call, matrices),
      to.sizes[dims - 2],
      to.sizes[dims - 1],
      std::clamp(call.integer("diagonal", 0), -to.sizes[dims - 2], to.sizes[dims - 1]),
      to.strides[dims - 2],
      to.strides[dims - 1],
      from.strides[dims - 2],
      from.strides[dims - 1],
      call.op() == "aten.tril.default"};
  if (!call.ok()) return call.made(nullptr);
  return workshop.kernel(source_of_words("triangle", "Triangle", base::byte_size(to.dtype), 1),
                         workshop.blocks_for(to.numel()), parameters);
}

Made arange_kernel(Workshop& workshop, Call& call, int32_t) {
  const BoundTensor to = call.output(0);
  call.require(to.sizes.size() <= 1, "its result must have one dim");
  const bool is_floating = base::is_floating(to.dtype);
  const Arange parameters{to.data,
                          to.numel(),
                          to.sizes.empty() ? 1 : to.strides[0],
                          is_floating ? 0 : call.scalar<int64_t>("start", 0),
                          is_floating ? 0 : call.scalar<int64_t>("step", 1),
                          is_floating ? call.scalar<double>("start", 0) : 0,
                          is_floating ? call.scalar<double>("step", 1) : 0};
  if (!call.ok()) return call.made(nullptr);
  return workshop.kernel(source_for({to.dtype}, "dc_arange", "copies.h", "Arange", "arange"),
                         workshop.blocks_for(to.numel()), parameters);
}

}  // namespace

const char* word_type(int64_t bytes) {
  switch (bytes) {
    case 1:
      return "scalar::uint8_t";
    case 2:
      return "scalar::uint16_t";
    case 4:
      return "scalar::uint32_t";
    case 8:
      return "scalar::uint64_t";
    default:
      return "Word16";
  }
}

int64_t bytes_of_words(const native::Iteration& iteration, int64_t element,
                       std::span<const void* const> tensors) {
  const auto dims = iteration.dims();
  if (dims.empty()) return element;
  const auto consist_of = [&](int64_t bytes) {
    const native::Iteration::Dim& row = dims.back();
    if (row.size * element % bytes != 0) return false;
    for (size_t t = 0; t < tensors.size(); ++t) {
      if (row.strides[t] != 1 || reinterpret_cast<uintptr_t>(tensors[t]) % bytes != 0) return false;
      for (size_t d = 0; d + 1 < dims.size(); ++d)
        if (dims[d].strides[t] * element % bytes != 0) return false;
    }
    return true;
  };
  for (int64_t bytes = kMostWordBytes; bytes > element; bytes /= 2)
    if (consist_of(bytes)) return bytes;
  return element;
}

Result<std::vector<Launch>> launches_of(Workshop& workshop, Call& call,
                                        const CopyRegions& regions) {
  std::vector<Launch> launches;
  for (const CopyRegions::Fill& fill : regions.fills()) {
    DC_ASSIGN_OR_RETURN(Launch launch, launch_of(workshop, call, fill));
    launches.push_back(std::move(launch));
  }
  for (const CopyRegions::Copy& copy : regions.copies()) {
    DC_ASSIGN_OR_RETURN(Launch launch, launch_of(workshop, call, copy));
    launches.push_back(std::move(launch));
  }
  return launches;
}

StepKernel find_copy_kernel(std::string_view op) {
  if (op == "aten.tril.default" || op == "aten.triu.default") return triangle_kernel;
  if (op.starts_with("aten.arange.")) return arange_kernel;
  for (const auto rows : {native::copy_kernels(), native::diagonal_kernels()})
    if (std::ranges::find(rows, op, &native::Row::op) != rows.end()) return regions_kernel;
  return nullptr;
}

}  // namespace dc::runtime::kernel::cuda
