// What good archives become.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/source_dir.h"
#include "tests/src/frontend/edited_archive.h"

namespace dc::frontend {
namespace {

using tests::EditedArchive;
using tests::find_node;
using tests::kDescription;
using tests::kModel;

TEST(Import, ReadsASmallStep) {
  std::vector<std::string> notes;
  auto step = EditedArchive("mlp.pt2").import({{}, &notes});
  ASSERT_TRUE(step.ok()) << step.status().to_string();
  ASSERT_TRUE(ir::verify(*step, ir::Stage::Imported).ok());
  ASSERT_EQ(step->parameters.size(), 6u);
  const ir::Parameter& weight = step->parameters[0];
  EXPECT_EQ(weight.fqn, "0.weight");
  EXPECT_EQ(weight.shape, (ir::Shape{64, 32}));
  EXPECT_TRUE(weight.trainable);
  EXPECT_EQ(weight.record.entry, "data/weights/weight_0");
  EXPECT_EQ(weight.initializer.kind, ir::InitKind::Uniform);
  ASSERT_EQ(step->inputs.size(), 3u);
  EXPECT_EQ(step->inputs[0].role, ir::InputRole::Float);
  EXPECT_EQ(step->inputs[1].role, ir::InputRole::Class);
  EXPECT_EQ(step->inputs[1].high, 10);
  EXPECT_EQ(step->inputs[2].role, ir::InputRole::LossScale);
  const ir::Graph& graph = step->programs[0].graph;
  ASSERT_EQ(graph.outputs.size(), 7u);
  EXPECT_EQ(graph.outputs[0].kind, ir::OutputKind::Loss);
  EXPECT_EQ(graph.outputs[1].fqn, "0.weight");
  const ir::Node* addmm = find_node(*step, "addmm");
  ASSERT_NE(addmm, nullptr);
  EXPECT_EQ(addmm->overload, "aten.addmm.default");
  EXPECT_EQ(addmm->operands.size(), 3u);
  EXPECT_EQ(addmm->origin.module, "0");
  EXPECT_EQ(find_node(*step, "mm")->origin.phase, ir::Phase::Backward);
  EXPECT_THAT(notes, ::testing::ElementsAre(::testing::HasSubstr("optimizer")));
}

struct Big {
  const char* file;
  size_t nodes, parameters;
  double vocabulary;
};
class BigArchives : public ::testing::TestWithParam<Big> {};

TEST_P(BigArchives, AreRead) {
  const std::string path = std::string(dc::kSourceDir) + "/tests/data/" + GetParam().file;
  auto step = import_archive(path);
  ASSERT_TRUE(step.ok()) << step.status().to_string();
  ASSERT_TRUE(ir::verify(*step, ir::Stage::Imported).ok());
  EXPECT_EQ(step->programs[0].graph.node_count(), GetParam().nodes);
  EXPECT_EQ(step->parameters.size(), GetParam().parameters);
  EXPECT_EQ(step->programs[0].graph.outputs.size(), GetParam().parameters + 1);
  EXPECT_TRUE(step->parameters[0].record.entry.empty());  // headless
  ASSERT_EQ(step->inputs.size(), 3u);
  EXPECT_EQ(step->inputs[0].role, ir::InputRole::Tokens);
  EXPECT_EQ(step->inputs[0].high, GetParam().vocabulary);
  EXPECT_EQ(step->inputs[1].role, ir::InputRole::Labels);
  EXPECT_EQ(step->inputs[1].high, GetParam().vocabulary);
  ASSERT_EQ(step->buffers.size(), 2u);
  EXPECT_EQ(step->buffers[0].data.size(), 256u);  // rotary frequencies travel with the step
  EXPECT_TRUE(step->buffers[0].is_constant);
  EXPECT_FALSE(step->buffers[0].persistent);
  EXPECT_EQ(find_node(*step, "embedding")->origin.module, "m.model.embed_tokens");
}

INSTANTIATE_TEST_SUITE_P(Headless, BigArchives,
                         ::testing::Values(Big{"llama_8b_cuda.pt2", 6833, 291, 128256},
                                           Big{"llama_70b_cuda.pt2", 16961, 723, 128256},
                                           Big{"mixtral_dcc_8x7b_cuda.pt2", 8753, 291, 32000}),
                         [](const auto& info) {
                           const std::string file = info.param.file;
                           return file.substr(0, file.find('.'));
                         });

// What --weights must have in common with the plan; the weights themselves are not part of it.
TEST(Import, StepDigestSaysWhichPartChanged) {
  const std::vector<std::string> digest = EditedArchive("mlp.pt2").import()->step_digest;
  ASSERT_EQ(digest.size(), 3u);
  const auto changed = [&digest](const EditedArchive& archive) {
    const std::vector<std::string> other = archive.import()->step_digest;
    std::string parts;
    for (size_t i = 0; i < other.size(); ++i) parts += other[i] == digest[i] ? "=" : "x";
    return parts;
  };
  EditedArchive same("mlp.pt2");
  same["data/weights/weight_0"][100] ^= 1;
  same.replace(kModel, R"(\"m\": \"0\")", R"(\"m\": \"other\")");
  same.replace(kDescription, "0.125", "0.25").replace(kDescription, "\"low\":-1.0", "\"low\":-7.0");
  EXPECT_EQ(changed(same.reverse()), "===");
  EXPECT_EQ(
      changed(EditedArchive("mlp.pt2").replace(kModel, "aten.relu.default", "aten.tanh.default")),
      "x==");
  EditedArchive constants("mlp.pt2");
  constants["data/constants/tensor_0"] = "abcd";
  EXPECT_EQ(changed(constants), "=x=");
  EditedArchive role("mlp.pt2");
  role.replace(kDescription, "\"role\":\"class\"", "\"role\":\"positions\"");
  EXPECT_EQ(changed(role), "==x");
}

TEST(Import, NextLabelsAreReadAndPartOfTheModel) {
  const auto described = [](const std::string& labels) {
    EditedArchive archive("mlp.pt2");
    archive.replace(kDescription, "\"role\":\"class\"", "\"role\":\"labels\"" + labels);
    return archive.import();
  };
  const auto plain = described(""), same = described(",\"labels\":\"same\""),
             next = described(",\"labels\":\"next\"");
  ASSERT_TRUE(next.ok()) << next.status().to_string();
  EXPECT_FALSE(plain->inputs[1].next);
  EXPECT_FALSE(same->inputs[1].next);
  EXPECT_TRUE(next->inputs[1].next);
  EXPECT_EQ(plain->model_digest, same->model_digest);
  EXPECT_NE(plain->model_digest, next->model_digest);
  const auto printed = ir::parse(ir::print(*next));
  ASSERT_TRUE(printed.ok()) << printed.status().to_string();
  EXPECT_TRUE(printed->inputs[1].next);
  EXPECT_EQ(base::exit_code(described(",\"labels\":\"previous\"").status().kind()), 65);
}

TEST(Import, DigestIsThatOfTheModel) {
  EditedArchive archive("mlp.pt2");
  const std::string digest = archive.import()->model_digest;
  EXPECT_EQ(digest.size(), 64u);
  EXPECT_EQ(archive.reverse().import({}, "another_root")->model_digest, digest);
  EditedArchive weights("mlp.pt2");
  weights["data/weights/weight_0"][100] ^= 1;
  EXPECT_EQ(weights.import()->model_digest, digest);
  EditedArchive renamed("mlp.pt2");
  renamed.replace(kModel, "\"relu\"", "\"renamed\"");
  EXPECT_EQ(renamed.import()->model_digest, digest);
  EditedArchive changed("mlp.pt2");
  changed.replace(kModel, "{\"as_int\": -100}", "{\"as_int\": -1}");
  EXPECT_NE(changed.import()->model_digest, digest);
}

TEST(Import, PhasesAreFoundWithoutMarks) {
  const EditedArchive marked("mlp.pt2");
  EditedArchive unmarked("mlp.pt2");
  unmarked.replace(kModel, "\\\"ph\\\"", "\\\"xx\\\"");
  const auto expected = marked.import();
  const auto found = unmarked.import();
  ASSERT_TRUE(expected.ok() && found.ok());
  const ir::Graph& graph = expected->programs[0].graph;
  for (const ir::NodeId id : graph.order()) {
    EXPECT_EQ(found->programs[0].graph.node(id).origin.phase, graph.node(id).origin.phase)
        << graph.node(id).overload.name();
  }
}

TEST(Import, ArgumentsKeepTheirKinds) {
  EditedArchive archive("mlp.pt2");
  archive.replace(kModel, "{\"name\": \"threshold\", \"arg\": {\"as_int\": 0}",
                  "{\"name\": \"threshold\", \"arg\": {\"as_float\": \"-Infinity\"}");
  auto step = archive.import();
  ASSERT_TRUE(step.ok()) << step.status().to_string();
  const ir::Arg* threshold = find_node(*step, "threshold_backward")->find_arg("threshold");
  ASSERT_NE(threshold, nullptr);
  EXPECT_EQ(std::get<double>(threshold->value), -INFINITY);
  const ir::Arg* weight = find_node(*step, "nll_loss_backward")->find_arg("weight");
  ASSERT_NE(weight, nullptr);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(weight->value));
}

TEST(Import, GetItemPicksFromAList) {
  EditedArchive archive("mlp.pt2");
  const std::string picks =
      R"({"target": "_operator.getitem", "inputs": [{"name": "a", "arg": {"as_tensors": [{"name": "t"}, {"name": "relu"}]}, "kind": 1}, {"name": "b", "arg": {"as_int": 1}, "kind": 1}], "outputs": [{"as_tensor": {"name": "picked"}}], "metadata": {}}, )";
  std::string& json = archive[kModel];
  const size_t t_1 =
      json.find("{\"target\": \"torch.ops.aten.t.default\"", json.find("\"name\": \"relu\""));
  json.insert(t_1, picks);
  archive.replace(kModel, R"("mat1", "arg": {"as_tensor": {"name": "relu"}})",
                  R"("mat1", "arg": {"as_tensor": {"name": "picked"}})");
  auto step = archive.import();
  ASSERT_TRUE(step.ok()) << step.status().to_string();
  EXPECT_EQ(step->model_digest, EditedArchive("mlp.pt2").import()->model_digest);
}

TEST(Import, WorksWithoutLossScale) {
  EditedArchive archive("mlp.pt2");
  archive.replace(kModel, R"(, {"user_input": {"arg": {"as_tensor": {"name": "loss_scale"}}}})",
                  "");
  archive.replace(kModel, R"("grad_output", "arg": {"as_tensor": {"name": "loss_scale"}})",
                  R"("grad_output", "arg": {"as_tensor": {"name": "getitem"}})");
  auto step = archive.import();
  ASSERT_TRUE(step.ok()) << step.status().to_string();
  EXPECT_EQ(step->inputs.size(), 2u);
}

// Written by torch 2.11's torch.export.experimental._export_forward_backward: no marks, no loss
// scale, losses and layer norms decomposed.
TEST(Import, ReadsOfficialJointExports) {
  std::vector<std::string> notes;
  auto step = EditedArchive("official_joint.pt2").import({{}, &notes});
  ASSERT_TRUE(step.ok()) << step.status().to_string();
  EXPECT_THAT(notes, ::testing::Contains(::testing::HasSubstr("nothing has compared it")));
  ASSERT_TRUE(ir::verify(*step, ir::Stage::Imported).ok());
  EXPECT_EQ(step->parameters.size(), 6u);
  ASSERT_EQ(step->inputs.size(), 2u);
  EXPECT_EQ(step->inputs[1].role, ir::InputRole::Class);
  EXPECT_EQ(step->inputs[1].high, 4);
  EXPECT_EQ(step->programs[0].graph.outputs.size(), 7u);
  EXPECT_EQ(find_node(*step, "addmm")->origin.module, "a");
  const ir::Graph& graph = step->programs[0].graph;
  bool backward = false;
  for (const ir::NodeId id : graph.order()) {
    const bool now = graph.node(id).origin.phase == ir::Phase::Backward;
    EXPECT_TRUE(now || !backward) << "a forward node behind a backward node";
    backward = now;
  }
  EXPECT_TRUE(backward);
}

TEST(Import, ReadsWhichRowAnInitializerLeavesZero) {
  EditedArchive archive("mlp.pt2");
  auto without = archive.import();
  ASSERT_TRUE(without.ok());
  EXPECT_EQ(without->parameters[0].initializer.zero_row, -1);
  archive.replace(kDescription, "\"0.weight\":{", "\"0.weight\":{\"zero_row\":63,");
  auto step = archive.import();
  ASSERT_TRUE(step.ok()) << step.status().to_string();
  EXPECT_EQ(step->parameters[0].initializer.zero_row, 63);
  EXPECT_EQ(step->parameters[0].initializer.kind, ir::InitKind::Uniform);
  EXPECT_EQ(step->parameters[1].initializer.zero_row, -1);
  EXPECT_NE(step->model_digest, without->model_digest);
}

TEST(Import, ReadsWhichRangesAreGuessed) {
  EditedArchive archive("mlp.pt2");
  auto without = archive.import();
  ASSERT_TRUE(without.ok());
  EXPECT_FALSE(without->inputs[1].guessed);
  archive.replace(kDescription, "\"role\":\"class\"", "\"guessed\":true,\"role\":\"class\"");
  auto step = archive.import();
  ASSERT_TRUE(step.ok()) << step.status().to_string();
  EXPECT_TRUE(step->inputs[1].guessed);
  EXPECT_NE(step->model_digest, without->model_digest);
}

TEST(Import, ReadsWhichLabelsAreIgnored) {
  EditedArchive archive("mlp.pt2");
  auto without = archive.import();
  ASSERT_TRUE(without.ok());
  EXPECT_EQ(without->inputs[1].ignored, -100);
  archive.replace(kDescription, "\"role\":\"class\"", "\"ignored\":255,\"role\":\"class\"");
  auto step = archive.import();
  ASSERT_TRUE(step.ok()) << step.status().to_string();
  EXPECT_EQ(step->inputs[1].ignored, 255);
  EXPECT_NE(step->model_digest, without->model_digest);
}

TEST(Import, GuessesInputsWithoutADescription) {
  EditedArchive archive("mlp.pt2");
  archive.remove(kDescription);
  std::vector<std::string> notes;
  auto step = archive.import({{}, &notes});
  ASSERT_TRUE(step.ok());
  EXPECT_EQ(step->inputs[0].role, ir::InputRole::Float);
  EXPECT_EQ(step->inputs[1].role, ir::InputRole::Class);
  EXPECT_EQ(step->inputs[1].high, 10);
  EXPECT_FALSE(step->inputs[1].guessed);  // the loss has so many classes
  EXPECT_EQ(step->inputs[2].role, ir::InputRole::LossScale);
  EXPECT_EQ(notes.size(), 3u);
  EXPECT_EQ(step->parameters[0].initializer.kind, ir::InitKind::Unknown);
}

// An archive without a description, with one more input [16, 8] that nothing reads; dtype:
// PyTorch's number of it.
ir::InputSpec guessed(const std::string& name, int dtype) {
  EditedArchive archive("mlp.pt2");
  archive.remove(kDescription);
  const std::string last = R"({"as_tensor": {"name": "loss_scale"}})";
  const std::string more = R"({"as_tensor": {"name": ")" + name + R"("}})";
  const std::string spec = R"({"user_input": {"arg": )";
  archive.replace(kModel, spec + last + "}}", spec + more + "}}, " + spec + last + "}}");
  archive.replace(kModel, last + R"(], "outputs")", more + ", " + last + R"(], "outputs")");
  archive.replace(kModel, R"("labels": {"dtype": )",
                  '"' + name + R"(": {"dtype": )" + std::to_string(dtype) +
                      R"(, "sizes": [{"as_int": 16}, {"as_int": 8}], "requires_grad": false, )"
                      R"("device": {"type": "cpu", "index": null}, )"
                      R"("strides": [{"as_int": 8}, {"as_int": 1}], )"
                      R"("storage_offset": {"as_int": 0}, "layout": 7}, "labels": {"dtype": )");
  auto step = archive.import();
  EXPECT_TRUE(step.ok()) << step.status().to_string();
  if (!step.ok()) return {};
  EXPECT_EQ(step->inputs[2].name, name);
  return step->inputs[2];
}

// A mask is filled with ones, which is wrong for one that leaves out, as PyTorch's padding masks.
TEST(Import, GuessesMasksThatCountOnly) {
  constexpr int kI64 = 5, kF32 = 7, kBool = 12;
  for (const auto& [name, dtype] :
       std::vector<std::pair<std::string, int>>{{"attention_mask", kI64},
                                                {"encoder_attention_mask", kBool},
                                                {"mask", kI64},
                                                {"loss_mask", kI64}}) {
    EXPECT_EQ(guessed(name, dtype).role, ir::InputRole::Mask) << name;
  }
  for (const auto& [name, dtype] :
       std::vector<std::pair<std::string, int>>{{"key_padding_mask", kBool},
                                                {"mask", kBool},
                                                {"flags", kBool},
                                                {"padding_mask", kI64}}) {
    const ir::InputSpec input = guessed(name, dtype);
    EXPECT_EQ(input.role, ir::InputRole::Class) << name;
    EXPECT_EQ(input.high, 2) << name;
    EXPECT_EQ(input.guessed, dtype != kBool) << name;
  }
  EXPECT_EQ(guessed("attn_mask", kF32).role, ir::InputRole::Float);  // added to scores
  EXPECT_EQ(guessed("masked_lm_labels", kI64).role, ir::InputRole::Labels);
  EditedArchive masked("mlp.pt2");
  masked.remove(kDescription).replace(kModel, R"("labels")", R"("masked_ids")");
  auto step = masked.import();
  ASSERT_TRUE(step.ok()) << step.status().to_string();
  EXPECT_EQ(step->inputs[1].role, ir::InputRole::Class);  // the loss has so many classes
  EXPECT_EQ(step->inputs[1].high, 10);
}

base::TrainConfig config(const std::string& text) {
  return *base::parse_train_config(*base::parse_json_value(text, "train.json"));
}

TEST(Import, OptimizerComesFromArchiveAndConfiguration) {
  EditedArchive archive("mlp.pt2");
  archive.replace(kDescription, "{\"aliases\"",
                  R"({"optimizer":{"optimizer":{"kind":"adamw","lr":0.5,"betas":[0.8,0.9]},)"
                  R"("groups":[{"match":"*.bias","weight_decay":0}],"clip_norm":2.0},"aliases")");
  std::vector<std::string> notes;
  auto step = archive.import({{}, &notes});
  ASSERT_TRUE(step.ok()) << step.status().to_string();
  EXPECT_TRUE(notes.empty());
  EXPECT_TRUE(step->optimizer.clip);
  EXPECT_EQ(step->optimizer.clip_norm, 2.0);
  ASSERT_EQ(step->optimizer.groups.size(), 2u);
  EXPECT_EQ(step->optimizer.groups[1].lr, 0.5);
  EXPECT_EQ(step->optimizer.groups[1].weight_decay, 0);
  EXPECT_EQ(step->optimizer.groups[0].weight_decay, 0.01);

  auto other = archive.import(
      {config(R"({"optimizer": {"kind": "sgd", "momentum": 0.9}, "clip_norm": null})")});
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(other->optimizer.kind, ir::OptimizerKind::Sgd);
  EXPECT_EQ(other->optimizer.groups[0].lr, 1e-3);
  EXPECT_EQ(other->optimizer.groups[0].weight_decay, 0);
  EXPECT_FALSE(other->optimizer.clip);
  EXPECT_EQ(other->model_digest, step->model_digest);

  auto unmatched = archive.import({config(R"({"groups": [{"match": "*nrom*"}]})")});
  ASSERT_FALSE(unmatched.ok());
  EXPECT_EQ(unmatched.status().kind(), base::ErrorKind::BadConfig);
}

}  // namespace
}  // namespace dc::frontend
