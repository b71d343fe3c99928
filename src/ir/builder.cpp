#include "src/ir/builder.h"

#include "src/base/status.h"

namespace dc::ir {

Node& Builder::insert(OpKind kind, ValueList operands, std::vector<NewValue> results,
                      std::vector<Arg> args) {
  Node& node = graph_->insert(before_, kind, std::move(operands), std::move(results),
                              std::move(args), origin_);
  node.stream = stream_;
  return node;
}

NodeId Builder::act(OpKind kind, ValueList operands, std::vector<Arg> args) {
  return insert(kind, std::move(operands), {}, std::move(args)).id;
}

ValueId Builder::make(OpKind kind, ValueList operands, NewValue result, std::vector<Arg> args) {
  return insert(kind, std::move(operands), {std::move(result)}, std::move(args)).results[0];
}

ValueId Builder::make_aten(Overload overload, ValueList operands, NewValue result,
                           std::vector<Arg> args) {
  Node& node = insert(OpKind::Aten, std::move(operands), {std::move(result)}, std::move(args));
  node.overload = std::move(overload);
  return node.results[0];
}

std::vector<ValueId> Builder::make_all(OpKind kind, ValueList operands,
                                       std::vector<NewValue> results, std::vector<Arg> args) {
  return insert(kind, std::move(operands), std::move(results), std::move(args)).results;
}

ValueId Builder::cast(ValueId value, DType dtype, std::string name) {
  const TensorType& from = graph_->value(value).type;
  return make(OpKind::Cast, {value},
              {std::move(name), contiguous(dtype, from.shape, from.sharding)});
}

ValueId Builder::make_in_place(OpKind kind, ValueList operands, std::string name,
                               std::vector<Arg> args) {
  DC_CHECK(traits(kind).alias == AliasRule::View && !operands.empty());
  TensorType type = graph_->value(operands[0]).type;
  return make(kind, std::move(operands), {std::move(name), std::move(type)}, std::move(args));
}

ValueId Builder::wait(ValueId started, std::string name) {
  const OpKind start = graph_->node(graph_->value(started).producer).kind;
  return on(0).make_in_place(done_of(start), {started}, std::move(name));
}

Node& Builder::repeat(const Node& node, ValueList operands, const std::string& prefix) {
  std::vector<NewValue> results;
  for (const ValueId result : node.results) {
    if (!result.valid()) {
      results.push_back({"-", {}});
      continue;
    }
    const Value& value = graph_->value(result);
    results.push_back({prefix + *value.name, value.type});
  }
  Node& again =
      graph_->insert(before_, node.kind, std::move(operands), std::move(results), {}, origin_);
  again.args = node.args;
  again.overload = node.overload;
  again.provider = node.provider;
  again.stream = node.stream;
  return again;
}

}  // namespace dc::ir
