#include "src/schedule/touches.h"

namespace dc::schedule {

Touches::Touches(const ir::Step& step, const ir::Graph& graph, const analysis::StorageMap& storages,
                 const std::vector<ir::NodeId>& order)
    : state_(step.state.size()) {
  const size_t slots = state_ + graph.value_capacity();
  const auto for_each = [&](auto visit) {
    for (size_t i = 0; i < order.size(); ++i) {
      const ir::Node& node = graph.node(order[i]);
      Lists& lists = node.kind == ir::OpKind::SquareSum ? square_sums_ : others_;
      for (ir::ValueId operand : node.operands)
        visit(lists, slot(analysis::storage_key(storages, operand)), static_cast<int32_t>(i));
    }
  };
  for (Lists* lists : {&square_sums_, &others_}) lists->first.assign(slots + 1, 0);
  for_each([](Lists& lists, size_t at, int32_t) { ++lists.first[at + 1]; });
  for (Lists* lists : {&square_sums_, &others_}) {
    for (size_t at = 0; at < slots; ++at) lists->first[at + 1] += lists->first[at];
    lists->positions.resize(lists->first[slots]);
  }
  std::vector<size_t> next_square_sum = square_sums_.first, next_other = others_.first;
  for_each([&](Lists& lists, size_t at, int32_t position) {
    std::vector<size_t>& next = &lists == &others_ ? next_other : next_square_sum;
    lists.positions[next[at]++] = position;
  });
}

}  // namespace dc::schedule
