#include "src/cost/scratch.h"

#include <algorithm>
#include <span>

#include "src/base/attention_blocks.h"
#include "src/base/convolution_type.h"
#include "src/cost/output_layer.h"

namespace dc::cost {
namespace {

using base::DType;
using base::TensorMeta;
using ir::AtenClass;
using ir::AtenWork;

constexpr int64_t kSmall =
    4096;  // scalars wrapped as tensors, strides of iterators, sums per thread
constexpr int64_t kTransposeBlock =
    int64_t{60} * 60;  // elements of the block through which a transposed matrix is copied

bool is_half(DType dtype) { return dtype == DType::BF16 || dtype == DType::F16; }
int64_t ceil_to(int64_t value, int64_t multiple) { return base::round_up(value, multiple); }

// Operands and results, by position.
struct Kernel {
  const base::KernelTensors& tensors;
  AtenWork work;
  int64_t threads;

  size_t inputs() const { return tensors.inputs.size(); }
  const TensorMeta& in(size_t i) const { return tensors.inputs[i]; }
  const TensorMeta* out() const {
    return tensors.results.empty() || !tensors.results[0] ? nullptr : &*tensors.results[0];
  }
  bool does(AtenWork one) const { return work == one; }
};

int64_t bytes_as(const TensorMeta& type, DType dtype) {
  return type.numel() * base::byte_size(dtype);
}

// A contiguous copy of every operand that is not contiguous.
int64_t contiguous_copies(const Kernel& k) {
  int64_t bytes = 0;
  for (size_t i = 0; i < k.inputs(); ++i) {
    if (k.in(i).is_contiguous()) continue;
    bytes += k.in(i).bytes() + kTransposeBlock * base::byte_size(k.in(i).dtype);
  }
  return bytes;
}

// Products take rows or columns with any distance between them; anything else is copied.
bool is_product_operand(const TensorMeta& type) {
  if (type.shape.size() < 2) return type.is_contiguous();
  size_t r = type.shape.size() - 2, c = r + 1;
  bool rows = type.strides[c] == 1 && type.strides[r] >= std::max<int64_t>(1, type.shape[c]);
  bool columns = type.strides[r] == 1 && type.strides[c] >= std::max<int64_t>(1, type.shape[r]);
  bool batches = true;
  if (type.shape.size() == 3) batches = type.strides[0] >= type.shape[r] * type.shape[c];
  return (rows || columns) && batches;
}

// oneDNN's 16-bit product m x k by k x n: an f32 block of the result, a packed block of the right
// side, and, where the left side is transposed, a packed block of it too.
int64_t half_product(int64_t m, int64_t k, bool packs_left) {
  int64_t rows = std::min<int64_t>(ceil_to(m, 16), 256);
  int64_t bytes = rows * 256 + 1024 + 128 * std::min<int64_t>(ceil_to(k, 64), 1024);
  if (packs_left) {
    int64_t depth = k < 1024 ? ceil_to(k + k / 4, 64) + 64 : 2560;
    bytes += 128 + 2 * rows * depth;
  }
  return bytes;
}

int64_t product(const Kernel& k) {
  size_t left = k.does(AtenWork::BiasFirst) ? 1 : 0, right = left + 1;
  if (k.inputs() <= right) return 0;
  int64_t bytes = 0;
  for (size_t i = left; i <= right; ++i) {
    if (!is_product_operand(k.in(i)))
      bytes += k.in(i).bytes() + kTransposeBlock * base::byte_size(k.in(i).dtype);
  }
  const TensorMeta& a = k.in(left);
  if (!is_half(a.dtype) || a.shape.size() < 2) return bytes;
  size_t r = a.shape.size() - 2;
  bool transposed = a.strides[r + 1] != 1;
  return bytes + k.threads * half_product(a.shape[r], a.shape[r + 1], transposed);
}

int64_t attention_rows(int64_t queries) {
  return std::min<int64_t>(queries, queries >= 768 ? 256 : queries >= 192 ? 64 : 32);
}

// [batch, heads, length, dim] stored as [batch, length, heads, dim].
bool is_length_major(const TensorMeta& type) {
  if (type.shape.size() != 4) return false;
  int64_t heads = type.shape[1], length = type.shape[2], dim = type.shape[3];
  return type.strides[3] == 1 && type.strides[1] == dim && type.strides[2] == dim * heads &&
         type.strides[0] == dim * heads * length;
}

int64_t attention_forward(const Kernel& k) {
  const TensorMeta &query = k.in(0), &key = k.in(1);
  if (query.shape.size() != 4 || key.shape.size() != 4) return 0;
  int64_t rows = attention_rows(query.shape[2]), columns = std::min<int64_t>(512, key.shape[2]);
  int64_t dim = query.shape[3];
  int64_t bytes = k.threads * 4 * (rows * columns + 2 * rows + rows * dim);
  if (is_half(query.dtype)) bytes += k.threads * 2 * rows * columns;
  return bytes;
}

int64_t attention_backward(const Kernel& k) {
  const TensorMeta &gradient = k.in(0), &query = k.in(1), &key = k.in(2);
  if (query.shape.size() != 4 || key.shape.size() != 4) return 0;
  int64_t rows = attention_rows(query.shape[2]), columns = std::min<int64_t>(512, key.shape[2]);
  int64_t bytes = k.threads * 4 * (2 * rows * columns + 2 * rows);
  if (!is_length_major(gradient)) bytes += gradient.bytes();
  if (!is_half(query.dtype)) return bytes;
  int64_t largest = std::max(half_product(rows, std::max(columns, query.shape[3]), true),
                             half_product(columns, rows, true));
  return bytes + k.threads * (4 * rows * columns + largest);
}

int64_t attention(const Kernel& k) {
  if (k.inputs() >= 3 && k.does(AtenWork::Flash)) return attention_forward(k);
  if (k.inputs() >= 3 && k.does(AtenWork::FlashBackward)) return attention_backward(k);
  return 2 * contiguous_copies(k) + (k.out() ? 2 * k.out()->bytes() : 0);
}

// Operands in another dtype than the computation's are converted first.
int64_t pointwise(const Kernel& k) {
  const TensorMeta* out = k.out();
  if (out == nullptr) return 0;
  if (k.does(AtenWork::MaskGradient)) return 2 * out->bytes();
  if (k.does(AtenWork::Classify)) return k.in(0).bytes() + 3 * k.in(0).numel();
  DType computed = out->dtype;
  if (computed == DType::Bool) {
    for (size_t i = 0; i < k.inputs(); ++i) {
      if (base::byte_size(k.in(i).dtype) > base::byte_size(computed)) computed = k.in(i).dtype;
    }
  }
  int64_t bytes = 0;
  for (size_t i = 0; i < k.inputs(); ++i) {
    bool is_condition = k.in(i).dtype == DType::Bool && k.does(AtenWork::Choose);
    if (!is_condition && k.in(i).dtype != computed) bytes += bytes_as(k.in(i), computed);
  }
  return bytes;
}

int64_t reduction(const Kernel& k) {
  if (k.inputs() == 0 || k.out() == nullptr) return 0;
  const TensorMeta& x = k.in(0);
  if (k.does(AtenWork::PickedLoss) || k.does(AtenWork::Extreme)) return 0;
  if (k.does(AtenWork::CrossEntropy)) return 12 * x.numel();
  if (k.does(AtenWork::Loss)) return (is_half(x.dtype) ? 6 : base::byte_size(x.dtype)) * x.numel();
  if (k.does(AtenWork::AnyAll)) return x.numel();
  int64_t bytes = 0;
  if (x.dtype != k.out()->dtype) bytes += bytes_as(x, k.out()->dtype);
  if (is_half(x.dtype) && !k.does(AtenWork::Sum)) {
    bytes += bytes_as(x, DType::F32) + bytes_as(*k.out(), DType::F32);
  }
  if (k.does(AtenWork::TwoPasses)) bytes += 2 * bytes_as(x, DType::F32);
  return bytes;
}

int64_t norm(const Kernel& k) {
  if (k.inputs() == 0) return 0;
  const TensorMeta& x = k.in(0);
  int64_t copies = contiguous_copies(k);
  if (k.does(AtenWork::RmsBackward)) return copies + 4 * bytes_as(x, DType::F32) + kSmall;
  if (k.does(AtenWork::Rms))
    return copies + (is_half(x.dtype) ? 3 : 2) * bytes_as(x, DType::F32) + kSmall;
  if (k.does(AtenWork::LayerBackward)) {
    int64_t columns = x.shape.empty() ? 1 : x.shape.back();
    for (size_t i = 1; i < k.inputs(); ++i)
      columns = std::max(columns, k.in(i).shape.size() == 1 ? k.in(i).numel() : 0);
    return copies + 8 * columns * k.threads;
  }
  int64_t channels = x.shape.size() > 1 ? x.shape[1] : 1;
  int64_t rows = x.shape.empty() ? 1 : x.shape[0];
  if (k.does(AtenWork::Batch)) return copies + 32 * channels * k.threads;
  if (k.does(AtenWork::BatchBackward)) return copies + 32 * channels * k.threads + x.bytes();
  if (k.does(AtenWork::Group)) return copies + 16 * rows * channels;
  return copies;
}

int64_t softmax(const Kernel& k) {
  int64_t bytes = contiguous_copies(k);
  if (k.does(AtenWork::Safe) && k.inputs() > 0) bytes += 2 * k.in(0).numel() + k.in(0).numel() / 64;
  return bytes;
}

// oneDNN reorders input, weight and output into blocked layouts; the two halves of the backward run
// one after the other. 16-bit weight gradients are summed in f32, one copy per thread.
int64_t convolution(const Kernel& k) {
  bool backward = k.does(AtenWork::ConvolveBackward);
  if (k.does(AtenWork::Resample) && k.inputs() > 0 && k.out() != nullptr)
    return k.in(0).bytes() + k.out()->bytes();
  if (!backward && !k.does(AtenWork::Convolve)) return contiguous_copies(k);
  if (k.inputs() < (backward ? 3u : 2u) || (!backward && k.out() == nullptr)) return 0;
  const TensorMeta& x = k.in(backward ? 1 : 0);
  const TensorMeta& weight = k.in(backward ? 2 : 1);
  const TensorMeta& y = backward ? k.in(0) : *k.out();
  int64_t bytes = x.bytes() + weight.bytes() + y.bytes() + 65536;
  if (backward) bytes += bytes_as(weight, DType::F32) * (k.threads - (is_half(x.dtype) ? 0 : 1));
  return bytes;
}

int64_t index(const Kernel& k) {
  if (k.inputs() == 0) return 0;
  int64_t bytes = contiguous_copies(k);
  for (size_t i = 1; i < k.inputs(); ++i) {
    if (k.in(i).dtype == DType::Bool)
      bytes +=
          k.in(i).numel() * 8 * static_cast<int64_t>(std::max<size_t>(1, k.in(i).shape.size()));
  }
  const TensorMeta& x = k.in(0);
  if (k.does(AtenWork::Sort)) {
    int64_t longest = 1;
    for (int64_t size : x.shape) longest = std::max(longest, size);
    return bytes + k.threads * longest * 16;
  }
  if (k.does(AtenWork::Widen) && is_half(x.dtype) && k.out() != nullptr)
    bytes += bytes_as(*k.out(), DType::F32) + x.numel() / 64;
  return bytes;
}

// Kernels whose results do not lie as the graph says when operands are not contiguous: the runtime
// copies them. Found by the samples of tests/runtime/kernel.
bool reorders(AtenWork work) {
  return work == AtenWork::Reorders || work == AtenWork::MaskGradient || work == AtenWork::Loss ||
         work == AtenWork::PickedLoss || work == AtenWork::Batch || work == AtenWork::BatchBackward;
}

int64_t reordered_results(const Kernel& k) {
  bool contiguous = true;
  for (size_t i = 0; i < k.inputs(); ++i) contiguous &= k.in(i).is_contiguous();
  if (contiguous || !reorders(k.work)) return 0;
  int64_t bytes = 0;
  for (const auto& result : k.tensors.results) {
    if (result) bytes += result->bytes();
  }
  return bytes;
}

int64_t of_class(const Kernel& k, AtenClass cls) {
  switch (cls) {
    case AtenClass::View:
    case AtenClass::Identity:
    case AtenClass::Create:
      return 0;
    case AtenClass::Copy:
      return k.inputs() == 0 ? 0 : kTransposeBlock * base::byte_size(k.in(0).dtype);
    case AtenClass::Pointwise:
      return pointwise(k);
    case AtenClass::Reduce:
      return reduction(k);
    case AtenClass::Norm:
      return norm(k);
    case AtenClass::Softmax:
      return softmax(k);
    case AtenClass::Matmul:
      return product(k);
    case AtenClass::Convolution:
      return convolution(k);
    case AtenClass::Attention:
      return attention(k);
    case AtenClass::Index:
      return index(k);
  }
  return 0;
}

// Rows or columns without gaps, matrices one behind the other or all the same.
bool is_dense_matrix(const TensorMeta& type) {
  const size_t r = type.shape.size() - 2, c = r + 1;
  const bool rows = type.strides[c] == 1 && type.strides[r] == type.shape[c];
  const bool columns = type.strides[r] == 1 && type.strides[c] == type.shape[r];
  const int64_t batch = r == 0 ? 0 : type.strides[0];
  return (rows || columns) && (batch == 0 || batch == type.shape[r] * type.shape[c]);
}

// As oneDNN's matmul asks for it: blocks of transposed operands and of 16-bit ones, and of sums in
// f32; and copies of operands and results that it cannot take where they are.
struct ProductBlocks {
  int64_t rows = 0, depth = 0;  // of the left side
  bool is_half = false, transposes_left = false, transposes_right = false;

