// dc.linear_cross_entropy against the kernels that it stands for, one after the other, and both
// against sums in double precision: with all logits at once equal bits, in parts no farther from
// what is right.
#include <cmath>
#include <random>

#include "runtime/kernel/native/convert.h"
#include "src/base/logit_chunks.h"
#include "tests/runtime/kernel/kernel_bench.h"

namespace dc::runtime {
namespace {

using base::DType;
using base::LogitChunk;

struct LayerCase {
  int64_t rows = 6, classes = 10, depth = 4;
  DType dtype = DType::F32;
  LogitChunk chunk;  // zeros: all
  int64_t reduction = 1, ignored = -100;
  float gradient = 1;

  LogitChunk at_once() const { return chunk == LogitChunk{} ? LogitChunk{rows, classes} : chunk; }
  std::string label() const {
    return std::to_string(rows) + " rows, " + std::to_string(classes) + " classes, depth " +
           std::to_string(depth) + ", " + std::string(base::name(dtype)) + ", at once " +
           std::to_string(at_once().rows) + " x " + std::to_string(at_once().classes);
  }
};

// Numbers as the case's type has them.
struct LayerBatch {
  std::vector<float> hidden, weight;
  std::vector<int64_t> targets;
};

float rounded(float value, DType dtype) {
  if (dtype == DType::F32) return value;
  return kernel::native::widen(kernel::native::narrow_bf16(value));
}

LayerBatch random_layer(const LayerCase& of, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1);
  const float scale = 2 / std::sqrt(static_cast<float>(of.depth));
  LayerBatch batch;
  for (int64_t i = 0; i < of.rows * of.depth; ++i)
    batch.hidden.push_back(rounded(normal(random), of.dtype));
  for (int64_t i = 0; i < of.classes * of.depth; ++i)
    batch.weight.push_back(rounded(scale * normal(random), of.dtype));
  for (int64_t r = 0; r < of.rows; ++r)
    batch.targets.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(of.classes)));
  return batch;
}

struct LayerResults {
  std::vector<double> loss, total, hidden, weight;
  bool operator==(const LayerResults&) const = default;
};

// An arena with the tensors of one case.
class LayerBench {
 public:
  LayerBench(const LayerCase& of, const LayerBatch& batch) : of_(of) {
    hidden_ = matrix(of.rows, batch.hidden);
    weight_ = matrix(of.classes, batch.weight);
    targets_ = bench_.filled(DType::I64, {of.rows}, batch.targets);
    g_ = bench_.filled<float>(DType::F32, {}, {of.gradient});
    loss_ = bench_.tensor(DType::F32, {});
    total_ = bench_.tensor(DType::F32, {});
    hidden_gradient_ = bench_.tensor(of.dtype, {of.rows, of.depth});
    weight_gradient_ = bench_.tensor(of.dtype, {of.classes, of.depth});
  }

  base::Status run(plan::Instruction step) {
    auto provider = kernel::make_native_provider();
    DC_ASSIGN_OR_RETURN(const int64_t bytes, provider->measure_scratch(step, bench_.addresses()));
    if (bytes > 0) step.scratch = bench_.slice(bytes);
    DC_ASSIGN_OR_RETURN(const auto kernel, provider->prepare(step, bench_.addresses()));
    for (int repeat = 0; repeat < 2; ++repeat)  // of what the first left in scratch
      DC_RETURN_IF_ERROR(kernel->launch(*device::cpu_device().make_stream()));
    return {};
  }

  plan::Instruction together() const {
    return instruction(
        "dc.linear_cross_entropy",
        {tensor_arg(hidden_), tensor_arg(weight_), tensor_arg(targets_), tensor_arg(g_), kind(),
         ignored(), int_arg("rows", of_.at_once().rows), int_arg("classes", of_.at_once().classes)},
        {loss_, total_, hidden_gradient_, weight_gradient_});
  }

  base::Status run_apart() {
    const int32_t logits = bench_.tensor(of_.dtype, {of_.rows, of_.classes}),
                  largest = bench_.tensor(DType::F32, {of_.rows}),
                  log_of_sum = bench_.tensor(DType::F32, {of_.rows});
    const int32_t transposed_weight = transposed(weight_), gradient = transposed(logits);
    auto provider = kernel::make_native_provider();
    const plan::Instruction steps[] = {
        product(hidden_, transposed_weight, logits),
        instruction("dc.cross_entropy",
                    {tensor_arg(logits), tensor_arg(targets_), kind(), ignored()},
                    {loss_, total_, largest, log_of_sum}),
        instruction("dc.cross_entropy_backward",
                    {tensor_arg(logits), tensor_arg(targets_), tensor_arg(g_), tensor_arg(total_),
                     tensor_arg(largest), tensor_arg(log_of_sum), kind(), ignored()},
                    {logits}),
        product(gradient, hidden_, weight_gradient_), product(logits, weight_, hidden_gradient_)};
    for (plan::Instruction step : steps) {
      DC_ASSIGN_OR_RETURN(const int64_t bytes, provider->measure_scratch(step, bench_.addresses()));
      if (bytes > 0) step.scratch = bench_.slice(bytes);
      DC_RETURN_IF_ERROR(run_native(bench_, step));
    }
    return {};
  }

