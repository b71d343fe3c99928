#include "src/frontend/build.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "src/frontend/arguments.h"
#include "src/frontend/checks.h"
#include "src/frontend/kernel_types.h"

namespace dc::frontend {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;

constexpr int64_t kMostInlineBytes = 64 << 10;

// "model.layers.0.mlp.weight" -> "model.layers.0.mlp".
std::string module_of(const std::string& fqn) {
  const size_t dot = fqn.rfind('.');
  return dot == std::string::npos ? "" : fqn.substr(0, dot);
}

class StepBuilder {
 public:
  StepBuilder(RawModel model, const BuildContext& context)
      : model_(std::move(model)), context_(context), graph_("step") {
    step_.name = "step";
    values_.resize(model_.names.size());
    for (const RawOutput& output : model_.outputs) {
      if (output.kind == RawOutputKind::BufferUpdate) written_.insert(text(output.target));
      if (output.kind == RawOutputKind::ParameterGradient && output.value != 0) {
        const auto tie = context_.ties.find(text(output.target));
        trained_.insert(tie == context_.ties.end() ? text(output.target) : tie->second);
      }
    }
  }

  Result<ir::Step> build() {
    for (const RawInput& input : model_.inputs) DC_RETURN_IF_ERROR(add_input(input));
    DC_RETURN_IF_ERROR(join_ties());
    for (RawNode& node : model_.nodes) {
      Status status = add_node(node);
      if (!status.ok()) {
        return status.add_context("in node " + text(node.name) + " (" + text(node.target) + ")");
      }
    }
    for (const RawOutput& output : model_.outputs) DC_RETURN_IF_ERROR(add_output(output));
    if (losses_ != 1) return malformed("it has " + std::to_string(losses_) + " losses");
    complete_origins();
    step_.programs.push_back(ir::Program{std::move(graph_), 1});
    return std::move(step_);
  }

 private:
  const std::string& text(Name name) const { return model_.names.text(name); }
  ir::ValueId& value_of(Name name) { return values_[static_cast<size_t>(name)]; }

  Result<ir::TensorType> type_of(Name name) const {
    const auto found = model_.tensors.find(name);
    if (found == model_.tensors.end())
      return malformed("the type of " + text(name) + " is missing");
    const RawTensor& raw = found->second;
    const std::optional<base::DType> dtype = base::dtype_from_export(raw.dtype);
    if (!dtype) return malformed(text(name) + " has an unknown element type");
    ir::TensorType type;
    type.dtype = *dtype;
    type.shape = raw.shape;
    type.strides = raw.strides;
    type.offset = raw.offset;
    return type;
  }

  Status define(Name name, ir::ValueId value, int64_t base_offset) {
    if (value_of(name).valid()) return malformed(text(name) + " is defined twice");
    value_of(name) = value;
    base_offsets_.resize(std::max(base_offsets_.size(), value.index() + 1));
    base_offsets_[value.index()] = base_offset;
    return base::ok_status();
  }

  // The type of a graph input: its storage starts at its first element, whatever it was a view of.
  Result<ir::TensorType> storage_type(const RawInput& input, const std::string& what) const {
    DC_ASSIGN_OR_RETURN(ir::TensorType type, type_of(input.value));
    type.offset = 0;
    if (type.is_contiguous()) return type;
    return Status(ErrorKind::BadInput, "DC2046",
                  what + " is not contiguous in memory; call .contiguous() on it before exporting");
  }

  Status add_input(const RawInput& input) {
    if (input.value == 0) return base::ok_status();  // a number or None baked into the graph
    switch (input.kind) {
      case RawInputKind::Parameter:
        return add_parameter(input);
      case RawInputKind::Buffer:
      case RawInputKind::Constant:
        return add_buffer(input);
      case RawInputKind::User:
        return add_user_input(input);
      case RawInputKind::Token:
      case RawInputKind::Other:
        break;
    }
    return malformed("an input of kind " + text(input.target));
  }

  Status add_state(const RawInput& input, const char* prefix, ir::StateEntry entry) {
    const std::string& fqn = text(input.target);
    if (!fqns_.insert(fqn).second) return malformed(fqn + " appears twice in the signature");
    entry.name = prefix + fqn;
    entry.storage_elements = entry.type.numel();
    const ir::Node& node =
        graph_.insert({}, ir::OpKind::State, {}, {{text(input.value), entry.type}},
                      {{"entry", entry.name}}, {module_of(fqn), ir::Phase::Forward, false});
    DC_RETURN_IF_ERROR(define(input.value, node.results[0], model_.tensors.at(input.value).offset));
    step_.state.push_back(std::move(entry));
    return base::ok_status();
  }

