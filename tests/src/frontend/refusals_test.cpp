// What is refused, with which exit code and sentence; and that no damage crashes the reader.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/source_dir.h"
#include "tests/src/frontend/edited_archive.h"

namespace dc::frontend {
namespace {

using base::ErrorKind;
using ::testing::HasSubstr;
using tests::EditedArchive;
using tests::kDescription;
using tests::kModel;
using tests::kWeights;

void expect_refused(const EditedArchive& archive, ErrorKind kind,
                    const std::vector<std::string>& parts) {
  auto step = archive.import();
  ASSERT_FALSE(step.ok());
  EXPECT_EQ(step.status().kind(), kind) << step.status().to_string();
  for (const std::string& part : parts) EXPECT_THAT(step.status().to_string(), HasSubstr(part));
}

TEST(Refusals, OtherKindsOfFiles) {
  EditedArchive no_format("mlp.pt2");
  expect_refused(no_format.remove("archive_format"), ErrorKind::BadInput,
                 {"DC2011", "scripts/export.py"});
  EditedArchive old("mlp.pt2");
  old.remove("archive_format");
  old["serialized_exported_program.json"] = "{}";
  expect_refused(old, ErrorKind::BadInput, {"older than 2.8"});
  EditedArchive empty("mlp.pt2");
  expect_refused(empty.remove(kModel), ErrorKind::BadInput, {"no graph"});
  EXPECT_EQ(import_archive("/nowhere/model.pt2").status().kind(), ErrorKind::MissingInput);
}

TEST(Refusals, OtherSchemaVersions) {
  EditedArchive archive("mlp.pt2");
  archive.replace(kModel, "\"major\": 8", "\"major\": 9");
  // Whatever else is new in it, the version is the reason given.
  archive.replace(kModel, "\"as_int\": -100", "\"as_novelty\": -100");
  expect_refused(archive, ErrorKind::BadInput, {"DC2012", "schema version 9", "torch 2.11"});
}

TEST(Refusals, ForwardOnly) {
  EditedArchive archive("mlp.pt2");
  archive.replace(kModel, R"({"loss_output": {"arg": {"name": "getitem"}}})",
                  R"({"user_output": {"arg": {"as_tensor": {"name": "getitem"}}}})");
  expect_refused(archive, ErrorKind::BadInput, {"scripts/export.py", "forward-only"});
  EditedArchive no_gradients("mlp.pt2");
  no_gradients.replace(kModel, "gradient_to_parameter", "user_output");
  expect_refused(no_gradients, ErrorKind::BadInput, {"no gradients"});
}

TEST(Refusals, UnsupportedOperatorsAllAtOnce) {
  EditedArchive archive("mlp.pt2");
  archive.replace(kModel, "torch.ops.aten.relu.default", "torch.ops.aten.fancy.default");
  archive.replace(kModel, "torch.ops.aten._log_softmax.default", "torch.ops.mine.op.default");
  expect_refused(archive, ErrorKind::Unsupported,
                 {"aten.fancy.default (2x, first in module 1)", "mine.op.default (1x"});
}

TEST(Refusals, UnsupportedArgumentsAndTypes) {
  EditedArchive graph("mlp.pt2");
  graph.replace(
      kModel, "{\"name\": \"half_to_float\", \"arg\": {\"as_bool\": false}",
      "{\"name\": \"half_to_float\", \"arg\": {\"as_graph\": {\"name\": \"g\", \"graph\": {}}}");
  expect_refused(graph, ErrorKind::Unsupported, {"_log_softmax", "sub-graph"});
  EditedArchive dtype("mlp.pt2");
  dtype.replace(kModel, "\"relu\": {\"dtype\": 7", "\"relu\": {\"dtype\": 29");
  expect_refused(dtype, ErrorKind::Unsupported, {"element type number 29"});
}

TEST(Refusals, ParametersThatCannotBeTrained) {
  const char* kWeight = "\"p_0_weight\": {\"dtype\": 7";
  for (const auto& [number, said] :
       {std::pair("8", "DC2053]: parameter 0.weight is trained as f64"),
        std::pair("6", "0.weight is trained as f16"), std::pair("10", "element type number 10")}) {
    EditedArchive archive("mlp.pt2");
    archive.replace(kModel, kWeight, std::string("\"p_0_weight\": {\"dtype\": ") + number);
    expect_refused(archive, ErrorKind::Unsupported, {said});
  }
}

TEST(Refusals, ParametersWithoutElements) {
  EditedArchive archive("mlp.pt2");
  archive.replace(kModel, "\"p_0_weight\": {\"dtype\": 7, \"sizes\": [{\"as_int\": 64}",
                  "\"p_0_weight\": {\"dtype\": 7, \"sizes\": [{\"as_int\": 0}");
  expect_refused(archive, ErrorKind::Unsupported, {"DC2054", "0.weight has no elements"});
  EditedArchive fixed("mlp.pt2");
  const auto step = fixed.import({{}, nullptr, {{"rows", 4}}});
  EXPECT_EQ(step.status().code(), "DC2048");
}

TEST(Refusals, RowsThatAreToStayZeroButAreNone) {
  const char* kRule = "\"0.weight\":{";
  for (const auto& [row, code, said] :
       {std::tuple("64", "DC2056", "the initializer of 0.weight leaves row 64 zero"),
        std::tuple("-1", "DC2031", "zero_row is negative"),
        std::tuple("0.5", "DC1103", "expected an integer")}) {
    EditedArchive archive("mlp.pt2");
    archive.replace(kDescription, kRule, std::string(kRule) + "\"zero_row\":" + row + ",");
    expect_refused(archive, ErrorKind::BadInput, {code, said});
  }
}

// Without a tensor to read, or with names that no operator has.
TEST(Refusals, ArgumentsThatAreMissingOrTwice) {
  const std::string self =
      R"({"name": "self", "arg": {"as_tensor": {"name": "addmm"}}, "kind": 1})";
  EditedArchive missing("mlp.pt2");
  missing.replace(kModel, self, "");
  expect_refused(missing, ErrorKind::BadInput, {"DC2105", "aten.relu", "at least 1 tensor"});
  EditedArchive twice("mlp.pt2");
  twice.replace(kModel, self, self + ", " + self);
  expect_refused(twice, ErrorKind::BadInput, {"node relu", "'self' is given twice"});
  EditedArchive nameless("mlp.pt2");
  nameless.replace(kModel, "\"half_to_float\"", "\"\"");
  expect_refused(nameless, ErrorKind::BadInput, {"node _log_softmax", "no name"});
}

TEST(Refusals, OperandsThatDoNotFit) {
  const std::string of_relu =
      R"("torch.ops.aten.threshold_backward.default", "inputs": [{"name": "grad_output", "arg": {"as_tensor": {"name": "mm"}})";
  EditedArchive pointwise("mlp.pt2");
  pointwise.replace(kModel, of_relu, std::string(of_relu).replace(of_relu.rfind("mm"), 2, "t_4"));
  expect_refused(pointwise, ErrorKind::BadInput,
                 {"DC2049", "node threshold_backward", "sizes [10,16] [16,64]"});
  EditedArchive product("mlp.pt2");
  product.replace(kModel, R"("mat2", "arg": {"as_tensor": {"name": "t_3"}})",
                  R"("mat2", "arg": {"as_tensor": {"name": "relu"}})");
  expect_refused(product, ErrorKind::BadInput, {"DC2049", "node mm ", "[16,10] [16,64]"});
}

TEST(Refusals, RolesThatATypeCannotHave) {
  EditedArchive archive("mlp.pt2");
  archive.replace(kDescription, "\"role\":\"float\"", "\"role\":\"class\"");
  expect_refused(archive, ErrorKind::BadInput, {"input x is described as what f32 cannot be"});
}

TEST(Refusals, ConstantsWithoutValues) {
  EditedArchive archive("mlp.pt2");
  archive.replace(
      kModel, R"({"parameter": {"arg": {"name": "p_4_bias"}, "parameter_name": "4.bias"}})",
      R"({"tensor_constant": {"arg": {"name": "p_4_bias"}, "tensor_constant_name": "c"}})");
  archive.replace(
      kModel, R"({"gradient_to_parameter": {"arg": {"name": "view"}, "parameter_name": "4.bias"}})",
      R"({"user_output": {"arg": {"as_tensor": {"name": "view"}}}})");
  expect_refused(archive, ErrorKind::BadInput, {"constant c has no values"});
}

TEST(Refusals, GradientsOfAnotherType) {
  EditedArchive archive("mlp.pt2");
  const std::string keep = R"({"name": "keepdim", "arg": {"as_bool": true}, "kind": 1})";
  archive.replace(kModel, keep,
                  keep + R"(, {"name": "dtype", "arg": {"as_scalar_type": 8}, "kind": 2})");
  for (const std::string name : {"sum_1", "sum_2", "sum_3", "view", "view_1", "view_2"})
    archive.replace(kModel, "\"" + name + "\": {\"dtype\": 7", "\"" + name + "\": {\"dtype\": 8");
  expect_refused(archive, ErrorKind::BadInput, {"the gradient of 0.bias is f64"});
}

TEST(Refusals, DropoutThatIsNone) {
  const auto edit = [](EditedArchive& archive, const std::string& operand, const std::string& p) {
    archive.replace(
        kModel,
        R"("torch.ops.aten.relu.default", "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "addmm"}}, "kind": 1}], "outputs": [)",
        R"("torch.ops.aten.native_dropout.default", "inputs": [{"name": "input", "arg": {"as_tensor": {"name": ")" +
            operand + R"("}}, "kind": 1}, {"name": "p", "arg": )" + p +
            R"(, "kind": 1}, {"name": "train", "arg": {"as_bool": true}, "kind": 1}], "outputs": [)");
    archive.replace(kModel, R"("outputs": [{"as_tensor": {"name": "relu"}}])",
                    R"("outputs": [{"as_tensor": {"name": "relu"}}, {"as_none": true}])");
  };
  EditedArchive good("mlp.pt2");
  edit(good, "addmm", R"({"as_float": 0.5})");
  const auto step = good.import();
  EXPECT_TRUE(step.ok()) << step.status().to_string();
  for (const char* p : {R"({"as_float": 1.5})", R"({"as_float": "NaN"})", R"({"as_int": -1})",
                        R"({"as_bool": true})", R"({"as_none": true})"}) {
    EditedArchive archive("mlp.pt2");
    edit(archive, "addmm", p);
    expect_refused(archive, ErrorKind::BadInput, {"native_dropout", "'p'"});
  }
  EditedArchive integers("mlp.pt2");
  edit(integers, "labels", R"({"as_float": 0.5})");
  expect_refused(integers, ErrorKind::BadInput, {"node relu", "no floating-point tensor"});
}