  LayerResults results() {
    return {values(loss_), values(total_), values(hidden_gradient_), values(weight_gradient_)};
  }

 private:
  plan::Arg kind() const { return int_arg("reduction", of_.reduction); }
  plan::Arg ignored() const { return int_arg("ignored", of_.ignored); }
  static plan::Instruction product(int32_t left, int32_t right, int32_t result) {
    return instruction("aten.mm.default", {tensor_arg(left, "self"), tensor_arg(right, "mat2")},
                       {result});
  }
  int32_t matrix(int64_t rows, const std::vector<float>& numbers) {
    if (of_.dtype == DType::F32) return bench_.filled(DType::F32, {rows, of_.depth}, numbers);
    std::vector<kernel::native::BF16> narrow;
    narrow.reserve(numbers.size());
    for (const float number : numbers) narrow.push_back(kernel::native::narrow_bf16(number));
    return bench_.filled(DType::BF16, {rows, of_.depth}, narrow);
  }
  int32_t transposed(int32_t id) {
    plan::Tensor view = bench_.plan().tensors[static_cast<size_t>(id)];
    std::swap(view.sizes[0], view.sizes[1]);
    std::swap(view.strides[0], view.strides[1]);
    bench_.plan().tensors.push_back(view);
    return static_cast<int32_t>(bench_.plan().tensors.size()) - 1;
  }
  std::vector<double> values(int32_t id) {
    std::vector<double> all;
    if (bench_.plan().tensors[static_cast<size_t>(id)].dtype == DType::F32) {
      for (const float value : bench_.values<float>(id)) all.push_back(value);
    } else {
      for (const auto value : bench_.values<kernel::native::BF16>(id))
        all.push_back(kernel::native::widen(value));
    }
    return all;
  }

  LayerCase of_;
  KernelBench bench_;
  int32_t hidden_ = 0, weight_ = 0, targets_ = 0, g_ = 0, loss_ = 0, total_ = 0;
  int32_t hidden_gradient_ = 0, weight_gradient_ = 0;
};

LayerResults together(const LayerCase& of, const LayerBatch& batch) {
  LayerBench bench(of, batch);
  const base::Status status = bench.run(bench.together());
  EXPECT_TRUE(status.ok()) << of.label() << ": " << status.to_string();
  return bench.results();
}

LayerResults apart(const LayerCase& of, const LayerBatch& batch) {
  LayerBench bench(of, batch);
  const base::Status status = bench.run_apart();
  EXPECT_TRUE(status.ok()) << of.label() << ": " << status.to_string();
  return bench.results();
}

// Gradients of the logits of one row, in double precision; adds the row's loss.
std::vector<double> exact_row(const LayerCase& of, const LayerBatch& batch, int64_t row,
                              double gradient, double& loss) {
  std::vector<double> x(static_cast<size_t>(of.classes));
  for (int64_t v = 0; v < of.classes; ++v) {
    for (int64_t d = 0; d < of.depth; ++d)
      x[static_cast<size_t>(v)] += double{batch.hidden[static_cast<size_t>(row * of.depth + d)]} *
                                   batch.weight[static_cast<size_t>(v * of.depth + d)];
  }
  const double largest = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (const double each : x) sum += std::exp(each - largest);
  const auto target = static_cast<size_t>(batch.targets[static_cast<size_t>(row)]);
  loss += largest + std::log(sum) - x[target];
  for (double& each : x) each = gradient * std::exp(each - largest) / sum;
  x[target] -= gradient;
  return x;
}