  int64_t bytes() const {
    const int64_t deep = ceil_to(depth, 64), high = std::min(ceil_to(rows, 16), int64_t{512});
    int64_t bytes = kSmall;
    if (transposes_left) bytes += high * (deep + 64) * 4;
    if (transposes_right || is_half) bytes += 64 * deep * 4;
    if (is_half) bytes += 16 * kSmall;
    return bytes;
  }
};

int64_t native_product(const Kernel& k) {
  const size_t left = k.does(AtenWork::BiasFirst) ? 1 : 0, right = left + 1;
  const TensorMeta& a = k.in(left);
  const size_t r = a.shape.size() - 2;
  const auto is_transposed = [r](const TensorMeta& type) { return type.strides[r + 1] != 1; };
  int64_t bytes = ProductBlocks{a.shape[r], a.shape[r + 1], is_half(a.dtype), is_transposed(a),
                                is_transposed(k.in(right))}
                      .bytes();
  for (const size_t i : {left, right}) bytes += is_dense_matrix(k.in(i)) ? 0 : k.in(i).bytes();
  return bytes + (k.out()->is_contiguous() ? 0 : k.out()->bytes());
}

// As oneDNN reorders it: the channels, of weights both, in blocks of 16. Few channels, as an image
// has, stay as they are unless a gradient is made of them.
int64_t blocked_bytes(const TensorMeta& type, size_t channel_dims, bool pads_few) {
  int64_t count = type.numel();
  for (size_t dim = 2 - channel_dims; dim < 2; ++dim) {
    const int64_t channels = std::max<int64_t>(type.shape[dim], 1);
    if (channels >= 16 || pads_few) count = count / channels * ceil_to(channels, 16);
  }
  return count * base::byte_size(type.dtype);
}

// Elements of one channel.
int64_t plane_of(const TensorMeta& type) {
  return type.numel() / std::max<int64_t>(type.shape[0] * type.shape[1], 1);
}

// Of a convolution of 1 x 1, for one image: what it reads where it leaves elements out, and, of 16
// bits, its sums in f32.
int64_t pointwise_convolution(const TensorMeta& x, const TensorMeta& weight, const TensorMeta& y,
                              bool backward) {
  if (plane_of(weight) != 1) return 0;
  int64_t bytes = 0;
  if (plane_of(x) != plane_of(y))
    bytes += ceil_to(x.shape[1], 16) * plane_of(y) * base::byte_size(x.dtype);
  if (!backward && is_half(x.dtype))
    bytes += ceil_to(y.shape[1], 16) * plane_of(y) * base::byte_size(DType::F32);
  return bytes;
}

// Of 16 bits a plane in f32, in which windows that overlap add; a batch of channels has two dims
// before it.
int64_t native_pooling(const Kernel& k) {
  const TensorMeta* out = k.out();
  if (out == nullptr || !is_half(out->dtype) || out->shape.size() < 3) return 0;
  int64_t count = 1;
  for (size_t dim = out->shape.size() == 5 ? 2 : out->shape.size() - 2; dim < out->shape.size();
       ++dim)
    count *= out->shape[dim];
  return count * base::byte_size(DType::F32);
}

// Both sides and the weights in blocks, copies of what is not contiguous, and, for the gradient of
// 16-bit weights, their sums in f32 and one image of each side transposed. The two halves of the
// backward run one after the other in the same place.
int64_t native_convolution(const Kernel& k) {
  if (k.does(AtenWork::LargestBackward)) return native_pooling(k);
  const bool backward = k.does(AtenWork::ConvolveBackward);
  if (!backward && !k.does(AtenWork::Convolve)) return 0;
  const TensorMeta& x = k.in(backward ? 1 : 0);
  const TensorMeta& weight = k.in(backward ? 2 : 1);
  const TensorMeta* y = backward ? &k.in(0) : k.out();
  if (y == nullptr || x.shape.size() < 3 || weight.shape.size() < 3 || y->shape.size() < 3)
    return 0;
  const bool makes_x = backward && k.tensors.results[0].has_value();
  int64_t bytes = 16 * kSmall;
  for (const TensorMeta* type : {&x, &weight, y})
    bytes += type->is_contiguous() ? 0 : type->bytes();
  for (const auto& result : k.tensors.results)
    bytes += !result || result->is_contiguous() ? 0 : result->bytes();
  bytes += pointwise_convolution(x, weight, *y, backward);
  const int64_t blocked =
      blocked_bytes(x, 1, makes_x) + blocked_bytes(*y, 1, true) + blocked_bytes(weight, 2, true);
  if (backward && !makes_x &&
      base::widens_weight_gradient(x.dtype, weight.shape[1], plane_of(weight))) {
    for (const TensorMeta* type : {&x, &weight, &weight, y}) bytes += bytes_as(*type, DType::F32);
    return bytes + 2 * blocked;
  }
  bytes += blocked;
  if (backward && is_half(x.dtype)) {
    bytes += bytes_as(weight, DType::F32);
    for (const TensorMeta* type : {&x, y}) {
      const int64_t image = type->bytes() / std::max<int64_t>(type->shape[0], 1);
      bytes += image + image / 2;
    }
  }
  return bytes;
}

// What the kernels ask for, to the byte. Of sizes that no memory has, nothing: the kernels refuse
// them.
int64_t native_attention(const Kernel& k) {
  const bool backward = k.does(AtenWork::FlashBackward);
  const size_t query = backward ? 1 : 0;
  const std::span<const int64_t> queries = k.in(query).shape, keys = k.in(query + 1).shape;
  if (queries.size() != 4 || keys.size() != 4) return 0;
  const base::AttentionBlocks blocks(queries[2], keys[2], queries[3]);
  return (backward ? blocks.backward_bytes() : blocks.forward_bytes()).value_or(0);
}

// What the kernel asks for, but for the products: one at a time.
int64_t native_output_layer(const base::OutputLayer& of) {
  const base::LogitChunk chunk = base::choose_logit_chunk(of);
  const bool half = is_half(of.dtype);
  const int64_t logits = ProductBlocks{chunk.rows, of.depth, half, false, true}.bytes(),
                hidden = ProductBlocks{chunk.rows, chunk.classes, half, false, false}.bytes(),
                weight = ProductBlocks{chunk.classes, chunk.rows, half, true, false}.bytes();
  return base::logit_scratch(of, chunk)->bytes() + std::max({logits, hidden, weight});
}

base::Bytes estimate_native_scratch(const ir::AtenInfo& aten, const base::KernelTensors& tensors) {
  const Kernel kernel{tensors, aten.work, 1};
  if (!has_its_tensors(aten, tensors)) return {0};
  int64_t bytes = 0;
  if (aten.cls == AtenClass::Matmul && !kernel.does(AtenWork::Solve))
    bytes = native_product(kernel);
  if (aten.cls == AtenClass::Attention) bytes = native_attention(kernel);
  if (aten.cls == AtenClass::Convolution) bytes = native_convolution(kernel);
  return {ceil_to(bytes, base::kAlignment)};
}

}  // namespace

bool has_its_tensors(const ir::AtenInfo& aten, const base::KernelTensors& tensors) {
  return tensors.inputs.size() >= static_cast<size_t>(aten.operands) && !tensors.results.empty();
}

base::Bytes estimate_scratch(const base::KernelSignature& signature, int threads) {
  if (const auto layer = output_layer_of(signature))
    return {ceil_to(native_output_layer(*layer), base::kAlignment)};
  const ir::AtenInfo* aten = ir::aten_info(signature.op());
  if (aten == nullptr || aten->alias == ir::AliasRule::View) return {0};
  const base::KernelTensors tensors = signature.tensors();
  if (signature.provider() != base::Provider::Aten) return estimate_native_scratch(*aten, tensors);
  const Kernel kernel{tensors, aten->work, threads};
  const int64_t bytes =
      has_its_tensors(*aten, tensors) ? of_class(kernel, aten->cls) + reordered_results(kernel) : 0;
  return {ceil_to(bytes + kSmall, base::kAlignment)};
}

}  // namespace dc::cost
