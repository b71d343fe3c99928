// gather, scatter, scatter_add, index_select: one index tensor, along one dim.
//
// Scattered elements are written, or added in f64 or int64 and rounded to their type each time, in
// row-major order of the index tensor.
#include <array>
#include <cstring>
#include <vector>

#include "runtime/kernel/native/copies/regions.h"
#include "runtime/kernel/native/indexing/index_outside.h"
#include "runtime/kernel/native/registry.h"
#include "src/base/shape.h"

namespace dc::runtime::kernel::native {
namespace {

std::vector<int64_t> list(std::span<const int64_t> values) {
  return {values.begin(), values.end()};
}

enum class Write { Move, Add };

// f with a value of the type that holds an element of so many bytes.
template <typename F>
auto with_element(int64_t bytes, F&& f) {
  switch (bytes) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    default:
      return f(uint64_t{});
  }
}

// For every index: chosen[index along the dim] to or from the same place of `other`.
struct Chooser {
  // Over the indices: row-major; indices, chosen without the dim, other.
  Iteration iteration;
  std::byte *indices = nullptr, *chosen = nullptr, *other = nullptr;
  bool is_long = true;  // indices of i64, not i32
  int64_t element = 4, stride = 0, size = 0;

  // f(element of `chosen`, element of `other`, or `value` where it is none), whose types hold as
  // many bytes as theirs.
  template <typename F>
  base::Status run(std::string_view op, const device::Stream& stream, std::byte* value,
                   F&& f) const {
    std::byte* others = other == nullptr ? value : stream.resolve(other);
    return with_element(element, [&]<typename E>(E) {
      auto* at_other = reinterpret_cast<E*>(others);
      return is_long ? of<int64_t>(op, stream, at_other, f) : of<int32_t>(op, stream, at_other, f);
    });
  }

 private:
  template <typename I, typename E, typename F>
  base::Status of(std::string_view op, const device::Stream& stream, E* at_other, F&& f) const {
    const auto* at_indices = reinterpret_cast<const I*>(stream.resolve(indices));
    auto* at_chosen = reinterpret_cast<E*>(stream.resolve(chosen));
    const int64_t step = iteration.inner_stride(1), chosen_step = iteration.inner_stride(2),
                  other_step = iteration.inner_stride(3), bound = size, distance = stride;
    base::Status status;
    iteration.for_each_plane([&](const Offsets& at, int64_t rows, const Offsets& steps) {
      for (int64_t row = 0; row < rows && status.ok(); ++row) {
        const I* index = at_indices + at[1] + row * steps[1];
        E* from = at_chosen + at[2] + row * steps[2];
        E* to = at_other + at[3] + row * steps[3];
        for (int64_t i = 0; i < iteration.inner(); ++i) {
          const int64_t place = index[i * step];
          if (place < 0 || place >= bound) {
            status = index_outside(op, place, bound);
            break;
          }
          f(from + i * chosen_step + place * distance, to + i * other_step);
        }
      }
    });
    return status;
  }
};

// `indices` has the sizes; `chosen` is indexed in `dim`; `other` is at least as large.
Chooser choose(Call& call, const BoundTensor& indices, const BoundTensor& chosen,
               const BoundTensor* other, size_t dim) {
  Chooser chooser;
  const size_t dims = indices.sizes.size();
  call.require(indices.dtype == base::DType::I64 || indices.dtype == base::DType::I32,
               "indices must be i64 or i32");
  call.require(chosen.sizes.size() == dims && (other == nullptr || other->sizes.size() == dims),
               "its tensors differ in dims");
  if (!call.ok()) return chooser;
  for (size_t d = 0; d < dims; ++d) {
    call.require((d == dim || indices.sizes[d] <= chosen.sizes[d]) &&
                     (other == nullptr || indices.sizes[d] <= other->sizes[d]),
                 "there are more indices than elements");
  }
  std::vector<int64_t> chosen_strides = list(chosen.strides), other_strides(dims, 0);
  if (dims > 0) chosen_strides[dim] = 0;
  if (other != nullptr) other_strides = list(other->strides);
  const std::vector<int64_t> sizes = list(indices.sizes);
  chooser.iteration =
      Iteration(sizes, std::array{base::contiguous_strides(sizes), list(indices.strides),
                                  chosen_strides, other_strides});
  call.require(chooser.iteration.fits(), "its tensors have too many dims");
  chooser.indices = static_cast<std::byte*>(indices.data);
  chooser.chosen = static_cast<std::byte*>(chosen.data);
  chooser.other = other == nullptr ? nullptr : static_cast<std::byte*>(other->data);
  chooser.is_long = indices.dtype == base::DType::I64;
  chooser.element = base::byte_size(chosen.dtype);
  chooser.stride = dims > 0 ? chosen.strides[dim] : 0;
  chooser.size = dims > 0 ? chosen.sizes[dim] : 1;
  return chooser;
}

class Gather final : public Kernel {
 public:
  explicit Gather(const Chooser& chooser) : chooser_(chooser) {}
  base::Status launch(device::Stream& stream) override {
    return chooser_.run("gather", stream, nullptr, [](const auto* from, auto* to) { *to = *from; });
  }

