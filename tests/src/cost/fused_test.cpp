// Estimates of fused kernels: what they see of a kernel, closed form, fit, network.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <random>
#include <span>

#include "src/base/archive/safetensors.h"
#include "src/base/sha256.h"
#include "src/cost/analytic.h"
#include "src/cost/fitted_fused.h"
#include "src/cost/fused_network.h"
#include "src/cost/profiled.h"

namespace dc::cost {
namespace {

using base::KernelSignature;
using base::Provider;

KernelSignature fused(const std::string& text) {
  const auto signature = KernelSignature::parse("dc.fused " + text, Provider::Fused);
  EXPECT_TRUE(signature) << text;
  return signature.value_or(KernelSignature());
}

// An operation apart takes as many ns as its kernel has tensors of f32[64,32].
Estimate per_tensor(const KernelSignature& kernel) {
  const base::KernelTensors tensors = kernel.tensors();
  return {{1000 * static_cast<int64_t>(tensors.inputs.size() + tensors.results.size())},
          Source::Measured};
}

std::optional<FusedKernel> described(const std::string& text) {
  return describe_fused(fused(text), per_tensor);
}

constexpr const char* kGate =
    "f32[64,32](32,1) f32[64,32](32,1) body=\"t0:f32=silu.default(self=a0);"
    "t1:f32=mul.Tensor(self=t0,other=a1);->t1\" -> f32[64,32](32,1)";

TEST(FusedKernel, SaysWhatItsTimeDependsOn) {
  const auto kernel = described(kGate);
  ASSERT_TRUE(kernel);
  EXPECT_EQ(kernel->elements, 2048);
  EXPECT_EQ(kernel->rows, 1);
  EXPECT_EQ(kernel->blocks, 8);
  ASSERT_EQ(kernel->operations.size(), 2u);
  EXPECT_EQ(fused_primitives()[kernel->operations[0].primitive], "aten.silu.default");
  EXPECT_TRUE(kernel->operations[0].reads.empty());
  EXPECT_EQ(kernel->operations[1].reads, std::vector<size_t>{0});
  EXPECT_FALSE(kernel->operations[0].is_result);
  EXPECT_TRUE(kernel->operations[1].is_result);
  EXPECT_EQ(kernel->operations[1].read_bytes, 2 * 8192);
  EXPECT_EQ(kernel->operations[0].streams, 1u);
  EXPECT_EQ(kernel->operations[1].streams, 1u);
  EXPECT_EQ(kernel->operations[1].apart.time.v, 3000);
  EXPECT_EQ(kernel->bytes(), 3 * 8192);
}

TEST(FusedKernel, SaysWhatReductionsFold) {
  const auto kernel = described(
      "f32[64,32](32,1) f32[32](1) body=\"t0:f32=mul.Tensor(self=a0,other=a1);"
      "t1:f32=sum.dim_IntList(self=t0,dim=[0]);->t1\" -> f32[1,32](32,1)");
  ASSERT_TRUE(kernel);
  EXPECT_EQ(kernel->reductions, 1u);
  EXPECT_EQ(kernel->elements, 2048);
  EXPECT_EQ(kernel->bytes(), 8192 + 2 * 128);
  ASSERT_EQ(kernel->operations.size(), 2u);
  EXPECT_EQ(kernel->operations[0].written_bytes, 8192);
  EXPECT_EQ(kernel->operations[1].read_bytes, 8192);
  EXPECT_EQ(kernel->operations[1].written_bytes, 128);
  EXPECT_EQ(kernel->operations[1].apart.time.v, 2000);
  // Apart the product takes 3 us and the sum 2; together the product is neither written nor read.
  EXPECT_EQ(closed_form_time(*kernel, base::Nanos{500}, 16.0).v,
            500 + (8192 + 256) / 16 + (3000 - 500 - (8192 + 128 + 8192) / 16) +
                (2000 - 500 - (8192 + 128) / 16));
  EXPECT_FALSE(
      described("f32[64,32,2](64,2,1) body=\"t0:f32=neg.default(self=a0);"
                "t1:f32=amax.default(self=t0,dim=[1]);->t1\" -> f32[64,2](2,1)"));
}

TEST(FusedKernel, SaysHowOperandsLie) {
  // The rows of a1 are one; a2 is a column; a3 is transposed; a4 one number.
  const auto kernel = described(
      "f32[64,32](32,1) f32[32](1) f32[64,1](1,1) f32[64,32](1,64) bf16[]() "
      "body=\"t0:f32=add.Tensor(self=a0,other=a1);t1:f32=add.Tensor(self=t0,other=a2);"
      "t2:f32=add.Tensor(self=t1,other=a3);t3:f32=mul.Tensor(self=t2,other=a4);->t3\" "
      "-> f32[64,32](32,1)");
  ASSERT_TRUE(kernel);
  EXPECT_EQ(kernel->rows, 64);
  EXPECT_EQ(kernel->blocks, 8);  // of eight rows
  using Access = FusedTensor::Access;
  std::vector<Access> found;
  for (const FusedTensor& operand : kernel->operands) found.push_back(operand.access);
  EXPECT_EQ(found, (std::vector<Access>{Access::Dense, Access::Rows, Access::Repeated,
                                        Access::Strided, Access::Repeated}));
  std::vector<size_t> streams;
  for (const FusedOperation& operation : kernel->operations) streams.push_back(operation.streams);
  EXPECT_EQ(streams, (std::vector<size_t>{1, 0, 1, 0}));
  EXPECT_EQ(kernel->operands[1].bytes, 128);
  EXPECT_EQ(kernel->operands[2].bytes, 256);
  EXPECT_EQ(kernel->operands[4].bytes, 2);
}

TEST(FusedKernel, CountsTheBytesOfWindowsAlone) {
  const auto kernel = described(
      "f32[64,32](32,1) f32[64,8](32,1) body=\"a1=window(dim=1,begin=8,end=16);"
      "t0:bool=index_in.range(dim=1,begin=0,end=8);t1:f32=add.Tensor(self=a0,other=a1);"
      "t2:f32=where.self(condition=t0,self=t1,other=a0);->t2\" -> f32[64,32](32,1)");
  ASSERT_TRUE(kernel);
  EXPECT_EQ(kernel->elements, 2048);
  EXPECT_EQ(kernel->rows, 64);  // the index changes from one to the next
  EXPECT_EQ(kernel->bytes(), (2 + 0.25) * 8192);
  EXPECT_EQ(kernel->operations[0].apart.time.v, 0);
  EXPECT_EQ(kernel->operations[1].apart.time.v, 3000);
  EXPECT_FALSE(
      described("f32[64,32](32,1) f32[64,8](32,1) body=\"a1=window(dim=1,begin=28,end=36);"
                "t0:f32=add.Tensor(self=a0,other=a1);->t0\" -> f32[64,32](32,1)"));
}

TEST(FusedKernel, RefusesWhatNoFusedKernelHas) {
  EXPECT_FALSE(describe_fused(KernelSignature("aten.mul.Tensor", Provider::Native), per_tensor));
  // No text; another number of operands; no such operator; shapes that do not broadcast; no dims.
  EXPECT_FALSE(described("f32[4](1) -> f32[4](1)"));
  EXPECT_FALSE(described("f32[4](1) body=\"t0:f32=neg.default(self=a1);->t0\" -> f32[4](1)"));
  EXPECT_FALSE(described("f32[4](1) body=\"t0:f32=mm.default(self=a0);->t0\" -> f32[4](1)"));
  EXPECT_FALSE(described("f32[3](1) body=\"t0:f32=neg.default(self=a0);->t0\" -> f32[4](1)"));
  EXPECT_FALSE(described("f32[]() body=\"t0:f32=neg.default(self=a0);->t0\" -> f32[]()"));
}

TEST(ClosedForm, LeavesOutStartsAndWhatStaysInside) {
  const auto kernel = described(kGate);
  ASSERT_TRUE(kernel);
  // Apart 2000 + 3000. Starts of 100 ns, 10 bytes a ns: moving takes 1638.4 and 2457.6 ns apart,
  // 2457.6 together.
  const double beyond = (2000 - 100 - 1638.4) + (3000 - 100 - 2457.6);
  EXPECT_EQ(closed_form_time(*kernel, {100}, 10).v, static_cast<int64_t>(100 + 2457.6 + beyond));
  // Never longer than apart.
  EXPECT_EQ(closed_form_time(*kernel, {100}, 0.1).v, 5000);
}

// Kernels of a made-up machine: a start, a time for each block and each operation on it, one for
// each byte, and above 64 KiB twice that.
class Machine {
 public:
  explicit Machine(uint32_t seed) : random_(seed) {}

