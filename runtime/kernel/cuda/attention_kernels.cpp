// Attention, with the CPU's arguments and results.
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <limits>

#include "runtime/kernel/cuda/block.h"
#include "runtime/kernel/cuda/element_type.h"
#include "runtime/kernel/cuda/hand_source.h"
#include "runtime/kernel/cuda/kernels/attention_parameters.h"
#include "runtime/kernel/cuda/model_kernels.h"
#include "runtime/kernel/cuda/walks.h"
#include "runtime/kernel/native/attention/heads.h"
#include "src/base/units.h"

namespace dc::runtime::kernel::cuda {
namespace {

using base::DType;
using base::Result;
using native::Call;
using native::Made;

// An instruction of attention while its kernel is made.
class AttentionMaker {
 public:
  explicit AttentionMaker(Call& call) : call_(call) {
    const BoundTensor query = call.tensor("query"), key = call.tensor("key");
    const native::AttentionCall checked(call, query, key);
    if (!call.ok()) return;
    dtype_ = query.dtype;
    call.require(checked.dim <= kMostColumns, "on GPUs a head may have at most 256 columns");
    of_.batch = checked.batch;
    of_.heads = checked.heads;
    of_.heads_per_key = checked.heads_per_key;
    of_.queries = checked.queries;
    of_.keys = checked.keys;
    of_.dim = checked.dim;
    of_.scale = checked.scale;
    of_.is_causal = checked.causal;
    of_.query = like_queries(query);
    of_.key = like_keys(key);
    of_.value = like_keys(call.tensor("value"));
    if (checked.mask) read_mask(call.tensor("attn_mask"));
  }

  HeadTensor like_queries(const BoundTensor& tensor) {
    return head_tensor(tensor, of_.heads, of_.queries);
  }
  HeadTensor like_keys(const BoundTensor& tensor) {
    return head_tensor(tensor, of_.heads / std::max<int64_t>(of_.heads_per_key, 1), of_.keys);
  }
  HeadTensor query_result(size_t index) {
    return call_.has_result(index) ? like_queries(call_.output(index)) : HeadTensor{};
  }
  HeadTensor key_result(size_t index) {
    return call_.has_result(index) ? like_keys(call_.output(index)) : HeadTensor{};
  }
  // [batch, heads, queries] of f32.
  HeadTensor sums(const BoundTensor& tensor) {
    call_.require(
        call_.ok() && tensor.dtype == DType::F32 &&
            std::ranges::equal(tensor.sizes, std::array{of_.batch, of_.heads, of_.queries}),
        "the sums of exponentials must be f32, one for each query");
    if (!call_.ok()) return {};
    return {tensor.data, tensor.strides[0], tensor.strides[1], tensor.strides[2], 1};
  }

  Attention& of() { return of_; }
  // Whether the kernels on tensor cores take it, if these tensors lie as they want it.
  bool suits_tensor_cores(std::initializer_list<const HeadTensor*> tensors) const {
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max() / 2;
    return (dtype_ == DType::BF16 || dtype_ == DType::F16) && of_.dim > 0 && of_.dim % 16 == 0 &&
           of_.dim <= kMostTensorDim && of_.scale > 0 && of_.queries < kMost && of_.keys < kMost &&
           of_.batch * of_.heads < kMost &&
           std::ranges::all_of(tensors, [&](const HeadTensor* each) { return in_words(*each); });
  }
  // The kernel `function` for the columns of heads.
  KernelSource source(const char* header, const char* parameters, const char* function) const {
    const int dim =
        *std::ranges::find_if(kAttentionDims, [&](int each) { return each >= of_.dim; });
    const std::string columns = std::to_string(dim);
    return source_of(
        std::string("dc_") + function + "_" + std::string(base::name(dtype_)) + "_" + columns,
        header, parameters,
        std::string(function) + "<" + element_type(dtype_) + ", " + columns + ">");
  }
  // The same on tensor cores; for tiles of a shape.
  KernelSource tensor_source(const char* header, const char* parameters, const char* function,
                             const BlockShape& block,
                             const std::string& more_arguments = "") const {
    const std::string columns = std::to_string(of_.dim);
    const bool has_mask = of_.mask.data != nullptr;
    return source_of(std::string("dc_") + function + "_" + std::string(base::name(dtype_)) + "_" +
                         columns + (has_mask ? "_masked" : ""),
                     header, parameters,
                     std::string(function) + "<" + element_type(dtype_) + ", " + columns + ", " +
                         (has_mask ? "true" : "false") + more_arguments + ">",
                     block);
  }
  KernelSource tensor_source(const char* header, const char* parameters, const char* function,
                             const char* shape_function, const TileShape& shape,
                             int shared_bytes) const {
    return tensor_source(header, parameters, function,
                         {shape.threads(), shared_bytes, shape.blocks},
                         std::string(", ") + shape_function + "(" + std::to_string(of_.dim) +
                             (shape.by_groups ? ", true)" : ")"));
  }
  DType dtype() const { return dtype_; }

