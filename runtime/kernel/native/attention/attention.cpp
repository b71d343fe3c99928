// Attention in blocks with an online softmax: Dao et al., FlashAttention (2022) and
// FlashAttention-2 (2023). Nothing of the size queries x keys is stored.
#include <algorithm>
#include <initializer_list>
#include <limits>

#include "runtime/kernel/native/attention/heads.h"
#include "runtime/kernel/native/attention/multiply.h"
#include "runtime/kernel/native/copies/transpose.h"
#include "runtime/kernel/native/registry.h"
#include "src/base/attention_blocks.h"

namespace dc::runtime::kernel::native {
namespace {

using base::AttentionBlocks;
using base::kKeyBlock;
using base::kQueryBlock;
static_assert(kKeyBlock <= kBlock && base::kAttentionLanes == kColumns);

constexpr float kInfinity = std::numeric_limits<float>::infinity();

int64_t padded(int64_t columns) { return base::round_up(columns, kColumns); }

// Parts of the scratch, one behind the other.
class Taker {
 public:
  explicit Taker(std::byte* scratch) : next_(reinterpret_cast<float*>(scratch)) {}
  float* take(int64_t count) {
    float* part = next_;
    next_ += count;
    return part;
  }

 private:
  float* next_;
};

// to[dim][keys] from the rows of a head, through a block of rows.
void read_transposed(float* to, const HeadRows& rows, int64_t batch, int64_t head, int64_t count,
                     const AttentionBlocks& blocks, float* buffer) {
  if (blocks.keys_row > count) std::fill(to, to + blocks.of_keys(), 0.0f);
  for (int64_t first = 0; first < count; first += blocks.query_rows) {
    const int64_t part = std::min(blocks.query_rows, count - first);
    rows.read(buffer, blocks.row, batch, head, first, part);
    transpose(to + first, blocks.keys_row, buffer, blocks.row, part, rows.size(3));
  }
}

class Attention final : public Kernel {
 public:
  struct Tensors {
    HeadRows query, key, value, out, logsumexp;
  };
  Attention(const AttentionCall& call, const Tensors& tensors, std::byte* scratch)
      : call_(call),
        t_(tensors),
        blocks_(call_.queries, call_.keys, call_.dim),
        scratch_(scratch) {}

  base::Status launch(device::Stream& stream) override {
    for (HeadRows* rows : {&t_.query, &t_.key, &t_.value, &t_.out, &t_.logsumexp})
      rows->resolve(stream);
    if (call_.mask) call_.mask->resolve(stream);
    Taker taker(stream.resolve(scratch_));
    keys_ = taker.take(blocks_.of_keys());
    values_ = taker.take(blocks_.of_keys());
    queries_ = taker.take(blocks_.of_queries());
    out_ = taker.take(blocks_.of_queries());
    scores_ = taker.take(blocks_.of_scores());
    greatest_ = taker.take(blocks_.of_numbers());
    sums_ = taker.take(blocks_.of_numbers());
    for (int64_t batch = 0; batch < call_.batch; ++batch) {
      for (int64_t head = 0; head < call_.heads; ++head) {
        if (head % call_.heads_per_key == 0) read_keys(batch, head / call_.heads_per_key);
        for (int64_t first = 0; first < call_.queries; first += kQueryBlock)
          run_block(batch, head, first, std::min(kQueryBlock, call_.queries - first));
      }
    }
    return {};
  }

 private:
  void read_keys(int64_t batch, int64_t head) {
    read_transposed(keys_, t_.key, batch, head, call_.keys, blocks_, out_);
    t_.value.read(values_, blocks_.row, batch, head, 0, call_.keys);
  }