TEST(Refusals, ReductionsOfAnotherType) {
  EditedArchive archive("mlp.pt2");
  archive.replace(kModel, "\"sum_3\": {\"dtype\": 7", "\"sum_3\": {\"dtype\": 13");
  archive.replace(kModel, "\"view_2\": {\"dtype\": 7", "\"view_2\": {\"dtype\": 13");
  expect_refused(archive, ErrorKind::BadInput, {"DC2049", "element type bf16 for sum_3"});
}

TEST(Refusals, ShapesThatDependOnDataOrSymbols) {
  EditedArchive data("mlp.pt2");
  data.replace(kModel, "torch.ops.aten.relu.default", "torch.ops.aten.nonzero.default");
  expect_refused(data, ErrorKind::BadInput,
                 {"aten.nonzero.default", "module 1", "depends on data"});
  EditedArchive symbol("mlp.pt2");
  symbol.replace(kModel, "\"relu\": {\"dtype\": 7, \"sizes\": [{\"as_int\": 16}",
                 "\"relu\": {\"dtype\": 7, \"sizes\": [{\"as_expr\": {\"expr_str\": "
                 "\"Symbol('s0', positive=True)\", \"hint\": {\"as_int\": 16}}}");
  expect_refused(symbol, ErrorKind::BadConfig, {"s0", "--dim s0=SIZE"});
}

