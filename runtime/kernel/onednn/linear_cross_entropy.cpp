// The output layer and its loss, and the gradients of both operands, in one kernel that has a part
// of the logits at a time; src/base/logit_chunks.h says which, and where the others wait.
//
// Every product sums in f32, and a gradient that is a sum over parts does so in f32 too and is
// rounded once. Logits and their gradients are rounded to the operands' type, as they are where
// each is a separate tensor.
#include "runtime/kernel/onednn/linear_cross_entropy.h"

#include <array>
#include <deque>

#include "runtime/kernel/native/norms/class_rows.h"
#include "runtime/kernel/native/norms/loss_calls.h"
#include "runtime/kernel/onednn/plugin.h"
#include "runtime/kernel/onednn/product_maker.h"
#include "src/base/logit_chunks.h"

namespace dc::runtime::kernel::onednn {
namespace {

using base::DType;
using native::Call;
using native::ClassTargets;
using native::CopyRegions;
using native::Dense;
using native::OutputLayerCall;
using native::PowerSum;
using native::RowNumbers;
using native::RowTensor;

// Addresses on the device.
struct OutputScratch {
  std::byte *chunk = nullptr, *waiting = nullptr, *sums = nullptr, *numbers = nullptr;
  std::byte* products = nullptr;  // of one product at a time
};

// Rows or classes, and the products of their part. What a part does not need is null.
struct LogitPart {
  int64_t first = 0, count = 0;
  std::unique_ptr<Kernel> logits, waiting_logits, hidden_gradient, weight_gradient;
};

struct OutputLoss {
  explicit OutputLoss(const OutputLayerCall& of)
      : targets{of.target.address(), of.layer.rows, of.layer.classes, of.ignored, of.is_mean},
        gradient(of.gradient),
        loss(of.loss),
        total(of.total) {}

  ClassTargets targets;
  Dense gradient, loss, total;
};

// One step's loss while it is made.
class LossSum {
 public:
  // Counts the rows and checks their classes before anything is computed.
  static base::Result<LossSum> begin(const OutputLoss& of, const device::Stream& stream) {
    LossSum sum(of, of.targets.on(stream));
    double rows = 0;
    for (int64_t r = 0; r < of.targets.rows; ++r) {
      DC_RETURN_IF_ERROR(of.targets.check(sum.target(r)));
      rows += of.targets.counts(sum.target(r)) ? 1 : 0;
    }
    sum.total_ = rows;
    sum.row_gradient_ = *of.gradient.on<float>(stream);
    if (of.targets.is_mean) sum.row_gradient_ = sum.row_gradient_ / static_cast<float>(rows);
    return sum;
  }

  int64_t target(int64_t row) const { return targets_[row]; }
  bool counts(int64_t row) const { return of_->targets.counts(targets_[row]); }
  native::RowGradient gradient(int64_t row, const RowNumbers& numbers) const {
    return {row_gradient_, numbers, counts(row)};
  }
  void add(float row_loss) { sum_ += row_loss; }
  void end(const device::Stream& stream) const {
    *of_->loss.on<float>(stream) = static_cast<float>(of_->targets.is_mean ? sum_ / total_ : sum_);
    *of_->total.on<float>(stream) = static_cast<float>(total_);
  }

 private:
  LossSum(const OutputLoss& of, const int64_t* targets) : of_(&of), targets_(targets) {}

  const OutputLoss* of_;
  const int64_t* targets_;
  double sum_ = 0, total_ = 0;
  float row_gradient_ = 0;
};

// All classes of some rows at a time.
class LossByRows final : public Kernel {
 public:
  LossByRows(const OutputLoss& loss, const RowTensor<float>& chunk, std::vector<LogitPart> parts,
             CopyRegions round)
      : loss_(loss), chunk_(chunk), parts_(std::move(parts)), round_(std::move(round)) {}

  base::Status launch(device::Stream& stream) override {
    DC_ASSIGN_OR_RETURN(LossSum sum, LossSum::begin(loss_, stream));
    for (const LogitPart& part : parts_) {
      DC_RETURN_IF_ERROR(part.logits->launch(stream));
      std::byte* logits = chunk_.on(stream);
      for (int64_t r = 0; r < part.count; ++r)
        change_row(chunk_.row(logits, r * loss_.targets.classes), part.first + r, sum);
      DC_RETURN_IF_ERROR(part.hidden_gradient->launch(stream));
      DC_RETURN_IF_ERROR(part.weight_gradient->launch(stream));
    }
    DC_RETURN_IF_ERROR(round_.launch(stream));
    sum.end(stream);
    return {};
  }