LayerResults exact(const LayerCase& of, const LayerBatch& batch) {
  LayerResults all{{0}, {0}, {}, {}};
  all.hidden.assign(static_cast<size_t>(of.rows * of.depth), 0);
  all.weight.assign(static_cast<size_t>(of.classes * of.depth), 0);
  for (const int64_t target : batch.targets) all.total[0] += target == of.ignored ? 0 : 1;
  const double gradient = of.reduction == 1 ? of.gradient / all.total[0] : of.gradient;
  for (int64_t r = 0; r < of.rows; ++r) {
    if (batch.targets[static_cast<size_t>(r)] == of.ignored) continue;
    const std::vector<double> g = exact_row(of, batch, r, gradient, all.loss[0]);
    for (int64_t v = 0; v < of.classes; ++v) {
      for (int64_t d = 0; d < of.depth; ++d) {
        const auto h = static_cast<size_t>(r * of.depth + d),
                   w = static_cast<size_t>(v * of.depth + d);
        all.hidden[h] += g[static_cast<size_t>(v)] * batch.weight[w];
        all.weight[w] += g[static_cast<size_t>(v)] * batch.hidden[h];
      }
    }
  }
  if (of.reduction == 1) all.loss[0] /= all.total[0];
  return all;
}

// As a part of its norm.
double distance(const std::vector<double>& got, const std::vector<double>& wanted) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    difference += (got[i] - wanted[i]) * (got[i] - wanted[i]);
    norm += wanted[i] * wanted[i];
  }
  return std::sqrt(difference / norm);
}

// Not farther from what is right than the kernels apart are, but for a rounding.
void expect_as_near(const LayerCase& of, const LayerBatch& batch) {
  const LayerResults got = together(of, batch), other = apart(of, batch), right = exact(of, batch);
  const double epsilon = 0x1p-24;
  EXPECT_EQ(got.total, right.total) << of.label();
  EXPECT_LE(distance(got.loss, right.loss), distance(other.loss, right.loss) + 4 * epsilon)
      << of.label();
  EXPECT_LE(distance(got.hidden, right.hidden),
            1.1 * distance(other.hidden, right.hidden) + 2 * epsilon)
      << of.label();
  EXPECT_LE(distance(got.weight, right.weight),
            1.1 * distance(other.weight, right.weight) + 2 * epsilon)
      << of.label();
}

TEST(LinearCrossEntropy, OfAllLogitsAtOnceGivesTheBitsOfTheKernelsApart) {
  uint32_t seed = 0;
  for (const DType dtype : {DType::F32, DType::BF16}) {
    for (const auto& [rows, classes, depth] : std::vector<std::array<int64_t, 3>>{
             {1, 1, 1}, {1, 7, 3}, {5, 1, 4}, {6, 600, 33}, {70, 129, 64}, {256, 256, 64}}) {
      for (const int64_t reduction : {1, 2}) {
        const LayerCase of{rows, classes, depth, dtype, {}, reduction, -100, 0.37f};
        const LayerBatch batch = random_layer(of, ++seed);
        EXPECT_TRUE(together(of, batch) == apart(of, batch)) << of.label();
      }
    }
  }
}

TEST(LinearCrossEntropy, InPartsIsAsNearToWhatIsRight) {
  uint32_t seed = 100;
  for (const DType dtype : {DType::F32, DType::BF16}) {
    for (const LogitChunk chunk : {LogitChunk{20, 300}, LogitChunk{33, 300}, LogitChunk{1, 300},
                                   LogitChunk{50, 64}, LogitChunk{50, 111}, LogitChunk{50, 7}}) {
      for (const int64_t depth : {16, 50, 90}) {  // less, as many and more than rows
        const LayerCase of{50, 300, depth, dtype, chunk, 1 + seed % 2, -100, 2.5f};
        expect_as_near(of, random_layer(of, ++seed));
      }
    }
  }
}

// The parts that plans have, with rows enough that sums over parts would lose a digit in 16 bits.
TEST(LinearCrossEntropy, InThePartsOfPlansIsAsNearToWhatIsRight) {
  for (const DType dtype : {DType::F32, DType::BF16}) {
    for (const auto& [rows, classes, depth] :
         std::vector<std::array<int64_t, 3>>{{1024, 300, 16}, {520, 600, 24}, {32, 2100, 64}}) {
      LayerCase of{rows, classes, depth, dtype, {}, 1, -100, 1};
      of.chunk = base::choose_logit_chunk({rows, classes, depth, dtype});
      EXPECT_FALSE(of.chunk == (LogitChunk{rows, classes})) << of.label();
      expect_as_near(of, random_layer(of, 7));
    }
  }
}

TEST(LinearCrossEntropy, LeavesOutIgnoredRows) {
  for (const LogitChunk chunk : {LogitChunk{4, 40}, LogitChunk{10, 16}, LogitChunk{10, 40}}) {
    for (const int64_t reduction : {1, 2}) {
      for (const int64_t ignored : {int64_t{-100}, int64_t{2}}) {
        const LayerCase of{10, 40, 6, DType::F32, chunk, reduction, ignored, 1};
        LayerBatch batch = random_layer(of, 3);
        batch.targets[1] = batch.targets[4] = batch.targets[9] = ignored;
        expect_as_near(of, batch);
      }
    }
  }
}