  Status check_record(const ir::ArchiveRecord& record, const ir::TensorType& type,
                      const std::string& fqn) const {
    if (record.entry.empty() || (record.dtype == type.dtype && record.shape == type.shape)) {
      return base::ok_status();
    }
    return malformed("the stored tensor " + fqn + " has another type than the graph says");
  }

  ir::Initializer initializer_of(const std::string& fqn) const {
    const auto found = context_.description.initializers.find(fqn);
    return found == context_.description.initializers.end() ? ir::Initializer() : found->second;
  }

  // Masters, moments and reductions are f32: they would lose half of an f64 parameter, and f16
  // gradients underflow without a loss scale that follows them.
  static Status check_parameter(const ir::Parameter& parameter) {
    const bool trains = parameter.dtype == base::DType::F32 || parameter.dtype == base::DType::BF16;
    const std::string what = "parameter " + parameter.fqn;
    if (parameter.trainable && !trains) {
      return Status(ErrorKind::Unsupported, "DC2047",
                    what + " is trained as " + std::string(base::name(parameter.dtype)) +
                        "; dcc trains f32 and bf16: convert the module with .float() or "
                        ".bfloat16(), or freeze this parameter, and export it again");
    }
    for (const int64_t size : parameter.shape) {
      if (size != 0) continue;
      return Status(ErrorKind::Unsupported, "DC2048",
                    what + " has no elements; remove it from the module and export it again");
    }
    return base::ok_status();
  }

  Status add_parameter(const RawInput& input) {
    const std::string& fqn = text(input.target);
    if (context_.ties.contains(fqn)) {
      tied_.push_back(&input);
      return base::ok_status();
    }
    DC_ASSIGN_OR_RETURN(const ir::TensorType type, storage_type(input, "parameter " + fqn));
    ir::Parameter parameter;
    parameter.fqn = fqn;
    parameter.dtype = type.dtype;
    parameter.shape = type.shape;
    parameter.trainable = trained_.contains(fqn);
    DC_RETURN_IF_ERROR(check_parameter(parameter));
    parameter.initializer = initializer_of(fqn);
    parameter.record = context_.weights.find(fqn);
    DC_RETURN_IF_ERROR(check_record(parameter.record, type, fqn));
    ir::StateEntry entry;
    entry.role = ir::StateRole::Parameter;
    entry.parameter = static_cast<int>(step_.parameters.size());
    entry.type = type;
    DC_RETURN_IF_ERROR(add_state(input, "param.", std::move(entry)));
    canonical_values_[fqn] = value_of(input.value);
    step_.parameters.push_back(std::move(parameter));
    return base::ok_status();
  }

  Status add_buffer(const RawInput& input) {
    const std::string& fqn = text(input.target);
    const bool lifted = input.kind == RawInputKind::Constant;
    ir::Buffer buffer;
    buffer.fqn = fqn;
    DC_ASSIGN_OR_RETURN(buffer.type, storage_type(input, "buffer " + fqn));
    buffer.persistent = !lifted && input.persistent;
    buffer.is_constant = !written_.contains(fqn);
    buffer.initializer = initializer_of(fqn);
    buffer.record = context_.weights.find(fqn);
    DC_RETURN_IF_ERROR(check_record(buffer.record, buffer.type, fqn));
    if (!buffer.persistent && !buffer.record.entry.empty() &&
        buffer.type.bytes().v <= kMostInlineBytes) {
      DC_ASSIGN_OR_RETURN(buffer.data, contiguous_data(context_.files, buffer.record));
    }
    ir::StateEntry entry;
    const bool constant = buffer.is_constant && !buffer.persistent;
    entry.role = constant ? ir::StateRole::Constant : ir::StateRole::Buffer;
    entry.buffer = static_cast<int>(step_.buffers.size());
    entry.type = buffer.type;
    DC_RETURN_IF_ERROR(add_state(input, constant ? "constant." : "buffer.", std::move(entry)));
    step_.buffers.push_back(std::move(buffer));
    return base::ok_status();
  }

  Status add_user_input(const RawInput& input) {
    const std::string& name = text(input.value);
    ir::InputSpec spec;
    spec.name = name;
    DC_ASSIGN_OR_RETURN(spec.type, storage_type(input, "input " + name));
    const ir::Node& node =
        graph_.insert({}, ir::OpKind::Input, {}, {{name, spec.type}}, {{"name", name}}, {});
    DC_RETURN_IF_ERROR(define(input.value, node.results[0], model_.tensors.at(input.value).offset));
    step_.inputs.push_back(std::move(spec));
    return base::ok_status();
  }

