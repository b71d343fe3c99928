#include "src/plan/emit.h"

#include <algorithm>

#include "src/analysis/memory.h"
#include "src/base/text.h"
#include "src/ir/effects.h"
#include "src/ir/group.h"
#include "src/plan/memory_table.h"
#include "src/plan/program_emitter.h"
#include "src/plan/state_emitter.h"
#include "src/plan/traffic.h"
#include "src/sim/bounds.h"
#include "src/sim/figures.h"
#include "src/sim/simulate.h"

namespace dc::plan {
namespace {

namespace rp = runtime::plan;
using ir::StateRole;

rp::Initializer initializer(const ir::Initializer& from) {
  return {from.kind, from.a, from.b, from.zero_row};
}
rp::ArchiveRecord record(const ir::ArchiveRecord& from) {
  return {from.entry, from.dtype, from.shape, from.strides, from.offset};
}

bool updates_by_range(const ir::Step& step) {
  const ir::Graph& graph = step.programs.back().graph;
  for (ir::NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
    if (graph.node(id).kind == ir::OpKind::CheckFinite) return true;
  }
  return false;
}

// As shard-parameters and insert-collectives place gradients: all alike.
rp::SumOrder sum_order(const ir::Step& step) {
  const ir::AxisMask shards = step.mesh.shard_axes(), replicas = step.mesh.wide() & ~shards;
  rp::SumOrder order;
  order.shards = plan_axes(step.mesh, shards);
  order.levels = {order.shards};
  if (replicas != 0) order.levels.push_back(plan_axes(step.mesh, replicas));
  const auto whole = [](const ir::Parameter& parameter) {
    return parameter.trainable && parameter.gradient == ir::GradientPlacement::WholeUntilLast;
  };
  order.reductions = std::ranges::any_of(step.parameters, whole)
                         ? rp::ReductionOrder::PerStep
                         : rp::ReductionOrder::PerMicroBatch;
  return order;
}

class Emitter {
 public:
  Emitter(const ir::Step& step, const EmitOptions& options, const cost::CostModel& cost)
      : step_(step), options_(options), cost_(cost) {}

  base::Result<rp::Plan> run() {
    if (step_.stage != ir::Stage::Allocated) {
      return base::Status(
          base::ErrorKind::Internal, "DC8001",
          "the step has no addresses yet; run layout-arenas before emitting; please report this");
    }
    run_ = sim::simulate(step_, cost_);
    describe();
    MemoryTable memory(step_, plan_);
    add_state(memory);
    add_parameters();
    add_streams();
    DC_RETURN_IF_ERROR(add_programs(memory));
    plan_.prediction = prediction_of(step_, run_);
    if (plan_.prediction.origin.starts_with("profile")) note_lacks(serial_time(step_, cost_));
    if (options_.evaluation != nullptr)
      DC_RETURN_IF_ERROR(add_evaluation(*options_.evaluation, memory));
    return std::move(plan_);
  }

 private:
  void describe() {
    plan_.name = step_.name;
    plan_.model_digest = step_.model_digest;
    plan_.step_digest = step_.step_digest;
    plan_.updates_by_range = updates_by_range(step_);
    for (const ir::MeshAxis& axis : step_.mesh.axes) plan_.mesh.emplace_back(axis.name, axis.size);
    plan_.device = options_.device;
    plan_.threads = options_.threads;
    plan_.accumulation = step_.accumulation;
    plan_.sums = sum_order(step_);
    plan_.chain = options_.chain;
    for (ir::Space space : ir::kSpaces) {
      const std::optional<base::Bytes>& budget = options_.budgets[space];
      plan_.budgets.push_back(budget ? budget->v : 0);
      plan_.arena_bytes.push_back(step_.arena_bytes[space]);
    }
    if (const ir::Step* other = options_.evaluation; other != nullptr)
      plan_.arena_bytes[0] = std::max(plan_.arena_bytes[0], other->arena_bytes[ir::Space::Device]);
    plan_.optimizer = emit_optimizer(step_.optimizer);
  }

  void add_state(MemoryTable& memory) {
    for (size_t i = 0; i < step_.state.size(); ++i) {
      const ir::StateEntry& from = step_.state[i];
      rp::StateEntry to = emit_state_entry(step_, from);
      to.tensor = memory.state_tensor(static_cast<int>(i));
      if (from.range_of < 0) name_small_tensor(from.role, to.tensor);
      plan_.state.push_back(std::move(to));
    }
  }

  void name_small_tensor(StateRole role, int32_t tensor) {
    if (role == StateRole::Hyperparameters) plan_.hyperparameters = tensor;
    if (role == StateRole::Random) plan_.rng = tensor;
    if (role == StateRole::Scalars) plan_.scalars = tensor;
    if (role == StateRole::NormTable) plan_.table = tensor;
    if (role == StateRole::LossSum) plan_.loss_sum = tensor;
  }

