// embedding and the gradient of its table.
//
// The gradient of a row of the table is the sum of the gradients at its places, in their order, in
// f32. The places are sorted by row first, so that each row is written once.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "runtime/kernel/native/copies/regions.h"
#include "runtime/kernel/native/indexing/index_outside.h"
#include "runtime/kernel/native/norms/rows.h"
#include "runtime/kernel/native/reductions/fold.h"
#include "runtime/kernel/native/registry.h"

namespace dc::runtime::kernel::native {
namespace {

// Index tensors: where each place is, in row-major order, by their strides.
class Places {
 public:
  Places() = default;
  Places(Call& call, const BoundTensor& indices, const BoundTensor& rows)
      : data_(static_cast<std::byte*>(indices.data)),
        element_(base::byte_size(indices.dtype)),
        load_(loader(Lane::I64, indices.dtype)) {
    call.require(indices.dtype == base::DType::I64 || indices.dtype == base::DType::I32,
                 "indices must be i64 or i32");
    call.require(rows.sizes.size() == indices.sizes.size() + 1, "its tensors differ in dims");
    if (!call.ok()) return;
    const std::vector<int64_t> sizes(indices.sizes.begin(), indices.sizes.end());
    // Row-major order whatever the strides: the first tensor of the iteration is contiguous.
    std::vector<int64_t> order(sizes.size());
    int64_t step = 1;
    for (size_t dim = sizes.size(); dim-- > 0; step *= std::max<int64_t>(sizes[dim], 1)) {
      order[dim] = step;
      call.require(rows.sizes[dim] == sizes[dim], "its tensors differ in shape");
    }
    const auto all = [&](const BoundTensor& tensor) {
      return std::vector<int64_t>(tensor.strides.begin(),
                                  tensor.strides.begin() + static_cast<ptrdiff_t>(sizes.size()));
    };
    iteration_ = Iteration(sizes, std::array{order, all(indices), all(rows)});
    call.require(iteration_.fits(), "its tensors have too many dims");
  }
  int64_t count() const { return iteration_.count(); }

  // f(index, offset of the row), in row-major order; ends where f gives false.
  template <typename F>
  void for_each(const device::Stream& stream, F&& f) const {
    const std::byte* data = stream.resolve(data_);
    bool goes_on = true;
    iteration_.for_each_row([&](const Offsets& at) {
      for (int64_t i = 0; i < iteration_.inner() && goes_on; ++i) {
        int64_t index = 0;
        load_(&index, data + (at[1] + i * iteration_.inner_stride(1)) * element_, 1, 1);
        goes_on = f(index, at[2] + i * iteration_.inner_stride(2));
      }
    });
  }

 private:
  std::byte* data_ = nullptr;
  int64_t element_ = 8;
  LoadLanes load_ = nullptr;
  Iteration iteration_;
};

class Embedding final : public Kernel {
 public:
  Embedding(const Places& places, const BoundTensor& table, const BoundTensor& to)
      : places_(places),
        table_(static_cast<std::byte*>(table.data)),
        to_(static_cast<std::byte*>(to.data)),
        element_(base::byte_size(table.dtype)),
        rows_(table.sizes[0]),
        columns_(table.sizes[1]),
        row_stride_(table.strides[0]),
        stride_(table.strides[1]),
        to_stride_(to.strides.back()) {}

  base::Status launch(device::Stream& stream) override {
    const std::byte* table = stream.resolve(table_);
    std::byte* to = stream.resolve(to_);
    base::Status status;
    places_.for_each(stream, [&](int64_t index, int64_t offset) {
      if (index < 0 || index >= rows_) {
        status = index_outside("embedding", index, rows_);
        return false;
      }
      const std::byte* from = table + index * row_stride_ * element_;
      std::byte* target = to + offset * element_;
      if (stride_ == 1 && to_stride_ == 1) {
        std::memcpy(target, from, columns_ * element_);
        return true;
      }
      for (int64_t i = 0; i < columns_; ++i)
        std::memcpy(target + i * to_stride_ * element_, from + i * stride_ * element_, element_);
      return true;
    });
    return status;
  }

