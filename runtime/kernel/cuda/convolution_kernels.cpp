// Convolutions of one to three dims, also transposed and in groups, and their gradients.
//
// A transposed convolution is the way back of another one: what it takes are that one's maps, and
// what it gives is its image (kernels/convolution_parameters.h).
#include <algorithm>
#include <array>
#include <optional>

#include "runtime/kernel/cuda/block.h"
#include "runtime/kernel/cuda/element_type.h"
#include "runtime/kernel/cuda/hand_source.h"
#include "runtime/kernel/cuda/kernels/convolution_parameters.h"
#include "runtime/kernel/cuda/model_kernels.h"
#include "runtime/kernel/cuda/reduce_kernels.h"
#include "runtime/kernel/cuda/walks.h"
#include "runtime/kernel/native/convolution_shape.h"
#include "src/base/shape.h"

namespace dc::runtime::kernel::cuda {
namespace {

using base::DType;
using base::Result;
using base::Status;
using native::Call;
using native::Made;

int64_t rounded_quotient(int64_t count, int64_t size) { return (count + size - 1) / size; }

ConvolvedTensor convolved(const BoundTensor& tensor, int64_t groups) {
  ConvolvedTensor made{};
  const size_t missing = 2 + kConvolvedDims - tensor.sizes.size();
  made.data = tensor.data;
  made.sample = tensor.strides[0];
  made.channel = tensor.strides[1];
  made.group = tensor.sizes[1] / groups * made.channel;
  for (size_t d = 2; d < tensor.sizes.size(); ++d) made.dims[d - 2 + missing] = tensor.strides[d];
  return made;
}

class ConvolutionMaker {
 public:
  ConvolutionMaker(Workshop& workshop, Call& call, int32_t stream)
      : workshop_(workshop), call_(call), stream_(stream) {}

  Made forward() {
    const BoundTensor x = call_.tensor("input"), y = call_.output(0);
    const auto bias = call_.tensor_if("bias");
    if (!read(x, y)) return call_.made(nullptr);
    if (bias) check_bias(*bias, y);
    if (!call_.ok()) return call_.made(nullptr);
    DC_RETURN_IF_ERROR(add_convolution(x, y, bias, shape_.transposed));
    return workshop_.kernel(std::move(launches_));
  }

  Made backward() {
    const BoundTensor x = call_.tensor("input"), g = call_.tensor("grad_output");
    if (!read(x, g)) return call_.made(nullptr);
    const auto to_x = output_if(0), to_filters = output_if(1), to_bias = output_if(2);
    if (to_x) call_.same_sizes(*to_x, x);
    if (to_filters) call_.same_sizes(*to_filters, filters_);
    for (const auto& to : {to_x, to_filters})
      call_.require(!to || to->dtype == x.dtype, "the element types differ");
    if (to_bias) check_bias(*to_bias, g);
    if (!call_.ok()) return call_.made(nullptr);
    if (to_x) DC_RETURN_IF_ERROR(add_convolution(g, *to_x, {}, !shape_.transposed));
    if (to_filters) {
      DC_RETURN_IF_ERROR(shape_.transposed ? add_filter_gradient(g, x, *to_filters)
                                           : add_filter_gradient(x, g, *to_filters));
    }
    if (to_bias) {
      std::vector<int64_t> dims = {0};
      for (size_t d = 2; d < g.sizes.size(); ++d) dims.push_back(static_cast<int64_t>(d));
      DC_ASSIGN_OR_RETURN(Launch sum, sum_launch(workshop_, call_, g, *to_bias, dims));
      launches_.push_back(std::move(sum));
    }
    return workshop_.kernel(std::move(launches_));
  }

 private:
  std::optional<BoundTensor> output_if(size_t index) {
    return call_.has_result(index) ? std::optional(call_.output(index)) : std::nullopt;
  }

