#include "src/plan/memory_table.h"

#include <algorithm>

#include "src/plan/state_emitter.h"

namespace dc::plan {

namespace rp = runtime::plan;

MemoryTable::MemoryTable(const ir::Step& step, rp::Plan& plan)
    : step_(step), plan_(plan), state_slices_(step.state.size(), -1) {
  for (size_t i = 0; i < step.state.size(); ++i) {
    const ir::StateEntry& entry = step.state[i];
    if (entry.range_of >= 0) continue;
    state_slices_[i] = add_slice(entry.location, -1, {0, 0}, base::slice_kind(entry.role));
  }
  for (size_t i = 0; i < step.state.size(); ++i) {
    if (step.state[i].range_of >= 0)
      state_slices_[i] = state_slices_[static_cast<size_t>(step.state[i].range_of)];
  }
}

int32_t MemoryTable::add_slice(const ir::Location& location, int32_t program, Span live,
                               rp::SliceKind kind) {
  plan_.slices.push_back(
      {location.space, location.offset, location.bytes, program, live.first, live.last, kind});
  return static_cast<int32_t>(plan_.slices.size()) - 1;
}

int32_t MemoryTable::shared_input(const std::string& name, const ir::Location& location) {
  auto [found, is_new] = shared_inputs_.try_emplace(name, -1);
  if (is_new) found->second = add_slice(location, -1, {0, 0}, rp::SliceKind::Inputs);
  return found->second;
}

void MemoryTable::begin_program(int32_t program, const ir::Graph& graph, bool shares_inputs,
                                const analysis::Liveness& live, const std::vector<Span>& spans) {
  graph_ = &graph;
  analysis::StorageMap storages(step_, graph);
  roots_.clear();
  entries_.clear();
  for (size_t i = 0; i < graph.value_capacity(); ++i) {
    ir::ValueId value{static_cast<int32_t>(i)};
    roots_.push_back(storages.root(value));
    entries_.push_back(storages.entry(value));
  }
  slices_.assign(graph.value_capacity(), -1);
  scratch_.assign(graph.node_capacity(), -1);
  for (const analysis::LiveRange& range : live.ranges) {
    const ir::Location& location = graph.storage(range.value).location;
    const ir::Node& producer = graph.node(graph.value(range.value).producer);
    bool is_input = producer.kind == ir::OpKind::Input;
    if (is_input && shares_inputs) {
      slices_[range.value.index()] = shared_input(analysis::input_name(producer), location);
      continue;
    }
    int32_t first = is_input ? 0 : spans[static_cast<size_t>(range.first)].first;
    int32_t last = std::max(first, spans[static_cast<size_t>(range.last)].last);
    slices_[range.value.index()] = add_slice(location, program, {first, last}, range.kind);
  }
  for (size_t i = 0; i < live.order.size(); ++i) {
    const ir::Node& node = graph.node(live.order[i]);
    if (node.scratch.bytes > 0)
      scratch_[node.id.index()] =
          add_slice(node.scratch, program, spans[i], rp::SliceKind::Scratch);
  }
}

MemoryTable::Stride MemoryTable::stride_of(int entry) const {
  const ir::StateEntry& state = step_.state[static_cast<size_t>(entry)];
  if (state.range_of < 0) return {};
  return {state.type.numel() * base::byte_size(state.type.dtype),
          plan_axes(step_.mesh, ir::range_axes(state))};
}

int32_t MemoryTable::tensor(ir::ValueId id) { return tensor(id, graph_->value(id).type); }

int32_t MemoryTable::flat_tensor(ir::ValueId id) {
  ir::TensorType type = graph_->value(id).type;
  if (type.is_contiguous()) return tensor(id, type);
  ir::TensorType flat = ir::contiguous(type.dtype, {type.numel()});
  flat.offset = type.offset;
  return tensor(id, flat);
}

int32_t MemoryTable::tensor(ir::ValueId id, const ir::TensorType& type) {
  const ir::Value& value = graph_->value(id);
  int entry = entries_[id.index()];
  if (entry >= 0)
    return add_tensor(value.name, type, state_slices_[static_cast<size_t>(entry)],
                      stride_of(entry));
  return add_tensor(value.name, type, slices_[roots_[id.index()].index()], {});
}

int32_t MemoryTable::state_tensor(int entry) {
  const ir::StateEntry& state = step_.state[static_cast<size_t>(entry)];
  return add_tensor(state.name, state.type, state_slices_[static_cast<size_t>(entry)],
                    stride_of(entry));
}

int32_t MemoryTable::add_tensor(const std::string& name, const ir::TensorType& type, int32_t slice,
                                Stride stride) {
  int64_t offset = type.offset * base::byte_size(type.dtype);
  auto [found, is_new] = tensors_.try_emplace(
      Key{slice, type.dtype, type.shape, type.strides, offset, stride.bytes, stride.axes}, -1);
  if (!is_new) return found->second;
  found->second = static_cast<int32_t>(plan_.tensors.size());
  plan_.tensors.push_back(
      {name, type.dtype, type.shape, type.strides, slice, offset, stride.bytes, stride.axes});
  return found->second;
}

}  // namespace dc::plan
