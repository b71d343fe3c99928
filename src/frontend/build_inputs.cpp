// Inputs of the graph: parameters, buffers, constants and what the data loader fills.
#include <set>

#include "src/frontend/arguments.h"
#include "src/frontend/draft.h"
#include "src/ir/builder.h"

namespace dc::frontend {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;

constexpr int64_t kMostInlineBytes = 64 << 10;

class InputBuilder {
 public:
  explicit InputBuilder(Draft& draft) : draft_(draft) {
    for (const RawOutput& output : draft_.model.outputs) {
      if (output.kind == RawOutputKind::BufferUpdate) written_.insert(draft_.text(output.target));
      if (output.kind == RawOutputKind::ParameterGradient && output.value != 0) {
        const auto tie = draft_.context.ties.find(draft_.text(output.target));
        trained_.insert(tie == draft_.context.ties.end() ? draft_.text(output.target)
                                                         : tie->second);
      }
    }
  }

  Status run() {
    for (const RawInput& input : draft_.model.inputs) DC_RETURN_IF_ERROR(add_input(input));
    return join_ties();
  }

 private:
  // The type of a graph input: its storage starts at its first element, whatever it was a view of.
  Result<ir::TensorType> storage_type(const RawInput& input, const std::string& what) const {
    DC_ASSIGN_OR_RETURN(ir::TensorType type, draft_.type_of(input.value));
    type.offset = 0;
    if (type.is_contiguous()) return type;
    return Status(ErrorKind::BadInput, "DC2046",
                  what + " is not contiguous in memory; call .contiguous() on it before exporting");
  }

  // Only the archive knows the offset of a tensor that was a part of a larger one.
  Placement placement_of(const RawInput& input) const {
    const int64_t offset = draft_.model.tensors.at(input.value).offset;
    return {offset, offset == 0};
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
    return malformed("an input of kind " + draft_.text(input.target));
  }

  Status add_state(const RawInput& input, const char* prefix, ir::StateEntry entry) {
    const std::string& fqn = draft_.text(input.target);
    if (!fqns_.insert(fqn).second) return malformed(fqn + " appears twice in the signature");
    entry.name = prefix + fqn;
    entry.storage_elements = entry.type.numel();
    const ir::ValueId value =
        ir::Builder(draft_.graph, {}, {module_of(fqn), ir::Phase::Forward, false})
            .make(ir::OpKind::State, {}, {draft_.text(input.value), entry.type},
                  {{ir::Attr::Entry, ir::StateId{static_cast<int32_t>(draft_.step.state.size())}}});
    DC_RETURN_IF_ERROR(draft_.define(input.value, value, placement_of(input)));
    draft_.step.state.push_back(std::move(entry));
    return base::ok_status();
  }

  Status check_record(const ir::ArchiveRecord& record, const ir::TensorType& type,
                      const std::string& fqn) const {
    if (record.entry.empty() || (record.dtype == type.dtype && record.shape == type.shape)) {
      return base::ok_status();
    }
    return malformed("the stored tensor " + fqn + " has another type than the graph says");
  }

  Result<ir::Initializer> initializer_of(const std::string& fqn, const ir::Shape& shape) const {
    const auto found = draft_.context.description.initializers.find(fqn);
    if (found == draft_.context.description.initializers.end()) return ir::Initializer();
    const int64_t row = found->second.zero_row;
    if (row < 0 || (!shape.empty() && row < shape[0])) return found->second;
    return Status(ErrorKind::BadInput, "DC2056",
                  "the initializer of " + fqn + " leaves row " + std::to_string(row) +
                      " zero, which the tensor does not have; export the model again");
  }

  // Masters, moments and reductions are f32: they would lose half of an f64 parameter, and f16
  // gradients underflow without a loss scale that follows them.
  static Status check_parameter(const ir::Parameter& parameter) {
    const bool trains = parameter.dtype == base::DType::F32 || parameter.dtype == base::DType::BF16;
    const std::string what = "parameter " + parameter.fqn;
    if (parameter.trainable && !trains) {
      return Status(ErrorKind::Unsupported, "DC2053",
                    what + " is trained as " + std::string(base::name(parameter.dtype)) +
                        "; dcc trains f32 and bf16: convert the module with .float() or "
                        ".bfloat16(), or freeze this parameter, and export it again");
    }
    for (const int64_t size : parameter.shape) {
      if (size != 0) continue;
      return Status(ErrorKind::Unsupported, "DC2054",
                    what + " has no elements; remove it from the module and export it again");
    }
    return base::ok_status();
  }

