// Parameters under several names.
#include <gtest/gtest.h>

#include "tests/src/frontend/edited_archive.h"

namespace dc::frontend {
namespace {

using tests::EditedArchive;
using tests::find_node;
using tests::kDescription;
using tests::kModel;
using tests::kWeights;

// 0.bias and 2.bias, both [64], have become one parameter.
void expect_tied(const base::Result<ir::Step>& step) {
  ASSERT_TRUE(step.ok()) << step.status().to_string();
  ASSERT_TRUE(ir::verify(*step, ir::Stage::Imported).ok());
  ASSERT_EQ(step->parameters.size(), 5u);
  EXPECT_EQ(step->parameters[1].fqn, "0.bias");
  EXPECT_EQ(step->parameters[1].aliases, (std::vector<std::string>{"2.bias"}));
  const ir::Graph& graph = step->programs[0].graph;
  EXPECT_EQ(find_node(*step, "addmm")->operands[0], find_node(*step, "addmm_1")->operands[0]);
  ASSERT_EQ(graph.outputs.size(), 6u);
  const ir::Output& gradient = graph.outputs[2];
  EXPECT_EQ(gradient.fqn, "0.bias");
  const ir::Node& sum = graph.node(graph.value(gradient.value).producer);
  EXPECT_EQ(sum.overload, "aten.add.Tensor");
  EXPECT_TRUE(sum.origin.accumulates);
  EXPECT_EQ(graph.value(sum.operands[0]).name, "view_2");
  EXPECT_EQ(graph.value(sum.operands[1]).name, "view_1");
}

TEST(Ties, FromTheDescription) {
  EditedArchive archive("mlp.pt2");
  archive.replace(kDescription, "\"aliases\":{}", "\"aliases\":{\"2.bias\":\"0.bias\"}");
  expect_tied(archive.import());
}

TEST(Ties, FromEqualRecords) {
  EditedArchive archive("mlp.pt2");
  archive.replace(kWeights, "\"path_name\": \"weight_3\"", "\"path_name\": \"weight_1\"");
  expect_tied(archive.import());
}

TEST(Ties, RecordsWithoutBytesSayNothing) {
  EditedArchive archive("mlp.pt2");
  archive.replace(kWeights, "\"path_name\": \"weight_3\"", "\"path_name\": \"weight_1\"");
  archive["data/weights/weight_1"].clear();
  auto step = archive.import();
  ASSERT_TRUE(step.ok()) << step.status().to_string();
  EXPECT_EQ(step->parameters.size(), 6u);
}

// 2.bias, [64], lies in 0.weight without being a part of the step's one parameter.
TEST(Ties, PartsOfATrainedParameterAreRefused) {
  EditedArchive archive("mlp.pt2");
  archive.replace(kWeights, "\"path_name\": \"weight_3\"", "\"path_name\": \"weight_0\"");
  auto step = archive.import();
  ASSERT_FALSE(step.ok());
  EXPECT_EQ(step.status().code(), "DC2057");
  EXPECT_NE(step.status().sentence().find("0.weight"), std::string::npos);
  EXPECT_NE(step.status().sentence().find("2.bias"), std::string::npos);
}

TEST(Ties, RedirectedAliasesAreNamesOnly) {
  EditedArchive archive("mlp.pt2");
  archive.replace(kDescription, "\"aliases\":{}", "\"aliases\":{\"head.weight\":\"0.weight\"}");
  auto step = archive.import();
  ASSERT_TRUE(step.ok());
  EXPECT_EQ(step->parameters.size(), 6u);
  EXPECT_EQ(step->parameters[0].aliases, (std::vector<std::string>{"head.weight"}));
}

TEST(Ties, WrongAliasesAreRefused) {
  for (const char* aliases : {R"({"2.bias":"0.weight"})", R"({"2.bias":"nothing"})",
                              R"({"0.bias":"2.bias","2.bias":"0.bias"})"}) {
    EditedArchive archive("mlp.pt2");
    archive.replace(kDescription, "\"aliases\":{}", std::string("\"aliases\":") + aliases);
    auto step = archive.import();
    ASSERT_FALSE(step.ok()) << aliases;
    EXPECT_EQ(step.status().kind(), base::ErrorKind::BadInput);
  }
}

}  // namespace
}  // namespace dc::frontend
