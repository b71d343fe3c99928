// index.Tensor, index_put and index_add: several index tensors, broadcast to one shape, that choose
// positions of some dims; the other dims are whole.
//
// index_put writes, or adds as index_add does, in f32, f64 or int64, in row-major order of the
// indices: where several choose one position the last one stays.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "runtime/kernel/native/copies/regions.h"
#include "runtime/kernel/native/indexing/index_call.h"
#include "runtime/kernel/native/indexing/index_outside.h"
#include "runtime/kernel/native/registry.h"
#include "runtime/kernel/native/vector_clones.h"

namespace dc::runtime::kernel::native {
namespace {

// The index tensors of an instruction, read as i64.
class IndexReader {
 public:
  explicit IndexReader(const IndexCall& of) : of_(of) {
    for (const DimIndices& dim : of.indices) readers_.emplace_back(Lane::I64, dim.tensor.dtype, 1);
  }
  const IndexCall& of() const { return of_; }

  // f(offset in the tensor that is chosen from, offset in the other), for every part.
  template <typename F>
  base::Status for_each_choice(std::string_view op, const device::Stream& stream, F&& f) const {
    std::array<const std::byte*, kMaxTensors> data{};
    for (size_t k = 0; k < readers_.size(); ++k)
      data[k] = static_cast<const std::byte*>(stream.resolve(of_.indices[k].tensor.data));
    base::Status status;
    of_.choices.for_each_row([&](const Offsets& at) {
      for (int64_t i = 0; i < of_.choices.inner() && status.ok(); ++i) {
        int64_t offset = 0;
        for (size_t k = 0; k < readers_.size(); ++k) {
          const DimIndices& dim = of_.indices[k];
          const int64_t place = at[k + 2] + i * of_.choices.inner_stride(k + 2);
          int64_t index = 0;
          readers_[k].load(&index, data[k] + place * readers_[k].element, 1, 1);
          if (index < -dim.size || index >= dim.size) {
            status = index_outside(op, index, dim.size);
            return;
          }
          offset += (index < 0 ? index + dim.size : index) * dim.step;
        }
        f(offset, at[1] + i * of_.choices.inner_stride(1));
      }
    });
    return status;
  }

 private:
  IndexCall of_;
  std::vector<LaneReader> readers_;
};

class Index final : public Kernel {
 public:
  explicit Index(const IndexCall& of)
      : indices_(of),
        self_(static_cast<std::byte*>(of.chosen.data)),
        to_(static_cast<std::byte*>(of.other.data)),
        element_(base::byte_size(of.other.dtype)) {}
  base::Status launch(device::Stream& stream) override {
    const std::byte* self = stream.resolve(self_);
    std::byte* to = stream.resolve(to_);
    const Iteration& part = indices_.of().part;
    const int64_t from_stride = part.inner_stride(0), to_stride = part.inner_stride(1);
    return indices_.for_each_choice("index", stream, [&](int64_t from, int64_t target) {
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
  IndexReader indices_;
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
  IndexPut(std::string_view op, std::unique_ptr<CopyRegions> copy, const IndexCall& of)
      : op_(op),
        copy_(std::move(copy)),
        indices_(of),
        values_(static_cast<std::byte*>(of.other.data)),
        to_(static_cast<std::byte*>(of.chosen.data)),
        element_(base::byte_size(of.chosen.dtype)),
        lane_(base::is_floating(of.chosen.dtype) ? lane_of(of.chosen.dtype) : Lane::I64),
        is_lanes_(dtype_of(lane_) == of.chosen.dtype),
        load_(loader(lane_, of.chosen.dtype)),
        store_(storer(lane_, of.chosen.dtype)) {}
  base::Status launch(device::Stream& stream) override {
    DC_RETURN_IF_ERROR(copy_->launch(stream));
    const std::byte* values = stream.resolve(values_);
    std::byte* to = stream.resolve(to_);
    const Iteration& part = indices_.of().part;
    return indices_.for_each_choice(op_, stream, [&](int64_t target, int64_t from) {
      part.for_each_row([&](const Offsets& at) {
        write_row(to + (target + at[0]) * element_, values + (from + at[1]) * element_);
      });
    });
  }

 private:
  void write_row(std::byte* to, const std::byte* from) const {
    if (!indices_.of().accumulates) return move(to, from);
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
    const Iteration& part = indices_.of().part;
    const int64_t n = part.inner();
    const int64_t to_stride = part.inner_stride(0), from_stride = part.inner_stride(1);
    if (to_stride == 1 && from_stride == 1) {
      std::memcpy(to, from, n * element_);
      return;
    }
    for (int64_t i = 0; i < n; ++i)
      std::memcpy(to + i * to_stride * element_, from + i * from_stride * element_, element_);
  }
  template <typename T>
  void add(std::byte* to, const std::byte* from) const {
    const Iteration& part = indices_.of().part;
    const int64_t n = part.inner();
    const int64_t to_stride = part.inner_stride(0), from_stride = part.inner_stride(1);
    const T factor = static_cast<T>(indices_.of().factor);
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
  IndexReader indices_;
  std::byte *values_, *to_;
  int64_t element_;
  Lane lane_;
  bool is_lanes_;  // elements are in memory what is computed with
  LoadLanes load_;
  StoreLanes store_;
};

Made index(Call& call) {
  const IndexCall of = read_index(call);
  return call.finish<Index>(of);
}

Made put(Call& call, std::string_view op, const IndexCall& of) {
  auto copy = std::make_unique<CopyRegions>();
  if (call.ok()) copy->copy(call, Region(of.chosen), Region(*of.before));
  return call.finish<IndexPut>(op, std::move(copy), of);
}
Made index_put(Call& call) { return put(call, "index_put", read_index_put(call)); }
Made index_add(Call& call) { return put(call, "index_add", read_index_add(call)); }

constexpr Row kRows[] = {
    {"aten._unsafe_index.Tensor", index},  {"aten._unsafe_index_put.default", index_put},
    {"aten.index.Tensor", index},          {"aten.index_add.default", index_add},
    {"aten.index_put.default", index_put},
};

}  // namespace

std::span<const Row> index_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