 private:
  // Adds the loss of the row, and makes its logits their gradients.
  void change_row(std::byte* logits, int64_t row, LossSum& sum) const {
    const int64_t classes = loss_.targets.classes;
    const RowNumbers numbers = row_numbers(sum_powers(chunk_, logits, classes));
    if (sum.counts(row)) sum.add(row_loss(chunk_.get(logits, sum.target(row)), numbers));
    write_gradients(chunk_, logits, logits, classes, sum.target(row), sum.gradient(row, numbers));
  }

  OutputLoss loss_;
  RowTensor<float> chunk_;
  std::vector<LogitPart> parts_;
  CopyRegions round_;
};

// Where the logits of one part and row wait for their gradients.
struct WaitingLogits {
  std::byte *in_gradient = nullptr, *in_scratch = nullptr;
  int64_t rows = 0, rows_in_gradient = 0, depth = 0, element = 0;

  std::byte* part_in_gradient(const LogitPart& part) const {
    return in_gradient + part.first * depth * element;
  }
  std::byte* part_in_scratch(const LogitPart& part) const {
    return in_scratch + part.first * (rows - rows_in_gradient) * element;
  }
  std::byte* row(const LogitPart& part, int64_t r) const {
    const int64_t bytes = part.count * element;
    return r < rows_in_gradient ? part_in_gradient(part) + r * bytes
                                : part_in_scratch(part) + (r - rows_in_gradient) * bytes;
  }
};

// Some classes of all rows at a time, twice: first for the sums of exponentials and the loss, then
// for the gradients.
class LossByClasses final : public Kernel {
 public:
  LossByClasses(const OutputLoss& loss, const RowTensor<float>& chunk, std::byte* numbers,
                const WaitingLogits& waiting, std::vector<LogitPart> parts, CopyRegions round)
      : loss_(loss),
        chunk_(chunk),
        numbers_(numbers),
        waiting_(waiting),
        parts_(std::move(parts)),
        round_(std::move(round)) {}

  base::Status launch(device::Stream& stream) override {
    DC_ASSIGN_OR_RETURN(LossSum sum, LossSum::begin(loss_, stream));
    const int64_t rows = loss_.targets.rows;
    Numbers numbers(stream.resolve(numbers_), parts_.size(), rows);
    WaitingLogits waiting = waiting_;
    waiting.in_gradient = stream.resolve(waiting_.in_gradient);
    waiting.in_scratch = stream.resolve(waiting_.in_scratch);
    for (size_t p = 0; p < parts_.size(); ++p) {
      DC_RETURN_IF_ERROR(parts_[p].logits->launch(stream));
      if (parts_[p].waiting_logits != nullptr)
        DC_RETURN_IF_ERROR(parts_[p].waiting_logits->launch(stream));
      for (int64_t r = 0; r < rows; ++r)
        look_at(parts_[p], waiting.row(parts_[p], r), sum.target(r), numbers.of(p, r),
                numbers.own[r]);
    }
    for (int64_t r = 0; r < rows; ++r) {
      numbers.rows[r] =
          row_numbers(join_powers(&numbers.of(0, r), static_cast<int64_t>(parts_.size()), rows));
      if (sum.counts(r)) sum.add(row_loss(numbers.own[r], numbers.rows[r]));
    }
    for (const LogitPart& part : parts_) {
      std::byte* gradients = chunk_.on(stream);
      for (int64_t r = 0; r < rows; ++r)
        write_gradients(chunk_, waiting.row(part, r), chunk_.row(gradients, r * part.count),
                        part.count, place_in(part, sum.target(r)),
                        sum.gradient(r, numbers.rows[r]));
      DC_RETURN_IF_ERROR(part.hidden_gradient->launch(stream));
      DC_RETURN_IF_ERROR(part.weight_gradient->launch(stream));
    }
    DC_RETURN_IF_ERROR(round_.launch(stream));
    sum.end(stream);
    return {};
  }

 private:
  // In scratch, as logit_chunks.h counts their bytes.
  struct Numbers {
    Numbers(std::byte* begin, size_t parts, int64_t row_count)
        : powers(reinterpret_cast<PowerSum*>(begin)),
          rows(reinterpret_cast<RowNumbers*>(powers + static_cast<int64_t>(parts) * row_count)),
          own(reinterpret_cast<float*>(rows + row_count)),
          count(row_count) {}
    PowerSum& of(size_t part, int64_t row) const {
      return powers[static_cast<int64_t>(part) * count + row];
    }
    PowerSum* powers;
    RowNumbers* rows;
    float* own;  // the logit of the row's own class
    int64_t count;
  };
  static_assert(sizeof(PowerSum) == base::kLogitNumbersPerPart &&
                sizeof(RowNumbers) + sizeof(float) == base::kLogitNumbers);

