#include "src/analysis/blocks.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/src/analysis/small_steps.h"

namespace dc::analysis {
namespace {

// The block of a node in each module, in order.
std::vector<int32_t> blocks_of(const std::vector<std::string>& modules) {
  ir::StepBuilder b(1);
  const ir::ValueId x = b.input("x", ir::f32({4}));
  std::vector<ir::ValueId> values;
  for (const std::string& module : modules) {
    b.origin.module = module;
    values.push_back(b.aten("aten.relu.default", {x}, {"y", ir::f32({4})}));
  }
  const Blocks found = blocks(b.graph());
  std::vector<int32_t> result;
  for (ir::ValueId value : values)
    result.push_back(found.of_node[b.graph().value(value).producer.index()]);
  return result;
}

using Numbers = std::vector<int32_t>;

TEST(Blocks, AreTheElementsOfTheLongestListOfSiblings) {
  EXPECT_EQ(blocks_of({"embed", "layers.0", "layers.0.mlp", "layers.1.mlp", "layers.2", "head.0",
                       "head.1", ""}),
            (Numbers{-1, 0, 0, 1, 2, -1, -1, -1}));
}

TEST(Blocks, OnlyTheOutermostNumberCounts) {
  EXPECT_EQ(blocks_of({"layers.0.experts.0", "layers.0.experts.1", "layers.0.experts.2",
                       "layers.1.experts.0", "layers10.x"}),
            (Numbers{0, 0, 0, 1, -1}));
}

TEST(Blocks, EquallyLongListsAreAllBlocks) {
  EXPECT_EQ(blocks_of({"stem", "layer1.0.conv", "layer1.1.conv", "layer2.0.conv", "layer2.1.conv"}),
            (Numbers{-1, 0, 1, 2, 3}));
}

TEST(Blocks, ALoneNumberIsNoBlock) {
  EXPECT_EQ(blocks_of({"net.0.fc", "net.0.act", "head"}), (Numbers{-1, -1, -1}));
}

}  // namespace
}  // namespace dc::analysis
