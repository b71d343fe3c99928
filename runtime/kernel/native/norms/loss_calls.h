// Instructions of losses of rows of classes while their kernels are being prepared, as CPUs and
// GPUs read them.
#pragma once

#include <algorithm>
#include <optional>

#include "runtime/kernel/native/call.h"
#include "runtime/kernel/scalar/row_places.h"
#include "src/base/logit_chunks.h"

namespace dc::runtime::kernel::native {

// torch's numbers of reductions.
inline constexpr int64_t kLossOfEachRow = 0, kMeanOfRows = 1, kSumOfRows = 2;

// nll_loss of log-probabilities [rows, classes], or [images, classes, height, width] with a row for
// each pixel, which are f32, bf16 or f16, and its gradient.
struct NllLossCall {
  BoundTensor self, target;           // target: i64, a class for each row
  std::optional<BoundTensor> weight;  // one number for each class
  int64_t ignored = -100;             // a target that does not count
  int64_t reduction = kMeanOfRows;
  BoundTensor loss;                  // or its gradient: a number for each row, or one
  std::optional<BoundTensor> total;  // the sum of weights, one number; forward where it is wanted
  std::optional<BoundTensor> to;     // backward: the gradient of self

  scalar::RowPlaces self_rows{1, 0, 0}, target_rows{1, 0, 0};
  scalar::RowPlaces loss_rows{1, 0, 0};  // where each row has a loss
  scalar::RowPlaces to_rows{1, 0, 0};

  int64_t rows() const { return target.numel(); }
  int64_t classes() const { return self.sizes[1]; }
};
NllLossCall read_nll_loss(Call& call);
NllLossCall read_nll_loss_gradient(Call& call);

// dc.cross_entropy of logits [rows, classes], which are f32, bf16 or f16, and
// dc.cross_entropy_backward.
struct CrossEntropyCall {
  Dense logits, target;  // target: i64, a class for each row
  int64_t rows = 0, classes = 0, ignored = -100;
  bool is_mean = true;
  // Numbers of f32: the loss or its gradient, and the sum of weights; for each row its largest
  // logit and the logarithm of its sum.
  Dense loss, total, largest, log_of_sum;
};
CrossEntropyCall read_cross_entropy(Call& call);
CrossEntropyCall read_cross_entropy_gradient(Call& call);

// dc.linear_cross_entropy of hidden states [rows, depth] and weights [classes, depth], which are
// f32 or bf16.
struct OutputLayerCall {
  base::OutputLayer layer;  // at least one row, class and column
  base::LogitChunk chunk;   // at most 1024 of them
  Dense hidden, weight, target;
  Dense gradient, loss, total;  // numbers of f32: of the loss, the loss, the sum of weights
  Dense hidden_gradient, weight_gradient;
  int64_t ignored = -100;
  bool is_mean = true;

  bool by_classes() const { return chunk.classes < layer.classes; }
  // Whether sums over parts of a 16-bit gradient have a separate place.
  bool has_sums() const {
    return layer.dtype != base::DType::F32 && (by_classes() || chunk.rows < layer.rows);
  }
  // Rows of logits that the gradient of the same classes' weights has room for.
  int64_t rows_in_gradient() const { return std::min(layer.rows, layer.depth); }
};
OutputLayerCall read_output_layer(Call& call);

}  // namespace dc::runtime::kernel::native