  // Outside of [0, count) where the class is of another part.
  static int64_t place_in(const LogitPart& part, int64_t target) {
    return target < part.first ? -1 : target - part.first;
  }
  void look_at(const LogitPart& part, const std::byte* logits, int64_t target, PowerSum& powers,
               float& own) const {
    powers = sum_powers(chunk_, logits, part.count);
    const int64_t place = place_in(part, target);
    if (place >= 0 && place < part.count) own = chunk_.get(logits, place);
  }

  OutputLoss loss_;
  RowTensor<float> chunk_;
  std::byte* numbers_;
  WaitingLogits waiting_;
  std::vector<LogitPart> parts_;
  CopyRegions round_;
};

struct Matrix {
  std::array<int64_t, 2> sizes{}, strides{};
  DType dtype = DType::F32;

  BoundTensor at(std::byte* data) const { return {data, dtype, sizes, strides}; }
  Matrix transposed() const { return {{sizes[1], sizes[0]}, {strides[1], strides[0]}, dtype}; }
  bool operator==(const Matrix&) const = default;
};
Matrix matrix(int64_t rows, int64_t columns, DType dtype) {
  return {{rows, columns}, {columns, 1}, dtype};
}

// The products of all parts: those of one shape have one primitive, and all share one scratch.
class PartProducts {
 public:
  explicit PartProducts(Call& call) : call_(call) {}

  // Of this shape, to be placed. A refusal is the call's.
  ProductMaker& of(const Matrix& left, const Matrix& right, const Matrix& result, bool adds) {
    for (Sized& each : all_) {
      if (each.left == left && each.right == right && each.result == result && each.adds == adds)
        return *each.maker;
    }
    Sized& added = all_.emplace_back(left, right, result, adds);
    added.maker.emplace(ProductMaker::of_sum(call_, added.left.at(nullptr), added.right.at(nullptr),
                                             added.result.at(nullptr), adds));
    bytes_ = std::max(bytes_, added.maker->scratch_bytes());
    return *added.maker;
  }
  int64_t scratch_bytes() const { return bytes_; }

 private:
  struct Sized {
    Sized(const Matrix& a, const Matrix& b, const Matrix& c, bool is_added)
        : left(a), right(b), result(c), adds(is_added) {}
    Matrix left, right, result;
    bool adds;
    std::optional<ProductMaker> maker;  // of the matrices above, which stay where they are
  };

  Call& call_;
  std::deque<Sized> all_;
  int64_t bytes_ = 0;
};

// The kernel of one instruction while it is made. Every part is gone through twice: for the scratch
// that its products need, and when it is known where that lies.
class OutputLayerMaker {
 public:
  explicit OutputLayerMaker(Call& call)
      : call_(call), products_(call), of_(native::read_output_layer(call)) {}

  native::Made make() {
    if (!call_.ok()) return call_.made(nullptr);
    const auto own = base::logit_scratch(layer_, chunk_);
    call_.require(own.has_value(), "the logits have too many elements");
    if (!call_.ok()) return call_.made(nullptr);
    for_each_part([this](int64_t first, int64_t count) { size_products(first, count); });
    std::byte* begin = call_.scratch(own->bytes() + products_.scratch_bytes());
    if (!call_.ok() || begin == nullptr) return call_.made(nullptr);
    scratch_.chunk = begin;
    scratch_.waiting = scratch_.chunk + own->chunk;
    scratch_.sums = scratch_.waiting + own->waiting;
    scratch_.numbers = scratch_.sums + own->sums;
    scratch_.products = scratch_.numbers + own->numbers;
    return build();
  }

 private:
  int64_t element() const { return base::byte_size(layer_.dtype); }

  template <typename Do>
  void for_each_part(const Do& do_part) const {
    const int64_t size = of_.by_classes() ? layer_.classes : layer_.rows,
                  part = of_.by_classes() ? chunk_.classes : chunk_.rows;
    for (int64_t first = 0; first < size && call_.ok(); first += part)
      do_part(first, std::min(part, size - first));
  }

  // The products of a part of `rows` x `classes`.
  ProductMaker& logits(int64_t rows, int64_t classes) {
    return products_.of(matrix(rows, layer_.depth, layer_.dtype),
                        matrix(classes, layer_.depth, layer_.dtype).transposed(),
                        matrix(rows, classes, layer_.dtype), false);
  }
  ProductMaker& hidden_gradient(int64_t rows, int64_t classes, bool is_first) {
    const bool sums = of_.by_classes() && of_.has_sums();
    return products_.of(matrix(rows, classes, layer_.dtype),
                        matrix(classes, layer_.depth, layer_.dtype),
                        matrix(rows, layer_.depth, sums ? DType::F32 : layer_.dtype),
                        of_.by_classes() && !is_first);
  }
  ProductMaker& weight_gradient(int64_t rows, int64_t classes, bool is_first) {
    const bool sums = !of_.by_classes() && of_.has_sums();
    return products_.of(matrix(rows, classes, layer_.dtype).transposed(),
                        matrix(rows, layer_.depth, layer_.dtype),
                        matrix(classes, layer_.depth, sums ? DType::F32 : layer_.dtype),
                        !of_.by_classes() && !is_first);
  }