TEST(Refusals, AttentionThatWasDecomposedWrongly) {
  EditedArchive archive("llama_8b_cuda.pt2");
  archive.replace(kModel, R"("logsumexp", "arg": {"as_tensor": {"name": "getitem_280"}})",
                  R"("logsumexp", "arg": {"as_tensor": {"name": "getitem_279"}})");
  expect_refused(archive, ErrorKind::BadInput,
                 {"module m.model.layers.31.self_attn", "4 dims", "scripts/export.py"});
}

TEST(Refusals, WeightsThatAreNoPlainTensors) {
  EditedArchive pickled("mlp.pt2");
  pickled.replace(kWeights, "\"use_pickle\": false", "\"use_pickle\": true");
  expect_refused(pickled, ErrorKind::BadInput, {"pickle", "0.weight"});
  EditedArchive cut("mlp.pt2");
  cut["data/weights/weight_0"].resize(8000);
  expect_refused(cut, ErrorKind::BadInput, {"8000 bytes", "0.weight"});
  EditedArchive other("mlp.pt2");
  other.replace(kWeights, "\"path_name\": \"weight_0\"", "\"path_name\": \"weight_5\"");
  expect_refused(other, ErrorKind::BadInput, {"0.weight"});
}

TEST(Refusals, StridedParameters) {
  EditedArchive archive("mlp.pt2");
  archive.replace(kModel, R"("p_0_weight": {"dtype": 7, "sizes": [{"as_int": 64}, {"as_int": 32}])",
                  R"("p_0_weight": {"dtype": 7, "sizes": [{"as_int": 32}, {"as_int": 64}])");
  expect_refused(archive, ErrorKind::BadInput, {"0.weight", "contiguous"});
}

