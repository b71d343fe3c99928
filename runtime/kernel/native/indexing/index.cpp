// index.Tensor, index_put and index_add: several index tensors, broadcast to one shape, that choose
// positions of some dims; the other dims are whole.
//
// index_put writes, or adds as index_add does, in f32, f64 or int64, in row-major order of the
// indices: where several choose one position the last one stays.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "runtime/kernel/native/copies/regions.h"
#include "runtime/kernel/native/indexing/index_outside.h"
#include "runtime/kernel/native/registry.h"
#include "runtime/kernel/native/vector_clones.h"
#include "src/base/checked.h"
#include "src/base/shape.h"

namespace dc::runtime::kernel::native {
namespace {

struct IndexTensor {
  std::byte* data = nullptr;
  LoadLanes load = nullptr;
  int64_t element = 8;
  int64_t step = 0, size = 0;  // of the dim that it chooses from
};

// Where the parts chosen from one tensor lie, next to those of another that has them in order.
struct Chosen {
  std::vector<IndexTensor> indices;
  Iteration choices;  // over the indices: row-major, the other tensor, then each index tensor
  Iteration part;     // over the whole dims: the tensor that is chosen from, the other
  std::vector<int64_t> sizes;  // of all that is chosen
};

std::vector<int64_t> broadcast_shape(Call& call,
                                     const std::vector<std::optional<BoundTensor>>& indices) {
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

// `other` has the shape of the result of index.Tensor, or may be broadcast to it.
Chosen choose(Call& call, std::vector<std::optional<BoundTensor>> indices, const BoundTensor& self,
              const BoundTensor& other) {
  Chosen chosen;
  if (!call.ok()) return chosen;
  call.require(indices.size() <= self.sizes.size(), "it has more indices than dims");
  indices.resize(self.sizes.size());
  const std::vector<int64_t> shape = broadcast_shape(call, indices);
  // The dims of the indices are where the first indexed dim was, or in front if others lie between.
  size_t first = self.sizes.size(), last = 0, count = 0;
  for (size_t d = 0; d < indices.size(); ++d) {
    if (!indices[d]) continue;
    first = std::min(first, d);
    last = d;
    ++count;
    call.require(indices[d]->dtype == base::DType::I64 || indices[d]->dtype == base::DType::I32,
                 "only indices of i64 and i32 have a native kernel");
  }
  call.require(count > 0 && count + 2 <= kMaxTensors, "it has none or too many indices");
  if (!call.ok()) return chosen;
  const size_t front = last - first + 1 == count ? first : 0;
  std::vector<int64_t> whole_sizes, whole_strides, result_sizes;
  for (size_t d = 0; d < indices.size(); ++d) {
    if (whole_sizes.size() == front && result_sizes.size() == front)
      result_sizes.insert(result_sizes.end(), shape.begin(), shape.end());
    if (indices[d]) continue;
    whole_sizes.push_back(self.sizes[d]);
    whole_strides.push_back(self.strides[d]);
    result_sizes.push_back(self.sizes[d]);
  }
  if (result_sizes.size() < whole_sizes.size() + shape.size())
    result_sizes.insert(result_sizes.end(), shape.begin(), shape.end());
  const auto strides = broadcast_strides(other, result_sizes);
  call.require(strides.has_value(), "its tensors differ in shape");
  if (!call.ok()) return chosen;
  const auto at = strides->begin() + static_cast<ptrdiff_t>(front);
  const auto behind = at + static_cast<ptrdiff_t>(shape.size());
  std::vector<std::vector<int64_t>> choice{base::contiguous_strides(shape), {at, behind}};
  for (size_t d = 0; d < indices.size(); ++d) {
    if (!indices[d]) continue;
    const BoundTensor& index = *indices[d];
    choice.push_back(*broadcast_strides(index, shape));
    chosen.indices.push_back({static_cast<std::byte*>(index.data), loader(Lane::I64, index.dtype),
                              base::byte_size(index.dtype), self.strides[d], self.sizes[d]});
  }
  std::vector<int64_t> other_whole(strides->begin(), at);
  other_whole.insert(other_whole.end(), behind, strides->end());
  chosen.choices = Iteration(shape, choice);
  chosen.part = Iteration(whole_sizes, std::array{whole_strides, other_whole});
  chosen.sizes = result_sizes;
  call.require(chosen.choices.fits() && chosen.part.fits(), "its tensors have too many dims");
  return chosen;
}

// f(offset in the tensor that is chosen from, offset in the other), for every part.
template <typename F>
base::Status for_each_choice(const Chosen& chosen, std::string_view op,
                             const device::Stream& stream, F&& f) {
  std::array<const std::byte*, kMaxTensors> data{};
  for (size_t k = 0; k < chosen.indices.size(); ++k)
    data[k] = stream.resolve(chosen.indices[k].data);
  base::Status status;
  chosen.choices.for_each_row([&](const Offsets& at) {
    for (int64_t i = 0; i < chosen.choices.inner() && status.ok(); ++i) {
      int64_t offset = 0;
      for (size_t k = 0; k < chosen.indices.size(); ++k) {
        const IndexTensor& tensor = chosen.indices[k];
        const int64_t place = at[k + 2] + i * chosen.choices.inner_stride(k + 2);
        int64_t index = 0;
        tensor.load(&index, data[k] + place * tensor.element, 1, 1);
        if (index < -tensor.size || index >= tensor.size) {
          status = index_outside(op, index, tensor.size);
          return;
        }
        offset += (index < 0 ? index + tensor.size : index) * tensor.step;
      }
      f(offset, at[1] + i * chosen.choices.inner_stride(1));
    }
  });
  return status;
}

class Index final : public Kernel {
 public:
  Index(Chosen chosen, const BoundTensor& self, const BoundTensor& to)
      : chosen_(std::move(chosen)),
        self_(static_cast<std::byte*>(self.data)),
        to_(static_cast<std::byte*>(to.data)),
        element_(base::byte_size(to.dtype)) {}
  base::Status launch(device::Stream& stream) override {
    const std::byte* self = stream.resolve(self_);
    std::byte* to = stream.resolve(to_);
    const Iteration& part = chosen_.part;
    const int64_t from_stride = part.inner_stride(0), to_stride = part.inner_stride(1);
    return for_each_choice(chosen_, "index", stream, [&](int64_t from, int64_t target) {
      part.for_each_row([&](const Offsets& at) {
        const std::byte* source = self + (from + at[0]) * element_;
        std::byte* result = to + (target + at[1]) * element_;
        if (from_stride == 1 && to_stride == 1) {
          std::memcpy(result, source, part.inner() * element_);
          return;
        }
        for (int64_t i = 0; i < part.inner(); ++i)
          std::memcpy(result + i * to_stride * element_, source + i * from_stride * element_,
                      element_);
      });
    });
  }

 private:
  Chosen chosen_;
  std::byte *self_, *to_;
  int64_t element_;
};

// to + factor * from.
template <typename T>
DC_VECTOR_CLONES void add_scaled(T* __restrict to, const T* from, T factor, int64_t n) {
  if (factor == T{1}) {
    for (int64_t i = 0; i < n; ++i) to[i] += from[i];
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] += from[i] * factor;
  }
}

class IndexPut final : public Kernel {
 public:
  IndexPut(std::string_view op, std::unique_ptr<CopyRegions> copy, Chosen chosen,
           const BoundTensor& values, const BoundTensor& to, bool accumulates, double factor = 1)
      : op_(op),
        copy_(std::move(copy)),
        chosen_(std::move(chosen)),
        values_(static_cast<std::byte*>(values.data)),
        to_(static_cast<std::byte*>(to.data)),
        element_(base::byte_size(to.dtype)),
        accumulates_(accumulates),
        factor_(factor),
        lane_(base::is_floating(to.dtype) ? lane_of(to.dtype) : Lane::I64),
        is_lanes_(dtype_of(lane_) == to.dtype),
        load_(loader(lane_, to.dtype)),
        store_(storer(lane_, to.dtype)) {}
  base::Status launch(device::Stream& stream) override {
    DC_RETURN_IF_ERROR(copy_->launch(stream));
    const std::byte* values = stream.resolve(values_);
    std::byte* to = stream.resolve(to_);
    const Iteration& part = chosen_.part;
    return for_each_choice(chosen_, op_, stream, [&](int64_t target, int64_t from) {
      part.for_each_row([&](const Offsets& at) {
        write_row(to + (target + at[0]) * element_, values + (from + at[1]) * element_);
      });
    });
  }