  // Uses of a tied parameter become uses of the canonical one.
  Status join_ties() {
    for (const RawInput* input : tied_) {
      const std::string& canonical = context_.ties.at(text(input->target));
      const auto found = canonical_values_.find(canonical);
      if (found == canonical_values_.end()) return malformed(canonical + " is no parameter");
      DC_ASSIGN_OR_RETURN(ir::TensorType type, type_of(input->value));
      type.offset = 0;
      if (type != graph_.value(found->second).type) {
        return malformed(text(input->target) + " is tied to " + canonical + " but differs from it");
      }
      DC_RETURN_IF_ERROR(define(input->value, found->second, base_offsets_[found->second.index()]));
    }
    for (ir::Parameter& parameter : step_.parameters) {
      for (const auto& [alias, canonical] : context_.ties) {
        if (canonical == parameter.fqn) parameter.aliases.push_back(alias);
      }
    }
    return base::ok_status();
  }

  Result<int> operand(Name name, bool kernel_types, std::vector<ir::ValueId>& operands) {
    if (name < 0) return -1;
    const ir::ValueId value = kernel_types ? value_of(name) : as_declared(name);
    if (!value.valid()) return malformed(text(name) + " is used before it is defined");
    operands.push_back(value);
    return static_cast<int>(operands.size()) - 1;
  }

  // A value in the element type that the archive gives it: converted where the kernel's is another.
  ir::ValueId as_declared(Name name) {
    const ir::ValueId value = value_of(name);
    const auto found = declared_.find(name);
    if (found == declared_.end()) return value;
    auto& [dtype, converted] = found->second;
    if (converted.valid()) return converted;
    ir::TensorType type = graph_.value(value).type;
    type.dtype = dtype;
    const ir::NodeId producer = graph_.value(value).producer;
    const ir::Origin origin = graph_.node(producer).origin;
    const bool marked = std::find(unmarked_.begin(), unmarked_.end(), producer) == unmarked_.end();
    const ir::Node& cast = graph_.insert_aten(
        {}, "aten._to_copy.default", {value}, {{text(name) + "_declared", std::move(type)}},
        {{"self", ir::OperandRef{0}}, {"dtype", dtype, true}}, origin);
    if (!marked) unmarked_.push_back(cast.id);
    converted = cast.results[0];
    base_offsets_.resize(std::max(base_offsets_.size(), converted.index() + 1));
    return converted;
  }

  // Names become positions among the node's operands.
  Result<ir::Arg> convert(RawArg& raw, bool kernel_types, std::vector<ir::ValueId>& operands) {
    if (auto* single = std::get_if<ir::OperandRef>(&raw.value)) {
      DC_ASSIGN_OR_RETURN(single->index, operand(single->index, kernel_types, operands));
    } else if (auto* list = std::get_if<ir::OperandList>(&raw.value)) {
      for (int& index : list->indices) {
        DC_ASSIGN_OR_RETURN(index, operand(index, kernel_types, operands));
      }
    }
    return ir::Arg{text(raw.name), std::move(raw.value), raw.keyword};
  }

  // A kernel makes only the results its output_mask asks for; some shape functions of PyTorch, and
  // so an archive, list all of them.
  static void drop_masked(const std::vector<ir::Arg>& args, std::vector<Name>& results) {
    for (const ir::Arg& arg : args) {
      const auto* mask = std::get_if<std::vector<bool>>(&arg.value);
      if (arg.name != "output_mask" || mask == nullptr) continue;
      for (size_t i = 0; i < std::min(mask->size(), results.size()); ++i) {
        if (!(*mask)[i]) results[i] = -1;
      }
    }
  }

