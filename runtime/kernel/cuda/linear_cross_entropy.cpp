#include "runtime/kernel/cuda/linear_cross_entropy.h"

#include <algorithm>
#include <array>

#include "runtime/kernel/cuda/block.h"
#include "runtime/kernel/cuda/expression_kernels.h"
#include "runtime/kernel/cuda/hand_source.h"
#include "runtime/kernel/cuda/kernel_sequence.h"
#include "runtime/kernel/cuda/kernels/logit_parameters.h"
#include "runtime/kernel/native/norms/class_rows.h"
#include "runtime/kernel/native/registry.h"
#include "src/base/logit_chunks.h"

namespace dc::runtime::kernel::cuda {
namespace {

using base::DType;
using base::Result;
using base::Status;
using native::Call;
using native::Dense;
using native::Made;

struct Matrix {
  std::array<int64_t, 2> sizes{}, strides{};
  DType dtype = DType::F32;

  BoundTensor at(std::byte* data) const { return {data, dtype, sizes, strides}; }
  Matrix transposed() const { return {{sizes[1], sizes[0]}, {strides[1], strides[0]}, dtype}; }
};
Matrix matrix(int64_t rows, int64_t columns, DType dtype) {
  return {{rows, columns}, {columns, 1}, dtype};
}

class OutputLayerMaker {
 public:
  OutputLayerMaker(Workshop& workshop, Products& products, Call& call, int32_t stream)
      : workshop_(workshop), products_(products), call_(call), stream_(stream) {}

  Made make() {
    read();
    if (!call_.ok()) return call_.made(nullptr);
    DC_RETURN_IF_ERROR(take_scratch());
    DC_RETURN_IF_ERROR(add("logit_total", 1, loss_));
    DC_RETURN_IF_ERROR(by_classes() ? add_parts_of_classes() : add_parts_of_rows());
    if (has_sums()) {
      const int64_t rows = by_classes() ? layer_.rows : layer_.classes;
      std::byte* const to = by_classes() ? hidden_gradient_ : weight_gradient_;
      DC_ASSIGN_OR_RETURN(auto round,
                          copy_kernel(workshop_, matrix(rows, layer_.depth, DType::F32).at(sums_),
                                      matrix(rows, layer_.depth, layer_.dtype).at(to)));
      all_->add(std::move(round));
    }
    DC_RETURN_IF_ERROR(add("logit_loss", 1, loss_));
    return std::unique_ptr<Kernel>(std::move(all_));
  }

 private:
  bool by_classes() const { return chunk_.classes < layer_.classes; }
  int64_t parts() const {
    return by_classes() ? base::parts_of(layer_.classes, chunk_.classes) : 1;
  }
  int64_t element() const { return base::byte_size(layer_.dtype); }
  // Sums over parts of a 16-bit gradient have a separate place.
  bool has_sums() const {
    return layer_.dtype != DType::F32 && (by_classes() || chunk_.rows < layer_.rows);
  }
  int64_t rows_in_gradient() const { return std::min(layer_.rows, layer_.depth); }

  void read() {
    const Dense hidden = call_.operand(0), weight = call_.operand(1),
                target = call_.operand(2, DType::I64), gradient = call_.operand(3, DType::F32),
                loss = call_.result(0), total = call_.result(1), of_hidden = call_.result(2),
                of_weight = call_.result(3);
    layer_ = {target.count, 0, call_.columns(0), hidden.dtype};
    chunk_ = {call_.integer("rows"), call_.integer("classes")};
    const int64_t reduction = call_.integer("reduction");
    call_.require(reduction == native::kMeanOfRows || reduction == native::kSumOfRows,
                  "'reduction' must be 1, a mean, or 2, a sum");
    call_.require(layer_.dtype == DType::F32 || layer_.dtype == DType::BF16,
                  "the hidden states must be f32 or bf16");
    for (const Dense& other : {weight, of_hidden, of_weight})
      call_.require(other.dtype == layer_.dtype, "the element types differ");
    call_.require(hidden.count > 0 && weight.count > 0 && layer_.depth > 0,
                  "a matrix has no elements");
    if (!call_.ok()) return;
    call_.require(call_.columns(1) == layer_.depth && hidden.count == layer_.rows * layer_.depth &&
                      weight.count % layer_.depth == 0,
                  "there must be hidden states for each target, and weights as deep as they");
    call_.require(of_hidden.count == hidden.count && of_weight.count == weight.count,
                  "the gradients must have the sizes of the hidden states and of the weights");
    for (const Dense& number : {gradient, loss, total})
      call_.require(number.dtype == DType::F32 && number.count == 1,
                    "the loss, its gradient and the sum of weights must be f32 numbers");
    layer_.classes = weight.count / layer_.depth;
    check_chunk();
    hidden_ = hidden.address(), weight_ = weight.address();
    hidden_gradient_ = of_hidden.address(), weight_gradient_ = of_weight.address();
    gradient_ = static_cast<const float*>(gradient.data);
    loss_.targets = static_cast<const int64_t*>(target.data);
    loss_.rows = layer_.rows;
    loss_.parts = parts();
    loss_.classes = layer_.classes;
    loss_.ignored = call_.integer("ignored");
    loss_.is_mean = reduction == native::kMeanOfRows;
    loss_.loss = static_cast<float*>(loss.data);
    loss_.total = static_cast<float*>(total.data);
  }

