// The parameters of the kernels of convolution.h, for those who launch them too.
//
// A convolution has an image [batch, channels, dims], filters [maps, channels of a group, dims] and
// maps [batch, maps, dims]. A transposed one has them too, but the image is its result.
#pragma once

#include "runtime/kernel/cuda/kernels/walk.h"

namespace dc::runtime::kernel::cuda {

using scalar::int32_t;

inline constexpr int kConvolvedDims = 3;  // depth, height, width; those that there are not have 1

// Filter position f reads, for place m of the maps, place m * stride - padding + f * dilation of
// the image.
struct ConvolvedDim {
  int32_t image, maps, filter;  // sizes
  int32_t stride, padding, dilation;
};

// The kinds of an image's places along a dim: by their remainder by the stride.
inline int64_t image_classes(const ConvolvedDim& dim) {
  return dim.stride < dim.image ? dim.stride : dim.image;
}

// Tensors are of the element type that the kernel is for. Channels are those of a group.
struct ConvolvedTensor {
  void* data;
  int64_t sample, group, channel, dims[kConvolvedDims];  // strides
};
struct ConvolvedFilters {
  void* data;
  int64_t group, map, channel, dims[kConvolvedDims];  // strides
};

// From the image to the maps, or back: sums of products over the source's channels and the filters'
// positions.
struct Convolution {
  ConvolvedDim dims[kConvolvedDims];
  ConvolvedTensor source, result;
  ConvolvedFilters filters;
  const void* bias;  // a number for each channel of the result; may be null
  int64_t bias_stride;
  int64_t batch, groups;
  int64_t source_channels, result_channels;
};

// The gradient of the filters: sums over the places of the maps, in parts of `length` places.
struct FilterGradient {
  ConvolvedDim dims[kConvolvedDims];
  ConvolvedTensor image, maps;
  void* sums;  // [parts, filters in row-major order], of the type that is computed with
  int64_t batch, groups, image_channels, maps_channels;
  int64_t parts, length;
};
struct FilterSum {
  const void* sums;
  void* result;
  Walk<2> walk;  // in row-major order: sums of a part, result
  int64_t parts;
};

// The tiles of results, in rows of channels and columns of places or of the filters' elements.
inline constexpr int kTileTerms = 8, kTileColumns = 64;
inline constexpr int kSideThreads = 16;                           // of rows, and of columns
inline constexpr int kFewRows = 1, kManyRows = 4, kMostRows = 8;  // of each thread

}  // namespace dc::runtime::kernel::cuda