  void run_block(int64_t batch, int64_t head, int64_t first, int64_t count) {
    t_.query.read(queries_, blocks_.row, batch, head, first, count);
    std::fill(greatest_, greatest_ + count, -kInfinity);
    std::fill(sums_, sums_ + count, 0.0f);
    const int64_t limit = call_.causal ? std::min(call_.keys, first + count) : call_.keys;
    for (int64_t key = 0; key < limit; key += kKeyBlock) {
      const int64_t keys = std::min(kKeyBlock, limit - key);
      call_.multiply({scores_, blocks_.scores_row, queries_, blocks_.row, 1, keys_ + key,
                      blocks_.keys_row, count, call_.dim, padded(keys), false});
      add_scores(batch, head, first, count, key, keys);
      call_.multiply({out_, blocks_.row, scores_, blocks_.scores_row, 1,
                      values_ + key * blocks_.row, blocks_.row, count, keys, blocks_.row, key > 0});
    }
    finish(batch, head, first, count);
  }

  // Scores become probabilities times exp(the row's greatest so far); what was summed before is
  // made less by as much as the greatest has grown.
  void add_scores(int64_t batch, int64_t head, int64_t first, int64_t count, int64_t key,
                  int64_t keys) {
    int32_t seen[kQueryBlock];
    float own[kQueryBlock], factors[kQueryBlock], sums[kQueryBlock];
    call_.find_seen(first, count, key, keys, seen);
    const ScoreRows scores{scores_, blocks_.scores_row, count, keys, seen};
    call_.scale_and_mask(scores, batch, head, first, key, own);
    join_greatest(greatest_, own, factors, count);
    exp_rows(scores, greatest_, sums, call_.is_bf16);
    join_sums(sums_, factors, sums, count);
    if (key > 0) multiply_rows(out_, factors, blocks_.row, count);
  }

  void finish(int64_t batch, int64_t head, int64_t first, int64_t count) {
    float factors[kQueryBlock];
    end_rows(sums_, greatest_, factors, count);
    multiply_rows(out_, factors, blocks_.row, count);
    t_.out.write(out_, blocks_.row, batch, head, first, count);
    t_.logsumexp.write(sums_, 1, batch, head, first, count);
  }

  AttentionCall call_;
  Tensors t_;
  AttentionBlocks blocks_;
  std::byte* scratch_;
  float *keys_ = nullptr, *values_ = nullptr, *queries_ = nullptr, *out_ = nullptr;
  float *scores_ = nullptr, *greatest_ = nullptr, *sums_ = nullptr;
};

class AttentionBackward final : public Kernel {
 public:
  struct Tensors {
    HeadRows gradient, query, key, value, out, logsumexp, of_query, of_key, of_value;
  };
  AttentionBackward(const AttentionCall& call, const Tensors& tensors, std::byte* scratch)
      : call_(call),
        t_(tensors),
        blocks_(call_.queries, call_.keys, call_.dim),
        scratch_(scratch) {}

  base::Status launch(device::Stream& stream) override {
    for (HeadRows* rows : {&t_.gradient, &t_.query, &t_.key, &t_.value, &t_.out, &t_.logsumexp,
                           &t_.of_query, &t_.of_key, &t_.of_value})
      rows->resolve(stream);
    if (call_.mask) call_.mask->resolve(stream);
    take_scratch(stream.resolve(scratch_));
    for (int64_t batch = 0; batch < call_.batch; ++batch) {
      for (int64_t head = 0; head < call_.heads; head += call_.heads_per_key) {
        const int64_t key_head = head / call_.heads_per_key;
        read_keys(batch, key_head);
        for (int64_t h = head; h < head + call_.heads_per_key; ++h) {
          for (int64_t first = 0; first < call_.queries; first += kQueryBlock)
            run_block(batch, h, first, std::min(kQueryBlock, call_.queries - first));
        }
        t_.of_key.write(of_keys_, blocks_.row, batch, key_head, 0, call_.keys);
        t_.of_value.write(of_values_, blocks_.row, batch, key_head, 0, call_.keys);
      }
    }
    return {};
  }

 private:
  void take_scratch(std::byte* scratch) {
    Taker taker(scratch);
    for (float** part : {&keys_, &keys_across_, &values_across_, &of_keys_, &of_values_})
      *part = taker.take(blocks_.of_keys());
    for (float** part : {&queries_, &of_queries_, &gradients_})
      *part = taker.take(blocks_.of_queries());
    for (float** part : {&scores_, &of_scores_}) *part = taker.take(blocks_.of_scores());
    for (float** part : {&logsumexp_, &deltas_}) *part = taker.take(blocks_.of_numbers());
  }