  // y: the result, or a gradient of its shape.
  bool read(const BoundTensor& x, const BoundTensor& y) {
    filters_ = call_.tensor("weight");
    const auto shape = native::convolution_shape(call_, x, filters_, y);
    call_.require(base::is_floating(x.dtype), "convolutions are of floating-point elements");
    call_.require(filters_.dtype == x.dtype && y.dtype == x.dtype, "the element types differ");
    for (const BoundTensor& tensor : {x, y})
      call_.require(tensor.numel() <= INT32_MAX, "on GPUs it takes at most 2^31 elements");
    if (!shape || !call_.ok()) return false;
    shape_ = *shape;
    const BoundTensor &image = shape_.transposed ? y : x, &maps = shape_.transposed ? x : y;
    for (ConvolvedDim& dim : dims_) dim = {1, 1, 1, 1, 0, 1};
    const size_t dims = x.sizes.size() - 2;
    for (size_t d = 0; d < dims; ++d)
      dims_[kConvolvedDims - dims + d] = {static_cast<int32_t>(image.sizes[d + 2]),
                                          static_cast<int32_t>(maps.sizes[d + 2]),
                                          static_cast<int32_t>(filters_.sizes[d + 2]),
                                          static_cast<int32_t>(shape_.strides[d]),
                                          static_cast<int32_t>(shape_.padding_before[d]),
                                          static_cast<int32_t>(shape_.dilations[d])};
    return true;
  }

  void check_bias(const BoundTensor& bias, const BoundTensor& y) {
    call_.require(bias.sizes.size() == 1 && bias.sizes[0] == y.sizes[1] && bias.dtype == y.dtype,
                  "the bias does not fit");
  }

  KernelSource source(const std::string& function, int rows, const char* parameters) const {
    const DType dtype = filters_.dtype;
    const std::string name =
        "dc_" + function + "_" + std::to_string(rows) + "_" + std::string(base::name(dtype));
    return source_of(name, "convolution.h", parameters,
                     function + "<" + element_type(dtype) + ", " + std::to_string(rows) + ">");
  }

  // Rows of a thread, of which a tile has kSideThreads times as many: the most that leave no more
  // of the last tile without channels than fewer would.
  static int rows_of_thread(int64_t channels) {
    if (channels <= int64_t{kSideThreads} * kFewRows) return kFewRows;
    static_assert(kMostRows == 2 * kManyRows);
    return rounded_quotient(channels, int64_t{kSideThreads} * kManyRows) % 2 == 0 ? kMostRows
                                                                                  : kManyRows;
  }

  Status add_convolution(const BoundTensor& source_tensor, const BoundTensor& result,
                         const std::optional<BoundTensor>& bias, bool to_image) {
    Convolution parameters{};
    std::ranges::copy(dims_, parameters.dims);
    const int64_t groups = shape_.groups;
    parameters.source = convolved(source_tensor, groups);
    parameters.result = convolved(result, groups);
    // As of a tensor [maps, channels of a group, dims].
    const ConvolvedTensor filters = convolved(filters_, 1);
    parameters.filters.data = filters.data;
    parameters.filters.map = filters.sample;
    parameters.filters.group = filters_.sizes[0] / groups * filters.sample;
    parameters.filters.channel = filters.channel;
    std::ranges::copy(filters.dims, parameters.filters.dims);
    if (bias) {
      parameters.bias = bias->data;
      parameters.bias_stride = bias->strides[0];
    }
    parameters.batch = result.sizes[0];
    parameters.groups = groups;
    parameters.source_channels = source_tensor.sizes[1] / groups;
    parameters.result_channels = result.sizes[1] / groups;
    const int rows = rows_of_thread(parameters.result_channels);
    int64_t classes = 1, places = parameters.batch;  // of each class, or of the largest
    for (const ConvolvedDim& dim : dims_) {
      classes *= to_image ? image_classes(dim) : 1;
      places *= to_image ? rounded_quotient(dim.image, dim.stride) : dim.maps;
    }
    const int64_t tiles =
        groups * classes * rounded_quotient(places, kTileColumns) *
        rounded_quotient(parameters.result_channels, int64_t{kSideThreads} * rows);
    DC_ASSIGN_OR_RETURN(Launch launch,
                        workshop_.launch(to_image ? source("convolve_to_image", rows, "Convolution")
                                                  : source("convolve_to_maps", rows, "Convolution"),
                                         workshop_.blocks_for(tiles * kBlockThreads), parameters));
    launches_.push_back(std::move(launch));
    return {};
  }

