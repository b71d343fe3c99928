// ProgramEmitter: one program's nodes as instructions.
//
// A kernel of compute is one instruction. A kernel of the host, and the start of a collective or of
// a copy between memory spaces on another stream, are four: compute signals, the stream waits, the
// kernel or transfer, the stream signals. A done is one: compute waits.
// all_gather_into.wait_previous_step is one such wait too. What needs a kernel of another stream
// has a wait for it in front. Inputs, state, views and releases are no instruction.
//
// Gathers that go on into the next step have the first event numbers, the same in every program.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "runtime/plan/plan.h"
#include "src/analysis/liveness.h"
#include "src/base/status.h"
#include "src/ir/step.h"
#include "src/plan/memory_table.h"

namespace dc::plan {

// Where each trainable parameter's gradient is complete: by trainable index.
struct ReadyGradient {
  int32_t tensor = -1;
  int32_t instruction = -1;
};

// Communicators by stream and axes: index into Plan::groups.
using GroupTable = std::map<std::pair<int, ir::AxisMask>, int32_t>;

// Instructions of each position of the program.
std::vector<Span> instruction_spans(const ir::Graph& graph, const analysis::Liveness& live);

class ProgramEmitter {
 public:
  ProgramEmitter(const ir::Step& step, const ir::Graph& graph, MemoryTable& memory,
                 const GroupTable& groups, std::vector<ReadyGradient>& gradients)
      : step_(step),
        graph_(graph),
        memory_(memory),
        groups_(groups),
        gradients_(gradients),
        done_event_(graph.node_capacity(), -1) {
    number_crossings();
  }

  // DC8001 naming the node that cannot be expressed.
  base::Result<runtime::plan::Program> run(const analysis::Liveness& live);
  int32_t events() const { return events_; }

 private:
  base::Status emit(const ir::Node& node, const std::vector<ir::NodeId>& awaited);
  void emit_part(const ir::Node& node, analysis::Part part);
  void emit_kernel(const ir::Node& node);
  runtime::plan::Instruction kernel(const ir::Node& node);
  void emit_native(const ir::Node& node, runtime::plan::Instruction& instruction);
  void emit_joining_start(const ir::Node& node);
  runtime::plan::CollectiveBuffer collective_buffer(const ir::Node& node);
  runtime::plan::Instruction collective(const ir::Node& node);
  runtime::plan::Instruction copy(const ir::Node& node);
  // On its stream, which begins it when compute is here; compute itself needs no signal.
  void emit_on_stream(const ir::Node& node, runtime::plan::Instruction body);
  void emit_done(const ir::Node& node);
  void number_crossings();
  void push_event(runtime::plan::InstructionKind kind, int32_t stream, int32_t event,
                  const ir::Node& node);
  runtime::plan::Instruction instruction(runtime::plan::InstructionKind kind, const ir::Node& node,
                                         int32_t stream) const;
  runtime::plan::Arg argument(const ir::Node& node, const ir::Arg& arg);

  const ir::Step& step_;
  const ir::Graph& graph_;
  MemoryTable& memory_;
  const GroupTable& groups_;
  std::vector<ReadyGradient>& gradients_;
  std::vector<int32_t> done_event_;     // by node of another stream: the event that says its end
  std::vector<int32_t> arrival_event_;  // by state entry: of the gather that the last step started
  int32_t events_ = 0;
  runtime::plan::Program program_;
};

}  // namespace dc::plan
