// Where the refresh of a parameter goes while reductions run inside hosts and across them; times
// worked out by hand.
#include "src/passes/overlap/update_places.h"

#include <gtest/gtest.h>

#include <string>

#include "src/cost/fixed.h"
#include "tests/src/ir/sample_steps.h"

namespace dc::passes {
namespace {

using base::Nanos;

constexpr int64_t kInside = 50, kAcross = 1000, kTable = 10, kUpdate = 10;

// %work stands for the compute: `before` and `behind` the reduction of one gradient, which goes on
// across hosts. Then comes the refresh of a parameter with another gradient.
std::string step_text(const std::string& before, const std::string& behind) {
  return R"(step @levels stage=scheduled mesh=<host=2, dp=2> {
  input "x" : f32[64]
  parameter "u" : f32[64] gradient=sharded_each_micro_batch state=sharded shard=32
  state "u" : f32[64] parameter="u"
  state "shard.u" : f32[32] flat_shard<dp> role=shard parameter="u" range_of="u"
  state "norm_table" : f64[4,3] role=norm_table
  state "norm_row" : f64[3] role=norm_table range_of="norm_table"
  state "hyperparameters" : f64[16] role=hyperparameters
  streams "compute" "comm" "hosts"
  program @step {
    %x = input(name="x") : f32[64]
    %u = state(entry="u") : f32[64]
    %shard.u = state(entry="shard.u") : f32[32] flat_shard<dp>
    %norm_table = state(entry="norm_table") : f64[4,3]
    %norm_row = state(entry="norm_row") : f64[3]
    %hyperparameters = state(entry="hyperparameters") : f64[16]
    %new = aten.cos.default(self=%shard.u) : f32[32] flat_shard<dp>
)" + before +
         R"(    %g = aten.exp.default(self=%x) : f32[64] partial<host> partial<dp> backward
    %r = reduce_scatter.start %g (elements=64, shard=32, group=[1]) : f32[32] partial<host> flat_shard<dp> stream=comm
    %rd = reduce_scatter.done %r : f32[32] partial<host> flat_shard<dp>
    %s = all_reduce_in_place.start %rd (elements=32, shard=32, group=[0]) : f32[32] flat_shard<dp> stream=hosts
)" + behind +
         R"(    %sd = all_reduce_in_place.done %s : f32[32] flat_shard<dp>
    square_sum %norm_row, %sd, %hyperparameters (param=0, shard=32, elements=64, whole=0, axes=[1], part=32)
    %table = all_gather_into.start %norm_table, %norm_row (elements=12, shard=3) : f64[4,3] stream=comm
    %gathered.table = all_gather_into.done %table : f64[4,3]
    copy %shard.u, %new update
    %gather.u = all_gather_into.start %u, %shard.u (elements=64, shard=32, group=[1]) : f32[64] update stream=comm
    %gathered.u = all_gather_into.done %gather.u : f32[64] update
  }
}
)";
}

class Levels {
 public:
  Levels(const std::string& before, const std::string& behind)
      : step_(*ir::parse(step_text(before, behind))),
        axis_(step_, step_.programs[0].graph, cost_) {}

  // Of the node that makes the value.
  int32_t position(const std::string& value) const {
    const ir::Graph& graph = step_.programs[0].graph;
    for (const ir::NodeId id : axis_.live.order) {
      const ir::Node& node = graph.node(id);
      if (!node.results.empty() && graph.value(node.results[0]).name == value)
        return axis_.position(id);
    }
    ADD_FAILURE() << value;
    return -1;
  }

  // Where the gather of u goes, which may go from the node of `ready` on.
  int32_t place_of_gather(const std::string& ready, int64_t gather_time) const {
    const int32_t start = position("gather.u");
    UpdateFragment fragment;
    fragment.params = {0};
    fragment.update = {axis_.node(start - 1).id};
    fragment.gathers = {axis_.node(start).id};
    fragment.gathered = {axis_.node(start + 1).id};
    fragment.ready = position(ready);
    fragment.update_time = {kUpdate};
    fragment.gather_time = {gather_time};
    const std::vector<UpdatePlace> places = place_updates(step_, axis_, cost_, {fragment}, false);
    for (const UpdatePlace& place : places) {
      if (place.gather) return place.position;
    }
    ADD_FAILURE() << "the gather has no place";
    return -1;
  }
  int32_t end() const { return static_cast<int32_t>(axis_.live.order.size()); }

 private:
  cost::FixedCost cost_{{{"exp", {100}, {}},
                         {"tanh", {300}, {}},
                         {"reduce_scatter_inside", {kInside}, {}},
                         {"all_reduce_across", {kAcross}, {}},
                         {"all_gather", {kTable}, {}}}};
  ir::Step step_;
  schedule::TimeAxis axis_;
};

constexpr const char* kWork = "    %work = aten.tanh.default(self=%x) : f32[64]\n";

// The sums travel across hosts from 150 to 1150. A gather inside a host has nothing to wait for
// but the reduction there, which ends at 150.
TEST(UpdatePlaces, AGatherInsideAHostGoesOnWhileSumsCrossHosts) {
  const Levels levels("", kWork);
  EXPECT_EQ(levels.place_of_gather("work", 200), levels.end());  // ready at 150, compute is at 400
  EXPECT_EQ(levels.place_of_gather("g", 200), levels.position("work"));
  EXPECT_EQ(levels.place_of_gather("g", 1000), levels.position("work"));  // 150 to 1150
  EXPECT_EQ(levels.place_of_gather("g", 1001), levels.end());             // the table would wait
}

// The reduction inside starts at 400 and ends at 450; what waits for its sums across hosts ends
// last, at 1450. So a gather before it must end at 400, after an update of 10 at 410.
TEST(UpdatePlaces, AGatherInsideAHostDelaysNoSumsThatThenCrossHosts) {
  const Levels levels(kWork, "    %more = aten.tanh.default(self=%x) : f32[64]\n");
  EXPECT_EQ(levels.place_of_gather("work", 400), levels.position("work"));
  EXPECT_EQ(levels.place_of_gather("work", 401), levels.position("more"));
}

// As where a gradient comes back from the host: it is whole long before, its view is not there.
TEST(UpdateFragments, AnUpdateStaysBehindTheViewOfItsGradient) {
  std::string text = ir::kScheduled;
  const std::string update = "adamw %w, %m, %v, %r1,";
  text.replace(text.find(update), update.size(),
               "%late = aten.view.default(self=%r1, size=[32]) : f32[32] flat_shard<dp>\n"
               "    adamw %w, %m, %v, %late,");
  const base::Result<ir::Step> step = ir::parse(text);
  ASSERT_TRUE(step.ok()) << step.status().to_string();
  const cost::FixedCost cost({});
  const ir::Graph& graph = step->programs[0].graph;
  const schedule::TimeAxis axis(*step, graph, cost);
  const auto fragments = update_fragments(*step, axis, cost, first_uses(*step), true);
  ASSERT_EQ(fragments.size(), 1u);
  const ir::Node& moved = graph.node(fragments[0].update[0]);
  const ir::NodeId view = graph.value(moved.operands[3]).producer;
  EXPECT_EQ(graph.value(moved.operands[3]).name, "late");
  EXPECT_EQ(fragments[0].ready, axis.position(view) + 1);
}

}  // namespace
}  // namespace dc::passes
