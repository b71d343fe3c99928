// Convolutions and their gradients as products of matrices of which the right one is never stored
// (implicit GEMM: Chetlur et al., cuDNN, 2014). A block makes a tile of results from tiles of both
// matrices in shared memory; a thread has kRows x kThreadColumns of them in registers.
//
// Sums are in f32, in f64 for f64, in the order of filter positions and then of channels; those of
// a filter's gradient in the order of places within a part, the parts in order in f64.
#pragma once

#include "runtime/kernel/cuda/block.h"
#include "runtime/kernel/cuda/kernel_words.h"
#include "runtime/kernel/cuda/kernels/convolution_parameters.h"
#include "runtime/kernel/cuda/kernels/numbers.h"

namespace dc::runtime::kernel::cuda {

inline constexpr int kThreadColumns = kTileColumns / kSideThreads;
static_assert(kSideThreads * kSideThreads == kBlockThreads);

template <int kRows>
inline constexpr int kTileRows = kSideThreads* kRows;

// Rows have a gap, so that threads that write a column do not meet in a bank.
template <typename C, int kRows>
struct ProductTiles {
  alignas(16) C left[kTileTerms][kTileRows<kRows> + 4];
  alignas(16) C right[kTileTerms][kTileColumns + 4];
};

// Where a thread's results are in the tile.
template <int kRows>
inline int row_of_thread(int r) {
  return static_cast<int>(threadIdx.x) / kSideThreads * kRows + r;
}
inline int column_of_thread(int c) {
  return static_cast<int>(threadIdx.x) % kSideThreads + c * kSideThreads;
}

template <typename C, int kRows>
inline void add_products(const ProductTiles<C, kRows>& tiles, C (&sums)[kRows][kThreadColumns]) {
#pragma unroll
  for (int term = 0; term < kTileTerms; ++term) {
    C right[kThreadColumns];
    for (int c = 0; c < kThreadColumns; ++c) right[c] = tiles.right[term][column_of_thread(c)];
    for (int r = 0; r < kRows; ++r) {
      const C left = tiles.left[term][row_of_thread<kRows>(r)];
      for (int c = 0; c < kThreadColumns; ++c) sums[r][c] = scalar::fma(left, right[c], sums[r][c]);
    }
  }
}

template <typename C, int kRows>
inline void clear_sums(C (&sums)[kRows][kThreadColumns]) {
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < kThreadColumns; ++c) sums[r][c] = 0;
}

// A place of a batch of images or maps.
struct Position {
  int64_t sample;
  int32_t at[kConvolvedDims];
};

// Places that are `steps` apart in each dim, from `first` on, by their number in row-major order,
// which the host sees to that it fits 31 bits.
struct PlaceClass {
  int32_t counts[kConvolvedDims], steps[kConvolvedDims], first[kConvolvedDims];

  int64_t places(int64_t batch) const {
    for (const int32_t count : counts) batch *= count;
    return batch;
  }
  Position position(int64_t number) const {
    Position position{};
    auto rest = static_cast<uint32_t>(number);
    for (int d = kConvolvedDims; d-- > 0;) {
      const auto count = static_cast<uint32_t>(counts[d]);
      const uint32_t next = rest / count;
      position.at[d] = first[d] + static_cast<int32_t>(rest - next * count) * steps[d];
      rest = next;
    }
    position.sample = rest;
    return position;
  }
};
inline PlaceClass all_maps(const ConvolvedDim (&dims)[kConvolvedDims]) {
  PlaceClass all{};
  for (int d = 0; d < kConvolvedDims; ++d) {
    all.counts[d] = dims[d].maps;
    all.steps[d] = 1;
  }
  return all;
}
// Of an image: the places that leave the same remainders by the strides, since these decide which
// filter positions reach them.
inline PlaceClass image_class(const ConvolvedDim (&dims)[kConvolvedDims], int64_t number) {
  PlaceClass made{};
  for (int d = kConvolvedDims; d-- > 0;) {
    const int64_t classes = image_classes(dims[d]);
    made.steps[d] = dims[d].stride;
    made.first[d] = static_cast<int32_t>(number % classes);
    made.counts[d] = (dims[d].image - made.first[d] + dims[d].stride - 1) / dims[d].stride;
    number /= classes;
  }
  return made;
}
inline bool reaches(const ConvolvedDim (&dims)[kConvolvedDims], const PlaceClass& image,
                    const int32_t (&filter)[kConvolvedDims]) {
  bool all = true;
  for (int d = 0; d < kConvolvedDims; ++d)
    all &= (image.first[d] + dims[d].padding - filter[d] * dims[d].dilation) % dims[d].stride == 0;
  return all;
}
inline int64_t place_of(const ConvolvedTensor& tensor, const Position& position) {
  int64_t place = position.sample * tensor.sample;
  for (int d = 0; d < kConvolvedDims; ++d) place += position.at[d] * tensor.dims[d];
  return place;
}

