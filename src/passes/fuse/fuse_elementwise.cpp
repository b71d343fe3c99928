// fuse-elementwise: one kernel in place of each group of element-wise operators. It gives their
// bits, since every operation rounds as its kernel does; it saves what they would write only for
// one another to read, in time and in memory.
#include <algorithm>
#include <map>
#include <span>

#include "src/base/expression.h"
#include "src/base/text.h"
#include "src/ir/builder.h"
#include "src/ir/effects.h"
#include "src/ir/kernel_signature.h"
#include "src/passes/fuse/elementwise_groups.h"
#include "src/passes/fuse/make_again.h"
#include "src/passes/fuse/value_readers.h"
#include "src/passes/pass.h"

namespace dc::passes {
namespace {

using base::Expression;
using base::ExpressionArgument;
using base::ExpressionArgumentKind;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

struct FusedKernel {
  Expression expression;
  std::vector<ValueId> operands;
  std::vector<ValueId> results;  // that the group's members gave
};

// What a group computes. Operands are numbered as they are first read, values as their members
// follow each other, so that alike groups have one text.
class Describer {
 public:
  Describer(const Graph& graph, const ElementwiseGroup& group) : graph_(graph) {
    for (const NodeId member : group.members) add(graph.node(member));
    for (const NodeId member : group.members) {
      const ValueId value = graph.node(member).results[0];
      if (!is_read_outside(value, group)) continue;
      made_.expression.results.push_back(static_cast<size_t>(value_of_.at(value)));
      made_.results.push_back(value);
    }
  }
  FusedKernel take() { return std::move(made_); }

 private:
  void add(const Node& node) {
    base::ExpressionOperation operation;
    operation.dtype = graph_.value(node.results[0]).type.dtype;
    operation.overload = node.overload.name().substr(std::string_view("aten.").size());
    for (const ir::Arg& arg : node.args) {
      if (auto argument = argument_of(node, arg)) operation.arguments.push_back(*argument);
    }
    value_of_[node.results[0]] = static_cast<int64_t>(made_.expression.operations.size());
    made_.expression.operations.push_back(std::move(operation));
  }

  // Nothing for what the type of the result says.
  std::optional<ExpressionArgument> argument_of(const Node& node, const ir::Arg& arg) {
    ExpressionArgument argument;
    argument.name = arg.name;
    if (const auto* operand = std::get_if<ir::OperandRef>(&arg.value)) {
      set_tensor(argument, node.operands[static_cast<size_t>(operand->index)]);
    } else if (const auto* flag = std::get_if<bool>(&arg.value)) {
      argument.kind = ExpressionArgumentKind::Bool;
      argument.integer = *flag ? 1 : 0;
    } else if (const auto* integer = std::get_if<int64_t>(&arg.value)) {
      argument.kind = ExpressionArgumentKind::Int;
      argument.integer = *integer;
    } else if (const auto* number = std::get_if<double>(&arg.value)) {
      argument.kind = ExpressionArgumentKind::Float;
      argument.number = *number;
    } else if (const auto* word = std::get_if<std::string>(&arg.value);
               word != nullptr && *word != "none") {
      argument.kind = ExpressionArgumentKind::Word;
      argument.word = *word;
    } else if (!std::holds_alternative<std::monostate>(arg.value) && word == nullptr) {
      return std::nullopt;
    }
    return argument;
  }

  void set_tensor(ExpressionArgument& argument, ValueId value) {
    const auto inside = value_of_.find(value);
    if (inside != value_of_.end()) {
      argument.kind = ExpressionArgumentKind::Value;
      argument.integer = inside->second;
      return;
    }
    const auto known = std::ranges::find(made_.operands, value);
    argument.kind = ExpressionArgumentKind::Operand;
    argument.integer = known - made_.operands.begin();
    if (known == made_.operands.end()) made_.operands.push_back(value);
  }

  bool is_read_outside(ValueId value, const ElementwiseGroup& group) const {
    return is_output(graph_, value) ||
           std::ranges::any_of(graph_.value(value).uses, [&](const ir::Use& use) {
             return std::ranges::count(group.members, use.node) == 0;
           });
  }

