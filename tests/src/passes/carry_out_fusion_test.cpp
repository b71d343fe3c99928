// Drafts carried out: whatever is fused, copied and joined, every output is the same expression of
// the inputs as before.
#include "src/passes/fuse/carry_out_fusion.h"

#include <gtest/gtest.h>

#include <random>

#include "src/base/expression.h"
#include "src/cost/analytic.h"
#include "src/fusion/search.h"
#include "src/ir/step.h"
#include "src/passes/pass_manager.h"

namespace dc::passes {
namespace {

constexpr const char* kStep = R"(step @fusion stage=normalized mesh=<dp=2> {
  input "x" : f32[8,8]
  parameter "u" : f32[8,8]
  parameter "v" : f32[8,8]
  parameter "w" : f32[8,8]
  state "u" : f32[8,8] parameter="u"
  state "v" : f32[8,8] parameter="v"
  state "w" : f32[8,8] parameter="w"
  program @micro_batch {
    %x = input(name="x") : f32[8,8] varying<dp>
    %u = state(entry="u") : f32[8,8]
    %v = state(entry="v") : f32[8,8]
    %w = state(entry="w") : f32[8,8]
    %a = aten.silu.default(self=%x) : f32[8,8] varying<dp> provider=native
    %b = aten.mul.Tensor(self=%a, other=%x) : f32[8,8] varying<dp> provider=native
    %h = aten.mm.default(self=%b, mat2=%u) : f32[8,8] varying<dp>
    %c = aten.neg.default(self=%h) : f32[8,8] varying<dp> provider=native
    %d = aten.mul.Tensor(self=%c, other=%a) : f32[8,8] varying<dp> provider=native
    %y = aten.mm.default(self=%d, mat2=%v) : f32[8,8] varying<dp>
    %loss = aten.mean.default(self=%y) : f32[] varying<dp>
    %e = aten.mul.Tensor(self=%y, other=%c) : f32[8,8] varying<dp> backward provider=native
    %gv = aten.mm.default(self=%d, mat2=%e) : f32[8,8] partial<dp> backward
    %f = aten.silu.default(self=%e) : f32[8,8] varying<dp> backward provider=native
    %t = aten.t.default(self=%f) : f32[8,8] strides=(1,8) varying<dp> backward
    %g = aten.add.Tensor(self=%f, other=%e) : f32[8,8] varying<dp> backward provider=native
    %gu = aten.mm.default(self=%t, mat2=%g) : f32[8,8] partial<dp> backward
    %i = aten.mul.Tensor(self=%g, other=%f) : f32[8,8] varying<dp> backward provider=native
    %j = aten.add.Tensor(self=%i, other=%a) : f32[8,8] varying<dp> backward provider=native
    %gw = aten.mm.default(self=%j, mat2=%w) : f32[8,8] partial<dp> backward
    output loss %loss
    output gradient "u" %gu
    output gradient "v" %gv
    output gradient "w" %gw
  }
}
)";

// What each value is, as text made of inputs and operators.
class Meaning {
 public:
  explicit Meaning(const ir::Graph& graph) : graph_(graph), of_(graph.value_capacity()) {
    for (ir::NodeId id = graph.first(); id.valid(); id = graph.next(id)) add(graph.node(id));
  }
  std::vector<std::string> outputs() const {
    std::vector<std::string> found;
    for (const ir::Output& output : graph_.outputs) found.push_back(of_[output.value.index()]);
    return found;
  }
  int kernels() const { return kernels_; }

 private:
  const std::string& of(const ir::Node& node, size_t operand) const {
    return of_[node.operands[operand].index()];
  }