 private:
  // Rows of elements next to each other, on 16 bytes.
  bool in_words(const HeadTensor& tensor) const {
    constexpr int64_t kWord = 16, kElements = kWord / 2;
    const auto fits = [](int64_t stride) {
      return stride % kElements == 0 && stride >= 0 &&
             stride <= std::numeric_limits<int32_t>::max();
    };
    return tensor.data == nullptr ||
           (reinterpret_cast<uintptr_t>(tensor.data) % kWord == 0 && tensor.column == 1 &&
            fits(tensor.row) && tensor.head % kElements == 0 && tensor.batch % kElements == 0);
  }

  static constexpr int64_t kMostColumns = kAttentionDims[std::size(kAttentionDims) - 1];

  HeadTensor head_tensor(const BoundTensor& tensor, int64_t heads, int64_t length) {
    call_.require(
        base::is_floating(tensor.dtype) && tensor.dtype != DType::F64 && tensor.dtype == dtype_,
        "its tensors must all be f32, bf16 or f16");
    call_.require(std::ranges::equal(tensor.sizes, std::array{of_.batch, heads, length, of_.dim}),
                  "its tensors differ in shape");
    if (!call_.ok()) return {};
    return {tensor.data, tensor.strides[0], tensor.strides[1], tensor.strides[2],
            tensor.strides[3]};
  }

  void read_mask(const BoundTensor& mask) {
    const auto strides =
        native::broadcast_strides(mask, std::array{of_.batch, of_.heads, of_.queries, of_.keys});
    call_.require(strides.has_value(), "the mask does not broadcast to the scores");
    if (!call_.ok()) return;
    of_.mask = numbers_of(call_, mask);
    of_.mask_batch = (*strides)[0];
    of_.mask_head = (*strides)[1];
    of_.mask_row = (*strides)[2];
    of_.mask_column = (*strides)[3];
  }

  Call& call_;
  Attention of_{};
  DType dtype_ = DType::F32;
};

int64_t tiles_of(int64_t length, int tile = kAttentionTile) { return (length + tile - 1) / tile; }
unsigned blocks_of(const Workshop& workshop, int64_t tiles) {
  return workshop.blocks_for(tiles * kBlockThreads);
}
// One for each tile: the GPU begins with the first ones, which have the most work.
unsigned tensor_blocks(const TileShape& shape, int64_t length, int64_t heads) {
  return static_cast<unsigned>(tiles_of(length, shape.rows()) * heads);
}

Made attention_kernel(Workshop& workshop, Call& call, int32_t) {
  AttentionMaker maker(call);
  Attention& of = maker.of();
  if (call.ok()) of.out = maker.query_result(0);
  if (call.ok() && call.has_result(1)) of.logsumexp = maker.sums(call.output(1));
  if (!call.ok()) return call.made(nullptr);
  const int dim = static_cast<int>(of.dim);
  const TileShape shape = forward_shape(dim, are_for_groups(dim, workshop.architecture()));
  if (maker.suits_tensor_cores({&of.query, &of.key, &of.value, &of.out}) &&
      workshop.has_tensor_cores(forward_bytes(dim, shape)))
    return workshop.kernel(
        maker.tensor_source("tensor_attention.h", "Attention", "tensor_attention", "forward_shape",
                            shape, forward_bytes(dim, shape)),
        tensor_blocks(shape, of.queries, of.heads * of.batch), of);
  return workshop.kernel(maker.source("attention.h", "Attention", "attention"),
                         blocks_of(workshop, tiles_of(of.queries) * of.heads * of.batch), of);
}

// Into how many groups the query heads that share keys are divided: as few as are enough blocks.
int groups_of(const Attention& of, const TileShape& shape) {
  const int64_t blocks = tensor_blocks(shape, of.keys, of.heads / of.heads_per_key * of.batch);
  int64_t groups = 1;
  while (groups < of.heads_per_key &&
         (of.heads_per_key % groups != 0 || blocks * groups < kEnoughBlocks))
    ++groups;
  return static_cast<int>(groups);
}
// The same for blocks that take a multiprocessor each: as few as leave it the fewest heads.
int joint_groups_of(const Attention& of, int64_t blocks) {
  int64_t best = 1, least = std::numeric_limits<int64_t>::max();
  for (int64_t groups = 1; groups <= of.heads_per_key; ++groups) {
    if (of.heads_per_key % groups != 0) continue;
    const int64_t heads = tiles_of(blocks * groups, kJointBlocks) * (of.heads_per_key / groups);
    if (heads < least) best = groups;
    least = std::min(least, heads);
  }
  return static_cast<int>(best);
}

// The kernels of the gradients, one after the other, on tensor cores.
class TensorBackward {
 public:
  TensorBackward(Workshop& workshop, const AttentionMaker& maker, const AttentionBackward& all)
      : workshop_(workshop), maker_(maker), of_(all.of), parameters_{all,     0,       nullptr, 1,
                                                                     nullptr, nullptr, {}} {
    parameters_.padded_queries =
        static_cast<int>(base::round_up(of_.queries, int64_t{kPaddedQueries}));
    if (is_joint_) {
      JointGradients& joint = parameters_.joint;
      joint.query_tiles = static_cast<int>(tiles_of(of_.queries, joint_queries(dim())));
      joint.key_tiles = static_cast<int>(tiles_of(of_.keys, kJointKeys));
      const int64_t blocks =
          JointGradients::blocks(joint.key_tiles, of_.is_causal) * key_heads() * of_.batch;
      parameters_.groups = joint_groups_of(of_, blocks);
      blocks_ = static_cast<unsigned>(blocks * parameters_.groups);
    } else {
      parameters_.groups = groups_of(of_, keys_);
    }
  }

