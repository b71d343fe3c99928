// Outputs of the graph: the loss, gradients, updates of buffers.
#include <algorithm>
#include <numeric>
#include <set>

#include "src/frontend/arguments.h"
#include "src/frontend/draft.h"
#include "src/ir/builder.h"

namespace dc::frontend {
namespace {

using base::Result;
using base::Status;

class OutputBuilder {
 public:
  explicit OutputBuilder(Draft& draft) : draft_(draft) {}

  Status run() {
    for (const RawOutput& output : draft_.model.outputs) DC_RETURN_IF_ERROR(add_output(output));
    if (losses_ != 1) return malformed("it has " + std::to_string(losses_) + " losses");
    return base::ok_status();
  }

 private:
  Status add_output(const RawOutput& raw) {
    if (raw.value == 0) return base::ok_status();
    const bool is_of_state =
        raw.kind == RawOutputKind::ParameterGradient || raw.kind == RawOutputKind::BufferUpdate;
    if (is_of_state && !targets_.insert(raw.target).second) {
      return malformed(draft_.text(raw.target) + " has two gradients or updates");
    }
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
    return malformed("an output of kind " + draft_.text(raw.target));
  }

  Result<ir::ValueId> output_value(const RawOutput& raw) {
    const ir::ValueId value = draft_.as_declared(raw.value);
    if (!value.valid())
      return malformed("the output " + draft_.text(raw.value) + " is not defined");
    return value;
  }

  Status add_loss(const RawOutput& raw) {
    DC_ASSIGN_OR_RETURN(const ir::ValueId value, output_value(raw));
    const ir::TensorType& type = draft_.graph.value(value).type;
    if (type.numel() != 1 || !base::is_floating(type.dtype)) {
      return malformed("the loss is not one floating-point number");
    }
    draft_.graph.outputs.push_back({ir::OutputKind::Loss, "", value});
    ++losses_;
    return base::ok_status();
  }

  Status add_gradient(const RawOutput& raw) {
    const auto tie = draft_.context.ties.find(draft_.text(raw.target));
    const std::string& fqn =
        tie == draft_.context.ties.end() ? draft_.text(raw.target) : tie->second;
    DC_ASSIGN_OR_RETURN(const ir::ValueId value, output_value(raw));
    const auto parameter = draft_.parameters.find(fqn);
    if (parameter == draft_.parameters.end())
      return malformed("a gradient for " + fqn + ", which is no parameter");
    const ir::TensorType& type = draft_.graph.value(value).type;
    if (type.shape != draft_.graph.value(parameter->second).type.shape ||
        !base::is_floating(type.dtype)) {
      return malformed("the gradient of " + fqn + " has another shape than the parameter");
    }
    // Sums of gradients are f32. PyTorch gives a gradient its parameter's type.
    if (type.dtype == base::DType::F64)
      return malformed("the gradient of " + fqn + " is f64, which is not its parameter's type");
    const auto [place, fresh] = gradients_.emplace(fqn, draft_.graph.outputs.size());
    if (fresh) {
      draft_.graph.outputs.push_back({ir::OutputKind::Gradient, fqn, value});
      return base::ok_status();
    }
    const ir::ValueId first = draft_.graph.outputs[place->second].value;
    if (draft_.graph.value(first).type.dtype != type.dtype) {
      return malformed("the gradients of " + fqn + " under its tied names differ in type");
    }
    draft_.graph.outputs.set_value(place->second, add(first, value, fqn));
    return base::ok_status();
  }

  // The sum of two gradients of a tied parameter. Like PyTorch's, its dims lie as the first one's.
  ir::ValueId add(ir::ValueId a, ir::ValueId b, const std::string& fqn) {
    ir::TensorType type = draft_.graph.value(a).type;
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
    return ir::Builder(draft_.graph, {}, {module_of(fqn), ir::Phase::Backward, true})
        .make_aten("aten.add.Tensor", {a, b}, {"tied_gradient", type},
                   {{"self", ir::OperandRef{0}}, {"other", ir::OperandRef{1}}});
  }

  Status add_buffer_update(const RawOutput& raw) {
    const std::string& fqn = draft_.text(raw.target);
    const ir::ValueId value =
        draft_.value_of(raw.value);  // has the kernel's element type, which is the buffer's
    if (!value.valid())
      return malformed("the output " + draft_.text(raw.value) + " is not defined");
    const auto buffer = std::find_if(draft_.step.buffers.begin(), draft_.step.buffers.end(),
                                     [&fqn](const ir::Buffer& b) { return b.fqn == fqn; });
    const ir::TensorType& type = draft_.graph.value(value).type;
    if (buffer == draft_.step.buffers.end() || buffer->type.shape != type.shape ||
        buffer->type.dtype != type.dtype) {
      return malformed("an update of " + fqn + ", which is no buffer of this type");
    }
    draft_.graph.outputs.push_back({ir::OutputKind::BufferUpdate, fqn, value});
    return base::ok_status();
  }

  Draft& draft_;
  std::set<Name> targets_;                   // of gradients and updates
  std::map<std::string, size_t> gradients_;  // canonical name -> position in outputs
  int losses_ = 0;
};

}  // namespace

Status add_outputs(Draft& draft) { return OutputBuilder(draft).run(); }

}  // namespace dc::frontend