 private:
  Places places_;
  std::byte *table_, *to_;
  int64_t element_, rows_, columns_, row_stride_, stride_, to_stride_;
};

class EmbeddingBackward final : public Kernel {
 public:
  EmbeddingBackward(std::unique_ptr<CopyRegions> zero, const Places& places, const BoundTensor& g,
                    const BoundTensor& to, int64_t padding, bool by_frequency)
      : zero_(std::move(zero)),
        places_(places),
        g_(g, g.strides.back()),
        to_(to, to.strides[1]),
        rows_(to.sizes[0]),
        columns_(to.sizes[1]),
        row_stride_(to.strides[0]),
        padding_(padding),
        by_frequency_(by_frequency),
        sorted_(static_cast<size_t>(places.count())) {}

  base::Status launch(device::Stream& stream) override {
    DC_RETURN_IF_ERROR(zero_->launch(stream));
    size_t count = 0;
    base::Status status;
    places_.for_each(stream, [&](int64_t index, int64_t offset) {
      if (index < 0 || index >= rows_) {
        status = index_outside("embedding_dense_backward", index, rows_);
        return false;
      }
      if (index == padding_) return true;
      sorted_[count] = {index, static_cast<int64_t>(count), offset};
      ++count;
      return true;
    });
    if (!status.ok()) return status;
    const auto end = sorted_.begin() + static_cast<ptrdiff_t>(count);
    std::sort(sorted_.begin(), end);
    std::byte *g = g_.on(stream), *to = to_.on(stream);
    for (auto first = sorted_.begin(); first != end;) {
      const auto last =
          std::find_if(first, end, [&](const auto& place) { return place[0] != (*first)[0]; });
      add_rows(g, to_.row(to, (*first)[0] * row_stride_), &*first, last - first);
      first = last;
    }
    return {};
  }

 private:
  using Place = std::array<int64_t, 3>;  // row of the table, number, offset in the gradient

  void add_rows(const std::byte* g, std::byte* to, const Place* places, int64_t count) const {
    for (int64_t first = 0; first < columns_; first += kBlock) {
      const int64_t n = std::min(kBlock, columns_ - first);
      alignas(64) float sums_buffer[kBlock], buffer[kBlock];
      // The result is zero before anything is added.
      float* sums = to_.target(sums_buffer, to, first);
      if (sums == sums_buffer) std::fill_n(sums, n, 0.0f);
      for (int64_t i = 0; i < count; ++i) {
        const std::byte* row = g + places[i][2] * g_.reader().element;
        fold_columns<SumFold<float>, float>(sums, g_.read(buffer, row, first, n), 0, 1, n);
      }
      if (by_frequency_)
        for (int64_t i = 0; i < n; ++i) sums[i] /= static_cast<float>(count);
      to_.write(sums, to, first, n);
    }
  }

  std::unique_ptr<CopyRegions> zero_;
  Places places_;
  RowTensor<float> g_, to_;
  int64_t rows_, columns_, row_stride_, padding_;
  bool by_frequency_;
  std::vector<Place> sorted_;
};

Made forward(Call& call) {
  const BoundTensor table = call.tensor("weight"), indices = call.tensor("indices"),
                    to = call.output(0);
  call.require(table.sizes.size() == 2 && table.dtype == to.dtype, "the table must be a matrix");
  const Places places(call, indices, to);
  call.require(call.ok() && to.sizes.back() == table.sizes[1], "its tensors differ in shape");
  if (!call.ok()) return call.made(nullptr);
  return call.finish<Embedding>(places, table, to);
}

Made backward(Call& call) {
  const BoundTensor g = call.tensor("grad_output"), indices = call.tensor("indices"),
                    to = call.output(0);
  call.require(base::is_floating(g.dtype) && g.dtype != base::DType::F64,
               "it does not take this element type");
  call.require(to.sizes.size() == 2, "the result must be a matrix");
  const Places places(call, indices, g);
  call.require(call.ok() && g.sizes.back() == to.sizes[1], "its tensors differ in shape");
  call.require(places.count() <= INT32_MAX, "there are more than 2^31 indices");
  auto zero = std::make_unique<CopyRegions>();
  zero->fill(call, Region(to), 0.0);
  if (!call.ok()) return call.made(nullptr);
  return call.finish<EmbeddingBackward>(std::move(zero), places, g, to,
                                        call.integer("padding_idx", -1),
                                        call.integer("scale_grad_by_freq", 0) != 0);
}

constexpr Row kRows[] = {
    {"aten.embedding.default", forward},
    {"aten.embedding_dense_backward.default", backward},
};

}  // namespace

std::span<const Row> embedding_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
