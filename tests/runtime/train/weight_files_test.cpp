// Weights that do or do not belong to the plan: archives, checkpoints in one file and in several.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "runtime/train/weights.h"
#include "src/base/archive/safetensors.h"
#include "src/base/archive/step_digest.h"
#include "src/base/archive/zip.h"
#include "tests/runtime/train/scratch_folder.h"
#include "tests/runtime/train/training_plan.h"
#include "tests/src/archive/zip_builder.h"

namespace dc::runtime::test {
namespace {

using base::DType;
using base::archive::SafeTensor;

struct NamedTensor {
  std::string name;
  std::vector<int64_t> shape;
  float first = 0;
  DType dtype = DType::F32;
};

// Elements first, first + 1, ... (as float32, or zeros of another type).
std::string safetensors(const std::vector<NamedTensor>& tensors) {
  std::vector<SafeTensor> entries;
  for (const NamedTensor& t : tensors) entries.push_back({t.name, t.dtype, t.shape, 0, 0});
  auto layout = base::archive::layout_safetensors(entries, {});
  std::string bytes = layout->header;
  bytes.resize(static_cast<size_t>(layout->file_bytes), '\0');
  for (size_t k = 0; k < tensors.size(); ++k) {
    for (int64_t i = 0; tensors[k].dtype == DType::F32 && i < layout->tensors[k].bytes / 4; ++i) {
      const float value = tensors[k].first + static_cast<float>(i);
      std::memcpy(bytes.data() + layout->tensors[k].offset + i * 4, &value, 4);
    }
  }
  return bytes;
}

float first_of(const base::Result<train::WeightSet>& weights) {
  EXPECT_TRUE(weights.ok()) << weights.status().to_string();
  float value = NAN;
  if (weights.ok()) {
    EXPECT_TRUE(weights->parameters[0]->read(0, 1, DType::F32, DType::F32, &value).ok());
  }
  return value;
}

void refused(const base::Result<train::WeightSet>& weights, int code,
             const std::vector<std::string>& words) {
  ASSERT_FALSE(weights.ok());
  EXPECT_EQ(base::exit_code(weights.status().kind()), code) << weights.status().to_string();
  for (const std::string& word : words) {
    EXPECT_NE(weights.status().sentence().find(word), std::string::npos)
        << word << " in " << weights.status().sentence();
  }
}

// A model archive of one weight, as torch.export writes it.
struct SmallArchive {
  std::string graph = R"({"graph":{"nodes":[{"target":"gelu","metadata":{"stack_trace":"a"}}]}})";
  std::string description = R"({"inputs":[{"name":"x","role":"float","low":0,"high":1}]})";
  std::string constant = "abcd";
  std::string name = "model.w";
  std::vector<int64_t> shape = {7, 10};
  float first = 5;

