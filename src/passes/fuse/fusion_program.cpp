#include "src/passes/fuse/fusion_program.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "src/analysis/dependences.h"
#include "src/base/expression.h"
#include "src/cost/transfer.h"
#include "src/ir/effects.h"
#include "src/ir/group.h"
#include "src/passes/fuse/elementwise_groups.h"
#include "src/schedule/reduction_tail.h"

namespace dc::passes {
namespace {

using analysis::Part;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

class ProgramReader {
 public:
  ProgramReader(const ir::Step& step, const ir::Graph& graph, const cost::CostModel& cost,
                Fusible fusible)
      : graph_(graph),
        cost_(cost),
        fusible_(fusible),
        storages_(step, graph),
        view_(analysis::schedule_view(step, graph)),
        needs_(analysis::dependences(graph, storages_, view_)) {}

  std::optional<FusionProgram> run() {
    number_.assign(view_.order.size(), -1);
    is_behind_.assign(view_.order.size(), false);
    near_.resize(view_.order.size());
    value_of_.assign(graph_.value_capacity(), -1);
    for (size_t at = 0; at < view_.order.size(); ++at) {
      if (!add(at)) return std::nullopt;
    }
    keep_what_others_read();
    if (fusible_ == Fusible::InPlans) {
      made_.problem.limits = {base::Expression::kMostOperations, base::Expression::kMostTensors};
    }
    made_.problem.finish();
    return std::move(made_);
  }

 private:
  // False for what is no problem of fusion.
  bool add(size_t at) {
    const Node& node = graph_.node(view_.order[at]);
    for (const int32_t before : needs_[at]) {
      const auto earlier = static_cast<size_t>(before);
      is_behind_[at] = is_behind_[at] || is_behind_[earlier];
      if (number_[earlier] >= 0) {
        near_[at].push_back(number_[earlier]);
      } else {
        near_[at].insert(near_[at].end(), near_[earlier].begin(), near_[earlier].end());
      }
    }
    std::ranges::sort(near_[at]);
    near_[at].erase(std::unique(near_[at].begin(), near_[at].end()), near_[at].end());
    if (is_behind_[at]) return true;
    const Part part = analysis::part_of(node);
    if (part == Part::Start && !schedule::is_reduction(node.kind)) return false;
    if (part == Part::Kernel) add_kernel(at, node);
    if (part == Part::Start) add_reduction(at, node);
    return true;
  }

  void add_kernel(size_t at, const Node& node) {
    const auto number = static_cast<int32_t>(made_.kernels.size());
    number_[at] = number;
    made_.kernels.push_back(node.id);
    fusion::Kernel kernel;
    kernel.time = cost_.compute(graph_, node).time;
    kernel.kind = kind_of(node);
    if (kernel.kind >= 0) made_.fusible.push_back(number);
    for (const ValueId result : node.results) {
      if (!result.valid() || storages_.root(result) != result) continue;
      kernel.makes.push_back(value_of(result));
      made_.problem.values[static_cast<size_t>(kernel.makes.back())].maker = number;
    }
    std::vector<int32_t> makers;
    for (const ValueId operand : node.operands) {
      const bool whole = fusible_ == Fusible::AnyOperator;
      const int32_t value = value_of(whole ? storages_.root(operand) : operand);
      if (std::ranges::count(kernel.reads, value) == 0) kernel.reads.push_back(value);
      makers.push_back(made_.problem.maker(value));
    }
    std::ranges::sort(kernel.reads);
    for (const int32_t before : near_[at]) {
      if (std::ranges::count(makers, before) == 0) kernel.after.push_back(before);
    }
    made_.problem.kernels.push_back(std::move(kernel));
  }