 private:
  Chooser chooser_;
};

Made gather(Call& call) {
  const BoundTensor self = call.tensor("self"), index = call.tensor("index"), to = call.output(0);
  const size_t dim = call.dim("dim", self);
  call.require(self.dtype == to.dtype, "the result has another element type");
  call.same_sizes(index, to);
  return call.finish<Gather>(choose(call, index, self, &to, dim));
}

class Scatter final : public Kernel {
 public:
  Scatter(std::unique_ptr<CopyRegions> copy, const Chooser& chooser, base::DType dtype, Write write,
          const Element& value)
      : copy_(std::move(copy)),
        chooser_(chooser),
        write_(write),
        is_integer_(!base::is_floating(dtype)),
        value_(value),
        load_(loader(is_integer_ ? Lane::I64 : Lane::F64, dtype)),
        store_(storer(is_integer_ ? Lane::I64 : Lane::F64, dtype)) {}
  base::Status launch(device::Stream& stream) override {
    DC_RETURN_IF_ERROR(copy_->launch(stream));
    std::byte* value = value_.bytes.data();
    if (write_ == Write::Move) {
      return chooser_.run("scatter", stream, value,
                          [](auto* to, const auto* from) { *to = *from; });
    }
    return chooser_.run("scatter", stream, value, [this](void* to, const void* from) {
      is_integer_ ? add<int64_t>(to, from) : add<double>(to, from);
    });
  }

 private:
  template <typename T>
  void add(void* to, const void* from) const {
    T a, b;
    load_(&a, to, 1, 1);
    load_(&b, from, 1, 1);
    a += b;
    store_(to, 1, &a, 1);
  }
  std::unique_ptr<CopyRegions> copy_;
  Chooser chooser_;
  Write write_;
  bool is_integer_;
  Element value_;
  LoadLanes load_;
  StoreLanes store_;
};

template <Write kWrite>
Made scatter(Call& call) {
  const BoundTensor self = call.tensor("self"), index = call.tensor("index"), to = call.output(0);
  const auto src = call.is_tensor("src") ? call.tensor_if("src") : std::nullopt;
  const size_t dim = call.dim("dim", self);
  call.require(self.dtype == to.dtype, "the result has another element type");
  call.same_sizes(self, to);
  auto copy = std::make_unique<CopyRegions>();
  copy->copy(call, Region(to), Region(self));
  const Chooser chooser = choose(call, index, to, src ? &*src : nullptr, dim);
  Element value;
  if (src) {
    call.require(src->dtype == to.dtype, "what is scattered has another element type");
  } else {
    value = element_of(call, to.dtype, "value");
  }
  return call.finish<Scatter>(std::move(copy), chooser, to.dtype, kWrite, value);
}

// Whole slices of one dim, chosen by a vector of indices.
class IndexSelect final : public Kernel {
 public:
  IndexSelect(Iteration slice, const BoundTensor& self, const BoundTensor& index,
              const BoundTensor& to, size_t dim)
      : slice_(std::move(slice)),
        self_(static_cast<std::byte*>(self.data)),
        to_(static_cast<std::byte*>(to.data)),
        index_(static_cast<std::byte*>(index.data)),
        load_(loader(Lane::I64, index.dtype)),
        element_(base::byte_size(to.dtype)),
        index_step_((index.sizes.empty() ? 0 : index.strides[0]) * base::byte_size(index.dtype)),
        count_(index.numel()),
        size_(self.sizes[dim]),
        from_step_(self.strides[dim]),
        to_step_(to.strides[dim]) {}
  base::Status launch(device::Stream& stream) override {
    const std::byte *self = stream.resolve(self_), *indices = stream.resolve(index_);
    std::byte* to = stream.resolve(to_);
    for (int64_t k = 0; k < count_; ++k) {
      int64_t index = 0;
      load_(&index, indices + k * index_step_, 1, 1);
      if (index < 0 || index >= size_) return index_outside("index_select", index, size_);
      copy_slice(to + k * to_step_ * element_, self + index * from_step_ * element_);
    }
    return {};
  }

 private:
  void copy_slice(std::byte* to, const std::byte* from) const {
    const int64_t to_stride = slice_.inner_stride(0), from_stride = slice_.inner_stride(1);
    slice_.for_each_row([&](const Offsets& at) {
      std::byte* target = to + at[0] * element_;
      const std::byte* source = from + at[1] * element_;
      if (to_stride == 1 && from_stride == 1) {
        std::memcpy(target, source, slice_.inner() * element_);
        return;
      }
      for (int64_t i = 0; i < slice_.inner(); ++i)
        std::memcpy(target + i * to_stride * element_, source + i * from_stride * element_,
                    element_);
    });
  }
  Iteration slice_;
  std::byte *self_, *to_, *index_;
  LoadLanes load_;
  int64_t element_, index_step_, count_, size_, from_step_, to_step_;
};

Made index_select(Call& call) {
  const BoundTensor self = call.tensor("self"), index = call.tensor("index"), to = call.output(0);
  const size_t dim = call.dim("dim", self);
  call.require(self.sizes.size() == to.sizes.size() && !self.sizes.empty() &&
                   index.sizes.size() <= 1 && self.dtype == to.dtype,
               "its tensors do not fit each other");
  call.require(index.dtype == base::DType::I64 || index.dtype == base::DType::I32,
               "indices must be i64 or i32");
  call.same_sizes(self, to, dim);
  if (!call.ok()) return call.made(nullptr);
  call.require(to.sizes[dim] == index.numel(), "the result does not fit the indices");
  std::vector<int64_t> sizes = list(to.sizes);
  sizes[dim] = 1;
  const Iteration slice(sizes, std::array{list(to.strides), list(self.strides)});
  call.require(slice.fits(), "its tensors have too many dims");
  return call.finish<IndexSelect>(slice, self, index, to, dim);
}

constexpr Row kRows[] = {
    {"aten.gather.default", gather},
    {"aten.index_select.default", index_select},
    {"aten.scatter.src", scatter<Write::Move>},
    {"aten.scatter.value", scatter<Write::Move>},
    {"aten.scatter_add.default", scatter<Write::Add>},
};

}  // namespace

std::span<const Row> gather_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