  void read_keys(int64_t batch, int64_t head) {
    read_transposed(keys_across_, t_.key, batch, head, call_.keys, blocks_, queries_);
    read_transposed(values_across_, t_.value, batch, head, call_.keys, blocks_, queries_);
    t_.key.read(keys_, blocks_.row, batch, head, 0, call_.keys);
    std::fill(of_keys_, of_keys_ + blocks_.of_keys(), 0.0f);
    std::fill(of_values_, of_values_ + blocks_.of_keys(), 0.0f);
  }

  void run_block(int64_t batch, int64_t head, int64_t first, int64_t count) {
    const int64_t row = blocks_.row, scores_row = blocks_.scores_row;
    t_.gradient.read(gradients_, row, batch, head, first, count);
    t_.out.read(queries_, row, batch, head, first, count);  // until the deltas are known
    dot_rows(deltas_, gradients_, queries_, row, count, call_.dim);
    t_.query.read(queries_, row, batch, head, first, count);
    t_.logsumexp.read(logsumexp_, 1, batch, head, first, count);
    const int64_t limit = call_.causal ? std::min(call_.keys, first + count) : call_.keys;
    for (int64_t key = 0; key < limit; key += kKeyBlock) {
      const int64_t keys = std::min(kKeyBlock, limit - key);
      call_.multiply({scores_, scores_row, queries_, row, 1, keys_across_ + key, blocks_.keys_row,
                      count, call_.dim, padded(keys), false});
      call_.multiply({of_scores_, scores_row, gradients_, row, 1, values_across_ + key,
                      blocks_.keys_row, count, call_.dim, padded(keys), false});
      end_scores(batch, head, first, count, key, keys);
      call_.multiply({of_values_ + key * row, row, scores_, 1, scores_row, gradients_, row, keys,
                      count, row, true});
      call_.multiply({of_keys_ + key * row, row, of_scores_, 1, scores_row, queries_, row, keys,
                      count, row, true});
      call_.multiply({of_queries_, row, of_scores_, scores_row, 1, keys_ + key * row, row, count,
                      keys, row, key > 0});
    }
    t_.of_query.write(of_queries_, row, batch, head, first, count);
  }

  // Scores become probabilities, gradients of probabilities those of scores.
  void end_scores(int64_t batch, int64_t head, int64_t first, int64_t count, int64_t key,
                  int64_t keys) {
    int32_t seen[kQueryBlock];
    call_.find_seen(first, count, key, keys, seen);
    const ScoreRows scores{scores_, blocks_.scores_row, count, keys, seen};
    float scale = call_.scale;
    if (call_.mask) {
      float greatest[kQueryBlock];
      call_.scale_and_mask(scores, batch, head, first, key, greatest);
      scale = 1;
    }
    gradient_rows(scores, {of_scores_, logsumexp_, deltas_, scale, call_.scale}, call_.is_bf16);
  }

