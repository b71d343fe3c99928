// A kernel has one signature: the compiler's, made from a node, is the runtime's, made from the
// instruction that the node became. Otherwise a profile would not be found again.
#include <gtest/gtest.h>

#include <set>

#include "runtime/plan/kernel_signature.h"
#include "src/analysis/liveness.h"
#include "src/cost/analytic.h"
#include "src/frontend/import.h"
#include "src/ir/effects.h"
#include "src/ir/kernel_signature.h"
#include "src/plan/emit.h"
#include "src/search/chains.h"
#include "tests/source_dir.h"

namespace dc {
namespace {

struct Case {
  const char* archive;
  int world, zero, accumulation;
};

ir::Step compiled(const Case& c) {
  const std::string path = std::string(dc::kSourceDir) + "/tests/data/" + c.archive;
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

std::vector<base::KernelSignature> node_signatures(const ir::Graph& graph) {
  std::vector<base::KernelSignature> found;
  for (ir::NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
    const ir::Node& node = graph.node(id);
    if (!ir::runs(node) || node.kind == ir::OpKind::Flatten) continue;
    if (ir::traits(node.kind).provider == ir::Provider::Comm) continue;
    found.push_back(ir::signature_of(graph, node));
  }
  return found;
}

std::vector<base::KernelSignature> instruction_signatures(const runtime::plan::Plan& plan,
                                                          size_t program) {
  std::vector<base::KernelSignature> found;
  for (const runtime::plan::Instruction& in : plan.programs[program].instructions) {
    if (in.kind == runtime::plan::InstructionKind::Kernel) {
      found.push_back(runtime::plan::signature_of(plan, in));
    }
  }
  return found;
}

class Signatures : public testing::TestWithParam<Case> {};

TEST_P(Signatures, NodesAndInstructionsAgree) {
  const ir::Step step = compiled(GetParam());
  const auto plan = plan::emit(step, {}, cost::AnalyticCost(1));
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  ASSERT_EQ(plan->programs.size(), step.programs.size());
  std::set<base::KernelSignature> distinct;
  for (size_t p = 0; p < step.programs.size(); ++p) {
    const std::vector<base::KernelSignature> nodes = node_signatures(step.programs[p].graph);
    const std::vector<base::KernelSignature> instructions = instruction_signatures(*plan, p);
    ASSERT_EQ(nodes.size(), instructions.size());
    for (size_t i = 0; i < nodes.size(); ++i) {
      ASSERT_EQ(nodes[i], instructions[i]) << nodes[i].text() << "\n" << instructions[i].text();
    }
    distinct.insert(nodes.begin(), nodes.end());
  }
  EXPECT_GT(distinct.size(), 10u);
}

INSTANTIATE_TEST_SUITE_P(Models, Signatures,
                         testing::Values(Case{"mlp.pt2", 1, 0, 1}, Case{"mlp.pt2", 3, 1, 2},
                                         Case{"llama_8b_cuda.pt2", 2, 3, 1},
                                         Case{"mixtral_dcc_8x7b_cuda.pt2", 4, 2, 2}));

// What a one-rank profile knows is what every aten kernel of a sharded plan asks for.
TEST(Signatures, OneRankKnowsTheKernelsOfAllPlacements) {
  const ir::Step alone = compiled({"llama_8b_cuda.pt2", 1, 0, 1});
  const std::vector<base::KernelSignature> known = node_signatures(alone.programs[0].graph);
  const std::set<base::KernelSignature> kernels(known.begin(), known.end());
  for (int zero : {0, 1, 2, 3}) {
    const ir::Step step = compiled({"llama_8b_cuda.pt2", 2, zero, 1});
    for (const base::KernelSignature& kernel : node_signatures(step.programs[0].graph)) {
      if (kernel.provider() != base::Provider::Aten) continue;
      EXPECT_TRUE(kernels.contains(kernel)) << "zero " << zero << ": " << kernel.text();
    }
  }
}

}  // namespace
}  // namespace dc