  std::pair<KernelSignature, int64_t> kernel() {
    const char* const names[] = {"add.Tensor", "mul.Tensor", "sub.Tensor"};
    const double prices[] = {3, 5, 9};
    const int rows = 4 << (random_() % 6), columns = 32 * static_cast<int>(1 + random_() % 16);
    const int operations = static_cast<int>(1 + random_() % 6);
    const std::string type = "f32[" + std::to_string(rows) + "," + std::to_string(columns) + "](" +
                             std::to_string(columns) + ",1)";
    const double blocks = static_cast<double>(rows * columns) / 256;
    const double bytes = 3.0 * 4 * rows * columns;
    double time = 1000 + bytes * (bytes > 65536 ? 0.04 : 0.02);
    std::string body;
    for (int i = 0; i < operations; ++i) {
      const size_t one = random_() % 3;
      time += prices[one] * blocks * 4;
      body += "t" + std::to_string(i) + ":f32=" + names[one] +
              "(self=" + (i == 0 ? "a0" : "t" + std::to_string(i - 1)) + ",other=a1);";
    }
    body += "->t" + std::to_string(operations - 1);
    return {fused(type + " " + type + " body=\"" + body + "\" -> " + type),
            static_cast<int64_t>(time)};
  }

 private:
  std::mt19937 random_;
};

TEST(FittedFused, FindsTheMachinesPrices) {
  Machine machine(1);
  std::vector<FusedSample> samples;
  for (int i = 0; i < 600; ++i) {
    const auto [signature, time] = machine.kernel();
    samples.push_back({*describe_fused(signature, per_tensor), {time}});
  }
  const FittedFused fitted(samples), again(samples);
  int near = 0;
  for (int i = 0; i < 200; ++i) {
    const auto [signature, time] = machine.kernel();
    const FusedKernel kernel = *describe_fused(signature, per_tensor);
    EXPECT_EQ(fitted.time(kernel), again.time(kernel));
    const double error = static_cast<double>(fitted.time(kernel).v) / static_cast<double>(time) - 1;
    near += std::abs(error) <= 0.05 ? 1 : 0;
  }
  EXPECT_GE(near, 190);
}

TEST(BoostedTrees, LearnWhereAnEstimateIsWrong) {
  std::vector<BoostedTrees::Features> samples;
  std::vector<double> estimates;
  for (int i = 0; i < 400; ++i) {
    samples.push_back({static_cast<double>(i), static_cast<double>(i % 7)});
    estimates.push_back(i < 150 ? 1 : 0.8);
  }
  const BoostedTrees trees(samples, estimates);
  EXPECT_NEAR(trees.factor({20, 3}), 1, 0.01);
  EXPECT_NEAR(trees.factor({320, 3}), 1.25, 0.01);
}

class FusedFigures : public testing::Test {
 protected:
  void measure(int count) {
    Machine machine(2);
    for (int i = 0; i < count; ++i) {
      const auto [signature, time] = machine.kernel();
      profile_.measurements.kernels.push_back({signature, {time, time, 0, 9}, 0});
    }
  }
  // Alone; cold it takes twice as long.
  void measure_alone(int count) {
    Machine machine(2);
    for (int i = 0; i < count; ++i) {
      const auto [signature, time] = machine.kernel();
      profile_.measurements.alone.push_back(
          {signature, {time, time, 0, 9}, {2 * time, 2 * time, 0, 3}});
    }
  }
  // As a step has it, of one that was measured alone.
  void measure_in_step(size_t number, double of_warm) {
    const base::AloneMeasurement& alone = profile_.measurements.alone[number];
    const auto time = static_cast<int64_t>(of_warm * static_cast<double>(alone.warm.median_ns));
    profile_.measurements.kernels.push_back({alone.signature, {time, time, 0, 9}, 0});
  }
  Estimate time(const KernelSignature& kernel) const {
    return ProfiledCost(profile_, table_).compute(kernel);
  }