TEST(Refusals, TwoGradientsOfOneParameter) {
  EditedArchive archive("mlp.pt2");
  archive.replace(kModel, R"("view_1"}, "parameter_name": "2.bias")",
                  R"("view_1"}, "parameter_name": "0.bias")");
  expect_refused(archive, ErrorKind::BadInput, {"0.bias has two gradients"});
}

TEST(Refusals, BadDescriptions) {
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"\"role\":\"class\"", "\"role\":\"klass\""},
           {"\"name\":\"labels\"", "\"name\":\"lables\""},
           {"\"version\":1", "\"version\":2"},
           {"\"kind\":\"uniform\"", "\"kind\":\"magic\""},
           {"\"high\":10,\"low\":0", "\"high\":10,\"low\":11"},
           {"\"high\":0.125,\"kind\":\"uniform\"", "\"high\":-0.25,\"kind\":\"uniform\""},
           {R"("high":0.125,"kind":"uniform","low":-0.125)",
            R"("kind":"normal","mean":0,"std":-1)"},
           {"{\"aliases\"", "{\"optimizer\":{\"optimizer\":{\"kind\":\"adam\"}},\"aliases\""}}) {
    EditedArchive archive("mlp.pt2");
    archive.replace(kDescription, from, to);
    expect_refused(archive, ErrorKind::BadInput, {});
  }
}

// Damage with a correct checksum: the JSON itself is wrong somewhere.
TEST(Refusals, DamagedGraphsNeverCrash) {
  std::mt19937 random(7);
  int refused = 0;
  constexpr int kTries = 1500;
  for (int i = 0; i < kTries; ++i) {
    EditedArchive archive("mlp.pt2");
    std::string& text = archive[i % 8 == 0 ? kWeights : i % 8 == 1 ? kDescription : kModel];
    for (int edits = 1 + i % 3; edits > 0; --edits) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random() % 256);
          break;
        case 1:
          text[at] = "0123456789-{}[],:\"e."[random() % 20];
          break;
        case 2:
          text.erase(at, 1 + random() % 40);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), 1 + random() % 60));
          break;
      }
      if (text.empty()) text = "{";
    }
    auto step = archive.import();
    if (step.ok()) {
      (void)ir::verify(*step, ir::Stage::Imported).ok();
      continue;
    }
    ++refused;
    const ErrorKind kind = step.status().kind();
    EXPECT_TRUE(kind == ErrorKind::BadInput || kind == ErrorKind::Unsupported ||
                kind == ErrorKind::BadConfig)
        << step.status().to_string();
  }
  EXPECT_GT(refused, kTries / 3);
}

TEST(Refusals, CutFilesAreRefused) {
  tests::TemporaryFolder folder;
  const std::string path = std::string(dc::kSourceDir) + "/tests/data/mlp.pt2";
  const std::string whole = *base::read_file(path);
  for (size_t length = 0; length < whole.size(); length += 997) {
    auto step = import_archive(folder.write("cut.pt2", whole.substr(0, length)));
    ASSERT_FALSE(step.ok());
    EXPECT_EQ(step.status().kind(), ErrorKind::BadInput);
  }
}

}  // namespace
}  // namespace dc::frontend
