#include "src/plan/program_emitter.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "src/cost/transfer.h"
#include "src/ir/cross_step.h"
#include "src/ir/effects.h"
#include "src/ir/group.h"

namespace dc::plan {
namespace {

namespace rp = runtime::plan;
using analysis::Part;
using analysis::part_of;
using base::Status;
using ir::Node;
using ir::OpKind;

const Node& start_of(const ir::Graph& graph, const Node& done) {
  return graph.node(graph.value(done.operands[0]).producer);
}

int32_t instruction_count(const ir::Graph& graph, const Node& node) {
  switch (part_of(node)) {
    case Part::Nothing:
      return 0;
    case Part::Kernel:
    case Part::Start:
      return node.stream == 0 ? 1 : 4;
    case Part::Done:
      return start_of(graph, node).stream == 0 ? 0 : 1;
    case Part::Arrival:
      return 1;
  }
  return 0;
}

void add_unique(std::vector<int32_t>& list, int32_t tensor) {
  if (tensor >= 0 && std::find(list.begin(), list.end(), tensor) == list.end())
    list.push_back(tensor);
}

// The value of an argument that is no tensor.
struct PlainValue {
  rp::Arg& out;
  void operator()(std::monostate) const { out.kind = rp::ArgKind::None; }
  void operator()(const ir::OperandRef&) const {}
  void operator()(const ir::OperandList&) const {}
  void operator()(bool value) const { set(rp::ArgKind::Bool, value); }
  void operator()(int64_t value) const { set(rp::ArgKind::Int, value); }
  void operator()(double value) const { out.kind = rp::ArgKind::Float, out.f = value; }
  void operator()(const std::string& value) const { out.kind = rp::ArgKind::String, out.s = value; }
  void operator()(const std::vector<bool>& value) const {
    out.kind = rp::ArgKind::Bools, out.ints.assign(value.begin(), value.end());
  }
  void operator()(const std::vector<int64_t>& value) const {
    out.kind = rp::ArgKind::Ints, out.ints = value;
  }
  void operator()(const std::vector<double>& value) const {
    out.kind = rp::ArgKind::Floats, out.floats = value;
  }
  void operator()(ir::DType value) const { set(rp::ArgKind::DType, static_cast<int64_t>(value)); }
  void operator()(ir::StateId) const {}  // of state nodes, which are no kernels
  void operator()(ir::DeviceArg) const { out.kind = rp::ArgKind::Device; }
  void operator()(ir::LayoutArg value) const { set(rp::ArgKind::Layout, value.value); }
  void operator()(ir::MemoryFormatArg value) const { set(rp::ArgKind::MemoryFormat, value.value); }
  void set(rp::ArgKind kind, int64_t value) const { out.kind = kind, out.i = value; }
};

}  // namespace

std::vector<Span> instruction_spans(const ir::Graph& graph, const analysis::Liveness& live) {
  std::vector<Span> spans;
  int32_t next = 0;
  auto wait = live.waits.begin();
  for (size_t i = 0; i < live.order.size(); ++i) {
    const Node& node = graph.node(live.order[i]);
    if (cost::joins(node)) {  // its instruction is that of the start before it
      spans.push_back(spans.back());
      continue;
    }
    int32_t count = instruction_count(graph, node);
    for (; wait != live.waits.end() && static_cast<size_t>(wait->waiter) == i; ++wait) ++count;
    spans.push_back({next, next + count - 1});
    next += count;
  }
  return spans;
}

base::Result<rp::Program> ProgramEmitter::run(const analysis::Liveness& live) {
  program_.name = graph_.name();
  size_t count = live.waits.size();
  for (ir::NodeId id : live.order) {
    const Node& node = graph_.node(id);
    count += cost::joins(node) ? 0 : static_cast<size_t>(instruction_count(graph_, node));
  }
  program_.instructions.reserve(count);  // growing would keep room for up to twice as many
  auto wait = live.waits.begin();
  for (size_t i = 0; i < live.order.size(); ++i) {
    std::vector<ir::NodeId> awaited;
    for (; wait != live.waits.end() && static_cast<size_t>(wait->waiter) == i; ++wait)
      awaited.push_back(live.order[static_cast<size_t>(wait->awaited)]);
    DC_RETURN_IF_ERROR(emit(graph_.node(live.order[i]), awaited));
  }
  return std::move(program_);
}

Status ProgramEmitter::emit(const Node& node, const std::vector<ir::NodeId>& awaited) {
  auto bad = [&](const std::string& what) {
    std::string op =
        node.kind == OpKind::Aten ? node.overload.text() : std::string(ir::info(node.kind).text);
    return Status(base::ErrorKind::Internal, "DC8001",
                  op + " of module '" + *node.origin.module + "' " + what + "; please report this");
  };
  const Part part = part_of(node);
  const bool is_elsewhere = part == Part::Kernel && node.stream != 0;
  if (is_elsewhere && ir::kernel_space(graph_, node) == ir::Space::Device)
    return bad("is a kernel of the device outside the compute stream");
  if (part == Part::Start && ir::traits(node.kind).provider == ir::Provider::Comm &&
      !groups_.contains({node.stream, ir::group_of(node)}))
    return bad("runs on a stream without a group");
  if (!awaited.empty() && cost::joins(node))
    return bad("joins a collective and waits for a kernel");
  for (const ir::NodeId id : awaited) {
    push_event(rp::InstructionKind::Wait, analysis::stream_of(node), done_event_[id.index()], node);
  }
  emit_part(node, part);
  return base::ok_status();
}

void ProgramEmitter::emit_part(const Node& node, Part part) {
  switch (part) {
    case Part::Nothing:
      return;
    case Part::Kernel:
      return emit_kernel(node);
    case Part::Start:
      if (ir::traits(node.kind).provider == ir::Provider::Copy)
        return emit_on_stream(node, copy(node));
      if (cost::joins(node)) return emit_joining_start(node);
      return emit_on_stream(node, collective(node));
    case Part::Done:
      return emit_done(node);
    case Part::Arrival: {
      const int entry = ir::awaited_entry(graph_, node);
      return push_event(rp::InstructionKind::Wait, 0, arrival_event_[static_cast<size_t>(entry)],
                        node);
    }
  }
}

rp::Instruction ProgramEmitter::instruction(rp::InstructionKind kind, const Node& node,
                                            int32_t stream) const {
  rp::Instruction result;
  result.kind = kind;
  result.stream = stream;
  result.module = node.origin.module;
  result.phase = node.origin.phase;
  return result;
}

rp::Arg ProgramEmitter::argument(const Node& node, const ir::Arg& arg) {
  rp::Arg out;
  out.name = arg.label();
  auto operand = [&](int index) {
    return memory_.tensor(node.operands[static_cast<size_t>(index)]);
  };
  if (const auto* ref = std::get_if<ir::OperandRef>(&arg.value)) {
    out.kind = rp::ArgKind::Tensor;
    out.i = operand(ref->index);
  } else if (const auto* list = std::get_if<ir::OperandList>(&arg.value)) {
    out.kind = rp::ArgKind::Tensors;
    for (int index : list->indices) out.ints.push_back(index < 0 ? -1 : operand(index));
  } else {
    std::visit(PlainValue{out}, arg.value);
  }
  return out;
}

void ProgramEmitter::emit_native(const Node& node, rp::Instruction& instruction) {
  const bool is_fused = node.kind == OpKind::Fused;
  instruction.provider = is_fused ? rp::Provider::Fused : rp::Provider::Native;
  instruction.op = ir::info(node.kind).kernel;
  const std::span<const ir::OperandInfo> operands = ir::info(node.kind).operands();
  for (size_t i = 0; i < node.operands.size(); ++i) {
    rp::Arg arg;
    arg.name = is_fused ? "a" + std::to_string(i) : std::string(operands[i].name);
    arg.kind = rp::ArgKind::Tensor;
    arg.i = memory_.tensor(node.operands[i]);
    instruction.args.push_back(std::move(arg));
  }
  for (const ir::Arg& arg : node.args) {
    bool names_operand = std::holds_alternative<ir::OperandRef>(arg.value) ||
                         std::holds_alternative<ir::OperandList>(arg.value);
    if (!names_operand) instruction.args.push_back(argument(node, arg));
  }
}

void ProgramEmitter::emit_kernel(const Node& node) {
  if (node.kind == OpKind::SquareSum) {
    auto index = static_cast<size_t>(node.integer(ir::Attr::Param));
    if (index < gradients_.size())
      gradients_[index] = {memory_.tensor(node.operands[1]),
                           static_cast<int32_t>(program_.instructions.size())};
  }
  emit_on_stream(node, kernel(node));
}

rp::Instruction ProgramEmitter::kernel(const Node& node) {
  rp::Instruction kernel = instruction(rp::InstructionKind::Kernel, node, node.stream);
  if (node.kind == OpKind::Aten) {
    kernel.provider = node.provider;
    kernel.op = node.overload.text();
    for (const ir::Arg& arg : node.args) kernel.args.push_back(argument(node, arg));
  } else {
    emit_native(node, kernel);
  }
  for (size_t i = 0; i < node.operands.size(); ++i) {
    int32_t tensor = memory_.tensor(node.operands[i]);
    if (ir::writes(node, i)) add_unique(kernel.writes, tensor);
    if (ir::reads(node, i)) add_unique(kernel.reads, tensor);
  }
  for (ir::ValueId result : node.results) {
    kernel.outputs.push_back(result.valid() ? memory_.tensor(result) : -1);
    add_unique(kernel.writes, kernel.outputs.back());
  }
  kernel.scratch = memory_.scratch(node.id);
  return kernel;
}

void ProgramEmitter::push_event(rp::InstructionKind kind, int32_t stream, int32_t event,
                                const Node& node) {
  rp::Instruction result = instruction(kind, node, stream);
  result.event = event;
  program_.instructions.push_back(std::move(result));
}

// The instruction of the start before it takes one buffer more.
void ProgramEmitter::emit_joining_start(const Node& node) {
  const ir::NodeId before = graph_.previous(node.id);
  const bool has_stream = node.stream != 0;
  rp::Instruction& collective =
      program_.instructions[program_.instructions.size() - (has_stream ? 2 : 1)];
  const rp::CollectiveBuffer buffer = collective_buffer(node);
  collective.buffers.push_back(buffer);
  add_unique(collective.reads, buffer.input);
  add_unique(collective.writes, buffer.output);
  done_event_[node.id.index()] = done_event_[before.index()];
}

rp::CollectiveBuffer ProgramEmitter::collective_buffer(const Node& node) {
  rp::CollectiveBuffer buffer;
  buffer.input = memory_.tensor(node.operands[node.kind == OpKind::AllGatherIntoStart ? 1 : 0]);
  buffer.output = memory_.tensor(node.results[0]);
  buffer.elements = node.integer(ir::Attr::Elements);
  buffer.shard = node.integer(ir::Attr::Shard);
  return buffer;
}

rp::Instruction ProgramEmitter::collective(const Node& node) {
  rp::Instruction result = instruction(rp::InstructionKind::Collective, node, node.stream);
  result.collective = cost::transfer_of(graph_, node)->kind;
  result.group = groups_.at({node.stream, ir::group_of(node)});
  const rp::CollectiveBuffer buffer = collective_buffer(node);
  result.reads = {buffer.input};
  result.writes = {buffer.output};
  result.buffers.push_back(buffer);
  return result;
}

rp::Instruction ProgramEmitter::copy(const Node& node) {
  rp::Instruction result = instruction(rp::InstructionKind::Copy, node, node.stream);
  bool into = node.kind == OpKind::OffloadIntoStart;
  result.src = memory_.flat_tensor(node.operands[into ? 1 : 0]);
  result.dst = memory_.flat_tensor(node.results[0]);
  result.reads = {result.src};
  result.writes = {result.dst};
  return result;
}

void ProgramEmitter::emit_on_stream(const Node& node, rp::Instruction body) {
  bool has_stream = node.stream != 0;
  if (has_stream) {
    push_event(rp::InstructionKind::Signal, 0, events_, node);
    push_event(rp::InstructionKind::Wait, node.stream, events_++, node);
  }
  program_.instructions.push_back(std::move(body));
  if (!has_stream) return;
  int32_t& event = done_event_[node.id.index()];
  if (event < 0) event = events_++;
  push_event(rp::InstructionKind::Signal, node.stream, event, node);
}

void ProgramEmitter::number_crossings() {
  const ir::Graph& last = step_.programs.back().graph;
  arrival_event_.assign(step_.state.size(), -1);
  for (const ir::CrossStepGather& crossing : ir::cross_step_gathers(step_)) {
    if (!cost::joins(last.node(crossing.start))) ++events_;
    arrival_event_[static_cast<size_t>(crossing.entry)] = events_ - 1;
    if (&last == &graph_) done_event_[crossing.start.index()] = events_ - 1;
  }
}

void ProgramEmitter::emit_done(const Node& node) {
  const Node& start = start_of(graph_, node);
  if (start.stream != 0)
    push_event(rp::InstructionKind::Wait, 0, done_event_[start.id.index()], node);
}

}  // namespace dc::plan
