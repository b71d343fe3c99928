#include "src/ir/graph.h"

#include <algorithm>
#include <utility>

#include "src/base/status.h"

namespace dc::ir {

const Arg* Node::find_arg(std::string_view name) const {
  for (const Arg& arg : args) {
    if (arg.name == name) return &arg;
  }
  return nullptr;
}

int64_t Node::integer(Attr attribute) const {
  const Arg* arg = find(attribute);
  DC_CHECK(arg != nullptr && std::holds_alternative<int64_t>(arg->value));
  return std::get<int64_t>(arg->value);
}

void Graph::assign_type(Value& value, TensorType type) {
  // The verifier refuses others.
  const bool has_size = type.shape.size() == type.strides.size();
  const int64_t bytes = has_size ? type.storage_elements() * base::byte_size(type.dtype) : 0;
  storages_.edit(value.id.index()).bytes = bytes;
  value.type = std::move(type);
}

std::string Graph::unique_name(const std::string& wanted, ValueId id) {
  const auto name_of = [this](int32_t value) -> const std::string& {
    return *values_[static_cast<size_t>(value)].name;
  };
  std::string stem = wanted.empty() ? "v" + std::to_string(id.v) : wanted;
  const NameTable::Entry* entry = names_.find(stem, name_of);
  if (entry == nullptr) {
    names_.insert(stem, id.v, 1);
    return stem;
  }
  int suffix = entry->next_suffix;
  std::string name = stem + "_" + std::to_string(suffix);
  while (names_.find(name, name_of) != nullptr) name = stem + "_" + std::to_string(++suffix);
  names_.set_next_suffix(*entry, suffix + 1);
  names_.insert(name, id.v, 1);
  return name;
}

Node& Graph::insert(NodeId before, OpKind kind, ValueList operands, std::vector<NewValue> results,
                    std::vector<Arg> args, Origin origin) {
  const NodeId id{static_cast<int32_t>(nodes_.size())};
  Node& node = nodes_.emplace_back();
  links_.emplace_back();
  node.id = id;
  node.kind = kind;
  node.operands = std::move(operands);
  node.args = std::move(args);
  node.origin = std::move(origin);
  for (size_t i = 0; i < node.operands.size(); ++i) {
    DC_CHECK(node.operands[i].valid() && node.operands[i].index() < values_.size());
    edit(node.operands[i]).uses.push_back(Use{id, static_cast<int>(i)});
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].name == "-" && results[i].type.shape.empty()) {
      node.results.push_back(ValueId{});
      continue;
    }
    const ValueId result{static_cast<int32_t>(values_.size())};
    std::string name = unique_name(results[i].name, result);
    Value& created = values_.emplace_back();
    storages_.emplace_back();
    created.id = result;
    created.name = std::move(name);
    assign_type(created, std::move(results[i].type));
    created.producer = id;
    created.result = static_cast<int>(i);
    node.results.push_back(result);
  }
  ++count_;
  link(id, before);
  return node;
}

Node& Graph::insert_aten(NodeId before, Overload overload, ValueList operands,
                         std::vector<NewValue> results, std::vector<Arg> args, Origin origin) {
  Node& node = insert(before, OpKind::Aten, std::move(operands), std::move(results),
                      std::move(args), std::move(origin));
  node.overload = std::move(overload);
  return node;
}

void Graph::link(NodeId id, NodeId before) {
  DC_CHECK(!before.valid() || contains(before));
  const NodeId previous = before.valid() ? links_[before.index()].previous : tail_;
  links_[id.index()] = Link{previous, before};
  (previous.valid() ? links_[previous.index()].next : head_) = id;
  (before.valid() ? links_[before.index()].previous : tail_) = id;
}

void Graph::unlink(NodeId id) {
  const Link link = links_[id.index()];
  (link.previous.valid() ? links_[link.previous.index()].next : head_) = link.next;
  (link.next.valid() ? links_[link.next.index()].previous : tail_) = link.previous;
  links_[id.index()] = Link{};
}

