#include "src/passes/fuse/move_to_operands.h"

#include <gmock/gmock.h>

#include "src/ir/step.h"

namespace dc::passes {
namespace {

constexpr const char* kStep = R"(step @moved stage=normalized mesh=<dp=2> {
  input "x" : f32[8,8]
  parameter "u" : f32[8,8]
  state "u" : f32[8,8] parameter="u"
  program @micro_batch {
    %x = input(name="x") : f32[8,8] varying<dp>
    %u = state(entry="u") : f32[8,8]
    %h = aten.mm.default(self=%x, mat2=%u) : f32[8,8] varying<dp>
    %a = aten.mul.Tensor(self=%h, other=%x) : f32[8,8] varying<dp> provider=native
    %b = aten.neg.default(self=%h) : f32[8,8] varying<dp> provider=native
    %p = aten.mm.default(self=%b, mat2=%u) : f32[8,8] varying<dp>
    %c = aten.silu.default(self=%a) : f32[8,8] varying<dp> provider=native
    %d = aten.mul.Tensor(self=%b, other=%x) : f32[8,8] varying<dp> provider=native
    %e = aten.mul.Tensor(self=%c, other=%a) : f32[8,8] varying<dp> provider=native
    %q = aten.mm.default(self=%e, mat2=%b) : f32[8,8] varying<dp>
    %k = aten.mul.Tensor(self=%q, other=%d) : f32[8,8] varying<dp> provider=native
    %y = aten.mm.default(self=%k, mat2=%p) : f32[8,8] varying<dp>
    %f = aten.neg.default(self=%e) : f32[8,8] varying<dp> backward provider=native
    %gu = aten.mm.default(self=%f, mat2=%y) : f32[8,8] partial<dp> backward
    %loss = aten.mean.default(self=%y) : f32[] varying<dp>
    output loss %loss
    output gradient "u" %gu
  }
}
)";

// %e ends %c and %a, so it moves up to %c. %c ends nothing, since %e reads %a; %d ends nothing,
// since a product reads %b; %k waits for a product, and %f is of another phase than %e.
TEST(MoveToOperands, MovesWhatEndsAsManyBytesAsItKeeps) {
  auto parsed = ir::parse(kStep);
  ASSERT_TRUE(parsed.ok()) << parsed.status().sentence();
  ir::Graph& graph = parsed->programs.back().graph;
  const auto names = [&] {
    std::vector<std::string> all;
    for (ir::NodeId id = graph.first(); id.valid(); id = graph.next(id))
      all.push_back(graph.value(graph.node(id).results[0]).name);
    return all;
  };
  move_to_operands(graph);
  EXPECT_THAT(names(), ::testing::ElementsAre("x", "u", "h", "a", "b", "p", "c", "e", "d", "q", "k",
                                              "y", "f", "gu", "loss"));
}

}  // namespace
}  // namespace dc::passes