// All rows are left out: the mean is of nothing.
TEST(LinearCrossEntropy, OfNothingIsNoNumber) {
  for (const LogitChunk chunk : {LogitChunk{4, 40}, LogitChunk{10, 16}}) {
    const LayerCase of{10, 40, 6, DType::F32, chunk, 1, -100, 1};
    LayerBatch batch = random_layer(of, 4);
    batch.targets.assign(10, -100);
    const LayerResults got = together(of, batch);
    EXPECT_TRUE(std::isnan(got.loss[0]));
    EXPECT_EQ(got.total[0], 0);
    for (const double gradient : got.weight) EXPECT_EQ(gradient, 0);
  }
}

// The largest logit of a row, and with it all of the sum, may be in any part.
TEST(LinearCrossEntropy, JoinsPartsOfDifferentSize) {
  for (const int64_t place : {0, 15, 16, 39}) {
    const LayerCase of{3, 40, 2, DType::F32, {3, 16}, 2, -100, 1};
    LayerBatch batch = random_layer(of, 5);
    batch.targets = {0, 39, place};
    for (int64_t v = 0; v < of.classes; ++v) {
      batch.weight[static_cast<size_t>(2 * v)] = v == place ? 90.0f : -90.0f;
      batch.weight[static_cast<size_t>(2 * v + 1)] = 0.01f * static_cast<float>(v);
    }
    batch.hidden = {1, 1, 2, 1, -1, 3};
    expect_as_near(of, batch);
  }
}

TEST(LinearCrossEntropy, RefusesClassesThatThereAreNot) {
  for (const LogitChunk chunk : {LogitChunk{2, 40}, LogitChunk{10, 16}}) {
    for (const int64_t target : {int64_t{-1}, int64_t{40}, INT64_MAX}) {
      const LayerCase of{10, 40, 6, DType::F32, chunk, 1, -100, 1};
      LayerBatch batch = random_layer(of, 6);
      batch.targets[9] = target;
      LayerBench bench(of, batch);
      EXPECT_EQ(bench.run(bench.together()).code(), "DC6137");
    }
  }
}

TEST(LinearCrossEntropy, RefusesPartsThatAreNone) {
  for (const LogitChunk chunk :
       {LogitChunk{0, 40}, LogitChunk{10, -1}, LogitChunk{11, 40}, LogitChunk{5, 20}}) {
    const LayerCase of{10, 40, 6, DType::F32, chunk, 1, -100, 1};
    LayerBench bench(of, random_layer(of, 6));
    EXPECT_EQ(bench.run(bench.together()).code(), "DC6130") << of.label();
  }
  const LayerCase many{1025, 3, 2, DType::F32, {1, 3}, 1, -100, 1};
  LayerBench bench(many, random_layer(many, 6));
  EXPECT_EQ(bench.run(bench.together()).code(), "DC6130") << "more than 1024 parts";
}

// Of Llama-3-8B at 4096 tokens an eighth of the logits, and never more than two thirds.
TEST(LogitChunks, AreFewBytes) {
  using base::OutputLayer;
  struct Few {
    OutputLayer layer;
    double part;  // of the logits, at most
  };
  for (const Few& few :
       {Few{{4096, 128256, 4096, DType::BF16}, 1.0 / 7},
        Few{{2048, 128256, 4096, DType::BF16}, 1.0 / 7},
        Few{{8192, 128256, 4096, DType::BF16}, 2.0 / 3},
        Few{{32768, 128256, 4096, DType::BF16}, 1.0 / 3},
        Few{{512, 8192, 512, DType::F32}, 1.0 / 7}, Few{{8192, 32000, 512, DType::F32}, 1.0 / 15},
        Few{{512, 2048, 320, DType::F32}, 1.0 / 2}}) {
    const OutputLayer& of = few.layer;
    const auto bytes =
        static_cast<double>(base::logit_scratch(of, base::choose_logit_chunk(of))->bytes());
    const auto logits =
        static_cast<double>(of.rows) * static_cast<double>(of.classes * base::byte_size(of.dtype));
    EXPECT_LE(bytes, few.part * logits) << of.rows << " x " << of.classes;
  }
  const OutputLayer small{16, 256, 64, DType::F32};
  EXPECT_EQ(base::choose_logit_chunk(small), (LogitChunk{16, 256}));
}

}  // namespace
}  // namespace dc::runtime