// What a filter position reads for a place of the maps; false if that is padding.
inline bool in_image(const ConvolvedDim& dim, int32_t maps, int32_t filter, int32_t* image) {
  *image = maps * dim.stride - dim.padding + filter * dim.dilation;
  return *image >= 0 && *image < dim.image;
}
// The place of the maps for which it reads a place of the image; false if there is none.
inline bool in_maps(const ConvolvedDim& dim, int32_t image, int32_t filter, int32_t* maps) {
  const int32_t distance = image + dim.padding - filter * dim.dilation;
  *maps = distance / dim.stride;
  return distance >= 0 && *maps * dim.stride == distance && *maps < dim.maps;
}

// Where the source's first channel has what a filter position needs for a result; -1: nowhere.
template <bool kToImage>
inline int64_t source_place(const Convolution& of, const Position& result,
                            const int32_t (&filter)[kConvolvedDims]) {
  Position source{result.sample, {}};
  for (int d = 0; d < kConvolvedDims; ++d) {
    const bool exists = kToImage ? in_maps(of.dims[d], result.at[d], filter[d], &source.at[d])
                                 : in_image(of.dims[d], result.at[d], filter[d], &source.at[d]);
    if (!exists) return -1;
  }
  return place_of(of.source, source);
}

// The tile of results of channels from `first_channel` on, at the places from `first_place` on.
template <typename T, int kRows, bool kToImage>
class ConvolutionTile {
 public:
  using C = Computed<T>;
  static constexpr int kReaders = static_cast<int>(kBlockThreads) / kTileColumns;

  ConvolutionTile(const Convolution& of, const PlaceClass& places, int64_t group,
                  int64_t first_channel, int64_t first_place)
      : of_(of),
        class_(places),
        source_(static_cast<const T*>(of.source.data) + group * of.source.group),
        filters_(static_cast<const T*>(of.filters.data) + group * of.filters.group),
        group_(group),
        first_channel_(first_channel),
        first_place_(first_place),
        places_(places.places(of.batch)) {
    const int64_t own = first_place + column();
    exists_ = own < places_;
    own_ = places.position(exists_ ? own : 0);
    clear_sums(sums_);
  }

  void add(ProductTiles<C, kRows>& tiles, const int32_t (&filter)[kConvolvedDims]) {
    const int64_t place = exists_ ? source_place<kToImage>(of_, own_, filter) : -1;
    int64_t of_filter = 0;
    for (int d = 0; d < kConvolvedDims; ++d) of_filter += filter[d] * of_.filters.dims[d];
    for (int64_t first = 0; first < of_.source_channels; first += kTileTerms) {
      for (int i = static_cast<int>(threadIdx.x); i < kTileTerms * kTileRows<kRows>;
           i += static_cast<int>(kBlockThreads)) {
        const int term = i % kTileTerms, row = i / kTileTerms;
        tiles.left[term][row] = filter_at(of_filter, first_channel_ + row, first + term);
      }
      for (int term = static_cast<int>(threadIdx.x) / kTileColumns; term < kTileTerms;
           term += kReaders) {
        const int64_t channel = first + term;
        tiles.right[term][column()] =
            place < 0 || channel >= of_.source_channels
                ? C{0}
                : static_cast<C>(scalar::load(source_[place + channel * of_.source.channel]));
      }
      __syncthreads();
      add_products(tiles, sums_);
      __syncthreads();
    }
  }