  // As many parts as make about kBlocks blocks, none of fewer than kLeastLength places: the order
  // of sums depends on no GPU.
  static void split_places(FilterGradient& parameters, int64_t tiles, int64_t places) {
    constexpr int64_t kBlocks = 512, kLeastLength = 256;
    const int64_t wanted =
        std::clamp<int64_t>(kBlocks / tiles, 1, rounded_quotient(places, kLeastLength));
    parameters.length = rounded_quotient(rounded_quotient(places, wanted), kTileTerms) * kTileTerms;
    parameters.parts = rounded_quotient(places, parameters.length);
  }

  Status add_filter_gradient(const BoundTensor& image, const BoundTensor& maps,
                             const BoundTensor& to) {
    FilterGradient parameters{};
    std::ranges::copy(dims_, parameters.dims);
    parameters.image = convolved(image, shape_.groups);
    parameters.maps = convolved(maps, shape_.groups);
    parameters.batch = image.sizes[0];
    parameters.groups = shape_.groups;
    parameters.image_channels = image.sizes[1] / shape_.groups;
    parameters.maps_channels = maps.sizes[1] / shape_.groups;
    const int rows = rows_of_thread(parameters.maps_channels);
    const int64_t tiles = shape_.groups *
                          rounded_quotient(parameters.maps_channels, int64_t{kSideThreads} * rows) *
                          rounded_quotient(to.numel() / to.sizes[0], kTileColumns);
    split_places(parameters, tiles, maps.numel() / maps.sizes[1]);
    const int64_t element =
        to.dtype == DType::F64 ? int64_t{sizeof(double)} : int64_t{sizeof(float)};
    DC_ASSIGN_OR_RETURN(std::byte* const sums,
                        workshop_.scratch(stream_, parameters.parts * to.numel() * element));
    parameters.sums = sums;
    DC_ASSIGN_OR_RETURN(
        Launch gradients,
        workshop_.launch(source("filter_gradients", rows, "FilterGradient"),
                         workshop_.blocks_for(parameters.parts * tiles * kBlockThreads),
                         parameters));
    launches_.push_back(std::move(gradients));
    const native::Iteration elements(
        to.sizes, std::array{base::contiguous_strides(to.sizes),
                             std::vector<int64_t>(to.strides.begin(), to.strides.end())});
    const FilterSum sum{sums, to.data, walk_of<2>(call_, elements), parameters.parts};
    if (!call_.ok()) return call_.made(nullptr).status();
    DC_ASSIGN_OR_RETURN(Launch add,
                        workshop_.launch(source_for({to.dtype}, "dc_filter_sums", "convolution.h",
                                                    "FilterSum", "filter_sums"),
                                         workshop_.blocks_for(to.numel()), sum));
    launches_.push_back(std::move(add));
    return {};
  }

  Workshop& workshop_;
  Call& call_;
  int32_t stream_;
  BoundTensor filters_;
  native::ConvolutionShape shape_;
  ConvolvedDim dims_[kConvolvedDims];
  std::vector<Launch> launches_;
};

Made convolution_kernel(Workshop& workshop, Call& call, int32_t stream) {
  return ConvolutionMaker(workshop, call, stream).forward();
}
Made convolution_backward_kernel(Workshop& workshop, Call& call, int32_t stream) {
  return ConvolutionMaker(workshop, call, stream).backward();
}

constexpr ModelKernelRow kConvolutionRows[] = {
    {"aten.convolution.default", convolution_kernel},
    {"aten.convolution_backward.default", convolution_backward_kernel},
};

}  // namespace

std::span<const ModelKernelRow> convolution_kernels() { return kConvolutionRows; }

}  // namespace dc::runtime::kernel::cuda