  profile::Profile profile_;
  const AnalyticCost table_{1};
};

TEST_F(FusedFigures, SayWhereTheyComeFrom) {
  const KernelSignature gate = fused(kGate);
  EXPECT_EQ(time(gate).source, Source::Analytic);
  const auto mul = KernelSignature::parse(
      "aten.mul.Tensor f32[64,32](32,1) f32[64,32](32,1) -> f32[64,32](32,1)", Provider::Native);
  profile_.measurements.kernels.push_back({*mul, {9000, 9000, 0, 9}, 0});
  EXPECT_EQ(time(gate).source, Source::ClosedForm);
  EXPECT_FALSE(ProfiledCost(profile_, table_).knows_fused_kernels());
  measure(static_cast<int>(FittedFused::kFewestSamples) * 2);
  EXPECT_EQ(time(gate).source, Source::Learned);
  EXPECT_TRUE(ProfiledCost(profile_, table_).knows_fused_kernels());
  profile_.measurements.kernels.push_back({gate, {7777, 7777, 0, 9}, 0});
  EXPECT_EQ(time(gate).source, Source::Measured);
  EXPECT_EQ(time(gate).time.v, 7777);
}

// No kernel of a Machine has this shape.
constexpr const char* kUnseen =
    "f32[48,96](96,1) f32[48,96](96,1) body=\"t0:f32=add.Tensor(self=a0,other=a1);"
    "t1:f32=mul.Tensor(self=t0,other=a1);->t1\" -> f32[48,96](96,1)";

// Between warm and cold, where those are that a step was seen with.
TEST_F(FusedFigures, OfKernelsAloneAreThoseOfAStep) {
  const int enough = static_cast<int>(FittedFused::kFewestSamples) * 2;
  measure_alone(enough);
  measure_in_step(0, 1.4);
  measure_in_step(1, 1.4);
  const base::AloneMeasurement& other = profile_.measurements.alone[2];
  EXPECT_EQ(time(profile_.measurements.alone[1].signature).time.v,
            profile_.measurements.kernels[1].timing.median_ns);
  EXPECT_EQ(time(other.signature).source, Source::Measured);
  EXPECT_NEAR(static_cast<double>(time(other.signature).time.v),
              1.4 * static_cast<double>(other.warm.median_ns), 2);
  const KernelSignature unseen = fused(kUnseen);
  const ProfiledCost costs(profile_, table_);
  EXPECT_EQ(costs.compute(unseen).source, Source::Learned);
  const auto alone = static_cast<double>(costs.alone(unseen)->v);
  EXPECT_NEAR(static_cast<double>(costs.compute(unseen).time.v), 1.4 * alone, 0.01 * alone);
}

// What a step adds is the same part of whatever is estimated in place of the fit.
TEST_F(FusedFigures, OfAnotherEstimatorAreThoseOfAStep) {
  class Always final : public FusedEstimator {
   public:
    base::Nanos time(const FusedKernel&) const override { return {1'000'000}; }
  };
  measure_alone(static_cast<int>(FittedFused::kFewestSamples) * 2);
  measure_in_step(0, 1.4);
  const KernelSignature unseen = fused(kUnseen);
  const ProfiledCost costs(profile_, table_, std::make_shared<const Always>());
  EXPECT_EQ(costs.alone(unseen)->v, 1'000'000);
  EXPECT_NEAR(static_cast<double>(costs.compute(unseen).time.v), 1'400'000, 10'000);
}

// Never as in no state that was measured.
TEST_F(FusedFigures, AreNeverBeyondWarmAndCold) {
  measure_alone(3);
  const base::AloneMeasurement other = profile_.measurements.alone[2];
  measure_in_step(0, 5);
  EXPECT_EQ(time(other.signature).time.v, other.cold.median_ns);
  profile_.measurements.kernels.clear();
  measure_in_step(0, 0.5);
  EXPECT_EQ(time(other.signature).time.v, other.warm.median_ns);
}

// A network with weights by a formula, whose outputs torch gave (scripts/train_estimator.py's
// Network, HEADS 2, WIDTH 3).
class Network : public testing::Test {
 protected:
  struct Tensor {
    int64_t rows, columns;
    std::vector<float> values;
  };
  static float weight(size_t row, size_t column, size_t salt) {
    return static_cast<float>((row * 31 + column * 17 + salt * 7) % 41) / 20.0f - 1.0f;
  }

  Network() {
    const size_t count = fused_primitives().size();
    size_t width = 3 + count;
    for (size_t layer = 0; layer < 6; ++layer) {
      const std::string name = "attention." + std::to_string(layer);
      add(name + ".weight", 6, width, layer);
      add(name + ".source", 2, 3, layer + 1);
      add(name + ".target", 2, 3, layer + 2);
      width = 6;
    }
    // What an operator is counts by its name, so that the table of operators may grow.
    Tensor& first = tensors_["attention.0.weight"];
    for (size_t row = 0; row < 6; ++row) {
      for (size_t i = 0; i < count; ++i)
        first.values[row * (3 + count) + 3 + i] = weight(row, fused_primitives()[i].size(), 3);
    }
    add("pool.weight", 6, 6, 11);
    add("pool.bias", 1, 6, 12);
    for (size_t layer = 0; layer < 3; ++layer) {
      const std::string name = "dense." + std::to_string(layer);
      const size_t rows = layer == 2 ? 1 : 6;
      add(name + ".weight", rows, 6, 13 + layer);
      add(name + ".bias", 1, rows, 16 + layer);
    }
    tensors_["dense.2.bias"].values[0] = 9;
    for (const std::string_view name : fused_primitives())
      metadata_["primitives"] += (metadata_["primitives"].empty() ? "" : ",") + std::string(name);
    metadata_["format"] = "dcc-fused-estimator";
    metadata_["version"] = "2";
  }
  void add(const std::string& name, size_t rows, size_t columns, size_t salt) {
    Tensor& tensor = tensors_[name];
    tensor.rows = static_cast<int64_t>(rows);
    tensor.columns = static_cast<int64_t>(columns);
    for (size_t i = 0; i < rows * columns; ++i)
      tensor.values.push_back(weight(i / columns, i % columns, salt));
  }
  std::string checksum() const {
    base::Sha256 sum;
    for (const auto& [name, tensor] : tensors_) {
      const std::span<const float> values(tensor.values);
      sum.update({reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()});
    }
    return sum.hex();
  }
  // The file, cut off by `less` bytes.
  std::string written(int64_t less = 0) const {
    std::vector<base::archive::SafeTensor> list;
    for (const auto& [name, tensor] : tensors_)
      list.push_back({name, base::DType::F32, {tensor.rows, tensor.columns}, 0, 0});
    std::map<std::string, std::string> metadata = metadata_;
    metadata.try_emplace("sha256", checksum());
    const auto layout = base::archive::layout_safetensors(list, metadata);
    std::string bytes(static_cast<size_t>(layout->file_bytes), '\0');
    std::memcpy(bytes.data(), layout->header.data(), layout->header.size());
    for (const base::archive::SafeTensor& tensor : layout->tensors) {
      const std::vector<float>& values = tensors_.at(tensor.name).values;
      std::memcpy(bytes.data() + tensor.offset, values.data(), values.size() * sizeof(float));
    }
    std::string path = testing::TempDir() + "fused_network.safetensors";
    std::ofstream(path, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()) - less);
    return path;
  }
  void refuses(const char* code, base::ErrorKind kind, const std::string& words,
               int64_t less = 0) const {
    const auto network = FusedNetwork::read(written(less));
    ASSERT_FALSE(network.ok()) << words;
    EXPECT_EQ(network.status().code(), code);
    EXPECT_EQ(network.status().kind(), kind);
    EXPECT_NE(network.status().sentence().find(words), std::string::npos)
        << network.status().sentence();
  }

  std::map<std::string, Tensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

TEST_F(Network, GivesWhatTorchGives) {
  const auto network = FusedNetwork::read(written());
  ASSERT_TRUE(network.ok()) << network.status().to_string();
  EXPECT_EQ(network->digest().size(), 64u);
  const auto log_time = [&](const std::string& text) {
    return std::log(static_cast<double>(network->time(*described(text)).v));
  };
  EXPECT_NEAR(log_time(kGate), 8.4425, 1e-3);
  EXPECT_NEAR(
      log_time(
          "f32[64,32](32,1) f32[32](1) body=\"t0:f32=exp.default(self=a0);"
          "t1:f32=add.Tensor(self=t0,other=a1);t2:f32=mul.Tensor(self=t0,other=t1);"
          "t3:f32=sub.Tensor(self=t2,other=t0);->t1,t3\" -> f32[64,32](32,1) f32[64,32](32,1)"),
      8.6409, 1e-3);
}

TEST_F(Network, RefusesOtherOperatorsAndVersions) {
  metadata_["primitives"] += ",aten.fresh.default";
  refuses("DC7021", base::ErrorKind::Mismatch, "other operators");
  metadata_["version"] = "1";
  refuses("DC7021", base::ErrorKind::Mismatch, "version 1");
}

TEST_F(Network, RefusesWeightsThatAreNotItsOwn) {
  refuses("DC1321", base::ErrorKind::BadInput, "", 8);
  const auto whole = tensors_;
  tensors_.erase("dense.1.bias");
  refuses("DC7022", base::ErrorKind::BadInput, "'dense.1.bias' is missing");
  tensors_ = whole;
  tensors_["pool.weight"].columns = 3;
  tensors_["pool.weight"].values.resize(18);
  refuses("DC7022", base::ErrorKind::BadInput, "'pool.weight' has another shape");
  tensors_ = whole;
  tensors_["attention.3.weight"].rows = 5;
  tensors_["attention.3.weight"].values.resize(30);
  refuses("DC7022", base::ErrorKind::BadInput, "'attention.3' has heads");
  tensors_ = whole;
  tensors_["attention.2.source"].values[1] = std::numeric_limits<float>::infinity();
  refuses("DC7022", base::ErrorKind::BadInput, "no finite numbers");
  tensors_ = whole;
  metadata_["sha256"] = checksum();
  tensors_["pool.bias"].values[2] += 0.5f;
  refuses("DC7022", base::ErrorKind::BadInput, "not those that were written");
  metadata_["format"] = "pt";
  refuses("DC7022", base::ErrorKind::BadInput, "not an estimator");
}

}  // namespace
}  // namespace dc::cost