  Made made(int32_t stream) {
    DC_RETURN_IF_ERROR(take_scratch(stream));
    const AttentionBackward& all = parameters_.all;
    DC_RETURN_IF_ERROR(
        add(plain("tensor_attention_deltas"), workshop_.blocks_for(sums() * kThreadsPerDelta)));
    const bool wants_keys = all.of_key.data != nullptr || all.of_value.data != nullptr;
    if (is_joint_) DC_RETURN_IF_ERROR(add_joint());
    if (!is_joint_ && wants_keys) {
      DC_RETURN_IF_ERROR(
          add(maker_.tensor_source(kHeader, kType, "tensor_attention_key_gradients", "key_shape",
                                   keys_, key_bytes(dim(), keys_)),
              tensor_blocks(keys_, of_.keys, key_heads() * parameters_.groups * of_.batch)));
    }
    if (wants_keys && parameters_.groups > 1)
      DC_RETURN_IF_ERROR(add(plain("tensor_attention_key_sums"),
                             workshop_.blocks_for(part() / parameters_.groups)));
    if (!is_joint_ && all.of_query.data != nullptr)
      DC_RETURN_IF_ERROR(
          add(maker_.tensor_source(kHeader, kType, "tensor_attention_query_gradients",
                                   "query_shape", queries_, query_bytes(dim(), queries_)),
              tensor_blocks(queries_, of_.queries, of_.heads * of_.batch)));
    return workshop_.kernel(std::move(launches_));
  }
  // Whether the GPU has enough shared memory.
  bool fits() const {
    return workshop_.has_tensor_cores(
        is_joint_ ? joint_bytes(dim())
                  : std::max(key_bytes(dim(), keys_), query_bytes(dim(), queries_)));
  }

 private:
  static constexpr const char *kHeader = "tensor_attention_backward.h",
                              *kJointHeader = "tensor_attention_joint.h",
                              *kType = "TensorAttentionBackward";
  int dim() const { return static_cast<int>(of_.dim); }
  int64_t key_heads() const { return of_.heads / of_.heads_per_key; }
  int64_t sums() const { return of_.batch * of_.heads * parameters_.padded_queries; }
  int64_t part() const {
    return parameters_.groups == 1
               ? 0
               : parameters_.groups * of_.batch * key_heads() * of_.keys * of_.dim;
  }

