// A kernel has one name: the compiler's, built from a node, is the runtime's, built from the
// instruction that the node became. Otherwise a profile would not be found again.
#include <gtest/gtest.h>

#include <set>

#include "runtime/measure/measure.h"
#include "src/analysis/liveness.h"
#include "src/cost/analytic.h"
#include "src/frontend/import.h"
#include "src/ir/effects.h"
#include "src/plan/emit.h"
#include "src/profile/node_key.h"
#include "src/search/chains.h"

namespace dc {
namespace {

struct Case {
  const char* archive;
  int world, zero, accumulation;
};

ir::Step compiled(const Case& c) {
  const std::string path = std::string(DC_SOURCE_DIR) + "/tests/data/" + c.archive;
  auto imported = frontend::import_archive(path, {});
  EXPECT_TRUE(imported.ok()) << imported.status().to_string();
  ir::Step step = std::move(imported).value();
  step.mesh.axes = {{"dp", c.world}};
  step.accumulation = c.accumulation;
  const cost::AnalyticCost cost(1);
  const passes::Options options;
  std::vector<passes::Remark> remarks;
  passes::PassContext context{cost, options, remarks};
  const auto chain = search::find_chain("zero" + std::to_string(c.zero));
  const auto change = passes::run_passes(step, *chain, context);
  EXPECT_TRUE(change.ok()) << change.status().to_string();
  return step;
}

std::vector<std::string> node_keys(const ir::Graph& graph) {
  std::vector<std::string> keys;
  for (ir::NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
    const ir::Node& node = graph.node(id);
    if (!ir::runs(node) || node.kind == ir::OpKind::Flatten) continue;
    if (ir::info(node.kind).provider == ir::Provider::Comm) continue;
    keys.push_back(profile::node_key(graph, node));
  }
  return keys;
}

std::vector<std::string> instruction_keys(const runtime::plan::Plan& plan, size_t program) {
  std::vector<std::string> keys;
  for (const runtime::plan::Instruction& in : plan.programs[program].instructions) {
    if (in.kind == runtime::plan::InstructionKind::Kernel) {
      keys.push_back(runtime::measure::instruction_key(plan, in));
    }
  }
  return keys;
}

class ProfileKey : public testing::TestWithParam<Case> {};

TEST_P(ProfileKey, NodesAndInstructionsAgree) {
  const ir::Step step = compiled(GetParam());
  const auto plan = plan::emit(step, {}, cost::AnalyticCost(1));
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  ASSERT_EQ(plan->programs.size(), step.programs.size());
  std::set<std::string> distinct;
  for (size_t p = 0; p < step.programs.size(); ++p) {
    const std::vector<std::string> nodes = node_keys(step.programs[p].graph);
    const std::vector<std::string> instructions = instruction_keys(*plan, p);
    ASSERT_EQ(nodes.size(), instructions.size());
    for (size_t i = 0; i < nodes.size(); ++i) ASSERT_EQ(nodes[i], instructions[i]) << i;
    distinct.insert(nodes.begin(), nodes.end());
  }
  EXPECT_GT(distinct.size(), 10u);
}

INSTANTIATE_TEST_SUITE_P(Models, ProfileKey,
                         testing::Values(Case{"mlp.pt2", 1, 0, 1}, Case{"mlp.pt2", 3, 1, 2},
                                         Case{"llama_8b_cuda.pt2", 2, 3, 1},
                                         Case{"mixtral_dcc_8x7b_cuda.pt2", 4, 2, 2}));

// What a one-rank profile knows is what every aten kernel of a sharded plan asks for.
TEST(ProfileKey, OneRankKnowsTheKernelsOfAllPlacements) {
  const ir::Step alone = compiled({"llama_8b_cuda.pt2", 1, 0, 1});
  const std::vector<std::string> known = node_keys(alone.programs[0].graph);
  const std::set<std::string> names(known.begin(), known.end());
  for (int zero : {0, 1, 2, 3}) {
    const ir::Step step = compiled({"llama_8b_cuda.pt2", 2, zero, 1});
    for (const std::string& key : node_keys(step.programs[0].graph)) {
      if (!key.starts_with("aten.")) continue;
      EXPECT_TRUE(names.contains(key)) << "zero " << zero << ": " << key;
    }
  }
}

}  // namespace
}  // namespace dc