  Status add_node(RawNode& raw) {
    const std::string_view overload = overload_of(text(raw.target));
    if (overload == kGetItem) return take_item(raw);
    std::vector<ir::ValueId> operands;
    std::vector<ir::Arg> args;
    args.reserve(raw.args.size());
    for (RawArg& arg : raw.args) {
      DC_ASSIGN_OR_RETURN(ir::Arg converted, convert(arg, takes_kernel_types(overload), operands));
      args.push_back(std::move(converted));
    }
    const bool view = ir::aten_info(overload)->alias == ir::AliasRule::View && !operands.empty();
    const int64_t shift = view ? base_offsets_[operands[0].index()] : 0;
    std::vector<ir::NewValue> results;
    const OperandType operand_type = [&](std::string_view name) -> std::optional<base::DType> {
      for (const ir::Arg& arg : args) {
        const auto* single = std::get_if<ir::OperandRef>(&arg.value);
        if (single == nullptr || arg.name != name) continue;
        return graph_.value(operands[static_cast<size_t>(single->index)]).type.dtype;
      }
      return std::nullopt;
    };
    drop_masked(args, raw.results);
    for (const Name name : raw.results) {
      if (name < 0) {
        results.push_back({"-", {}});
        continue;
      }
      DC_ASSIGN_OR_RETURN(ir::TensorType type, type_of(name));
      const auto given = kernel_dtype(overload, results.size(), operand_type);
      if (given && *given != type.dtype) {
        declared_[name] = {type.dtype, {}};
        type.dtype = *given;
      }
      type.offset -= shift;
      if (type.offset < 0) return malformed(text(name) + " starts before its storage");
      results.push_back({text(name), std::move(type)});
    }
    ir::Node& node =
        graph_.insert_aten({}, std::string(overload), std::move(operands), std::move(results),
                           std::move(args), {text(raw.module), raw.phase, raw.accumulates});
    for (size_t i = 0; i < raw.results.size(); ++i) {
      if (raw.results[i] < 0) continue;
      DC_RETURN_IF_ERROR(define(raw.results[i], node.results[i], shift));
    }
    if (!raw.marked) unmarked_.push_back(node.id);
    return base::ok_status();
  }

  // Exporters fold getitem into its producer; one that is left picks from a list of tensors.
  Status take_item(const RawNode& raw) {
    const auto* list =
        raw.args.size() == 2 ? std::get_if<ir::OperandList>(&raw.args[0].value) : nullptr;
    const auto* index = list == nullptr ? nullptr : std::get_if<int64_t>(&raw.args[1].value);
    if (index == nullptr || *index < 0 || *index >= static_cast<int64_t>(list->indices.size()) ||
        raw.results.size() != 1 || raw.results[0] < 0) {
      return malformed("getitem does not pick from a list of tensors");
    }
    std::vector<ir::ValueId> picked;
    DC_ASSIGN_OR_RETURN(const int position,
                        operand(list->indices[static_cast<size_t>(*index)], false, picked));
    if (position < 0) return malformed("getitem picks None");
    return define(raw.results[0], picked[0], base_offsets_[picked[0].index()]);
  }

  Status add_output(const RawOutput& raw) {
    if (raw.value == 0) return base::ok_status();
    switch (raw.kind) {
      case RawOutputKind::User:
      case RawOutputKind::InputGradient:
        return base::ok_status();
      case RawOutputKind::Loss:
        return add_loss(raw);
      case RawOutputKind::ParameterGradient:
        return add_gradient(raw);
      case RawOutputKind::BufferUpdate:
        return add_buffer_update(raw);
      case RawOutputKind::Token:
      case RawOutputKind::Other:
        break;
    }
    return malformed("an output of kind " + text(raw.target));
  }

  Result<ir::ValueId> output_value(const RawOutput& raw) {
    const ir::ValueId value = as_declared(raw.value);
    if (!value.valid()) return malformed("the output " + text(raw.value) + " is not defined");
    return value;
  }

  Status add_loss(const RawOutput& raw) {
    DC_ASSIGN_OR_RETURN(const ir::ValueId value, output_value(raw));
    const ir::TensorType& type = graph_.value(value).type;
    if (type.numel() != 1 || !base::is_floating(type.dtype)) {
      return malformed("the loss is not one floating-point number");
    }
    graph_.outputs.push_back({ir::OutputKind::Loss, "", value});
    ++losses_;
    return base::ok_status();
  }

  Status add_gradient(const RawOutput& raw) {
    const auto tie = context_.ties.find(text(raw.target));
    const std::string& fqn = tie == context_.ties.end() ? text(raw.target) : tie->second;
    DC_ASSIGN_OR_RETURN(const ir::ValueId value, output_value(raw));
    const auto parameter = canonical_values_.find(fqn);
    if (parameter == canonical_values_.end())
      return malformed("a gradient for " + fqn + ", which is no parameter");
    const ir::TensorType& type = graph_.value(value).type;
    if (type.shape != graph_.value(parameter->second).type.shape ||
        !base::is_floating(type.dtype)) {
      return malformed("the gradient of " + fqn + " has another shape than the parameter");
    }
    const auto [place, fresh] = gradients_.emplace(fqn, graph_.outputs.size());
    if (fresh) {
      graph_.outputs.push_back({ir::OutputKind::Gradient, fqn, value});
      return base::ok_status();
    }
    ir::Output& first = graph_.outputs[place->second];
    if (graph_.value(first.value).type.dtype != type.dtype) {
      return malformed("the gradients of " + fqn + " under its tied names differ in type");
    }
    first.value = add(first.value, value, fqn);
    return base::ok_status();
  }

