#include "runtime/kernel/cuda/linear_cross_entropy.h"

#include <algorithm>
#include <array>

#include "runtime/kernel/cuda/block.h"
#include "runtime/kernel/cuda/expression_kernels.h"
#include "runtime/kernel/cuda/hand_source.h"
#include "runtime/kernel/cuda/kernel_sequence.h"
#include "runtime/kernel/cuda/kernels/logit_parameters.h"
#include "runtime/kernel/native/norms/loss_calls.h"
#include "runtime/kernel/native/registry.h"
#include "src/base/logit_chunks.h"

namespace dc::runtime::kernel::cuda {
namespace {

using base::DType;
using base::Result;
using base::Status;
using native::Call;
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
      : workshop_(workshop),
        products_(products),
        call_(call),
        stream_(stream),
        of_(native::read_output_layer(call)) {}

  Made make() {
    if (!call_.ok()) return call_.made(nullptr);
    loss_.targets = static_cast<const int64_t*>(of_.target.data);
    loss_.rows = layer_.rows;
    loss_.parts = parts();
    loss_.classes = layer_.classes;
    loss_.ignored = of_.ignored;
    loss_.is_mean = of_.is_mean;
    loss_.loss = static_cast<float*>(of_.loss.data);
    loss_.total = static_cast<float*>(of_.total.data);
    DC_RETURN_IF_ERROR(take_scratch());
    DC_RETURN_IF_ERROR(add("logit_total", 1, loss_));
    DC_RETURN_IF_ERROR(of_.by_classes() ? add_parts_of_classes() : add_parts_of_rows());
    if (of_.has_sums()) {
      const int64_t rows = of_.by_classes() ? layer_.rows : layer_.classes;
      std::byte* const to =
          of_.by_classes() ? of_.hidden_gradient.address() : of_.weight_gradient.address();
      DC_ASSIGN_OR_RETURN(auto round,
                          copy_kernel(workshop_, matrix(rows, layer_.depth, DType::F32).at(sums_),
                                      matrix(rows, layer_.depth, layer_.dtype).at(to)));
      all_->add(std::move(round));
    }
    DC_RETURN_IF_ERROR(add("logit_loss", 1, loss_));
    return std::unique_ptr<Kernel>(std::move(all_));
  }

 private:
  int64_t parts() const {
    return of_.by_classes() ? base::parts_of(layer_.classes, chunk_.classes) : 1;
  }
  int64_t element() const { return base::byte_size(layer_.dtype); }

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
  // One for each row: what a GPU has no room for begins as others end.
  static unsigned blocks_of(const LogitPart& part) {
    return static_cast<unsigned>(std::min<int64_t>(part.rows, INT32_MAX));
  }
  Status add_powers(const LogitPart& part) {
    const auto is_whole = [](const void* at) { return reinterpret_cast<uintptr_t>(at) % 16 == 0; };
    if (element() != 2 || part.classes != kRowTile || !is_whole(part.logits) ||
        !is_whole(part.more_logits))
      return add("logit_powers", blocks_of(part), part, {layer_.dtype});
    constexpr unsigned kRows = kBlockThreads / 32;  // of a block
    return add("logit_powers_of_tiles", (blocks_of(part) + kRows - 1) / kRows, part,
               {layer_.dtype});
  }
  Status add_gradients(const LogitPart& part) {
    return add("logit_gradients", blocks_of(part), part, {layer_.dtype});
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
    part.loss_gradient = static_cast<const float*>(of_.gradient.data);
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
    const DType dtype = layer_.dtype, of_sums = of_.has_sums() ? DType::F32 : dtype;
    const int64_t depth = layer_.depth, classes = layer_.classes;
    const Matrix weight = matrix(classes, depth, dtype), sums = matrix(classes, depth, of_sums);
    for (int64_t first = 0; first < layer_.rows; first += chunk_.rows) {
      const int64_t count = std::min(chunk_.rows, layer_.rows - first),
                    at = first * depth * element();
      const Matrix hidden = matrix(count, depth, dtype), logits = matrix(count, classes, dtype);
      const LogitPart part = part_of_rows(first, count);
      DC_RETURN_IF_ERROR(add_product(hidden.at(of_.hidden.address() + at),
                                     weight.transposed().at(of_.weight.address()),
                                     logits.at(logits_), false));
      DC_RETURN_IF_ERROR(add_powers(part));
      DC_RETURN_IF_ERROR(add_rows(rows_of(first, count)));
      DC_RETURN_IF_ERROR(add_gradients(part));
      DC_RETURN_IF_ERROR(add_product(logits.at(logits_), weight.at(of_.weight.address()),
                                     hidden.at(of_.hidden_gradient.address() + at), false));
      DC_RETURN_IF_ERROR(
          add_product(logits.transposed().at(logits_), hidden.at(of_.hidden.address() + at),
                      sums.at(of_.has_sums() ? sums_ : of_.weight_gradient.address()), first > 0));
    }
    return {};
  }

  // Some classes of all rows: their logits wait where the gradient of their weights will be, those
  // of the last rows in scratch.
  std::byte* place_in_gradient(int64_t first_class) const {
    return of_.weight_gradient.address() + first_class * layer_.depth * element();
  }
  std::byte* place_in_scratch(int64_t first_class) const {
    return waiting_ + first_class * (layer_.rows - of_.rows_in_gradient()) * element();
  }
  LogitPart part_of_classes(int64_t first, int64_t count) const {
    LogitPart part = part_of_rows(0, layer_.rows);
    part.logits = place_in_gradient(first);
    part.more_logits = place_in_scratch(first);
    part.rows_in_first = of_.rows_in_gradient();
    part.classes = count;
    part.first_class = first;
    part.powers = powers_ + first / chunk_.classes * layer_.rows;
    return part;
  }
  Status add_logits(const LogitPart& part) {
    const DType dtype = layer_.dtype;
    const int64_t depth = layer_.depth, placed = part.rows_in_first;
    const Matrix weight = matrix(part.classes, depth, dtype);
    std::byte* const at = of_.weight.address() + part.first_class * depth * element();
    const auto add_some = [&](int64_t first, int64_t count, std::byte* to) {
      return add_product(
          matrix(count, depth, dtype).at(of_.hidden.address() + first * depth * element()),
          weight.transposed().at(at), matrix(count, part.classes, dtype).at(to), false);
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
    const DType dtype = layer_.dtype, of_sums = of_.has_sums() ? DType::F32 : dtype;
    const int64_t depth = layer_.depth, rows = layer_.rows;
    return for_each_part_of_classes([&](const LogitPart& part) -> Status {
      const int64_t at = part.first_class * depth * element();
      const Matrix logits = matrix(rows, part.classes, dtype),
                   weight = matrix(part.classes, depth, dtype);
      DC_RETURN_IF_ERROR(add_gradients(part));
      DC_RETURN_IF_ERROR(add_product(
          logits.at(logits_), weight.at(of_.weight.address() + at),
          matrix(rows, depth, of_sums).at(of_.has_sums() ? sums_ : of_.hidden_gradient.address()),
          part.first_class > 0));
      return add_product(logits.transposed().at(logits_),
                         matrix(rows, depth, dtype).at(of_.hidden.address()),
                         weight.at(of_.weight_gradient.address() + at), false);
    });
  }

  Workshop& workshop_;
  Products& products_;
  Call& call_;
  int32_t stream_;
  native::OutputLayerCall of_;
  const base::OutputLayer& layer_ = of_.layer;
  const base::LogitChunk& chunk_ = of_.chunk;
  std::byte *logits_ = nullptr, *waiting_ = nullptr, *sums_ = nullptr;
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