  Status add_parameter(const RawInput& input) {
    const std::string& fqn = draft_.text(input.target);
    if (draft_.context.ties.contains(fqn)) {
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
    DC_ASSIGN_OR_RETURN(parameter.initializer, initializer_of(fqn, type.shape));
    parameter.record = draft_.context.weights.find(fqn);
    DC_RETURN_IF_ERROR(check_record(parameter.record, type, fqn));
    ir::StateEntry entry;
    entry.role = ir::StateRole::Parameter;
    entry.parameter = static_cast<int>(draft_.step.parameters.size());
    entry.type = type;
    DC_RETURN_IF_ERROR(add_state(input, "param.", std::move(entry)));
    draft_.parameters[fqn] = draft_.value_of(input.value);
    draft_.step.parameters.edit().push_back(std::move(parameter));
    return base::ok_status();
  }

  Status add_buffer(const RawInput& input) {
    const std::string& fqn = draft_.text(input.target);
    const bool lifted = input.kind == RawInputKind::Constant;
    ir::Buffer buffer;
    buffer.fqn = fqn;
    DC_ASSIGN_OR_RETURN(buffer.type, storage_type(input, "buffer " + fqn));
    buffer.persistent = !lifted && input.persistent;
    buffer.is_constant = !written_.contains(fqn);
    DC_ASSIGN_OR_RETURN(buffer.initializer, initializer_of(fqn, buffer.type.shape));
    buffer.record = draft_.context.weights.find(fqn);
    DC_RETURN_IF_ERROR(check_record(buffer.record, buffer.type, fqn));
    if (!buffer.persistent && !buffer.record.entry.empty() &&
        buffer.type.bytes().v <= kMostInlineBytes) {
      DC_ASSIGN_OR_RETURN(buffer.data, contiguous_data(draft_.context.files, buffer.record));
    }
    if (buffer.is_constant && !buffer.persistent && buffer.record.entry.empty() &&
        buffer.type.numel() > 0)
      return malformed("constant " + fqn + " has no values");
    ir::StateEntry entry;
    const bool constant = buffer.is_constant && !buffer.persistent;
    entry.role = constant ? ir::StateRole::Constant : ir::StateRole::Buffer;
    entry.buffer = static_cast<int>(draft_.step.buffers.size());
    entry.type = buffer.type;
    DC_RETURN_IF_ERROR(add_state(input, constant ? "constant." : "buffer.", std::move(entry)));
    draft_.step.buffers.push_back(std::move(buffer));
    return base::ok_status();
  }

  Status add_user_input(const RawInput& input) {
    const std::string& name = draft_.text(input.value);
    ir::InputSpec spec;
    spec.name = name;
    DC_ASSIGN_OR_RETURN(spec.type, storage_type(input, "input " + name));
    const ir::ValueId value =
        ir::Builder(draft_.graph)
            .make(ir::OpKind::Input, {}, {name, spec.type}, {{ir::Attr::Name, name}});
    DC_RETURN_IF_ERROR(draft_.define(input.value, value, placement_of(input)));
    draft_.step.inputs.push_back(std::move(spec));
    return base::ok_status();
  }

  // Uses of a tied parameter become uses of the canonical one.
  Status join_ties() {
    for (const RawInput* input : tied_) {
      const std::string& canonical = draft_.context.ties.at(draft_.text(input->target));
      const auto found = draft_.parameters.find(canonical);
      if (found == draft_.parameters.end()) return malformed(canonical + " is no parameter");
      DC_ASSIGN_OR_RETURN(ir::TensorType type, draft_.type_of(input->value));
      type.offset = 0;
      if (type != draft_.graph.value(found->second).type) {
        return malformed(draft_.text(input->target) + " is tied to " + canonical +
                         " but differs from it");
      }
      DC_RETURN_IF_ERROR(
          draft_.define(input->value, found->second, draft_.operand(found->second).placement));
    }
    for (ir::Parameter& parameter : draft_.step.parameters.edit()) {
      for (const auto& [alias, canonical] : draft_.context.ties) {
        if (canonical == parameter.fqn) parameter.aliases.push_back(alias);
      }
    }
    return base::ok_status();
  }

  Draft& draft_;
  std::set<std::string> written_;  // buffers with an update
  std::set<std::string> trained_;  // canonical parameters with a gradient
  std::set<std::string> fqns_;
  std::vector<const RawInput*> tied_;
};

}  // namespace

Status add_inputs(Draft& draft) { return InputBuilder(draft).run(); }

}  // namespace dc::frontend
