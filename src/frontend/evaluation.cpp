#include "src/frontend/evaluation.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "src/base/sha256.h"
#include "src/frontend/bind.h"
#include "src/frontend/checks.h"
#include "src/frontend/graph_reader.h"
#include "src/frontend/inputs.h"

namespace dc::frontend {
namespace {

using base::Result;
using base::Status;

Status differs(const std::string& what) {
  return Status(base::ErrorKind::BadInput, "DC2055",
                "the evaluation's " + what + ": export the model again with eval=True");
}

// Gives the state nodes of the evaluation the entries of the step.
class StateJoiner {
 public:
  StateJoiner(const ir::Step& evaluation, ir::Step& step) : from_(evaluation), step_(step) {
    for (size_t i = 0; i < step.state.size(); ++i) {
      const int buffer = step.state[i].buffer;
      if (buffer >= 0) by_buffer_[step.buffers[static_cast<size_t>(buffer)].fqn] = i;
    }
  }

  Status join(ir::Graph& graph) {
    for (const ir::NodeId id : graph.order()) {
      if (graph.node(id).kind != ir::OpKind::State) continue;
      auto& named = std::get<ir::StateId>(graph.edit(id).args.edit()[0].value);
      const ir::StateEntry& own = from_.state[named.index()];
      DC_ASSIGN_OR_RETURN(const size_t entry, entry_of(own));
      if (step_.state[entry].type != own.type) {
        return differs(own.name + " has another type than the training step's");
      }
      named = {static_cast<int32_t>(entry)};
    }
    return base::ok_status();
  }

 private:
  Result<size_t> entry_of(const ir::StateEntry& own) {
    if (own.parameter >= 0) {
      const int entry = step_.state.find(own.name);
      if (entry >= 0) return static_cast<size_t>(entry);
      return differs(own.name + " is no parameter of the training step");
    }
    const ir::Buffer& buffer = from_.buffers[static_cast<size_t>(own.buffer)];
    const auto found = by_buffer_.find(buffer.fqn);
    return found != by_buffer_.end() ? found->second : add(own, buffer);
  }

  size_t add(ir::StateEntry own, const ir::Buffer& buffer) {
    own.buffer = static_cast<int>(step_.buffers.size());
    step_.buffers.push_back(buffer);
    step_.state.push_back(std::move(own));
    return by_buffer_[buffer.fqn] = step_.state.size() - 1;
  }

  const ir::Step& from_;
  ir::Step& step_;
  std::map<std::string, size_t> by_buffer_;  // state entries, by the buffer's name
};

Status check_inputs(const ir::Step& evaluation, const ir::Step& step) {
  for (const ir::InputSpec& input : evaluation.inputs) {
    const auto same =
        std::find_if(step.inputs.begin(), step.inputs.end(),
                     [&input](const ir::InputSpec& other) { return other.name == input.name; });
    if (same != step.inputs.end() && same->type == input.type) continue;
    return differs("input " + input.name + " is not as the training step's");
  }
  return base::ok_status();
}

Status read(const BuildContext& context, const std::vector<DimSize>& dims, ir::Step& step) {
  DC_ASSIGN_OR_RETURN(const std::string text,
                      read_text(context.files.zip, context.files.evaluation));
  DC_ASSIGN_OR_RETURN(RawModel model, read_graph(text, context.files.evaluation));
  DC_RETURN_IF_ERROR(check_evaluation(model));
  std::vector<std::string> said;  // of the training step already
  DC_RETURN_IF_ERROR(bind_dims(model, context.description, dims, said));
  DC_RETURN_IF_ERROR(check_model(model));
  DC_ASSIGN_OR_RETURN(ir::Step read, build_step(std::move(model), context));
  DC_RETURN_IF_ERROR(describe_inputs(context.description, read, said));
  DC_RETURN_IF_ERROR(check_inputs(read, step));
  ir::Graph& graph = read.programs[0].graph;
  graph.set_name("evaluation");
  DC_RETURN_IF_ERROR(StateJoiner(read, step).join(graph));
  step.evaluation = std::make_shared<const ir::Evaluation>(
      ir::Evaluation{std::move(graph), std::move(read.inputs), base::sha256_hex(text)});
  return base::ok_status();
}

}  // namespace

Status add_evaluation(const BuildContext& context, const std::vector<DimSize>& dims,
                      ir::Step& step) {
  Status status = read(context, dims, step);
  return status.ok() ? std::move(status)
                     : std::move(status).add_context("in " + context.files.evaluation);
}

}  // namespace dc::frontend