  void add_parameters() {
    int32_t trainable = 0;
    for (const ir::Parameter& from : step_.parameters) {
      rp::Parameter to;
      to.fqn = from.fqn;
      to.aliases = from.aliases;
      to.dtype = from.dtype;
      to.sizes = from.shape;
      to.trainable = from.trainable;
      to.initializer = initializer(from.initializer);
      to.record = record(from.record);
      to.group = from.group;
      to.shard = from.shard;
      to.trainable_index = from.trainable ? trainable++ : -1;
      plan_.parameters.push_back(std::move(to));
    }
    for (const ir::Buffer& from : step_.buffers) {
      plan_.buffers.push_back({from.fqn, from.type.dtype, from.type.shape, from.persistent,
                               initializer(from.initializer), record(from.record)});
    }
  }

  // Streams up to the last one in use, those that run kernels of the host marked as such, and one
  // group for each stream and axes of its collectives.
  void add_streams() {
    size_t used = 1;
    std::vector<rp::Space> spaces(step_.streams.size(), rp::Space::Device);
    for (const ir::Program& program : step_.programs) {
      for (ir::NodeId id = program.graph.first(); id.valid(); id = program.graph.next(id)) {
        const ir::Node& node = program.graph.node(id);
        const auto stream = static_cast<size_t>(analysis::stream_of(node));
        used = std::max(used, stream + 1);
        if (analysis::part_of(node) == analysis::Part::Kernel && stream < spaces.size() &&
            ir::kernel_space(program.graph, node) != ir::Space::Device)
          spaces[stream] = ir::kernel_space(program.graph, node);
        if (ir::is_start(node.kind) && ir::traits(node.kind).provider == ir::Provider::Comm)
          groups_.emplace(std::pair(node.stream, ir::group_of(node)), 0);
      }
    }
    for (auto& [key, index] : groups_) {
      index = static_cast<int32_t>(plan_.groups.size());
      plan_.groups.push_back({plan_axes(step_.mesh, key.second), key.first});
    }
    for (size_t s = 0; s < std::min(used, step_.streams.size()); ++s)
      plan_.streams.push_back({step_.streams[s], spaces[s]});
  }

  base::Status add_programs(MemoryTable& memory) {
    std::vector<ReadyGradient> gradients(step_.parameters.size());
    for (size_t i = 0; i < step_.programs.size(); ++i) {
      const ir::Program& program = step_.programs[i];
      DC_RETURN_IF_ERROR(add_program(step_, program.graph, run_.programs[i], memory, gradients));
      plan_.step.push_back({static_cast<int32_t>(i), program.repeat});
      if (i + 1 == step_.programs.size())
        plan_.inputs = inputs_of(step_.inputs, program.graph, memory);
    }
    for (rp::Parameter& parameter : plan_.parameters) {
      if (parameter.trainable_index < 0) continue;
      const ReadyGradient& gradient = gradients[static_cast<size_t>(parameter.trainable_index)];
      parameter.gradient = gradient.tensor;
      parameter.gradient_ready = gradient.instruction;
    }
    return base::ok_status();
  }

  // `owner`: whose program it is, with the state of the step.
  base::Status add_program(const ir::Step& owner, const ir::Graph& graph,
                           const sim::ProgramRun& run, MemoryTable& memory,
                           std::vector<ReadyGradient>& gradients) {
    const analysis::Liveness live =
        analysis::liveness(owner, graph, analysis::StorageMap(owner, graph));
    const std::vector<Span> spans = instruction_spans(graph, live);
    memory.begin_program(static_cast<int32_t>(plan_.programs.size()), graph,
                         owner.programs.size() > 1, live, spans);
    ProgramEmitter emitter(step_, graph, memory, groups_, gradients);
    DC_ASSIGN_OR_RETURN(rp::Program emitted, emitter.run(live));
    add_durations(owner, graph, run, live, spans, emitted);
    plan_.programs.push_back(std::move(emitted));
    plan_.events = std::max(plan_.events, emitter.events());
    return base::ok_status();
  }

  // The evaluation uses the state entries of the training step, so that step's tables give their
  // locations.
  base::Status add_evaluation(const ir::Step& evaluation, MemoryTable& memory) {
    const sim::StepRun run = sim::simulate(evaluation, cost_);
    const ir::Graph& graph = evaluation.programs[0].graph;
    std::vector<ReadyGradient> none;
    rp::Variant variant;
    variant.purpose = rp::Purpose::Evaluate;
    variant.step = {{static_cast<int32_t>(plan_.programs.size()), 1}};
    DC_RETURN_IF_ERROR(add_program(evaluation, graph, run.programs[0], memory, none));
    variant.inputs = inputs_of(evaluation.inputs, graph, memory);
    variant.prediction = prediction_of(evaluation, run);
    plan_.variants.push_back(std::move(variant));
    return base::ok_status();
  }