  const Graph& graph_;
  FusedKernel made_;
  std::map<ValueId, int64_t> value_of_;
};

// Views of the value that come before `place`, in an order in which each follows what it is of.
void collect_views(const Graph& graph, ValueId value, const std::vector<int>& position, int place,
                   std::vector<NodeId>& views) {
  for (const ir::Use& use : graph.value(value).uses) {
    const Node& reader = graph.node(use.node);
    if (!ir::is_plain_view(reader) || position[use.node.index()] > place) continue;
    views.push_back(use.node);
    for (const ValueId seen : reader.results) {
      if (seen.valid()) collect_views(graph, seen, position, place, views);
    }
  }
}

// By a profile. It has the groups of a model as they are without one; what it has not measured, as
// a group that another one's rejection made, is left apart. `saves_memory`: it may take a tenth
// longer.
bool is_slower(const Graph& graph, const Node& fused, const ElementwiseGroup& group,
               bool saves_memory, const cost::CostModel& cost) {
  base::Nanos apart;
  for (const NodeId member : group.members) {
    const cost::Estimate one = cost.compute(graph, graph.node(member));
    if (one.source != cost::Source::Measured) return false;
    apart += one.time;
  }
  const cost::Estimate together = cost.compute(graph, fused);
  return together.source != cost::Source::Measured ||
         together.time.v > apart.v + (saves_memory ? apart.v / 10 : 0);
}

// Whether the group became one kernel.
bool fuse(Graph& graph, const ElementwiseGroup& group, const std::vector<int>& position,
          std::span<const MadeAgain> again, const cost::CostModel& cost) {
  const NodeId last = group.members.back();
  FusedKernel kernel = Describer(graph, group).take();
  if (kernel.operands.size() + kernel.results.size() > Expression::kMostTensors) return false;
  std::vector<ir::NewValue> results;
  for (const ValueId result : kernel.results) {
    const ir::Value& value = graph.value(result);
    results.push_back({value.name, value.type});
  }
  const std::vector<ValueId> made =
      ir::Builder(graph, last, graph.node(last).origin)
          .make_all(ir::OpKind::Fused, std::move(kernel.operands), std::move(results),
                    {{ir::Attr::Body, kernel.expression.text()}});
  const NodeId fused = graph.value(made[0]).producer;
  const bool saves_memory = std::ranges::any_of(again, [&group](const MadeAgain& one) {
    return std::ranges::count(group.members, one.node) != 0;
  });
  if (is_slower(graph, graph.node(fused), group, saves_memory, cost)) {
    graph.erase(fused);
    return false;
  }
  std::vector<NodeId> views;
  for (const ValueId result : kernel.results)
    collect_views(graph, result, position, position[last.index()], views);
  for (const NodeId view : views) graph.move_before(view, last);
  for (size_t i = 0; i < made.size(); ++i) graph.replace_all_uses(kernel.results[i], made[i]);
  for (auto member = group.members.rbegin(); member != group.members.rend(); ++member)
    graph.erase(*member);
  return true;
}

struct Counts {
  int64_t operators = 0, kernels = 0, again = 0, bytes = 0;
};

void fuse_program(Graph& graph, const cost::CostModel& cost, Counts& counts) {
  const std::vector<MadeAgain> again = make_again(graph);
  std::vector<ElementwiseGroup> groups = elementwise_groups(graph);
  std::vector<int> position(graph.node_capacity());
  int next = 0;
  for (NodeId id = graph.first(); id.valid(); id = graph.next(id)) position[id.index()] = next++;
  const auto late =
      std::stable_partition(groups.begin(), groups.end(), [&](const ElementwiseGroup& group) {
        return graph.node(group.members[0]).origin.phase == ir::Phase::Forward;
      });
  const auto fuse_those = [&](std::span<const ElementwiseGroup> those) {
    for (const ElementwiseGroup& group : those) {
      if (!fuse(graph, group, position, again, cost)) continue;
      counts.operators += static_cast<int64_t>(group.members.size());
      ++counts.kernels;
    }
  };
  fuse_those({late, groups.end()});
  // What is made again and became no part of a kernel with its reader would be stored. It is known
  // before the kernels of the forward phase leave out what nothing else reads.
  for (const MadeAgain& one : again) {
    if (graph.contains(one.node)) {
      keep_original(graph, one);
      continue;
    }
    ++counts.again;
    counts.bytes += graph.value(one.original).type.bytes().v;
  }
  fuse_those({groups.begin(), late});
}

}  // namespace

base::Result<Change> fuse_elementwise(ir::Step& step, const PassContext& context) {
  Counts counts;
  for (ir::Program& program : step.programs) fuse_program(program.graph, context.cost, counts);
  if (counts.kernels == 0) return Change::No;
  base::Remark remark{"fuse-elementwise",
                      "operators-fused",
                      {},
                      {{"operators", counts.operators}, {"kernels", counts.kernels}},
                      std::to_string(counts.operators) + " element-wise operators became " +
                          std::to_string(counts.kernels) + " kernels"};
  if (counts.again > 0) {
    remark.numbers.push_back({"made_again", counts.again});
    remark.numbers.push_back({"bytes", counts.bytes});
    remark.text += "; " + std::to_string(counts.again) +
                   " values are made again in the backward phase instead of keeping " +
                   base::format_bytes(counts.bytes);
  }
  context.remarks.push_back(std::move(remark));
  return Change::Yes;
}

}  // namespace dc::passes
