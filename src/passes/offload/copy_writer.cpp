#include "src/passes/offload/copy_writer.h"

#include <algorithm>

#include "src/cost/transfer.h"
#include "src/ir/builder.h"
#include "src/ir/effects.h"

namespace dc::passes {
namespace {

using ir::NodeId;
using ir::OpKind;
using ir::ValueId;

}  // namespace

int stream_of(ir::Step& step, std::string_view name) {
  const auto found = std::find(step.streams.begin(), step.streams.end(), name);
  if (found != step.streams.end()) return static_cast<int>(found - step.streams.begin());
  step.streams.emplace_back(name);
  return static_cast<int>(step.streams.size()) - 1;
}

CopyWriter::CopyWriter(ir::Step& step, ir::Graph& graph, const schedule::Positions& axis)
    : graph_(graph),
      axis_(axis),
      known_(graph.value_capacity()),
      out_stream_(stream_of(step, "copy_out")),
      in_stream_(stream_of(step, "copy_in")) {}

std::vector<CopyWriter::Event> CopyWriter::events() const {
  std::vector<Event> list;
  for (size_t i = 0; i < outs_.size(); ++i) {
    list.push_back({outs_[i].copy.start, Kind::OutStart, i});
    list.push_back({outs_[i].copy.done, Kind::OutDone, i});
  }
  for (size_t i = 0; i < ins_.size(); ++i) {
    list.push_back({ins_[i].copy.start, Kind::InStart, i});
    list.push_back({ins_[i].copy.done, Kind::InDone, i});
  }
  // Copies that start at one position do so in the order in which compute waits for them.
  const auto done = [&](const Event& event) {
    return event.kind <= Kind::OutDone ? outs_[event.item].copy.done : ins_[event.item].copy.done;
  };
  std::stable_sort(list.begin(), list.end(), [&](const Event& a, const Event& b) {
    if (a.position != b.position) return a.position < b.position;
    return a.kind != b.kind ? a.kind < b.kind : done(a) < done(b);
  });
  return list;
}

void CopyWriter::write() {
  for (const Event& event : events()) {
    const NodeId before = node_at(event.position);
    switch (event.kind) {
      case Kind::OutStart:
        start_out(outs_[event.item], before);
        break;
      case Kind::OutDone: {
        Item<Out>& item = outs_[event.item];
        const ValueId done = finish(item.made, origin_at(item.copy.start - 1), before);
        if (!item.copy.into.valid()) outside_[axis_.storages.root(item.copy.value).v] = done;
        break;
      }
      case Kind::InStart:
        start_in(ins_[event.item], before);
        break;
      case Kind::InDone: {
        const Item<In>& item = ins_[event.item];
        const ValueId done = finish(item.made, origin_at(item.copy.done), before);
        ir::ViewCopies views(graph_, done);
        views.stand_for(item.copy.value, done);
        segments_[axis_.storages.root(item.copy.value).v].push_back(
            {item.copy.done, done, std::move(views)});
        break;
      }
    }
  }
  redirect_readers();
  erase_unused_views();
}

// Collectives that travel together stand side by side: nothing comes between them.
NodeId CopyWriter::node_at(int32_t position) const {
  if (position >= static_cast<int32_t>(axis_.live.order.size())) return {};
  while (cost::joins(axis_.node(position))) --position;
  return axis_.node(position).id;
}

ir::Origin CopyWriter::origin_at(int32_t position) const {
  const auto count = static_cast<int32_t>(axis_.live.order.size());
  ir::Origin origin = axis_.node(std::clamp(position, 0, count - 1)).origin;
  origin.accumulates = false;
  return origin;
}

void CopyWriter::start_out(Item<Out>& item, NodeId before) {
  const Out& out = item.copy;
  ValueId source = out.value;
  if (!out.is_exact) {
    Segment* segment = segment_of(source, out.start);
    if (segment != nullptr) source = segment->device;
  }
  ir::Builder at(graph_, before, origin_at(out.start - 1), out_stream_);
  const std::string name = graph_.value(out.value).name;
  if (out.into.valid()) {
    item.made = at.make_in_place(OpKind::OffloadIntoStart, {out.into, source}, "offload." + name);
    return;
  }
  ir::TensorType type = graph_.value(source).type;
  type.offset = 0;
  item.made = at.make(OpKind::OffloadStart, {source}, {"offload." + name, std::move(type)});
  graph_.edit_location(item.made).space = out.space;
}

void CopyWriter::start_in(Item<In>& item, NodeId before) {
  const ValueId root = axis_.storages.root(item.copy.value);
  const auto outside = outside_.find(root.v);
  const ValueId source = outside != outside_.end() ? outside->second : item.copy.value;
  item.made =
      ir::Builder(graph_, before, origin_at(item.copy.done), in_stream_)
          .make(OpKind::ReloadStart, {source},
                {"reload." + *graph_.value(item.copy.value).name, graph_.value(source).type});
}

ValueId CopyWriter::finish(ValueId started, const ir::Origin& origin, NodeId before) {
  std::string name = graph_.value(started).name;
  for (const auto& [from, to] :
       {std::pair{"offload.", "offloaded."}, std::pair{"reload.", "reloaded."}}) {
    if (name.starts_with(from)) name = to + name.substr(std::string_view(from).size());
  }
  return ir::Builder(graph_, before, origin).wait(started, std::move(name));
}

CopyWriter::Segment* CopyWriter::segment_of(ValueId value, int32_t position) {
  const auto found = segments_.find(axis_.storages.root(value).v);
  if (found == segments_.end()) return nullptr;
  Segment* last = nullptr;
  for (Segment& segment : found->second) {
    if (segment.begin <= position) last = &segment;
  }
  if (last == nullptr) return nullptr;
  // What an op made in place of the copy is the copy already.
  while (ir::is_plain_view(graph_.node(graph_.value(value).producer)))
    value = graph_.node(graph_.value(value).producer).operands[0];
  return axis_.position(graph_.value(value).producer) < last->begin ? last : nullptr;
}

// Everything that was there before and does more than name bytes.
void CopyWriter::redirect_readers() {
  for (int32_t i = 0; i < static_cast<int32_t>(axis_.live.order.size()); ++i) {
    const NodeId id = axis_.live.order[static_cast<size_t>(i)];
    if (ir::is_plain_view(graph_.node(id))) continue;
    for (size_t k = 0; k < graph_.node(id).operands.size(); ++k) {
      const ValueId operand = graph_.node(id).operands[k];
      if (operand.index() >= known_) continue;  // made by this writer
      Segment* segment = segment_of(operand, i);
      if (segment == nullptr) continue;
      // Views are made again before the first node that needs them.
      graph_.set_operand(id, static_cast<int>(k), segment->views.of(operand, node_at(i)));
    }
  }
}

// Views whose readers all read a copy now. Last first, so that views of views go too.
void CopyWriter::erase_unused_views() {
  for (size_t i = axis_.live.order.size(); i-- > 0;) {
    const NodeId id = axis_.live.order[i];
    const ir::Node& node = graph_.node(id);
    if (!ir::is_plain_view(node) || !segments_.contains(axis_.storages.root(node.operands[0]).v))
      continue;
    const bool is_used = std::any_of(node.results.begin(), node.results.end(), [&](ValueId result) {
      return result.valid() && !graph_.value(result).uses.empty();
    });
    if (!is_used) graph_.erase(id);
  }
}

}  // namespace dc::passes