  void add(const ir::Node& node) {
    if (node.kind == ir::OpKind::Fused) return add_fused(node);
    ++kernels_;
    std::string text;
    if (node.kind == ir::OpKind::Aten) {
      text = node.overload.name().substr(5);
      for (size_t i = 0; i < node.operands.size(); ++i)
        text += "(" + node.args[i].name + "=" + of(node, i) + ")";
    } else {
      text = "op" + std::to_string(static_cast<int>(node.kind));
      for (size_t i = 0; i < node.operands.size(); ++i) text += "(" + of(node, i) + ")";
      if (node.operands.empty()) text += graph_.value(node.results[0]).name;
    }
    for (const ir::ValueId result : node.results) of_[result.index()] = text;
  }

  void add_fused(const ir::Node& node) {
    ++kernels_;
    const auto expression =
        base::Expression::parse(std::get<std::string>(node.find(ir::Attr::Body)->value));
    ASSERT_TRUE(expression.ok()) << expression.status().sentence();
    std::vector<std::string> values;
    for (const base::ExpressionOperation& operation : expression->operations) {
      std::string text = operation.overload;
      for (const base::ExpressionArgument& argument : operation.arguments) {
        const auto number = static_cast<size_t>(argument.integer);
        const bool inside = argument.kind == base::ExpressionArgumentKind::Value;
        text += "(" + argument.name + "=" + (inside ? values[number] : of(node, number)) + ")";
      }
      values.push_back(text);
    }
    for (size_t i = 0; i < node.results.size(); ++i)
      of_[node.results[i].index()] = values[expression->results[i]];
  }

  const ir::Graph& graph_;
  std::vector<std::string> of_;
  int kernels_ = 0;
};

TEST(CarryOutFusion, OutputsMeanWhatTheyMeantBefore) {
  const cost::AnalyticCost cost(1);
  const Options options;
  std::vector<base::Remark> remarks;
  auto parsed = ir::parse(kStep);
  ASSERT_TRUE(parsed.ok()) << parsed.status().sentence();
  ir::Step scheduled = *parsed;
  const auto chain = parse_passes("shard-parameters=0,insert-collectives,add-update,schedule");
  ASSERT_TRUE(run_passes(scheduled, *chain, {cost, options, remarks}).ok());
  const Meaning before(scheduled.programs.back().graph);
  const fusion::ClosedFormTime fused({100}, 1'000'000'000);
  int copies = 0, joined = 0, fewer = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    ir::Step step = scheduled;
    ir::Graph& graph = step.programs.back().graph;
    const auto program = fusion_program(step, graph, cost);
    ASSERT_TRUE(program.has_value());
    ASSERT_EQ(program->fusible.size(), 9u);
    ASSERT_EQ(program->reductions.size(), 3u);
    fusion::Draft draft(program->problem, fused);
    std::mt19937 random(seed);
    const auto pick = [&](size_t count) { return static_cast<int32_t>(random() % count); };
    for (int i = 0; i < 60; ++i)
      draft.fuse(pick(program->kernels.size()), pick(program->kernels.size()), random() % 3 != 0);
    if (seed % 2 == 0) draft.merge(pick(3), pick(3));
    const Fusions fusions = fusions_of(draft, *program, *program);
    for (const auto& group : fusions.groups)
      copies += static_cast<int>(std::ranges::count(group, true, &Fusions::Member::is_copy));
    joined += static_cast<int>(fusions.buckets.size());
    const base::Status done = carry_out(step, graph, fusions, cost);
    ASSERT_TRUE(done.ok()) << done.sentence();
    const base::Status verified = ir::verify(step, ir::Stage::Scheduled);
    ASSERT_TRUE(verified.ok()) << seed << ": " << verified.to_string() << ir::print(step);
    const Meaning after(graph);
    EXPECT_EQ(after.outputs(), before.outputs()) << seed;
    EXPECT_LE(after.kernels(), before.kernels());  // equal where all that is fused is copied
    fewer += after.kernels() < before.kernels() ? 1 : 0;
  }
  EXPECT_GT(copies, 50);
  EXPECT_GT(joined, 50);
  EXPECT_GT(fewer, 100);
}

}  // namespace
}  // namespace dc::passes
