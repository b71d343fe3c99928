#include "src/ir/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/ir/kernel_signature.h"

namespace dc::ir {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

NewValue f32(std::string name) { return {std::move(name), contiguous(DType::F32, {2})}; }

// a = input; b = relu(a); c = add(a, b)
struct Sample {
  Graph graph{"g"};
  NodeId a_node, b_node, c_node;
  ValueId a, b, c;
  Sample() {
    const Node& first = graph.insert({}, OpKind::Input, {}, {f32("a")}, {}, {});
    a_node = first.id, a = first.results[0];
    const Node& second = graph.insert_aten({}, "aten.relu.default", {a}, {f32("b")}, {}, {});
    b_node = second.id, b = second.results[0];
    const Node& third = graph.insert_aten({}, "aten.add.Tensor", {a, b}, {f32("c")}, {}, {});
    c_node = third.id, c = third.results[0];
  }
};

TEST(Graph, InsertsAtTheEndAndBeforeANode) {
  Sample s;
  const NodeId middle =
      s.graph.insert_aten(s.c_node, "aten.neg.default", {s.a}, {f32("n")}, {}, {}).id;
  const NodeId front = s.graph.insert(s.a_node, OpKind::Input, {}, {f32("z")}, {}, {}).id;
  EXPECT_THAT(s.graph.order(), ElementsAre(front, s.a_node, s.b_node, middle, s.c_node));
  EXPECT_EQ(s.graph.first(), front);
  EXPECT_EQ(s.graph.last(), s.c_node);
  EXPECT_EQ(s.graph.previous(s.a_node), front);
  EXPECT_EQ(s.graph.node_count(), 5u);
}

TEST(Graph, KeepsUseLists) {
  Sample s;
  EXPECT_THAT(s.graph.value(s.a).uses, UnorderedElementsAre(Use{s.b_node, 0}, Use{s.c_node, 0}));
  s.graph.set_operand(s.c_node, 0, s.b);
  EXPECT_THAT(s.graph.value(s.a).uses, ElementsAre(Use{s.b_node, 0}));
  EXPECT_THAT(s.graph.value(s.b).uses, UnorderedElementsAre(Use{s.c_node, 0}, Use{s.c_node, 1}));
}

TEST(Graph, ReplacesAllUsesAndOutputs) {
  Sample s;
  s.graph.outputs = {{OutputKind::Loss, "", s.b}, {OutputKind::Gradient, "w", s.c}};
  s.graph.replace_all_uses(s.b, s.a);
  EXPECT_TRUE(s.graph.value(s.b).uses.empty());
  EXPECT_THAT(s.graph.node(s.c_node).operands, ElementsAre(s.a, s.a));
  EXPECT_EQ(s.graph.outputs[0].value, s.a);
  EXPECT_EQ(s.graph.outputs[1].value, s.c);
  EXPECT_EQ(s.graph.value(s.a).uses.size(), 3u);
}

TEST(Graph, ErasesAndFreesTheName) {
  Sample s;
  s.graph.erase(s.c_node);
  EXPECT_FALSE(s.graph.contains(s.c_node));
  EXPECT_THAT(s.graph.order(), ElementsAre(s.a_node, s.b_node));
  EXPECT_TRUE(s.graph.value(s.b).uses.empty());
  EXPECT_FALSE(s.graph.find_value("c").valid());
  const Node& fresh = s.graph.insert_aten({}, "aten.neg.default", {s.b}, {f32("c")}, {}, {});
  EXPECT_EQ(s.graph.value(fresh.results[0]).name, "c");
  EXPECT_NE(fresh.id, s.c_node) << "ids are never reused";
}

TEST(GraphDeathTest, RefusesToEraseAUsedNode) {
  Sample s;
  EXPECT_DEATH(s.graph.erase(s.b_node), "uses");
  s.graph.outputs = {{OutputKind::Loss, "", s.c}};
  EXPECT_DEATH(s.graph.erase(s.c_node), "output");
}

TEST(Graph, MovesNodes) {
  Sample s;
  s.graph.move_before(s.c_node, s.b_node);
  EXPECT_THAT(s.graph.order(), ElementsAre(s.a_node, s.c_node, s.b_node));
  s.graph.move_before(s.a_node, NodeId{});
  EXPECT_THAT(s.graph.order(), ElementsAre(s.c_node, s.b_node, s.a_node));
  s.graph.move_before(s.b_node, s.b_node);
  EXPECT_THAT(s.graph.order(), ElementsAre(s.c_node, s.b_node, s.a_node));
  EXPECT_EQ(s.graph.first(), s.c_node);
  EXPECT_EQ(s.graph.last(), s.a_node);
}

TEST(Graph, MakesNamesUnique) {
  Graph graph("g");
  const auto name_of = [&](std::string wanted) {
    return graph
        .value(graph.insert({}, OpKind::Input, {}, {f32(std::move(wanted))}, {}, {}).results[0])
        .name;
  };
  EXPECT_EQ(name_of("x"), "x");
  EXPECT_EQ(name_of("x_1"), "x_1");
  EXPECT_EQ(name_of("x"), "x_2");
  EXPECT_EQ(name_of("x"), "x_3");
  EXPECT_EQ(name_of(""), "v4");
  EXPECT_EQ(name_of("v5"), "v5");
  EXPECT_EQ(name_of("v7"), "v7");
  EXPECT_EQ(name_of(""), "v7_1");
}

TEST(Graph, ResultsMayBeAbsent) {
  Graph graph("g");
  const Node& node =
      graph.insert_aten({}, "aten.x.default", {}, {f32("a"), {"-", {}}, f32("b")}, {}, {});
  ASSERT_EQ(node.results.size(), 3u);
  EXPECT_TRUE(node.results[0].valid());
  EXPECT_FALSE(node.results[1].valid());
  EXPECT_EQ(graph.value(node.results[2]).result, 2);
}

TEST(Graph, CloneKeepsIdsAndIsIndependent) {
  Sample s;
  s.graph.outputs = {{OutputKind::Loss, "", s.c}};
  Graph copy = s.graph;
  copy.insert_aten({}, "aten.neg.default", {s.c}, {f32("c")}, {}, {});
  copy.edit(s.b_node).overload = "aten.neg.default";
  EXPECT_EQ(copy.value(s.c).uses.size(), 1u);
  EXPECT_TRUE(s.graph.value(s.c).uses.empty());
  EXPECT_EQ(s.graph.node(s.b_node).overload, "aten.relu.default");
  EXPECT_EQ(s.graph.node_count(), 3u);
  EXPECT_EQ(copy.outputs.size(), 1u);
  const Node& fresh = s.graph.insert_aten({}, "aten.neg.default", {s.c}, {f32("c")}, {}, {});
  EXPECT_EQ(s.graph.value(fresh.results[0]).name, "c_1") << "the clone has another name table";
}

// Copies share blocks of nodes and values until one changes them.
TEST(Graph, ChangesOfACopyStayInIt) {
  Graph graph("g");
  std::vector<NodeId> nodes;
  ValueId last = graph.insert({}, OpKind::Input, {}, {f32("x")}, {}, {}).results[0];
  for (int i = 0; i < 200; ++i) {
    nodes.push_back(graph.insert_aten({}, "aten.relu.default", {last}, {f32("y")}, {}, {}).id);
    last = graph.node(nodes.back()).results[0];
  }
  Graph copy = graph;
  const Graph before = graph;
  for (size_t i = 0; i < nodes.size(); i += 7) {
    graph.edit(nodes[i]).stream = 1;
    copy.edit_location(copy.node(nodes[i]).results[0]).bytes = 8;
    copy.set_operand(nodes[i], 0, graph.node(nodes[0]).operands[0]);
  }
  copy.erase(nodes.back());
  for (size_t i = 0; i < nodes.size(); ++i) {
    const bool changed = i % 7 == 0;
    const ValueId read = before.node(nodes[i]).operands[0];
    EXPECT_EQ(before.node(nodes[i]).stream, 0);
    EXPECT_EQ(graph.node(nodes[i]).stream, changed ? 1 : 0);
    EXPECT_EQ(graph.node(nodes[i]).operands[0], read);
    EXPECT_THAT(graph.value(read).uses, ElementsAre(Use{nodes[i], 0}));
    EXPECT_EQ(graph.storage(graph.node(nodes[i]).results[0]).location.bytes, 0);
    if (i + 1 == nodes.size()) continue;
    EXPECT_EQ(copy.node(nodes[i]).stream, 0);
    EXPECT_EQ(copy.node(nodes[i]).operands[0] == read, i == 0 || !changed);
    EXPECT_EQ(copy.storage(copy.node(nodes[i]).results[0]).location.bytes, changed ? 8 : 0);
  }
  EXPECT_EQ(graph.node_count(), 201u);
  EXPECT_EQ(copy.node_count(), 200u);
}

// A node of another signature forgets the one that it had.
TEST(Graph, KeepsTheKernelWhereTypesStay) {
  Graph graph("g");
  const auto input = [&](TensorType type) {
    return graph.insert({}, OpKind::Input, {}, {{"x", std::move(type)}}, {}, {}).results[0];
  };
  const ValueId a = input(contiguous(DType::F32, {2, 3})),
                b = input(contiguous(DType::F32, {2, 3})),
                c = input(contiguous(DType::F32, {3, 2})),
                d = input(contiguous(DType::BF16, {2, 3}));
  const NodeId id = graph
                        .insert_aten({}, "aten.relu.default", {a},
                                     {{"y", contiguous(DType::F32, {2, 3})}}, {}, {})
                        .id;
  const base::KernelId kernel = kernel_of(graph, graph.node(id));
  graph.set_operand(id, 0, b);
  EXPECT_EQ(graph.node(id).kernel, kernel);
  EXPECT_EQ(base::intern(signature_of(graph, graph.node(id))), kernel);
  for (const ValueId other : {c, d}) {
    graph.set_operand(id, 0, other);
    EXPECT_FALSE(graph.node(id).kernel.valid());
    EXPECT_NE(kernel_of(graph, graph.node(id)), kernel);
    graph.replace_all_uses(other, a);
    EXPECT_EQ(kernel_of(graph, graph.node(id)), kernel);
  }
  graph.replace_all_uses(a, b);
  EXPECT_EQ(graph.node(id).kernel, kernel);
}

TEST(OutputList, KnowsItsValues) {
  OutputList outputs = {{OutputKind::Loss, "", ValueId{3}},
                        {OutputKind::Gradient, "w", ValueId{5}}};
  outputs.push_back({OutputKind::Gradient, "b", ValueId{5}});
  EXPECT_TRUE(outputs.contains(ValueId{3}));
  EXPECT_FALSE(outputs.contains(ValueId{4}));
  EXPECT_FALSE(outputs.contains(ValueId{500}));
  EXPECT_FALSE(outputs.contains(ValueId{}));
  outputs.set_value(1, ValueId{7});
  EXPECT_TRUE(outputs.contains(ValueId{5})) << "named by another one still";
  outputs.replace(ValueId{5}, ValueId{9});
  EXPECT_FALSE(outputs.contains(ValueId{5}));
  EXPECT_EQ(outputs[2].value, ValueId{9});
  outputs.erase_if([](const Output& output) { return output.fqn == "w"; });
  EXPECT_EQ(outputs.size(), 2u);
  EXPECT_FALSE(outputs.contains(ValueId{7}));
  EXPECT_TRUE(outputs.contains(ValueId{3}));
}

TEST(Node, FindsArgs) {
  Node node;
  node.args = std::vector<Arg>{{"dim", int64_t{3}, false}, {"p", 0.5, true}};
  EXPECT_EQ(std::get<int64_t>(node.find_arg("dim")->value), 3);
  EXPECT_NE(node.find_arg("p"), nullptr);
  EXPECT_EQ(node.find_arg("q"), nullptr);
}

}  // namespace
}  // namespace dc::ir