  // As simulated. Of a node's instructions one takes time; the others order it among the streams.
  void add_durations(const ir::Step& owner, const ir::Graph& graph, const sim::ProgramRun& run,
                     const analysis::Liveness& live, const std::vector<Span>& spans,
                     rp::Program& program) const {
    program.duration_ns.resize(program.instructions.size());
    program.duration_origins.resize(program.instructions.size());
    for (const sim::Interval& interval : run.intervals) {
      const auto figure = figure_of(owner, graph, graph.node(interval.node), cost_);
      const auto origin =
          figure ? sim::figure_origin(figure->estimate.source) : rp::FigureOrigin::Unknown;
      const Span& span = spans[static_cast<size_t>(live.position[interval.node.index()])];
      for (int32_t i = span.first; i <= span.last; ++i) {
        const rp::InstructionKind kind = program.instructions[static_cast<size_t>(i)].kind;
        if (kind == rp::InstructionKind::Signal || kind == rp::InstructionKind::Wait) continue;
        program.duration_ns[static_cast<size_t>(i)] = (interval.end - interval.begin).v;
        program.duration_origins[static_cast<size_t>(i)] = static_cast<uint8_t>(origin);
      }
    }
  }

  // In the order of the step's table; an input that no program names has no memory and is left out.
  static std::vector<rp::Input> inputs_of(const std::vector<ir::InputSpec>& specs,
                                          const ir::Graph& graph, MemoryTable& memory) {
    std::vector<rp::Input> inputs;
    for (const ir::InputSpec& from : specs) {
      for (ir::NodeId id = graph.first(); id.valid(); id = graph.next(id)) {
        const ir::Node& node = graph.node(id);
        if (node.kind != ir::OpKind::Input || analysis::input_name(node) != from.name) continue;
        inputs.push_back({from.name, from.role, from.low, from.high, memory.tensor(node.results[0]),
                          from.next, from.guessed, from.ignored});
        break;
      }
    }
    return inputs;
  }

  rp::Prediction prediction_of(const ir::Step& step, const sim::StepRun& run) const {
    const SerialTime time = serial_time(step, cost_);
    rp::Prediction prediction;
    prediction.compute_ns = time.compute.v;
    prediction.communication_ns = time.communication.v;
    prediction.step_ns = run.time.v;
    prediction.peak_bytes = step.arena_bytes[ir::Space::Device];
    prediction.live_bytes = analysis::peak_memory(step).live.v;
    prediction.wire_bytes = wire_bytes(step);
    const CopiedBytes copied = copied_bytes(step);
    prediction.copy_ns = time.copies.v;
    prediction.copied_out_bytes = copied.out;
    prediction.copied_in_bytes = copied.in;
    prediction.origin = cost_.origin();
    prediction.contention_ns = run.contention.v;
    const sim::Bounds bounds = sim::bounds(step, cost_, options_.budgets[ir::Space::Device]);
    prediction.bounds_ns = {bounds.full_overlap.v, bounds.with_ends.v, bounds.within_memory.v,
                            bounds.with_contention.v};
    prediction.without_norm_ns = bounds.without_norm.v;
    sim::add_figures(time.by_source, 1, prediction);
    return prediction;
  }

  void note_lacks(const SerialTime& time) {
    const std::string all = std::to_string(time.figures()) + " figures";
    // Rates of a machine's own are part of its profile.
    const int lacking = time.count(cost::Source::Analytic);
    if (lacking > 0 && cost_.table() == cost::kGenericCpu) {
      plan_.notes.push_back("the profile lacks " + std::to_string(lacking) + " of " + all +
                            "; their time and workspace are estimates for " + cost_.table());
    }
    // A small kernel that is a little larger than any measured is not worth a word.
    const base::Nanos beyond = time.by_source[static_cast<size_t>(cost::Source::Extrapolated)];
    if (beyond * 100 > time.compute + time.communication + time.copies) {
      plan_.notes.push_back(
          "beyond-profile: " + std::to_string(time.count(cost::Source::Extrapolated)) + " of " +
          all +
          " are for larger sizes or other numbers of ranks than the profile measured; their " +
          "time, " + base::format_duration(beyond.v) + ", is in proportion to what was measured");
    }
  }

  const ir::Step& step_;
  const EmitOptions& options_;
  const cost::CostModel& cost_;
  sim::StepRun run_;
  rp::Plan plan_;
  GroupTable groups_;
};

}  // namespace

rp::Optimizer emit_optimizer(const ir::Optimizer& from) {
  rp::Optimizer to;
  to.kind = from.kind;
  for (const ir::OptimizerGroup& g : from.groups) {
    to.groups.push_back({g.match, g.lr, g.weight_decay, g.beta1, g.beta2, g.eps, g.momentum,
                         g.dampening, g.nesterov});
  }
  to.clip = from.clip;
  to.clip_norm = from.clip_norm;
  to.seed = from.seed;
  to.schedule = from.schedule;
  to.warmup_steps = from.warmup_steps;
  to.total_steps = from.total_steps;
  to.final_lr_fraction = from.final_lr_fraction;
  return to;
}

base::Result<rp::Plan> emit(const ir::Step& step, const EmitOptions& options,
                            const cost::CostModel& cost) {
  return Emitter(step, options, cost).run();
}

}  // namespace dc::plan