  void write() const {
    T* result = static_cast<T*>(of_.result.data) + group_ * of_.result.group;
    const T* bias = static_cast<const T*>(of_.bias);
    for (int c = 0; c < kThreadColumns; ++c) {
      const int64_t number = first_place_ + column_of_thread(c);
      if (number >= places_) continue;
      const int64_t place = place_of(of_.result, class_.position(number));
      for (int r = 0; r < kRows; ++r) {
        const int64_t channel = first_channel_ + row_of_thread<kRows>(r);
        if (channel >= of_.result_channels) continue;
        C sum = sums_[r][c];
        if (bias != nullptr)
          sum += static_cast<C>(
              scalar::load(bias[(group_ * of_.result_channels + channel) * of_.bias_stride]));
        result[place + channel * of_.result.channel] = scalar::store<T>(sum);
      }
    }
  }

 private:
  // Of the right tile, that this thread reads.
  static int column() { return static_cast<int>(threadIdx.x) % kTileColumns; }
  C filter_at(int64_t of_filter, int64_t result_channel, int64_t source_channel) const {
    if (result_channel >= of_.result_channels || source_channel >= of_.source_channels) return 0;
    const int64_t map = kToImage ? source_channel : result_channel,
                  channel = kToImage ? result_channel : source_channel;
    return static_cast<C>(
        scalar::load(filters_[of_filter + map * of_.filters.map + channel * of_.filters.channel]));
  }

  const Convolution& of_;
  const PlaceClass& class_;
  const T *source_, *filters_;
  int64_t group_, first_channel_, first_place_, places_;
  bool exists_;
  Position own_;
  C sums_[kRows][kThreadColumns];
};

// To the maps, or to the image, whose first class has the most places.
template <typename T, int kRows, bool kToImage>
inline void convolve(const Convolution& parameters) {
  __shared__ ProductTiles<Computed<T>, kRows> tiles;
  constexpr int64_t kChannels = kTileRows<kRows>;
  const auto& dims = parameters.dims;
  int64_t classes = 1;
  for (int d = 0; kToImage && d < kConvolvedDims; ++d) classes *= image_classes(dims[d]);
  const int64_t by_channels = (parameters.result_channels + kChannels - 1) / kChannels,
                most = (kToImage ? image_class(dims, 0) : all_maps(dims)).places(parameters.batch),
                by_places = (most + kTileColumns - 1) / kTileColumns;
  for (int64_t i = blockIdx.x; i < parameters.groups * classes * by_places * by_channels;
       i += gridDim.x) {
    const int64_t of_places = i / by_channels, of_class = of_places / by_places,
                  first_place = of_places % by_places * kTileColumns;
    const PlaceClass own = kToImage ? image_class(dims, of_class % classes) : all_maps(dims);
    if (first_place >= own.places(parameters.batch)) continue;
    ConvolutionTile<T, kRows, kToImage> tile(parameters, own, of_class / classes,
                                             i % by_channels * kChannels, first_place);
    int32_t filter[kConvolvedDims];
    for (filter[0] = 0; filter[0] < dims[0].filter; ++filter[0])
      for (filter[1] = 0; filter[1] < dims[1].filter; ++filter[1])
        for (filter[2] = 0; filter[2] < dims[2].filter; ++filter[2])
          if (!kToImage || reaches(dims, own, filter)) tile.add(tiles, filter);
    tile.write();
  }
}

template <typename T, int kRows>
inline void convolve_to_maps(const Convolution& parameters) {
  convolve<T, kRows, false>(parameters);
}
template <typename T, int kRows>
inline void convolve_to_image(const Convolution& parameters) {
  convolve<T, kRows, true>(parameters);
}

// An element of a filter as the columns of its gradient's tiles see it.
struct FilterElement {
  int64_t channel;  // its place in the image; -1 if there is no such element
  int32_t at[kConvolvedDims];
};
inline FilterElement filter_element(const FilterGradient& of, int64_t number) {
  FilterElement element{};
  int64_t rest = number;
  for (int d = kConvolvedDims; d-- > 0;) {
    element.at[d] = static_cast<int32_t>(rest % of.dims[d].filter);
    rest /= of.dims[d].filter;
  }
  element.channel = rest < of.image_channels ? rest * of.image.channel : -1;
  return element;
}