  base::Status take_scratch(int32_t stream) {
    JointGradients& joint = parameters_.joint;
    const int64_t tiles = JointGradients::chains(of_.is_causal) * of_.batch * of_.heads *
                          (is_joint_ ? joint.query_tiles : 0),
                  of_query = tiles * joint_queries(dim()) * of_.dim;
    joint.turn_count = is_joint_ ? 1 + tiles : 0;
    DC_ASSIGN_OR_RETURN(
        std::byte* const scratch,
        workshop_.scratch(stream, (2 * sums() + 2 * part() + of_query + joint.turn_count) *
                                      static_cast<int64_t>(sizeof(float))));
    parameters_.all.deltas = reinterpret_cast<float*>(scratch);
    parameters_.sums = parameters_.all.deltas + sums();
    joint.of_query = parameters_.sums + sums();
    parameters_.of_key = joint.of_query + of_query;
    parameters_.of_value = parameters_.of_key + part();
    joint.turns = reinterpret_cast<uint32_t*>(parameters_.of_value + part());
    return {};
  }
  base::Status add_joint() {
    DC_RETURN_IF_ERROR(
        add(maker_.tensor_source(kJointHeader, kType, "tensor_attention_joint_gradients",
                                 {kJointThreads, joint_bytes(dim()), 1}),
            blocks_));
    if (parameters_.all.of_query.data == nullptr) return {};
    return add(maker_.source(kJointHeader, kType, "tensor_attention_query_sums"),
               workshop_.blocks_for(sums() * of_.dim / 4));
  }
  KernelSource plain(const char* function) const {
    return source_for({maker_.dtype()}, std::string("dc_") + function, kHeader, kType, function);
  }
  base::Status add(const KernelSource& source, unsigned blocks) {
    DC_ASSIGN_OR_RETURN(Launch launch, workshop_.launch(source, blocks, parameters_));
    launches_.push_back(std::move(launch));
    return {};
  }

  Workshop& workshop_;
  const AttentionMaker& maker_;
  const Attention& of_;
  bool is_joint_ = are_for_groups(dim(), workshop_.architecture());
  TileShape keys_ = key_shape(dim()), queries_ = query_shape(dim());
  TensorAttentionBackward parameters_;
  unsigned blocks_ = 0;
  std::vector<Launch> launches_;
};

Made attention_backward_kernel(Workshop& workshop, Call& call, int32_t stream) {
  AttentionMaker maker(call);
  AttentionBackward parameters{};
  if (call.ok()) {
    maker.of().out = maker.like_queries(call.tensor("out"));
    maker.of().logsumexp = maker.sums(call.tensor("logsumexp"));
    parameters.of = maker.of();
    parameters.gradient = maker.like_queries(call.tensor("grad_out"));
    parameters.of_query = maker.query_result(0);
    parameters.of_key = maker.key_result(1);
    parameters.of_value = maker.key_result(2);
  }
  if (!call.ok()) return call.made(nullptr);
  const Attention& of = parameters.of;
  if (maker.suits_tensor_cores({&of.query, &of.key, &of.value, &of.out, &parameters.gradient,
                                &parameters.of_query, &parameters.of_key, &parameters.of_value})) {
    TensorBackward on_tensor_cores(workshop, maker, parameters);
    if (on_tensor_cores.fits()) return on_tensor_cores.made(stream);
  }
  const int64_t queries = of.batch * of.heads * of.queries;
  DC_ASSIGN_OR_RETURN(
      std::byte* const deltas,
      workshop.scratch(stream, queries * static_cast<int64_t>(sizeof *parameters.deltas)));
  parameters.deltas = reinterpret_cast<float*>(deltas);
  std::vector<Launch> launches;
  const auto add = [&](const KernelSource& source, unsigned blocks) -> base::Status {
    DC_ASSIGN_OR_RETURN(Launch launch, workshop.launch(source, blocks, parameters));
    launches.push_back(std::move(launch));
    return {};
  };
  const char *header = "attention_backward.h", *type = "AttentionBackward";
  DC_RETURN_IF_ERROR(
      add(source_for({maker.dtype()}, "dc_attention_deltas", header, type, "attention_deltas"),
          workshop.blocks_for(queries)));
  if (parameters.of_key.data != nullptr || parameters.of_value.data != nullptr)
    DC_RETURN_IF_ERROR(
        add(maker.source(header, type, "attention_key_gradients"),
            blocks_of(workshop, tiles_of(of.keys) * of.heads / of.heads_per_key * of.batch)));
  if (parameters.of_query.data != nullptr)
    DC_RETURN_IF_ERROR(add(maker.source(header, type, "attention_query_gradients"),
                           blocks_of(workshop, tiles_of(of.queries) * of.heads * of.batch)));
  return workshop.kernel(std::move(launches));
}

// Of CUDA's operators.
template <Made (*make)(Workshop&, Call&, int32_t)>
Made square(Workshop& workshop, Call& call, int32_t stream) {
  native::require_square_causal_mask(call);
  return make(workshop, call, stream);
}

constexpr ModelKernelRow kAttentionRows[] = {
    {"aten._scaled_dot_product_flash_attention.default", square<attention_kernel>},
    {"aten._scaled_dot_product_flash_attention_backward.default",
     square<attention_backward_kernel>},
    {"aten._scaled_dot_product_flash_attention_for_cpu.default", attention_kernel},
    {"aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
     attention_backward_kernel},
};

}  // namespace

std::span<const ModelKernelRow> attention_kernels() { return kAttentionRows; }

}  // namespace dc::runtime::kernel::cuda
