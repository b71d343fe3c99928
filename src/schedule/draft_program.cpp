#include "src/schedule/draft_program.h"

#include <map>

#include "src/analysis/repeated_kernels.h"
#include "src/cost/transfer.h"
#include "src/ir/effects.h"
#include "src/ir/kernel_signature.h"
#include "src/schedule/gather_moves.h"

namespace dc::schedule {

using analysis::aligned_bytes;
using ir::Node;
using ir::NodeId;
using ir::OpKind;
using ir::ValueId;

DraftProgram::DraftProgram(const ir::Step& step, const ir::Graph& graph,
                           const cost::CostModel& cost)
    : step_(step),
      graph_(graph),
      cost_(cost),
      storages_(step, graph),
      live_(analysis::liveness(step, graph, storages_)),
      replay_(sim::schedule_of(step, graph, cost)),
      curve_(live_.order.size()),
      part_at_(live_.order.size(), -1),
      event_of_(graph.node_capacity(), -1),
      stored_of_(graph.value_capacity(), -1) {
  for (size_t e = 0; e < replay_.schedule().events.size(); ++e)
    event_of_[static_cast<size_t>(replay_.schedule().events[e].origin)] = static_cast<int32_t>(e);
  events_ = replay_.schedule().events;
  for (const NodeId id : live_.order)
    scratch_.push_back(aligned_bytes(cost_.scratch(graph_, graph_.node(id)).bytes.v));
  find_written();
  find_kernels();
  find_gathers();
  find_views();
  count_readers();
  find_storages();
  find_buckets();
  number_alike();
  const sim::Loads loads = sim::loads_of(replay_.schedule());
  work_ = loads.compute + loads.communication;
}

bool DraftProgram::is_repeat(const Node& again, const Node& first) const {
  if (again.stream != 0 || analysis::part_of(again) != analysis::Part::Kernel) return false;
  if (ir::alias_of(again) != ir::AliasRule::Fresh || again.results.size() != first.results.size())
    return false;
  bool has_result = false;
  for (size_t r = 0; r < again.results.size(); ++r) {
    if (again.results[r].valid() != first.results[r].valid()) return false;
    if (!again.results[r].valid()) continue;
    if (is_written_[again.results[r].index()] || is_written_[first.results[r].index()])
      return false;
    const ir::ValueId made = again.results[r], kept = first.results[r];
    if (graph_.storage(made).location.space != ir::Space::Device ||
        graph_.storage(kept).location.space != ir::Space::Device ||
        graph_.value(made).type != graph_.value(kept).type)
      return false;
    has_result = true;
  }
  return has_result;
}

void DraftProgram::find_written() {
  is_written_.assign(graph_.value_capacity(), false);
  for (const NodeId id : live_.order) {
    const Node& writer = graph_.node(id);
    for (size_t i = 0; i < writer.operands.size(); ++i) {
      if (ir::writes(writer, i)) is_written_[storages_.root(writer.operands[i]).index()] = true;
    }
  }
}

void DraftProgram::find_kernels() {
  const std::vector<NodeId> first = analysis::repeated_kernels(graph_);
  for (size_t i = 0; i < live_.order.size(); ++i) {
    const Node& again = node(static_cast<int32_t>(i));
    if (!first[again.id.index()].valid() || is_output(again) || !is_read(again)) continue;
    const Node& kernel = graph_.node(first[again.id.index()]);
    if (!is_repeat(again, kernel)) continue;
    DraftItem item{false, kernel.id, 0, cost_.compute(graph_, again).time, 0, position(kernel.id)};
    for (const ValueId result : kernel.results) {
      if (result.valid()) item.bytes += aligned_bytes(graph_.value(result).type.bytes().v);
    }
    const size_t index = add_item(item);
    part_of_item_[index] = add_part({again.id}, static_cast<int>(index));
  }
}

bool DraftProgram::is_read(const Node& made) const {
  return std::any_of(made.results.begin(), made.results.end(), [&](ValueId result) {
    if (!result.valid()) return false;
    const auto& uses = graph_.value(result).uses;
    return std::any_of(uses.begin(), uses.end(), [&](const ir::Use& use) {
      return graph_.node(use.node).kind != OpKind::Release;
    });
  });
}

bool DraftProgram::is_output(const Node& made) const {
  return std::any_of(made.results.begin(), made.results.end(),
                     [&](ValueId result) { return graph_.outputs.contains(result); });
}

void DraftProgram::find_gathers() {
  std::map<std::pair<int, int>, Gathers> by_shard;  // state entry, element type
  for (const NodeId id : live_.order) {
    const Node& start = graph_.node(id);
    if (start.kind != OpKind::AllGatherStart) continue;
    Gathers::One one;
    one.start = id;
    one.cast = cast_of(graph_, start);
    const ValueId shard = one.cast.valid() ? graph_.node(one.cast).operands[0] : start.operands[0];
    const int entry = storages_.entry(shard);
    if (entry < 0 || step_.state[static_cast<size_t>(entry)].role != ir::StateRole::Shard) continue;
    for (const ir::Use& use : graph_.value(start.results[0]).uses) {
      if (ir::is_done(graph_.node(use.node).kind)) one.done = use.node;
    }
    if (!one.done.valid() || !is_read(graph_.node(one.done))) continue;
    const ir::Value& whole = graph_.value(graph_.node(one.done).results[0]);
    for (const ir::Use& use : whole.uses) {
      if (graph_.node(use.node).kind == OpKind::Release) one.release = use.node;
    }
    if (!one.release.valid()) continue;
    one.release_at = position(one.release);
    by_shard[{entry, static_cast<int>(whole.type.dtype)}].all.push_back(one);
  }
  for (auto& [shard, gathers] : by_shard) {
    if (gathers.all.size() < 2) continue;
    std::sort(gathers.all.begin(), gathers.all.end(),
              [&](const auto& a, const auto& b) { return position(a.done) < position(b.done); });
    add_gathers(std::move(gathers));
  }
}

void DraftProgram::add_gathers(Gathers gathers) {
  const Node& start = graph_.node(gathers.all[0].start);
  const auto transfer = *cost::transfer_of(graph_, start);
  DraftItem item{
      true,
      gathers.all[0].done,
      aligned_bytes(cost::padded_bytes(step_, transfer)),
      cost_.collective(transfer.kind, transfer.wire_bytes(), cost::group_of(step_, start)).time,
      0,
      position(gathers.all[0].done)};
  item.saved = item.saved * (static_cast<int64_t>(gathers.all.size()) - 1);
  const size_t index = add_item(item);
  gathers.item = static_cast<int>(index);
  gathers_of_[index] = gathers_.size();
  for (size_t g = 1; g < gathers.all.size(); ++g) {
    Gathers::One& one = gathers.all[g];
    one.part = add_part({one.start, one.done, one.release}, gathers.item);
    if (one.cast.valid() && part_at_[static_cast<size_t>(position(one.cast))] < 0)
      add_part({one.cast});
  }
  gathers_.push_back(std::move(gathers));
}

void DraftProgram::find_views() {
  for (const NodeId id : live_.order) {
    const Node& view = graph_.node(id);
    if (ir::is_plain_view(view) && view.origin.phase == ir::Phase::Backward && !is_output(view) &&
        is_read(view))
      add_part({id});
  }
}

void DraftProgram::count_readers() {
  for (size_t i = 0; i < live_.order.size(); ++i) {
    if (part_at_[i] >= 0) continue;
    for (const ValueId operand : node(static_cast<int32_t>(i)).operands) {
      if (const int32_t made = part_making(operand); made >= 0) ++part(made).readers;
    }
  }
  for (Part& reader : parts_) {
    for (const ValueId operand : reader.operands) {
      const int32_t made = part_making(operand);
      if (made < 0) continue;
      ++part(made).readers;
      reader.needs.push_back(made);
    }
  }
}

void DraftProgram::find_storages() {
  for (const analysis::LiveRange& range : live_.ranges) {
    if (graph_.storage(range.value).location.space != ir::Space::Device) continue;
    stored_of_[range.value.index()] = static_cast<int32_t>(stored_.size());
    Stored& stored = stored_.emplace_back();
    stored.first = range.first;
    stored.bytes = aligned_bytes(range.bytes.v);
    stored.part = part_making(range.value);
    stored.least_last = producer_known(range.value);
  }
  add_uses();
  for (size_t item = 0; item < items_.size(); ++item) add_stand_ins(item);
  find_stored_of_parts();
  // Inputs live longer than they are read.
  for (const analysis::LiveRange& range : live_.ranges) {
    const int32_t index = stored_of_[range.value.index()];
    if (index < 0) continue;
    Stored& stored = stored_[static_cast<size_t>(index)];
    int32_t by_uses = stored.least_last;
    for (const Stored::Use& use : stored.uses) by_uses = std::max(by_uses, use.known);
    if (range.last > by_uses) stored.least_last = range.last;
    stored.last = range.last;
    curve_.add(stored.first, stored.last, stored.bytes);
  }
  for (size_t i = 0; i < live_.order.size(); ++i)
    curve_.add(static_cast<int32_t>(i), static_cast<int32_t>(i), scratch(static_cast<int32_t>(i)));
  is_dirty_.assign(stored_.size(), false);
}

void DraftProgram::add_uses() {
  for (size_t i = 0; i < live_.order.size(); ++i) {
    const Node& reader = node(static_cast<int32_t>(i));
    const auto use = [&](ValueId value, int32_t known) {
      const int32_t index = stored_of_[storages_.root(value).index()];
      if (index >= 0) stored_[static_cast<size_t>(index)].uses.push_back({known, part_at_[i]});
    };
    for (const ValueId operand : reader.operands) use(operand, live_.known[i]);
    for (const ValueId result : reader.results) {
      if (result.valid() && storages_.root(result) != result) use(result, static_cast<int32_t>(i));
    }
  }
  for (const ir::Output& output : graph_.outputs) {
    if (!output.value.valid()) continue;
    const int32_t index = stored_of_[storages_.root(output.value).index()];
    const auto end = static_cast<int32_t>(live_.order.size()) - 1;
    if (index >= 0) stored_[static_cast<size_t>(index)].uses.push_back({end, -1});
  }
  for (Stored& stored : stored_) {
    std::sort(stored.uses.begin(), stored.uses.end(),
              [](const auto& a, const auto& b) { return a.known > b.known; });
  }
}

void DraftProgram::add_stand_ins(size_t item) {
  if (items_[item].is_parameter) {
    const Gathers& gathers = gathers_[gathers_of_[item]];
    const int32_t first = root_of_done(gathers.all[0]);
    for (size_t g = 1; g < gathers.all.size(); ++g)
      add_stand_in(first, root_of_done(gathers.all[g]));
    return;
  }
  const Node& again = node(part(part_of_item_[item]).positions[0]);
  const Node& first = graph_.node(items_[item].node);
  for (size_t r = 0; r < first.results.size(); ++r) {
    if (!first.results[r].valid()) continue;
    const int32_t kept = stored_of_[storages_.root(first.results[r]).index()];
    const int32_t made = stored_of_[storages_.root(again.results[r]).index()];
    add_stand_in(kept, made);
  }
}

void DraftProgram::add_stand_in(int32_t original, int32_t stored) {
  stored_[static_cast<size_t>(original)].stand_ins.push_back(stored);
  stored_[static_cast<size_t>(stored)].original = original;
}

void DraftProgram::find_stored_of_parts() {
  for (Part& one : parts_) {
    const auto add = [&](ValueId value) {
      const int32_t index = stored_of_[storages_.root(value).index()];
      if (index >= 0) one.stored.push_back(index);
    };
    for (const int32_t at : one.positions) {
      for (const ValueId operand : node(at).operands) add(operand);
      for (const ValueId result : node(at).results) {
        if (result.valid()) add(result);
      }
    }
    std::sort(one.stored.begin(), one.stored.end());
    const auto* end = std::unique(one.stored.begin(), one.stored.end());
    while (one.stored.end() != end) one.stored.pop_back();
  }
}

void DraftProgram::find_buckets() {
  bucket_of_.assign(graph_.node_capacity(), -1);
  for (const NodeId id : live_.order) {
    const Node& start = graph_.node(id);
    if (start.kind != OpKind::AllGatherStart || cost::joins(start)) continue;
    const int32_t event = event_of_[id.index()];
    Bucket bucket{event, events_[static_cast<size_t>(event)].transfer,
                  cost::transfer_of(graph_, start)->kind, cost::group_of(step_, start)};
    for (const NodeId member : cost::bucket_of(graph_, id)) {
      bucket.members.push_back({part_at_[static_cast<size_t>(position(member))],
                                cost::transfer_of(graph_, graph_.node(member))->wire_bytes()});
      bucket_of_[member.index()] = static_cast<int32_t>(buckets_.size());
    }
    buckets_.push_back(std::move(bucket));
  }
}

void DraftProgram::number_alike() {
  std::map<std::pair<int64_t, int64_t>, int> numbers;
  for (DraftItem& item : items_) {
    const int64_t kernel =
        item.is_parameter ? -1 : int64_t{ir::kernel_of(graph_, graph_.node(item.node)).v};
    item.alike =
        numbers.try_emplace({kernel, item.bytes}, static_cast<int>(numbers.size())).first->second;
  }
}

int32_t DraftProgram::add_part(const std::vector<NodeId>& nodes, int item) {
  const auto index = static_cast<int32_t>(parts_.size());
  Part& made = parts_.emplace_back();
  made.item = item;
  for (const NodeId id : nodes) {
    if (!id.valid()) continue;
    made.positions.push_back(position(id));
    part_at_[static_cast<size_t>(position(id))] = index;
    const Node& one = graph_.node(id);
    if (one.kind == OpKind::Release || ir::is_done(one.kind)) continue;
    made.operands.append(one.operands.data(), one.operands.size());
  }
  return index;
}

size_t DraftProgram::add_item(DraftItem item) {
  items_.push_back(item);
  taken_.push_back(false);
  part_of_item_.push_back(-1);
  gathers_of_.push_back(0);
  return items_.size() - 1;
}

int32_t DraftProgram::producer_known(ValueId value) const {
  return live_.known[static_cast<size_t>(position(graph_.value(value).producer))];
}

}  // namespace dc::schedule