void Graph::drop_use(ValueId id, Use use) {
  auto& uses = edit(id).uses;
  auto* found = std::find(uses.begin(), uses.end(), use);
  DC_CHECK(found != uses.end());
  *found = uses.back();
  uses.pop_back();
}

namespace {

// Whether a kernel is the same for an operand of the one type as for one of the other. Where the
// kernel runs follows from other things than types for some.
bool same_kernel(OpKind kind, const TensorType& a, const TensorType& b) {
  return !is_update(kind) && kind != OpKind::Cast && a.dtype == b.dtype && a.shape == b.shape &&
         a.strides == b.strides;
}

}  // namespace

void Graph::set_operand(NodeId id, int index, ValueId value_id) {
  Node& reader = edit(id);
  ValueId& slot = reader.operands[static_cast<size_t>(index)];
  if (slot == value_id) return;
  drop_use(slot, Use{id, index});
  if (!same_kernel(reader.kind, value(slot).type, value(value_id).type)) reader.kernel = {};
  slot = value_id;
  edit(value_id).uses.push_back(Use{id, index});
}

void Graph::drop_last_operand(NodeId id) {
  Node& reader = edit(id);
  const auto last = static_cast<int>(reader.operands.size()) - 1;
  drop_use(reader.operands.back(), Use{id, last});
  reader.operands.pop_back();
  reader.kernel = {};
}

void Graph::set_type(ValueId id, TensorType type) {
  Value& changed = edit(id);
  assign_type(changed, std::move(type));
  if (changed.producer.valid()) edit(changed.producer).kernel = {};
  for (const Use& use : changed.uses) edit(use.node).kernel = {};
}

void Graph::set_provider(NodeId id, base::Provider provider) {
  DC_CHECK(node(id).kind == OpKind::Aten);
  edit(id).provider = provider;
  edit(id).kernel = {};
}

void Graph::replace_all_uses(ValueId from, ValueId to) {
  if (from == to) return;
  const auto moved = std::exchange(edit(from).uses, {});
  for (const Use& use : moved) {
    Node& reader = edit(use.node);
    reader.operands[static_cast<size_t>(use.operand)] = to;
    if (!same_kernel(reader.kind, value(from).type, value(to).type)) reader.kernel = {};
  }
  edit(to).uses.append(moved.data(), moved.size());
  outputs.replace(from, to);
}

void Graph::erase(NodeId id) {
  DC_CHECK(contains(id));
  Node& dead = edit(id);
  for (ValueId result : dead.results) {
    if (!result.valid()) continue;
    DC_CHECK(value(result).uses.empty());
    DC_CHECK(!outputs.contains(result));
    names_.erase(*value(result).name, [this](int32_t other) -> const std::string& {
      return *values_[static_cast<size_t>(other)].name;
    });
    edit(result).producer = NodeId{};
  }
  for (size_t i = 0; i < dead.operands.size(); ++i) {
    drop_use(dead.operands[i], Use{id, static_cast<int>(i)});
  }
  unlink(id);
  dead = Node();
  --count_;
}

void Graph::move_before(NodeId id, NodeId before) {
  DC_CHECK(contains(id));
  if (id == before) return;
  unlink(id);
  link(id, before);
}

std::vector<NodeId> Graph::order() const {
  std::vector<NodeId> nodes;
  nodes.reserve(count_);
  for (NodeId id = head_; id.valid(); id = next(id)) nodes.push_back(id);
  return nodes;
}

ValueId Graph::find_value(std::string_view name) const {
  for (size_t i = 0; i < values_.size(); ++i) {
    const Value& candidate = values_[i];
    if (candidate.producer.valid() && *candidate.name == name) return candidate.id;
  }
  return ValueId{};
}

}  // namespace dc::ir