  void check_chunk() {
    constexpr int64_t kMostParts = 1024;  // each has separate products
    const auto is_part = [](int64_t part, int64_t size) {
      return part >= 1 && part <= size && base::parts_of(size, part) <= kMostParts;
    };
    call_.require(is_part(chunk_.rows, layer_.rows) && is_part(chunk_.classes, layer_.classes) &&
                      (chunk_.rows == layer_.rows || chunk_.classes == layer_.classes),
                  "'rows' and 'classes' must be at most 1024 parts of all rows or of all classes");
  }

  // In the plan's scratch if that has room, logits first; else in memory beyond the plan's.
  Status take_scratch() {
    const auto planned = base::logit_scratch(layer_, chunk_);
    call_.require(planned.has_value(), "the logits have too many elements");
    if (!call_.ok()) return call_.made(nullptr).status();
    const int64_t bytes = planned->bytes() - planned->numbers;
    std::byte* const logits = workshop_.planned_scratch(bytes);
    const int64_t of_powers = parts() * layer_.rows * static_cast<int64_t>(sizeof(LogitPowers)),
                  of_numbers = layer_.rows * static_cast<int64_t>(sizeof(float));
    const int64_t extra = base::round_up(of_powers + 4 * of_numbers, base::kAlignment);
    DC_ASSIGN_OR_RETURN(std::byte* const numbers,
                        workshop_.scratch(stream_, extra + (logits != nullptr ? 0 : bytes)));
    powers_ = reinterpret_cast<LogitPowers*>(numbers);
    own_ = reinterpret_cast<float*>(numbers + of_powers);
    loss_.powers = powers_;
    loss_.own = own_;
    loss_.largest = own_ + layer_.rows;
    loss_.log_of_sum = loss_.largest + layer_.rows;
    loss_.losses = loss_.log_of_sum + layer_.rows;
    logits_ = logits != nullptr ? logits : numbers + extra;
    waiting_ = logits_ + planned->chunk;
    sums_ = waiting_ + planned->waiting;
    return {};
  }

  template <typename Parameters>
  Status add(const std::string& function, unsigned blocks, const Parameters& parameters,
             std::initializer_list<DType> types = {}) {
    const char* type = std::is_same_v<Parameters, LogitPart> ? "LogitPart" : "LogitLoss";
    const KernelSource source =
        types.size() == 0 ? source_of("dc_" + function, "logits.h", type, function)
                          : source_for(types, "dc_" + function, "logits.h", type, function);
    DC_ASSIGN_OR_RETURN(auto kernel, workshop_.kernel(source, blocks, parameters));
    all_->add(std::move(kernel));
    return {};
  }
  Status add_product(const BoundTensor& left, const BoundTensor& right, const BoundTensor& result,
                     bool adds) {
    DC_ASSIGN_OR_RETURN(auto kernel, products_.product(call_, left, right, result, adds, stream_));
    all_->add(std::move(kernel));
    return {};
  }
  Status add_powers(const LogitPart& part) {
    return add("logit_powers", workshop_.blocks_for(part.rows * kBlockThreads), part,
               {layer_.dtype});
  }
  Status add_gradients(const LogitPart& part) {
    return add("logit_gradients", workshop_.blocks_for(part.rows * part.classes), part,
               {layer_.dtype});
  }
  Status add_rows(const LogitLoss& rows) {
    return add("logit_rows", workshop_.blocks_for(rows.rows), rows);
  }

  // Rows from `first` on; logits and gradients are where the chunk is.
  LogitPart part_of_rows(int64_t first, int64_t count) const {
    LogitPart part{};
    part.logits = part.more_logits = part.gradients = logits_;
    part.targets = loss_.targets + first;
    part.rows = part.rows_in_first = count;
    part.classes = layer_.classes;
    part.powers = powers_ + first;
    part.own = own_ + first;
    part.largest = loss_.largest + first;
    part.log_of_sum = loss_.log_of_sum + first;
    part.loss_gradient = gradient_;
    part.total = loss_.total;
    part.ignored = loss_.ignored;
    part.is_mean = loss_.is_mean;
    return part;
  }
  LogitLoss rows_of(int64_t first, int64_t count) const {
    LogitLoss rows = loss_;
    rows.powers += first, rows.own += first, rows.targets += first;
    rows.largest += first, rows.log_of_sum += first, rows.losses += first;
    rows.rows = count;
    return rows;
  }

