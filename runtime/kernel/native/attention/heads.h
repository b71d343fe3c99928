// Tensors of attention, [batch, heads, length, dim] with any strides, and the steps over blocks of
// their rows that forward and backward share.
#pragma once

#include <algorithm>
#include <array>
#include <optional>

#include "runtime/kernel/native/attention/multiply.h"
#include "runtime/kernel/native/call.h"
#include "runtime/kernel/native/lanes.h"

namespace dc::runtime::kernel::native {

// Rows of one tensor; without one, writing does nothing. Several heads may have one place (stride
// 0), if they are only read.
class HeadRows {
 public:
  HeadRows() = default;
  explicit HeadRows(const BoundTensor& tensor);  // of 4 dims

  void resolve(const device::Stream& stream) {
    if (data_ != nullptr) at_ = stream.resolve(data_);
  }
  // Rows [first, first + count) of a head as floats, `row` apart; what is behind a row is zero.
  void read(float* to, int64_t row, int64_t batch, int64_t head, int64_t first,
            int64_t count) const;
  // Elements [first, first + count) of one row: in the buffer, zero up to the next whole vector, or
  // where they lie if they end with one.
  const float* part(float* buffer, int64_t batch, int64_t head, int64_t row, int64_t first,
                    int64_t count) const;
  void write(const float* from, int64_t row, int64_t batch, int64_t head, int64_t first,
             int64_t count) const;

  int64_t size(size_t dim) const { return sizes_[dim]; }
  bool has_sizes(int64_t batch, int64_t heads, int64_t length, int64_t dim) const {
    return sizes_ == std::array{batch, heads, length, dim};
  }

 private:
  std::byte* place(int64_t batch, int64_t head, int64_t row) const {
    return at_ + (batch * strides_[0] + head * strides_[1] + row * strides_[2]) * element_;
  }

  std::byte *data_ = nullptr, *at_ = nullptr;  // on the device; for the running kernel
  std::array<int64_t, 4> sizes_{}, strides_{};
  int64_t element_ = 0;
  bool is_direct_ = false;  // elements of a row are floats next to each other
  LoadLanes load_ = nullptr;
  StoreLanes store_ = nullptr;
};

// Steps over a row of scores. A row has a whole number of vectors (kAttentionLanes), and what is
// behind its n elements may change; so there is nothing left over that is not a vector.
// x = x * scale; returns the greatest of them, NaN if one is, minus infinity of none.
float scale_row(float* x, float scale, int64_t n);
// The same of x = x * scale + added, which has as many elements as there are lanes.
float scale_and_add_row(float* __restrict x, float scale, const float* added, int64_t n);
// x = exp(x - least), 0 behind `valid`; returns the sum: of each lane in order, then in halves.
float exp_row(float* x, float least, int64_t valid, int64_t n);
// The sum of x[i] * y[i], in kFoldLanes sums that are then joined.
float dot(const float* x, const float* y, int64_t n);
void multiply_row(float* x, float factor, int64_t n);
// Of n queries: factors = 1 / sum, sums = greatest + log(sum); 1 and minus infinity where the sum
// is 0, because the query sees no key.
void end_rows(float* sums, const float* greatest, float* factors, int64_t n);
// The gradient of scores from that of probabilities: d = p * (d - delta) * scale.
void gradient_row(float* d, const float* p, float delta, float scale, int64_t n);
// x = x as bf16.
void round_row_to_bf16(float* x, int64_t n);

// What an instruction of attention says, forward or backward.
struct AttentionCall {
  AttentionCall(Call& call, const BoundTensor& query, const BoundTensor& key);

  // Of a query, how many of `count` keys from `first` on it sees.
  int64_t seen(int64_t query, int64_t first, int64_t count) const {
    if (!causal) return count;
    return std::clamp<int64_t>(query + 1 - first, 0, count);
  }
  // Scores of keys [first, first + count) of one query become scores * scale + mask; returns the
  // greatest of them, as scale_row() does.
  float scale_and_mask(float* scores, int64_t batch, int64_t head, int64_t query, int64_t first,
                       int64_t count) const;

  // Where all tensors are bf16, the operands of every product are: those that are made here are
  // rounded, as PyTorch does it.
  void multiply(const SmallProduct& product) const {
    is_bf16 ? multiply_bf16(product) : native::multiply(product);
  }
  void round_row(float* x, int64_t n) const {
    if (is_bf16) round_row_to_bf16(x, n);
  }

  int64_t batch = 0, heads = 0, queries = 0, dim = 0, keys = 0;
  int64_t heads_per_key = 1;  // query heads that share a head of keys and values
  bool causal = false, is_bf16 = false;
  float scale = 1;
  std::optional<HeadRows> mask;  // added to scores
};

}  // namespace dc::runtime::kernel::native