  // The sum of two gradients of a tied parameter. Like PyTorch's, its dims lie as the first one's.
  ir::ValueId add(ir::ValueId a, ir::ValueId b, const std::string& fqn) {
    ir::TensorType type = graph_.value(a).type;
    std::vector<size_t> dims(type.shape.size());
    std::iota(dims.begin(), dims.end(), size_t{0});
    std::stable_sort(dims.begin(), dims.end(),
                     [&type](size_t x, size_t y) { return type.strides[x] > type.strides[y]; });
    int64_t stride = 1;
    for (auto dim = dims.rbegin(); dim != dims.rend(); ++dim) {
      type.strides[*dim] = stride;
      stride *= type.shape[*dim];
    }
    type.offset = 0;
    const ir::Node& node =
        graph_.insert_aten({}, "aten.add.Tensor", {a, b}, {{"tied_gradient", type}},
                           {{"self", ir::OperandRef{0}}, {"other", ir::OperandRef{1}}},
                           {module_of(fqn), ir::Phase::Backward, true});
    return node.results[0];
  }

  Status add_buffer_update(const RawOutput& raw) {
    const std::string& fqn = text(raw.target);
    const ir::ValueId value = value_of(raw.value);  // in the kernel's type: it is the buffer's
    if (!value.valid()) return malformed("the output " + text(raw.value) + " is not defined");
    const auto buffer = std::find_if(step_.buffers.begin(), step_.buffers.end(),
                                     [&fqn](const ir::Buffer& b) { return b.fqn == fqn; });
    const ir::TensorType& type = graph_.value(value).type;
    if (buffer == step_.buffers.end() || buffer->type.shape != type.shape ||
        buffer->type.dtype != type.dtype) {
      return malformed("an update of " + fqn + ", which is no buffer of this type");
    }
    graph_.outputs.push_back({ir::OutputKind::BufferUpdate, fqn, value});
    return base::ok_status();
  }

  // Nodes without marks: forward is everything up to the last node that the loss or a buffer update
  // needs; the module is that of a parameter the node reads.
  void complete_origins() {
    if (unmarked_.empty()) return;
    std::set<ir::NodeId> forward;
    std::vector<ir::ValueId> queue;
    for (const ir::Output& output : graph_.outputs) {
      if (output.kind != ir::OutputKind::Gradient) queue.push_back(output.value);
    }
    while (!queue.empty()) {
      const ir::Node& node = graph_.node(graph_.value(queue.back()).producer);
      queue.pop_back();
      if (!forward.insert(node.id).second) continue;
      queue.insert(queue.end(), node.operands.begin(), node.operands.end());
    }
    const ir::NodeId last = *forward.rbegin();  // ids are in program order here
    for (const ir::NodeId id : unmarked_) {
      ir::Node& node = graph_.node(id);
      node.origin.phase = id <= last ? ir::Phase::Forward : ir::Phase::Backward;
      for (const ir::ValueId read : node.operands) {
        const ir::Node& source = graph_.node(graph_.value(read).producer);
        if (node.origin.module.empty() && source.kind == ir::OpKind::State) {
          node.origin.module = source.origin.module;
        }
      }
    }
  }

  RawModel model_;
  const BuildContext& context_;
  ir::Step step_;
  ir::Graph graph_;
  std::vector<ir::ValueId> values_;    // by Name
  std::vector<int64_t> base_offsets_;  // by value: where its storage began when it was traced
  std::set<std::string> written_;      // buffers with an update
  std::set<std::string> trained_;      // canonical parameters with a gradient
  std::set<std::string> fqns_;
  std::map<std::string, ir::ValueId> canonical_values_;
  std::map<std::string, size_t> gradients_;  // canonical name -> position in outputs
  std::vector<const RawInput*> tied_;
  // By name: values whose kernel gives another element type than the archive says, with that type
  // and, once a node reads it so, the converted value.
  std::map<Name, std::pair<base::DType, ir::ValueId>> declared_;
  std::vector<ir::NodeId> unmarked_;
  int losses_ = 0;
};

}  // namespace

Result<ir::Step> build_step(RawModel model, const BuildContext& context) {
  return StepBuilder(std::move(model), context).build();
}

}  // namespace dc::frontend
