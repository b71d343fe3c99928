#include "src/frontend/index_use.h"

#include <gtest/gtest.h>

#include <string>

#include "src/ir/step.h"

namespace dc {
namespace {

// What %ids, [4,3], indexes in a program of these lines; "-" for nothing, "*" after the bound of a
// part.
std::string found(const std::string& lines) {
  auto step = ir::parse("step @s stage=imported mesh=<dp=1> {\n  input \"ids\" : i64[4,3]\n" +
                        std::string("  parameter \"few\" : f32[9,2]\n") +
                        "  parameter \"many\" : f32[50,2]\n  state \"few\" : f32[9,2] "
                        "parameter=\"few\"\n  state \"many\" : f32[50,2] parameter=\"many\"\n" +
                        "  program @p {\n    %ids = input(name=\"ids\") : i64[4,3] varying<dp>\n" +
                        "    %few = state(entry=\"few\") : f32[9,2]\n" +
                        "    %many = state(entry=\"many\") : f32[50,2]\n" + lines + "  }\n}\n");
  EXPECT_TRUE(step.ok()) << step.status().to_string();
  if (!step.ok()) return "";
  const ir::Graph& graph = step->programs[0].graph;
  const auto use = frontend::index_use(graph, graph.find_value("ids"));
  if (!use) return "-";
  return (use->embedding ? "rows " : "classes ") + std::to_string(use->bound) +
         (use->of_all ? "" : "*");
}

const char* kFirst =
    "    %a = aten.select.int(self=%ids, dim=1, index=0) : i64[4] strides=(3) varying<dp>\n"
    "    %ra = aten.embedding.default(weight=%few, indices=%a) : f32[4,2] varying<dp>\n";

TEST(IndexUse, AllValues) {
  EXPECT_EQ(found(""), "-");
  EXPECT_EQ(found("    %r = aten.embedding.default(weight=%few, indices=%ids) : f32[4,3,2] "
                  "varying<dp>\n"),
            "rows 9");
  EXPECT_EQ(found("    %n = aten.neg.default(self=%ids) : i64[4,3] varying<dp>\n"
                  "    %r = aten.embedding.default(weight=%few, indices=%n) : f32[4,3,2] "
                  "varying<dp>\n"),
            "-");
}

TEST(IndexUse, Columns) {
  const std::string other =
      "    %b = aten.select.int(self=%ids, dim=1, index=1) : i64[4] strides=(3) varying<dp>\n";
  const std::string rows = " : f32[4,2] varying<dp>\n";
  EXPECT_EQ(found(kFirst), "rows 9");
  EXPECT_EQ(
      found(kFirst + other + "    %rb = aten.embedding.default(weight=%few, indices=%b)" + rows),
      "rows 9");
  EXPECT_EQ(
      found(kFirst + other + "    %rb = aten.embedding.default(weight=%many, indices=%b)" + rows),
      "rows 9*");
  EXPECT_EQ(found(kFirst + other + "    %n = aten.neg.default(self=%b) : i64[4] varying<dp>\n"),
            "rows 9*");
}

TEST(IndexUse, Classes) {
  const std::string gather =
      "    %s = aten.zeros.default(size=[9,5]) : f32[9,5]\n    %g = aten.gather.default(self=%s, ";
  EXPECT_EQ(found(gather + "dim=1, index=%ids) : f32[4,3] varying<dp>\n"), "classes 5");
  EXPECT_EQ(found(gather + "dim=0, index=%ids) : f32[4,3] varying<dp>\n"), "-");
  const std::string equal =
      "    %u = aten.unsqueeze.default(self=%ids, dim=-1) : i64[4,3,1] varying<dp>\n"
      "    %row = aten.arange.default(end=5) : i64[5]\n"
      "    %eq = aten.eq.Tensor(self=%u, other=%row) : bool[4,3,5] varying<dp>\n";
  EXPECT_EQ(found(equal + "    %hot = aten._to_copy.default(self=%eq, dtype=i64) : i64[4,3,5] "
                          "varying<dp>\n"),
            "classes 5");
  EXPECT_EQ(found(equal + "    %mask = aten._to_copy.default(self=%eq, dtype=f32) : f32[4,3,5] "
                          "varying<dp>\n"),
            "-");
}

}  // namespace
}  // namespace dc
