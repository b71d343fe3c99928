// Which kernels of a program become one: groups of element-wise operators whose values have one
// shape, of reductions of these values, and of operators on what reductions give for each row.
#pragma once

#include <set>
#include <span>
#include <vector>

#include "src/ir/graph.h"

namespace dc::passes {

// Whether a group may have the node: a native element-wise operator with one result that has dims,
// of something else than state alone. What converts a parameter may travel converted.
bool is_fusible(const ir::Graph& graph, const ir::Node& node);

// Members in program order, two or more. All read what comes before the last one, and what they
// make is read after it by others, so the group can take its place.
struct ElementwiseGroup {
  std::vector<ir::NodeId> members;
  size_t reductions = 0;    // of the members
  bool reads_rows = false;  // members read some of these
};

// In program order of their last members. An operator joins the group of an operand if both are of
// one phase, the values between them keep their order, and no more bytes stay alive in between
// than the group saves: what dies at the group, were it where its last member is, lives on until
// there. `reductions`: those that may join, each a fusible_reduction(). They are of members' values
// that nothing else reads, fold the same dims, and no member reads theirs. What puts parts in place
// (placed_parts.h) is a member as an operator of its result's shape is, and the makers of its parts
// with it. `taken`: nodes that no group has.
std::vector<ElementwiseGroup> elementwise_groups(const ir::Graph& graph,
                                                 std::span<const ir::NodeId> reductions = {},
                                                 const std::set<ir::NodeId>& taken = {});

// Groups whose members read reductions of the group: of values of one shape, all over its trailing
// dims, with operators that compute for each row (base/expression.h). What these fold may be read
// by others too. What only sums of leading dims read that are gradients of the program (a norm's
// weight) is not among them, and may have to wait until after the group.
std::vector<ElementwiseGroup> row_groups(const ir::Graph& graph,
                                         std::span<const ir::NodeId> reductions,
                                         const std::set<ir::NodeId>& may_wait);

// What may come later than it does: reductions of leading dims that nothing reads but the program's
// outputs, and element-wise operators that only these read.
std::set<ir::NodeId> waiting(const ir::Graph& graph, std::span<const ir::NodeId> reductions);

// Moves what may wait and reads the group's values behind its last member.
void let_wait(ir::Graph& graph, const ElementwiseGroup& group,
              const std::set<ir::NodeId>& may_wait);

}  // namespace dc::passes