// A part of a tile: rows of maps, columns of a filter's elements, terms of places.
template <typename T, int kRows>
inline void filter_gradients(const FilterGradient& parameters) {
  using C = Computed<T>;
  constexpr int64_t kMaps = kTileRows<kRows>;
  // Neighbouring threads read neighbouring places; each some rows and columns.
  constexpr int kReaders = static_cast<int>(kBlockThreads) / kTileTerms;
  constexpr int kColumns = kTileColumns / kReaders;
  __shared__ ProductTiles<C, kRows> tiles;
  const auto& dims = parameters.dims;
  const int64_t elements =
      parameters.image_channels * dims[0].filter * dims[1].filter * dims[2].filter;
  const int64_t by_maps = (parameters.maps_channels + kMaps - 1) / kMaps;
  const int64_t by_elements = (elements + kTileColumns - 1) / kTileColumns;
  const int64_t tiles_of_part = parameters.groups * by_maps * by_elements;
  const PlaceClass all = all_maps(dims);
  const int64_t places = all.places(parameters.batch);
  const int own_term = static_cast<int>(threadIdx.x) % kTileTerms,
            reader = static_cast<int>(threadIdx.x) / kTileTerms;
  for (int64_t i = blockIdx.x; i < parameters.parts * tiles_of_part; i += gridDim.x) {
    const int64_t part = i / tiles_of_part, tile = i % tiles_of_part, rest = tile / by_maps,
                  group = rest / by_elements, first_map = tile % by_maps * kMaps,
                  first_column = rest % by_elements * kTileColumns;
    const T* image = static_cast<const T*>(parameters.image.data) + group * parameters.image.group;
    const T* maps = static_cast<const T*>(parameters.maps.data) + group * parameters.maps.group;
    FilterElement own[kColumns];
    for (int k = 0; k < kColumns; ++k)
      own[k] = filter_element(parameters, first_column + reader + k * kReaders);
    C sums[kRows][kThreadColumns];
    clear_sums(sums);
    const int64_t begin = part * parameters.length, behind = begin + parameters.length,
                  end = behind < places ? behind : places;
    for (int64_t first = begin; first < end; first += kTileTerms) {
      const bool exists = first + own_term < end;
      const Position at = all.position(exists ? first + own_term : 0);
      const int64_t of_maps = place_of(parameters.maps, at);
      for (int64_t row = reader; row < kMaps; row += kReaders) {
        const int64_t map = first_map + row;
        tiles.left[own_term][row] =
            exists && map < parameters.maps_channels
                ? static_cast<C>(scalar::load(maps[of_maps + map * parameters.maps.channel]))
                : C{0};
      }
      for (int k = 0; k < kColumns; ++k) {
        Position seen{at.sample, {}};
        bool is_read = exists && own[k].channel >= 0;
        for (int d = 0; d < kConvolvedDims; ++d)
          is_read &= in_image(dims[d], at.at[d], own[k].at[d], &seen.at[d]);
        tiles.right[own_term][reader + k * kReaders] =
            is_read ? static_cast<C>(
                          scalar::load(image[own[k].channel + place_of(parameters.image, seen)]))
                    : C{0};
      }
      __syncthreads();
      add_products(tiles, sums);
      __syncthreads();
    }
    C* to = static_cast<C*>(parameters.sums) +
            (part * parameters.groups + group) * parameters.maps_channels * elements;
    for (int r = 0; r < kRows; ++r) {
      const int64_t map = first_map + row_of_thread<kRows>(r);
      for (int c = 0; c < kThreadColumns; ++c) {
        const int64_t element = first_column + column_of_thread(c);
        if (map < parameters.maps_channels && element < elements)
          to[map * elements + element] = sums[r][c];
      }
    }
  }
}

// The sum of the parts of each element.
template <typename T>
inline void filter_sums(const FilterSum& parameters) {
  using C = Computed<T>;
  const C* sums = static_cast<const C*>(parameters.sums);
  T* result = static_cast<T*>(parameters.result);
  for (int64_t i = first_element<int64_t>(); i < parameters.walk.count;
       i += all_threads<int64_t>()) {
    const Places<2> at = places_of(parameters.walk, i);
    double sum = 0;
    for (int64_t part = 0; part < parameters.parts; ++part)
      sum += static_cast<double>(sums[part * parameters.walk.count + at.at[0]]);
    result[at.at[1]] = scalar::store<T>(sum);
  }
}

}  // namespace dc::runtime::kernel::cuda