  AttentionCall call_;
  Tensors t_;
  AttentionBlocks blocks_;
  std::byte* scratch_;
  float *keys_ = nullptr, *keys_across_ = nullptr, *values_across_ = nullptr;
  float *of_keys_ = nullptr, *of_values_ = nullptr;
  float *queries_ = nullptr, *of_queries_ = nullptr, *gradients_ = nullptr;
  float *scores_ = nullptr, *of_scores_ = nullptr, *logsumexp_ = nullptr, *deltas_ = nullptr;
};

// [batch, heads, length] as rows of one element.
HeadRows numbers(Call& call, const BoundTensor& tensor, const AttentionCall& a) {
  call.require(tensor.sizes.size() == 3 && tensor.dtype == base::DType::F32,
               "the sums of exponentials must be f32 and have three dims");
  if (!call.ok()) return {};
  const std::array<int64_t, 4> sizes = {tensor.sizes[0], tensor.sizes[1], tensor.sizes[2], 1};
  const std::array<int64_t, 4> strides = {tensor.strides[0], tensor.strides[1], tensor.strides[2],
                                          1};
  const HeadRows rows(BoundTensor{tensor.data, tensor.dtype, sizes, strides});
  call.require(rows.has_sizes(a.batch, a.heads, a.queries, 1), "its tensors differ in shape");
  return rows;
}

HeadRows rows_of(Call& call, const BoundTensor& tensor, const AttentionCall& a, int64_t heads,
                 int64_t length) {
  call.require(tensor.sizes.size() == 4 && base::is_floating(tensor.dtype) &&
                   tensor.dtype != base::DType::F64,
               "its tensors must have four dims and be f32, bf16 or f16");
  if (!call.ok()) return {};
  const HeadRows rows(tensor);
  call.require(rows.has_sizes(a.batch, heads, length, a.dim), "its tensors differ in shape");
  return rows;
}
HeadRows like_queries(Call& call, const BoundTensor& tensor, const AttentionCall& a) {
  return rows_of(call, tensor, a, a.heads, a.queries);
}
HeadRows like_keys(Call& call, const BoundTensor& tensor, const AttentionCall& a) {
  return rows_of(call, tensor, a, a.heads / a.heads_per_key, a.keys);
}

// A result that the plan may not want.
HeadRows result(Call& call, size_t index, const AttentionCall& a,
                HeadRows (*rows)(Call&, const BoundTensor&, const AttentionCall&)) {
  return call.has_result(index) ? rows(call, call.output(index), a) : HeadRows();
}

std::byte* scratch_of(Call& call, const AttentionCall& a,
                      std::optional<int64_t> (AttentionBlocks::*bytes)() const) {
  const std::optional<int64_t> needed = (AttentionBlocks(a.queries, a.keys, a.dim).*bytes)();
  call.require(needed.has_value(), "its scratch has no size");
  return call.scratch(needed.value_or(0));
}

bool are_bf16(std::initializer_list<BoundTensor> tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [](const BoundTensor& t) { return t.dtype == base::DType::BF16; });
}

Made make_attention(Call& call) {
  const BoundTensor query = call.tensor("query"), key = call.tensor("key"),
                    value = call.tensor("value");
  AttentionCall a(call, query, key);
  if (!call.ok()) return call.made(nullptr);
  a.is_bf16 = are_bf16({query, key, value});
  const Attention::Tensors tensors = {like_queries(call, query, a), like_keys(call, key, a),
                                      like_keys(call, value, a), result(call, 0, a, like_queries),
                                      result(call, 1, a, numbers)};
  std::byte* scratch = scratch_of(call, a, &AttentionBlocks::forward_bytes);
  return call.finish<Attention>(a, tensors, scratch);
}

Made make_attention_backward(Call& call) {
  const BoundTensor gradient = call.tensor("grad_out"), query = call.tensor("query"),
                    key = call.tensor("key"), value = call.tensor("value");
  AttentionCall a(call, query, key);
  if (!call.ok()) return call.made(nullptr);
  a.is_bf16 = are_bf16({gradient, query, key, value});
  const AttentionBackward::Tensors tensors = {like_queries(call, gradient, a),
                                              like_queries(call, query, a),
                                              like_keys(call, key, a),
                                              like_keys(call, value, a),
                                              like_queries(call, call.tensor("out"), a),
                                              numbers(call, call.tensor("logsumexp"), a),
                                              result(call, 0, a, like_queries),
                                              result(call, 1, a, like_keys),
                                              result(call, 2, a, like_keys)};
  std::byte* scratch = scratch_of(call, a, &AttentionBlocks::backward_bytes);
  return call.finish<AttentionBackward>(a, tensors, scratch);
}

// Of CUDA's operators.
template <Made (*make)(Call&)>
Made square(Call& call) {
  require_square_causal_mask(call);
  return make(call);
}

constexpr Row kRows[] = {
    {"aten._scaled_dot_product_flash_attention.default", square<make_attention>},
    {"aten._scaled_dot_product_flash_attention_backward.default", square<make_attention_backward>},
    {"aten._scaled_dot_product_flash_attention_for_cpu.default", make_attention},
    {"aten._scaled_dot_product_flash_attention_for_cpu_backward.default", make_attention_backward},
};

}  // namespace

std::span<const Row> attention_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