  // All classes of some rows at a time.
  Status add_parts_of_rows() {
    const DType dtype = layer_.dtype, of_sums = has_sums() ? DType::F32 : dtype;
    const int64_t depth = layer_.depth, classes = layer_.classes;
    const Matrix weight = matrix(classes, depth, dtype), sums = matrix(classes, depth, of_sums);
    for (int64_t first = 0; first < layer_.rows; first += chunk_.rows) {
      const int64_t count = std::min(chunk_.rows, layer_.rows - first),
                    at = first * depth * element();
      const Matrix hidden = matrix(count, depth, dtype), logits = matrix(count, classes, dtype);
      const LogitPart part = part_of_rows(first, count);
      DC_RETURN_IF_ERROR(add_product(hidden.at(hidden_ + at), weight.transposed().at(weight_),
                                     logits.at(logits_), false));
      DC_RETURN_IF_ERROR(add_powers(part));
      DC_RETURN_IF_ERROR(add_rows(rows_of(first, count)));
      DC_RETURN_IF_ERROR(add_gradients(part));
      DC_RETURN_IF_ERROR(add_product(logits.at(logits_), weight.at(weight_),
                                     hidden.at(hidden_gradient_ + at), false));
      DC_RETURN_IF_ERROR(add_product(logits.transposed().at(logits_), hidden.at(hidden_ + at),
                                     sums.at(has_sums() ? sums_ : weight_gradient_), first > 0));
    }
    return {};
  }

  // Some classes of all rows: their logits wait where the gradient of their weights will be, those
  // of the last rows in scratch.
  std::byte* place_in_gradient(int64_t first_class) const {
    return weight_gradient_ + first_class * layer_.depth * element();
  }
  std::byte* place_in_scratch(int64_t first_class) const {
    return waiting_ + first_class * (layer_.rows - rows_in_gradient()) * element();
  }
  LogitPart part_of_classes(int64_t first, int64_t count) const {
    LogitPart part = part_of_rows(0, layer_.rows);
    part.logits = place_in_gradient(first);
    part.more_logits = place_in_scratch(first);
    part.rows_in_first = rows_in_gradient();
    part.classes = count;
    part.first_class = first;
    part.powers = powers_ + first / chunk_.classes * layer_.rows;
    return part;
  }
  Status add_logits(const LogitPart& part) {
    const DType dtype = layer_.dtype;
    const int64_t depth = layer_.depth, placed = part.rows_in_first;
    const Matrix weight = matrix(part.classes, depth, dtype);
    std::byte* const at = weight_ + part.first_class * depth * element();
    const auto add_some = [&](int64_t first, int64_t count, std::byte* to) {
      return add_product(matrix(count, depth, dtype).at(hidden_ + first * depth * element()),
                         weight.transposed().at(at), matrix(count, part.classes, dtype).at(to),
                         false);
    };
    DC_RETURN_IF_ERROR(add_some(0, placed, place_in_gradient(part.first_class)));
    if (placed == part.rows) return {};
    return add_some(placed, part.rows - placed, place_in_scratch(part.first_class));
  }
  template <typename Do>
  Status for_each_part_of_classes(Do do_part) {
    for (int64_t first = 0; first < layer_.classes; first += chunk_.classes)
      DC_RETURN_IF_ERROR(
          do_part(part_of_classes(first, std::min(chunk_.classes, layer_.classes - first))));
    return {};
  }
  Status add_parts_of_classes() {
    DC_RETURN_IF_ERROR(for_each_part_of_classes([&](const LogitPart& part) -> Status {
      DC_RETURN_IF_ERROR(add_logits(part));
      return add_powers(part);
    }));
    DC_RETURN_IF_ERROR(add_rows(loss_));
    const DType dtype = layer_.dtype, of_sums = has_sums() ? DType::F32 : dtype;
    const int64_t depth = layer_.depth, rows = layer_.rows;
    return for_each_part_of_classes([&](const LogitPart& part) -> Status {
      const int64_t at = part.first_class * depth * element();
      const Matrix logits = matrix(rows, part.classes, dtype),
                   weight = matrix(part.classes, depth, dtype);
      DC_RETURN_IF_ERROR(add_gradients(part));
      DC_RETURN_IF_ERROR(
          add_product(logits.at(logits_), weight.at(weight_ + at),
                      matrix(rows, depth, of_sums).at(has_sums() ? sums_ : hidden_gradient_),
                      part.first_class > 0));
      return add_product(logits.transposed().at(logits_), matrix(rows, depth, dtype).at(hidden_),
                         weight.at(weight_gradient_ + at), false);
    });
  }

  Workshop& workshop_;
  Products& products_;
  Call& call_;
  int32_t stream_;
  base::OutputLayer layer_;
  base::LogitChunk chunk_;
  std::byte *hidden_ = nullptr, *weight_ = nullptr;
  std::byte *hidden_gradient_ = nullptr, *weight_gradient_ = nullptr;
  std::byte *logits_ = nullptr, *waiting_ = nullptr, *sums_ = nullptr;
  const float* gradient_ = nullptr;
  LogitPowers* powers_ = nullptr;
  float* own_ = nullptr;
  LogitLoss loss_{};
  std::unique_ptr<KernelSequence> all_ = std::make_unique<KernelSequence>();
};

}  // namespace

Made linear_cross_entropy_kernel(Workshop& workshop, Products& products, Call& call,
                                 int32_t stream) {
  return OutputLayerMaker(workshop, products, call, stream).make();
}

}  // namespace dc::runtime::kernel::cuda