  void size_products(int64_t first, int64_t count) {
    const int64_t rows = of_.by_classes() ? layer_.rows : count,
                  classes = of_.by_classes() ? count : layer_.classes;
    logits(of_.by_classes() ? of_.rows_in_gradient() : rows, classes);
    if (of_.by_classes() && rows > of_.rows_in_gradient())
      logits(rows - of_.rows_in_gradient(), classes);
    hidden_gradient(rows, classes, first == 0);
    weight_gradient(rows, classes, first == 0);
  }

  LogitPart row_part(int64_t first, int64_t count) {
    const int64_t hidden_at = first * layer_.depth * element(), classes = layer_.classes;
    std::byte *hidden = of_.hidden.address() + hidden_at,
              *sums = of_.has_sums() ? scratch_.sums : of_.weight_gradient.address();
    LogitPart part{first, count, {}, {}, {}, {}};
    part.logits = logits(count, classes)
                      .place(scratch_.products, hidden, of_.weight.address(), scratch_.chunk);
    part.hidden_gradient = hidden_gradient(count, classes, first == 0)
                               .place(scratch_.products, scratch_.chunk, of_.weight.address(),
                                      of_.hidden_gradient.address() + hidden_at);
    part.weight_gradient = weight_gradient(count, classes, first == 0)
                               .place(scratch_.products, scratch_.chunk, hidden, sums);
    return part;
  }

  WaitingLogits waiting() const {
    return {of_.weight_gradient.address(), scratch_.waiting, layer_.rows,
            of_.rows_in_gradient(),        layer_.depth,     element()};
  }

  LogitPart class_part(int64_t first, int64_t count) {
    const int64_t weight_at = first * layer_.depth * element(), rows = layer_.rows,
                  placed = of_.rows_in_gradient();
    std::byte *weight = of_.weight.address() + weight_at,
              *sums = of_.has_sums() ? scratch_.sums : of_.hidden_gradient.address();
    LogitPart part{first, count, {}, {}, {}, {}};
    part.logits = logits(placed, count)
                      .place(scratch_.products, of_.hidden.address(), weight,
                             waiting().part_in_gradient(part));
    if (rows > placed) {
      part.waiting_logits =
          logits(rows - placed, count)
              .place(scratch_.products, of_.hidden.address() + placed * layer_.depth * element(),
                     weight, waiting().part_in_scratch(part));
    }
    part.hidden_gradient = hidden_gradient(rows, count, first == 0)
                               .place(scratch_.products, scratch_.chunk, weight, sums);
    part.weight_gradient = weight_gradient(rows, count, first == 0)
                               .place(scratch_.products, scratch_.chunk, of_.hidden.address(),
                                      of_.weight_gradient.address() + weight_at);
    return part;
  }

  // Sums in f32 to the gradient of 16 bits.
  CopyRegions round() {
    CopyRegions copies;
    if (!of_.has_sums()) return copies;
    const int64_t rows = of_.by_classes() ? layer_.rows : layer_.classes;
    const Matrix sums = matrix(rows, layer_.depth, DType::F32),
                 gradient = matrix(rows, layer_.depth, layer_.dtype);
    copies.copy(call_,
                native::Region(gradient.at(of_.by_classes() ? of_.hidden_gradient.address()
                                                            : of_.weight_gradient.address())),
                native::Region(sums.at(scratch_.sums)));
    return copies;
  }

  native::Made build() {
    const OutputLoss loss(of_);
    std::vector<LogitPart> parts;
    for_each_part([&](int64_t first, int64_t count) {
      parts.push_back(of_.by_classes() ? class_part(first, count) : row_part(first, count));
    });
    RowTensor<float> chunk(BoundTensor{scratch_.chunk, layer_.dtype, {}, {}}, 1);
    CopyRegions last = round();
    if (of_.by_classes())
      return call_.finish<LossByClasses>(loss, chunk, scratch_.numbers, waiting(), std::move(parts),
                                         std::move(last));
    return call_.finish<LossByRows>(loss, chunk, std::move(parts), std::move(last));
  }

  Call& call_;
  PartProducts products_;
  OutputLayerCall of_;
  const base::OutputLayer& layer_ = of_.layer;
  const base::LogitChunk& chunk_ = of_.chunk;
  OutputScratch scratch_;
};

constexpr native::Row kRows[] = {
    {kOps[6], [](Call& call) { return OutputLayerMaker(call).make(); }},
};

}  // namespace

std::span<const native::Row> linear_cross_entropy_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::onednn
