#include "runtime/train/weights.h"

#include <cmath>
#include <cstring>

#include "runtime/kernel/elements.h"
#include "src/base/archive/safetensors.h"
#include "tests/runtime/train/scratch_folder.h"
#include "tests/runtime/train/training_plan.h"

namespace dc::runtime::test {
namespace {

using base::DType;
using base::ErrorKind;

// The state tensors of a plan in memory of a test's own, filled with something wrong.
struct Memory {
  explicit Memory(const plan::Plan& plan)
      : plan(plan), bytes(static_cast<size_t>(plan.arena_bytes[0]), std::byte{0x7B}) {}
  checkpoint::TensorBinder binder() {
    return [this](int32_t id) { return kernel::AddressMap(plan, bytes.data(), 0).bind(id); };
  }
  const plan::Plan& plan;
  std::vector<std::byte> bytes;
};

std::vector<float> filled(const TrainingPlan& hand, const train::WeightSet& weights, int rank) {
  Memory memory(hand.plan);
  const base::Status status = train::fill_state(
      hand.plan, weights, rank, {hand.plan, device::cpu_device(), memory.binder(), nullptr});
  EXPECT_TRUE(status.ok()) << status.to_string();
  const auto* data = static_cast<const float*>(memory.binder()(hand.w).data);
  return {data, data + hand.shard};
}

TEST(Weights, DrawsAreEqualForAnyWorldAndTailsAreZero) {
  std::vector<float> whole;
  for (const int world : {1, 2, 3}) {
    const TrainingPlan hand(world, 1);
    auto weights = train::open_weights("init:3", hand.plan);
    ASSERT_TRUE(weights.ok());
    std::vector<float> all;
    for (int rank = 0; rank < world; ++rank) {
      const auto shard = filled(hand, *weights, rank);
      all.insert(all.end(), shard.begin(), shard.end());
    }
    for (size_t i = TrainingPlan::kElements; i < all.size(); ++i) EXPECT_EQ(all[i], 0);
    all.resize(TrainingPlan::kElements);
    if (whole.empty()) whole = all;
    EXPECT_EQ(all, whole);
  }
  const TrainingPlan hand(1, 1);
  auto other = filled(hand, *train::open_weights("init:4", hand.plan), 0);
  other.resize(TrainingPlan::kElements);
  EXPECT_NE(other, whole);
}

TEST(Weights, ARowStaysZeroAndTheOthersAreDrawnAsWithoutIt) {
  constexpr size_t kRow = 10;
  const TrainingPlan plain(1, 1);
  auto expected = filled(plain, *train::open_weights("init:3", plain.plan), 0);
  for (const int64_t row : {0, 3, 6}) {
    auto wanted = expected;
    const auto first = wanted.begin() + row * static_cast<int64_t>(kRow);
    for (auto it = first; it != first + kRow; ++it) {
      EXPECT_NE(*it, 0);
      *it = 0;
    }
    for (const int world : {1, 2, 3}) {  // of 3 ranks, row 3 lies on two
      TrainingPlan hand(world, 1);
      hand.plan.parameters[0].initializer.zero_row = row;
      auto weights = train::open_weights("init:3", hand.plan);
      ASSERT_TRUE(weights.ok());
      std::vector<float> all;
      for (int rank = 0; rank < world; ++rank) {
        const auto shard = filled(hand, *weights, rank);
        all.insert(all.end(), shard.begin(), shard.end());
      }
      all.resize(TrainingPlan::kElements);
      EXPECT_EQ(std::vector<float>(wanted.begin(), wanted.begin() + TrainingPlan::kElements), all)
          << "row " << row << " world " << world;
    }
  }
}

// Several cores draw a large one, in two types.
TEST(Weights, LargeParametersAreDrawnInPartsWithTheBitsOfTheWhole) {
  constexpr int64_t kRows = 500, kColumns = 1001;
  HandPlan hand(1);
  plan::Parameter parameter;
  parameter.fqn = "p";
  parameter.dtype = DType::BF16;
  parameter.sizes = {kRows, kColumns};
  parameter.initializer = {plan::InitKind::Normal, 0.0, 1.0};
  hand.plan.parameters = {parameter};
  const int32_t master = hand.tensor("master", DType::F32, {kRows, kColumns});
  const int32_t narrow = hand.tensor("narrow", DType::BF16, {kRows, kColumns});
  for (const int32_t id : {master, narrow}) {
    plan::StateEntry entry;
    entry.name = hand.plan.tensors[static_cast<size_t>(id)].name;
    entry.tensor = id;
    entry.source = plan::StateSource::ParameterWhole;
    entry.parameter = 0;
    hand.plan.state.push_back(entry);
  }
  const auto weights = train::draw_weights(1, hand.plan);
  ASSERT_TRUE(weights.ok());
  Memory memory(hand.plan);
  const base::Status status = train::fill_state(
      hand.plan, *weights, 0, {hand.plan, device::cpu_device(), memory.binder(), nullptr});
  ASSERT_TRUE(status.ok()) << status.to_string();
  for (const int32_t id : {master, narrow}) {
    const kernel::BoundTensor tensor = memory.binder()(id);
    std::vector<std::byte> whole(
        static_cast<size_t>(kRows * kColumns * base::byte_size(tensor.dtype)));
    ASSERT_TRUE(weights->parameters[0]
                    ->read(0, kRows * kColumns, DType::BF16, tensor.dtype, whole.data())
                    .ok());
    EXPECT_EQ(std::memcmp(tensor.data, whole.data(), whole.size()), 0);
  }
}

TEST(Weights, NormalDrawsHaveTheirMoments) {
  plan::Plan plan;
  plan::Parameter parameter;
  parameter.fqn = "p";
  parameter.sizes = {200000};
  parameter.initializer = {plan::InitKind::Normal, 0.5, 0.02};
  plan.parameters = {parameter};
  auto weights = train::draw_weights(1, plan);
  ASSERT_TRUE(weights.ok());
  std::vector<float> values(200000);
  ASSERT_TRUE(weights->parameters[0]->read(0, 200000, DType::F32, DType::F32, values.data()).ok());
  double mean = 0, square = 0, fourth = 0;
  for (const float v : values) mean += v;
  mean /= 200000;
  for (const float v : values) {
    const double d = (v - mean) / 0.02;
    square += d * d;
    fourth += d * d * d * d;
  }
  EXPECT_NEAR(mean, 0.5, 0.02 * 5 / std::sqrt(200000.0));
  EXPECT_NEAR(square / 200000, 1, 0.02);
  EXPECT_NEAR(fourth / 200000, 3, 0.15);
}

TEST(Weights, DrawsAreRoundedToTheParametersType) {
  TrainingPlan hand(1, 1);
  hand.plan.parameters[0].dtype = DType::BF16;
  auto weights = train::open_weights("init:3", hand.plan);
  ASSERT_TRUE(weights.ok());
  for (const float v : filled(hand, *weights, 0)) {
    uint32_t bits = 0;
    std::memcpy(&bits, &v, 4);
    ASSERT_EQ(bits & 0xFFFF, 0u);
  }
}

TEST(Weights, UnknownRulesAreListedAndNotGuessed) {
  TrainingPlan hand(1, 1);
  plan::Parameter second = hand.plan.parameters[0];
  second.fqn = "model.second";
  hand.plan.parameters.push_back(second);
  for (auto& parameter : hand.plan.parameters) parameter.initializer = {};
  const auto weights = train::open_weights("init:0", hand.plan);
  ASSERT_FALSE(weights.ok());
  EXPECT_EQ(weights.status().kind(), ErrorKind::BadInput);
  EXPECT_NE(weights.status().sentence().find("model.w, model.second"), std::string::npos);
  EXPECT_EQ(train::open_weights("init:x", hand.plan).status().kind(), ErrorKind::Usage);
  EXPECT_EQ(train::open_weights("model.bin", hand.plan).status().kind(), ErrorKind::Usage);
  EXPECT_EQ(train::open_weights("/nowhere/w.safetensors", hand.plan).status().kind(),
            ErrorKind::MissingInput);
}

std::string tensor_file(const std::string& name, std::vector<int64_t> shape) {
  auto layout = base::archive::layout_safetensors({{name, DType::F32, std::move(shape), 0, 0}}, {});
  std::string bytes = layout->header;
  bytes.resize(static_cast<size_t>(layout->file_bytes));
  for (int64_t i = 0; i < layout->tensors[0].bytes / 4; ++i) {
    const auto value = static_cast<float>(i);
    std::memcpy(bytes.data() + layout->tensors[0].offset + i * 4, &value, 4);
  }
  return bytes;
}

TEST(Weights, AreFoundByNameOrTiedName) {
  const ScratchFolder folder;
  const TrainingPlan hand(3, 1);
  for (const std::string name : {"model.w", "model.tied"}) {
    const auto path = folder.write(name + ".safetensors", tensor_file(name, {7, 10}));
    auto weights = train::open_weights(path, hand.plan);
    ASSERT_TRUE(weights.ok()) << weights.status().to_string();
    const auto last = filled(hand, *weights, 2);
    EXPECT_EQ(last[5], 69);
    EXPECT_EQ(last[6], 0);
  }
  const auto missing =
      train::open_weights(folder.write("m.safetensors", tensor_file("x", {7, 10})), hand.plan);
  EXPECT_EQ(missing.status().kind(), ErrorKind::MissingInput);
  EXPECT_NE(missing.status().sentence().find("model.w"), std::string::npos);
  const auto unfit =
      train::open_weights(folder.write("u.safetensors", tensor_file("model.w", {70})), hand.plan);
  EXPECT_EQ(unfit.status().kind(), ErrorKind::BadInput);
}

}  // namespace
}  // namespace dc::runtime::test