 private:
  void write_row(std::byte* to, const std::byte* from) const {
    if (!accumulates_) return move(to, from);
    switch (lane_) {
      case Lane::F32:
        return add<float>(to, from);
      case Lane::F64:
        return add<double>(to, from);
      default:
        return add<int64_t>(to, from);
    }
  }
  void move(std::byte* to, const std::byte* from) const {
    const int64_t n = chosen_.part.inner();
    const int64_t to_stride = chosen_.part.inner_stride(0);
    const int64_t from_stride = chosen_.part.inner_stride(1);
    if (to_stride == 1 && from_stride == 1) {
      std::memcpy(to, from, n * element_);
      return;
    }
    for (int64_t i = 0; i < n; ++i)
      std::memcpy(to + i * to_stride * element_, from + i * from_stride * element_, element_);
  }
  template <typename T>
  void add(std::byte* to, const std::byte* from) const {
    const int64_t n = chosen_.part.inner();
    const int64_t to_stride = chosen_.part.inner_stride(0);
    const int64_t from_stride = chosen_.part.inner_stride(1);
    const T factor = static_cast<T>(factor_);
    if (is_lanes_ && to_stride == 1 && from_stride == 1)
      return add_scaled(reinterpret_cast<T*>(to), reinterpret_cast<const T*>(from), factor, n);
    alignas(64) T sums[kBlock], added[kBlock];
    for (int64_t first = 0; first < n; first += kBlock) {
      const int64_t count = std::min(kBlock, n - first);
      std::byte* target = to + first * to_stride * element_;
      load_(sums, target, to_stride, count);
      load_(added, from + first * from_stride * element_, from_stride, count);
      add_scaled(sums, added, factor, count);
      store_(target, to_stride, sums, count);
    }
  }
  std::string_view op_;
  std::unique_ptr<CopyRegions> copy_;
  Chosen chosen_;
  std::byte *values_, *to_;
  int64_t element_;
  bool accumulates_;
  double factor_;  // of what is added
  Lane lane_;
  bool is_lanes_;  // elements are in memory what is computed with
  LoadLanes load_;
  StoreLanes store_;
};

Made index(Call& call) {
  const BoundTensor self = call.tensor("self"), to = call.output(0);
  call.require(self.dtype == to.dtype, "the result has another element type");
  Chosen chosen = choose(call, call.tensors("indices"), self, to);
  call.require(
      std::equal(chosen.sizes.begin(), chosen.sizes.end(), to.sizes.begin(), to.sizes.end()),
      "its tensors differ in shape");
  return call.finish<Index>(std::move(chosen), self, to);
}

Made index_put(Call& call) {
  const BoundTensor self = call.tensor("self"), values = call.tensor("values"), to = call.output(0);
  call.require(self.dtype == to.dtype && values.dtype == to.dtype,
               "its tensors have several element types");
  call.same_sizes(self, to);
  auto copy = std::make_unique<CopyRegions>();
  copy->copy(call, Region(to), Region(self));
  Chosen chosen = choose(call, call.tensors("indices"), to, values);
  return call.finish<IndexPut>("index_put", std::move(copy), std::move(chosen), values, to,
                               call.integer("accumulate", 0) != 0);
}

Made index_add(Call& call) {
  const BoundTensor self = call.tensor("self"), index = call.tensor("index"),
                    source = call.tensor("source"), to = call.output(0);
  const size_t dim = call.dim("dim", self);
  call.require(self.dtype == to.dtype && source.dtype == to.dtype,
               "its tensors have several element types");
  call.require(index.sizes.size() == 1, "its index must have one dim");
  call.same_sizes(self, to);
  call.same_sizes(source, to, dim);
  if (!call.ok()) return call.made(nullptr);
  call.require(!to.sizes.empty() && source.sizes[dim] == index.sizes[0],
               "its index and what is added differ in size");
  auto copy = std::make_unique<CopyRegions>();
  copy->copy(call, Region(to), Region(self));
  std::vector<std::optional<BoundTensor>> indices(dim + 1);
  indices[dim] = index;
  Chosen chosen = choose(call, std::move(indices), to, source);
  return call.finish<IndexPut>("index_add", std::move(copy), std::move(chosen), source, to, true,
                               call.number("alpha", 1));
}

constexpr Row kRows[] = {
    {"aten._unsafe_index.Tensor", index},  {"aten._unsafe_index_put.default", index_put},
    {"aten.index.Tensor", index},          {"aten.index_add.default", index_add},
    {"aten.index_put.default", index_put},
};

}  // namespace

std::span<const Row> index_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
