#include "src/cost/scratch.h"

#include <algorithm>
#include <string_view>

namespace dc::cost {
namespace {

using base::DType;
using ir::AtenClass;
using ir::Graph;
using ir::Node;
using ir::OpKind;
using ir::TensorType;

constexpr int64_t kSmall =
    4096;  // scalars wrapped as tensors, strides of iterators, sums per thread
constexpr int64_t kTransposeBlock =
    60 * 60;  // elements of the block through which a transposed matrix is copied

bool is_half(DType dtype) { return dtype == DType::BF16 || dtype == DType::F16; }
int64_t ceil_to(int64_t value, int64_t multiple) { return base::round_up(value, multiple); }

// One node's operands and results, by position.
struct Kernel {
  const Graph& graph;
  const Node& node;
  int64_t threads;

  size_t inputs() const { return node.operands.size(); }
  const TensorType& in(size_t i) const { return graph.value(node.operands[i]).type; }
  const TensorType* out() const {
    return node.results.empty() || !node.results[0].valid() ? nullptr
                                                            : &graph.value(node.results[0]).type;
  }
  bool is(std::string_view name) const { return node.overload == name; }
  bool contains(std::string_view part) const {
    return node.overload.find(part) != std::string::npos;
  }
};

int64_t bytes_as(const TensorType& type, DType dtype) {
  return type.numel() * base::byte_size(dtype);
}

// A contiguous copy of every operand that is not contiguous.
int64_t contiguous_copies(const Kernel& k) {
  int64_t bytes = 0;
  for (size_t i = 0; i < k.inputs(); ++i) {
    if (k.in(i).is_contiguous()) continue;
    bytes += k.in(i).bytes().v + kTransposeBlock * base::byte_size(k.in(i).dtype);
  }
  return bytes;
}

// Products take rows or columns with any distance between them; anything else is copied.
bool is_product_operand(const TensorType& type) {
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
  bool adds = k.contains("add");
  size_t left = adds ? 1 : 0, right = left + 1;
  if (k.inputs() <= right) return 0;
  int64_t bytes = 0;
  for (size_t i = left; i <= right; ++i) {
    if (!is_product_operand(k.in(i)))
      bytes += k.in(i).bytes().v + kTransposeBlock * base::byte_size(k.in(i).dtype);
  }
  const TensorType& a = k.in(left);
  if (!is_half(a.dtype) || a.shape.size() < 2) return bytes;
  size_t r = a.shape.size() - 2;
  bool transposed = a.strides[r + 1] != 1;
  return bytes + k.threads * half_product(a.shape[r], a.shape[r + 1], transposed);
}

int64_t attention_rows(int64_t queries) {
  return std::min<int64_t>(queries, queries >= 768 ? 256 : queries >= 192 ? 64 : 32);
}

// [batch, heads, length, dim] stored as [batch, length, heads, dim].
bool is_length_major(const TensorType& type) {
  if (type.shape.size() != 4) return false;
  int64_t heads = type.shape[1], length = type.shape[2], dim = type.shape[3];
  return type.strides[3] == 1 && type.strides[1] == dim && type.strides[2] == dim * heads &&
         type.strides[0] == dim * heads * length;
}

int64_t attention_forward(const Kernel& k) {
  const TensorType &query = k.in(0), &key = k.in(1);
  if (query.shape.size() != 4 || key.shape.size() != 4) return 0;
  int64_t rows = attention_rows(query.shape[2]), columns = std::min<int64_t>(512, key.shape[2]);
  int64_t dim = query.shape[3];
  int64_t bytes = k.threads * 4 * (rows * columns + 2 * rows + rows * dim);
  if (is_half(query.dtype)) bytes += k.threads * 2 * rows * columns;
  return bytes;
}

int64_t attention_backward(const Kernel& k) {
  const TensorType &gradient = k.in(0), &query = k.in(1), &key = k.in(2);
  if (query.shape.size() != 4 || key.shape.size() != 4) return 0;
  int64_t rows = attention_rows(query.shape[2]), columns = std::min<int64_t>(512, key.shape[2]);
  int64_t bytes = k.threads * 4 * (2 * rows * columns + 2 * rows);
  if (!is_length_major(gradient)) bytes += gradient.bytes().v;
  if (!is_half(query.dtype)) return bytes;
  int64_t largest = std::max(half_product(rows, std::max(columns, query.shape[3]), true),
                             half_product(columns, rows, true));
  return bytes + k.threads * (2 * 2 * rows * columns + largest);
}

int64_t attention(const Kernel& k) {
  if (!k.contains("flash_attention_for_cpu") || k.inputs() < 3)
    return 2 * contiguous_copies(k) + (k.out() ? 2 * k.out()->bytes().v : 0);
  return k.contains("backward") ? attention_backward(k) : attention_forward(k);
}

// Operands in another dtype than the computation's are converted first.
int64_t pointwise(const Kernel& k) {
  const TensorType* out = k.out();
  if (out == nullptr) return 0;
  if (k.contains("dropout_backward")) return 2 * out->bytes().v;
  if (k.contains("isfinite") || k.contains("isinf")) return k.in(0).bytes().v + 3 * k.in(0).numel();
  DType computed = out->dtype;
  if (computed == DType::Bool) {
    computed = DType::Bool;
    for (size_t i = 0; i < k.inputs(); ++i) {
      if (base::byte_size(k.in(i).dtype) > base::byte_size(computed)) computed = k.in(i).dtype;
    }
  }
  int64_t bytes = 0;
  for (size_t i = 0; i < k.inputs(); ++i) {
    bool is_condition =
        k.in(i).dtype == DType::Bool && (k.contains("where") || k.contains("masked_fill"));
    if (!is_condition && k.in(i).dtype != computed) bytes += bytes_as(k.in(i), computed);
  }
  return bytes;
}

int64_t reduction(const Kernel& k) {
  if (k.inputs() == 0 || k.out() == nullptr) return 0;
  const TensorType& x = k.in(0);
  if (k.contains("loss") || k.contains("binary_cross_entropy")) {
    if (k.contains("nll_loss")) return 0;
    int64_t per_element = is_half(x.dtype) ? 6 : base::byte_size(x.dtype);
    return (k.contains("binary_cross_entropy") ? 12 : per_element) * x.numel();
  }
  bool compares = k.contains(".arg") || k.contains("max") || k.contains("min");
  if (k.contains(".any") || k.contains(".all")) return x.numel();
  if (compares) return 0;
  int64_t bytes = 0;
  if (x.dtype != k.out()->dtype) bytes += bytes_as(x, k.out()->dtype);
  if (is_half(x.dtype) && !k.contains(".sum")) {
    bytes += bytes_as(x, DType::F32) + bytes_as(*k.out(), DType::F32);
  }
  if (k.contains("logsumexp") || k.contains("norm.Scalar")) bytes += 2 * bytes_as(x, DType::F32);
  return bytes;
}

int64_t norm(const Kernel& k) {
  if (k.inputs() == 0) return 0;
  const TensorType& x = k.in(0);
  int64_t copies = contiguous_copies(k);
  if (k.contains("rms_norm"))
    return copies +
           (k.contains("backward") ? 4
            : is_half(x.dtype)     ? 3
                                   : 2) *
               bytes_as(x, DType::F32) +
           kSmall;
  if (k.contains("layer_norm_backward")) {
    int64_t columns = x.shape.empty() ? 1 : x.shape.back();
    for (size_t i = 1; i < k.inputs(); ++i)
      columns = std::max(columns, k.in(i).shape.size() == 1 ? k.in(i).numel() : 0);
    return copies + 2 * 4 * columns * k.threads;
  }
  int64_t channels = x.shape.size() > 1 ? x.shape[1] : 1;
  int64_t rows = x.shape.empty() ? 1 : x.shape[0];
  if (k.contains("batch_norm"))
    return copies + 32 * channels * k.threads + (k.contains("backward") ? x.bytes().v : 0);
  if (k.contains("group_norm")) return copies + 16 * rows * channels;
  return copies;
}

int64_t softmax(const Kernel& k) {
  int64_t bytes = contiguous_copies(k);
  if (k.contains("_safe_softmax") && k.inputs() > 0)
    bytes += 2 * k.in(0).numel() + k.in(0).numel() / 64;
  return bytes;
}

// oneDNN reorders input, weight and output into blocked layouts; the two halves of the backward run
// one after the other. 16-bit weight gradients are summed in f32, one copy per thread.
int64_t convolution(const Kernel& k) {
  bool backward = k.is("aten.convolution_backward.default");
  if (k.contains("upsample") && k.inputs() > 0 && k.out() != nullptr)
    return k.in(0).bytes().v + k.out()->bytes().v;
  if (!backward && !k.is("aten.convolution.default")) return contiguous_copies(k);
  if (k.inputs() < (backward ? 3u : 2u) || (!backward && k.out() == nullptr)) return 0;
  const TensorType& x = k.in(backward ? 1 : 0);
  const TensorType& weight = k.in(backward ? 2 : 1);
  const TensorType& y = backward ? k.in(0) : *k.out();
  int64_t bytes = x.bytes().v + weight.bytes().v + y.bytes().v + 65536;
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
  const TensorType& x = k.in(0);
  if (k.contains("sort") || k.contains("topk")) {
    int64_t longest = 1;
    for (int64_t size : x.shape) longest = std::max(longest, size);
    return bytes + k.threads * longest * 16;
  }
  bool widens = k.contains("scatter") || k.contains("gather") || k.contains("index_add") ||
                k.contains("value_selecting");
  if (widens && is_half(x.dtype) && k.out() != nullptr)
    bytes += bytes_as(*k.out(), DType::F32) + x.numel() / 64;
  return bytes;
}

// Kernels whose results do not lie as the graph says when operands are not contiguous: the runtime
// copies them. Found by the samples of tests/runtime/kernel.
bool reorders(const Kernel& k) {
  return k.contains("batch_norm") || k.contains("_loss") || k.contains("reflection_pad") ||
         k.is("aten._log_softmax_backward_data.default") || k.is("aten.pow.Scalar") ||
         k.is("aten.log_sigmoid_forward.default") || k.is("aten.native_dropout_backward.default");
}

int64_t reordered_results(const Kernel& k) {
  bool contiguous = true;
  for (size_t i = 0; i < k.inputs(); ++i) contiguous &= k.in(i).is_contiguous();
  if (contiguous || !reorders(k)) return 0;
  int64_t bytes = 0;
  for (const ir::ValueId result : k.node.results) {
    if (result.valid()) bytes += k.graph.value(result).type.bytes().v;
  }
  return bytes;
}

int64_t of_class(const Kernel& k, AtenClass cls) {
  switch (cls) {
    case AtenClass::View:
    case AtenClass::Identity:
      return 0;
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

}  // namespace

base::Bytes estimate_scratch(const Graph& graph, const Node& node, int threads) {
  if (node.kind != OpKind::Aten) return {0};
  const ir::AtenInfo* aten = ir::aten_info(node.overload);
  if (aten == nullptr || aten->alias == ir::AliasRule::View) return {0};
  const Kernel kernel{graph, node, threads};
  const int64_t bytes = of_class(kernel, aten->cls) + reordered_results(kernel);
  return {ceil_to(bytes + kSmall, base::kAlignment)};
}

}  // namespace dc::cost