  int32_t kind_of(const Node& node) {
    if (fusible_ == Fusible::AnyOperator)
      return ir::is_model_op(node.kind) && node.origin.phase != ir::Phase::Update ? 0 : -1;
    if (!is_fusible(graph_, node)) return -1;
    const ir::Shape& shape = graph_.value(node.results[0]).type.shape;
    return kinds_.try_emplace(shape, static_cast<int32_t>(kinds_.size())).first->second;
  }

  void add_reduction(size_t at, const Node& node) {
    is_behind_[at] = true;
    const NodeId next = graph_.next(node.id);
    const bool in_bucket = cost::joins(node) || (next.valid() && cost::joins(graph_.node(next)));
    const auto key =
        std::tuple(node.kind, node.stream, ir::group_of(node), in_bucket ? node.id.v : -1);
    const auto kind =
        reduction_kinds_.try_emplace(key, static_cast<int32_t>(reduction_kinds_.size()));
    made_.problem.reductions.push_back(
        {near_[at], cost::transfer_of(graph_, node)->wire_bytes(), kind.first->second});
    made_.reductions.push_back(node.id);
  }

  int32_t value_of(ValueId id) {
    int32_t& value = value_of_[id.index()];
    if (value >= 0) return value;
    const ValueId root = storages_.root(id);
    const int32_t of =
        root == id ? static_cast<int32_t>(made_.problem.values.size()) : value_of(root);
    value = static_cast<int32_t>(made_.problem.values.size());
    made_.problem.values.push_back({-1, of, graph_.value(id).type.bytes().v, false});
    return value;
  }

  void keep_what_others_read() {
    const auto keep = [this](ValueId id) {
      const int32_t value = value_of_[storages_.root(id).index()];
      if (value >= 0) made_.problem.values[static_cast<size_t>(value)].kept = true;
    };
    for (size_t at = 0; at < view_.order.size(); ++at) {
      const Node& node = graph_.node(view_.order[at]);
      if (number_[at] >= 0 || ir::is_plain_view(node)) continue;
      for (const ValueId operand : node.operands) keep(operand);
    }
    for (const ir::Output& output : graph_.outputs) keep(output.value);
  }

  const ir::Graph& graph_;
  const cost::CostModel& cost_;
  const Fusible fusible_;
  const analysis::StorageMap storages_;
  const analysis::ScheduleView view_;
  const analysis::Dependences needs_;
  FusionProgram made_;
  std::vector<int32_t> number_;             // of the kernel, by position; -1: none of the problem
  std::vector<bool> is_behind_;             // a reduction, or something behind one
  std::vector<std::vector<int32_t>> near_;  // kernels right before it, by position
  std::vector<int32_t> value_of_;           // by value of the graph
  std::map<ir::Shape, int32_t> kinds_;
  std::map<std::tuple<ir::OpKind, int, ir::AxisMask, int32_t>, int32_t> reduction_kinds_;
};

}  // namespace

std::optional<FusionProgram> fusion_program(const ir::Step& step, const ir::Graph& graph,
                                            const cost::CostModel& cost, Fusible fusible) {
  return ProgramReader(step, graph, cost, fusible).run();
}

fusion::LinearTime reduction_line(const ir::Step& step, const ir::Graph& graph,
                                  const FusionProgram& program, const cost::CostModel& cost) {
  if (program.reductions.empty()) return {};
  const Node& node = graph.node(program.reductions[0]);
  const cost::Collective kind = cost::transfer_of(graph, node)->kind;
  const cost::Group group = cost::group_of(step, node);
  std::vector<base::Bytes> sizes = cost.bends(kind, group);
  if (sizes.size() < 2) {  // figures from rates are a line anyway
    for (int64_t bytes = 1 << 12; bytes <= 1 << 28; bytes *= 4) sizes.push_back({bytes});
  }
  std::vector<fusion::SizeTime> points;
  points.reserve(sizes.size());
  for (const base::Bytes bytes : sizes)
    points.push_back({bytes, cost.collective(kind, bytes, group).time});
  return fusion::fit_line(points);
}

}  // namespace dc::passes