  std::string bytes() const {
    const auto list = [](const std::vector<int64_t>& values) {
      std::string text;
      for (const int64_t v : values) {
        text += (text.empty() ? "" : ",") + (R"({"as_int":)" + std::to_string(v) + "}");
      }
      return "[" + text + "]";
    };
    const std::string table =
        R"({"config":{")" + name +
        R"(":{"path_name":"weight_0","use_pickle":false,"tensor_meta":{"dtype":7,"sizes":)" +
        list(shape) + R"(,"strides":)" + list({shape.back(), 1}) +
        R"(,"storage_offset":{"as_int":0}}}}})";
    std::string data;
    for (int64_t i = 0; i < shape[0] * shape[1]; ++i) {
      const float value = first + static_cast<float>(i);
      data.append(reinterpret_cast<const char*>(&value), 4);
    }
    tests::ZipBuilder zip;
    zip.add({"m/models/model.json", R"({"graph_module":)" + graph + "}"});
    zip.add({"m/data/weights/weight_0", data});
    zip.add({"m/data/weights/model_weights_config.json", table});
    zip.add({"m/data/constants/tensor_0", constant});
    zip.add({"m/extra/dcc.json", description});
    return zip.build();
  }
};

TEST(ArchiveWeights, TheStepMustBeTheCompiledOne) {
  const ScratchFolder folder;
  TrainingPlan hand(1, 1);
  const auto write = [&](const SmallArchive& archive) {
    return folder.write("m.pt2", archive.bytes());
  };
  const auto zip = base::archive::ZipArchive::open(write({}));
  ASSERT_TRUE(zip.ok()) << zip.status().to_string();
  const auto digest = base::archive::step_digest(*zip);
  ASSERT_TRUE(digest.ok()) << digest.status().to_string();
  hand.plan.step_digest.assign(digest->begin(), digest->end());
  EXPECT_EQ(first_of(train::open_weights(write({}), hand.plan)), 5);

  SmallArchive seed;  // another seed, other lines, another sample's range
  seed.first = 6;
  seed.graph.replace(seed.graph.find("\"a\""), 3, "\"line 7\"");
  seed.description.replace(seed.description.find("\"high\":1"), 8, "\"high\":3");
  EXPECT_EQ(first_of(train::open_weights(write(seed), hand.plan)), 6);

  SmallArchive relu;
  relu.graph.replace(relu.graph.find("gelu"), 4, "relu");
  refused(train::open_weights(write(relu), hand.plan), 76,
          {"its graph differ", "--weights-only-by-name"});
  EXPECT_EQ(first_of(train::open_weights(write(relu), hand.plan, {0, true})), 5);
  EXPECT_TRUE(
      train::open_weights(write(relu), hand.plan, {1, false}).ok());  // rank 0 speaks for all

  SmallArchive base_frequency;
  base_frequency.constant = "abce";
  refused(train::open_weights(write(base_frequency), hand.plan), 76, {"its constants differ"});
  SmallArchive optimizer;
  optimizer.description.insert(1, R"("optimizer":{"optimizer":{"lr":0.5}},)");
  refused(train::open_weights(write(optimizer), hand.plan), 76, {"its inputs or optimizer differ"});
}

TEST(ArchiveWeights, OtherNamesAndShapesAreListed) {
  const ScratchFolder folder;
  const TrainingPlan hand(1, 1);
  SmallArchive wide;
  wide.shape = {14, 10};
  for (const bool by_name : {false, true}) {
    refused(train::open_weights(folder.write("w.pt2", wide.bytes()), hand.plan, {0, by_name}), 65,
            {"'model.w' has shape [14, 10] but the plan's is [7, 10]"});
  }
  SmallArchive other;
  other.name = "encoder.w";
  refused(train::open_weights(folder.write("o.pt2", other.bytes()), hand.plan), 66,
          {"lacks 1 of the plan's tensors: model.w", "not in the plan: encoder.w"});
}

TEST(TensorWeights, UnusedTensorsAreNamed) {
  const ScratchFolder folder;
  const TrainingPlan hand(1, 1);
  const auto path = folder.write("u.safetensors",
                                 safetensors({{"model.w", {7, 10}, 3}, {"model.layers.9.w", {2}}}));
  refused(train::open_weights(path, hand.plan), 76, {"model.layers.9.w", "--weights-only-by-name"});
  const auto weights = train::open_weights(path, hand.plan, {0, true});
  EXPECT_EQ(first_of(weights), 3);
  EXPECT_NE(weights->unused.find("model.layers.9.w"), std::string::npos);
}

TEST(TensorWeights, TiedNamesMustAgree) {
  const ScratchFolder folder;
  const TrainingPlan hand(1, 1);
  const auto equal = safetensors({{"model.w", {7, 10}, 3}, {"model.tied", {7, 10}, 3}});
  EXPECT_EQ(first_of(train::open_weights(folder.write("e.safetensors", equal), hand.plan)), 3);
  const auto differ = safetensors({{"model.w", {7, 10}, 3}, {"model.tied", {7, 10}, 4}});
  refused(train::open_weights(folder.write("d.safetensors", differ), hand.plan), 65,
          {"model.w", "model.tied", "tied"});
  const auto counts = safetensors({{"model.w", {7, 10}, 0, DType::I32}});
  refused(train::open_weights(folder.write("i.safetensors", counts), hand.plan), 65, {"i32"});
}

class Shards : public ::testing::Test {
 protected:
  Shards() : hand(1, 1) {
    plan::Parameter second = hand.plan.parameters[0];
    second.fqn = "model.v";
    second.aliases.clear();
    hand.plan.parameters.push_back(second);
    one =
        folder.write("model-00001-of-00002.safetensors", safetensors({{"model.tied", {7, 10}, 3}}));
    two = folder.write("model-00002-of-00002.safetensors", safetensors({{"model.v", {7, 10}, 8}}));
    index = folder.write("model.safetensors.index.json",
                         R"({"metadata":{"total_size":560},"weight_map":{)"
                         R"("model.tied":"model-00001-of-00002.safetensors",)"
                         R"("model.v":"model-00002-of-00002.safetensors"}})");
  }
  ScratchFolder folder;
  TrainingPlan hand;
  std::string one, two, index;
};

TEST_F(Shards, AreReadByIndexOrFolder) {
  for (const std::string& path : {index, folder / ""}) {
    auto weights = train::open_weights(path, hand.plan);
    EXPECT_EQ(first_of(weights), 3);
    float value = 0;
    ASSERT_TRUE(weights->parameters[1]->read(69, 1, DType::F32, DType::F32, &value).ok());
    EXPECT_EQ(value, 8 + 69);
  }
  // A folder with one file is a checkpoint too.
  const ScratchFolder single;
  single.write("model.safetensors", safetensors({{"model.w", {7, 10}, 1}}));
  hand.plan.parameters.pop_back();
  EXPECT_EQ(first_of(train::open_weights(single / "", hand.plan)), 1);
  std::filesystem::remove(single / "model.safetensors");
  refused(train::open_weights(single / "", hand.plan), 66, {"model.safetensors.index.json"});
}

TEST_F(Shards, MissingAndContradictingFilesAreNamed) {
  std::filesystem::remove(two);
  refused(train::open_weights(index, hand.plan), 66, {"model-00002-of-00002.safetensors"});
  folder.write("model-00002-of-00002.safetensors", safetensors({{"model.x", {7, 10}, 8}}));
  refused(train::open_weights(index, hand.plan), 65, {"'model.v' is not in model-00002"});
  folder.write("model-00002-of-00002.safetensors",
               safetensors({{"model.v", {7, 10}}, {"model.tied", {7, 10}}}));
  refused(train::open_weights(index, hand.plan), 65, {"model.tied", "another file"});
  folder.write("model.safetensors.index.json", R"({"weight_map":{"model.v":"../v.safetensors"}})");
  refused(train::open_weights(index, hand.plan), 65, {"same folder"});
  folder.write("model.safetensors.index.json", R"({"weight_map":{"model.v":)");
  refused(train::open_weights(index, hand.plan), 65, {"index.json"});
}

}  // namespace
}  // namespace dc::runtime::test
