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
  base::DType dtype_ = base::DType::F32;
  bool is_dense_ = false;  // elements of a row lie next to each other
  LoadLanes load_ = nullptr;
  StoreLanes store_ = nullptr;
};

// Scores of a block of queries, or what becomes of them: `count` rows, `row` elements apart. A row
// has a whole number of vectors (kAttentionLanes), and what is behind its `keys` elements may
// change; so there is nothing left over that is not a vector.
struct ScoreRows {
  float* first;
  int64_t row, count, keys;
  const int32_t* seen;  // how many keys each query sees
};
// x = x * scale of the keys that are seen; greatest: of each row the greatest of them, NaN if one
// is, minus infinity of none.
void scale_rows(const ScoreRows& scores, float scale, float* greatest);
// The same of one row, x = x * scale + added, which has as many elements as there are lanes.
float scale_and_add_row(float* __restrict x, float scale, const float* added, int64_t n);
// x = exp(x - shift), of each row its own, and 0 where no key is seen, as in all of a row whose
// shift is minus infinity; sums: those of each lane in order, then in halves. Then x is rounded to
// bf16, if it is wanted.
void exp_rows(const ScoreRows& scores, const float* shifts, float* sums, bool rounds);
// The same of x = exp(x * scale - logsumexp), the probabilities p, without sums; and the gradients
// of p, in rows that lie as the scores do, become those of scores: d = p * (d - delta) *
// outer_scale.
struct ScoreGradients {
  float* first;
  const float *logsumexp, *deltas;  // of each row
  float scale, outer_scale;
};
void gradient_rows(const ScoreRows& scores, const ScoreGradients& gradients, bool rounds);

// Of n queries, as a block of keys with its own greatest scores comes: the greatest so far, and by
// what the sums before are to be multiplied, 0 where there are none.
void join_greatest(float* greatest, const float* own, float* factors, int64_t n);
// sums = sums * factors + own.
void join_sums(float* sums, const float* factors, const float* own, int64_t n);
// Of n queries: factors = 1 / sum, sums = greatest + log(sum); 1 and minus infinity where the sum
// is 0, because the query sees no key.
void end_rows(float* sums, const float* greatest, float* factors, int64_t n);

// Of `count` rows, `row` elements apart: dots = the sum of x[i] * y[i] over the first n elements,
// in kFoldLanes sums that are then joined.
void dot_rows(float* dots, const float* x, const float* y, int64_t row, int64_t count, int64_t n);
// x = x * the row's factor, in all of a row.
void multiply_rows(float* x, const float* factors, int64_t row, int64_t count);

// What an instruction of attention says, forward or backward.
struct AttentionCall {
  AttentionCall(Call& call, const BoundTensor& query, const BoundTensor& key);

  // Of a query, how many of `count` keys from `first` on it sees.
  int64_t seen(int64_t query, int64_t first, int64_t count) const {
    if (!causal) return count;
    return std::clamp<int64_t>(query + 1 - first, 0, count);
  }
  // Of the rows of a block, the same with `count` keys.
  void find_seen(int64_t query, int64_t rows, int64_t first, int64_t count, int32_t* found) const {
    for (int64_t i = 0; i < rows; ++i)
      found[i] = static_cast<int32_t>(seen(query + i, first, count));
  }
  // Scores of the queries from `query` and the keys from `first` on become scores * scale + mask;
  // the greatest of each row, as scale_rows() finds them.
  void scale_and_mask(const ScoreRows& scores, int64_t batch, int64_t head, int64_t query,
                      int64_t first, float* greatest) const;

  // Where all tensors are bf16, the operands of every product are: probabilities and gradients of
  // scores are rounded, as PyTorch does it.
  void multiply(const SmallProduct& product) const {
    is_bf16 ? multiply_bf16(product) : native::multiply(product);
  }

  int64_t batch = 0, heads = 0, queries = 0, dim = 0, keys = 0;
  int64_t heads_per_key = 1;  // query heads that share a head of keys and values
  bool causal = false, is_bf16 = false;
  float scale = 1;
  std::optional<HeadRows> mask;  // added to scores
};

// For CUDA's operators, whose causal mask ends with the last key: refuses one of queries and keys
// of different lengths.
void require_square_causal_mask(Call& call);

}  // namespace dc::runtime::kernel::native
