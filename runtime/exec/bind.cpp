#include <algorithm>
#include <map>

#include "runtime/exec/bound_plan.h"
#include "runtime/kernel/libtorch_operators.h"
#include "runtime/plan/mesh.h"
#include "src/base/refused.h"
#include "src/base/shape.h"
#include "src/base/units.h"

namespace dc::runtime::exec {

using base::ErrorKind;
using base::Result;
using base::Status;

// Binds a plan to one rank's memory, kernels and communicators.
class Binding {
 public:
  Binding(BoundPlan& bound, comm::ProcessGroup& job, comm::Slab slab, bool poison)
      : bound_(bound), plan_(bound.plan_), job_(job), slab_(slab), poison_(poison) {}

  Status run() {
    DC_RETURN_IF_ERROR(check_device());
    DC_RETURN_IF_ERROR(check_memory());
    // First what needs the other ranks, so that a local failure leaves no rank waiting here.
    DC_RETURN_IF_ERROR(open_communicators());
    DC_RETURN_IF_ERROR(open_providers());
    for (size_t s = 0; s < std::max<size_t>(plan_.streams.size(), 1); ++s) {
      bound_.streams_.push_back(bound_.device_.make_stream());
    }
    prepare_ahead();
    for (const auto& stream : bound_.streams_) bound_.native_->equip(*stream);
    for (size_t p = 0; p < plan_.programs.size(); ++p) {
      DC_RETURN_IF_ERROR(add_program(static_cast<int32_t>(p)));
    }
    return bind_previous_signals();
  }

 private:
  Status check_device() const {
    const base::DeviceKind device = bound_.device_.kind();
    if (base::runs_plans_for(device, plan_.device)) return base::ok_status();
    return Status(ErrorKind::Mismatch, "DC6606",
                  "the plan is for device '" + std::string(base::name(plan_.device)) +
                      "' but runs on device '" + std::string(base::name(device)) +
                      "'; leave out --device, or compile the model for this device");
  }

  Status check_memory() const {
    const memory::OffloadMemory* outside = bound_.outside_;
    for (const plan::Space space : base::kSpaces) {
      const int64_t needed = memory::arena_bytes(plan_, space);
      if (space == plan::Space::Device || needed == 0) continue;
      const bool has_room =
          outside && (memory::is_mapped(space) ? outside->mapped[space].bytes() >= needed
                                               : outside->disk != nullptr);
      if (has_room) continue;
      return Status(ErrorKind::Internal, "DC6611",
                    "the plan offloads more than there is memory for; please report this");
    }
    if (!plan_.arena_bytes.empty() && slab_.bytes < plan_.arena_bytes[0]) {
      return Status(ErrorKind::Internal, "DC6612",
                    "the slab is smaller than the plan's arena; please report this");
    }
    return base::ok_status();
  }

  Status open_communicators() {
    const comm::Communicator& all = job_.control();
    if (all.size() != plan_.world()) {
      return Status(ErrorKind::Mismatch, "DC6613",
                    "the plan is for " + std::to_string(plan_.world()) + " ranks and there are " +
                        std::to_string(all.size()) + "; compile it again with --world " +
                        std::to_string(all.size()));
    }
    for (const plan::Group& group : plan_.groups) {
      group_ranks_.push_back(plan::ranks_of_group(plan_, group.axes, all.rank().v));
      DC_ASSIGN_OR_RETURN(auto communicator, job_.open_communicator(group_ranks_.back()));
      bound_.communicators_.push_back(std::move(communicator));
    }
    return base::ok_status();
  }

  Status open_providers() {
    const bool needs_aten =
        has_kernel([](const plan::Instruction& in) { return in.provider == plan::Provider::Aten; });
    bound_.native_ = kernel::make_provider(bound_.device_);
    if (bound_.device_.kind() == base::DeviceKind::Cuda) return needs_aten ? no_aten() : Status();
    // The model's operators, of either provider, are what uses a rank's threads.
    if (has_kernel([](const plan::Instruction& in) { return in.op.starts_with("aten."); }))
      DC_RETURN_IF_ERROR(enough_threads());
    DC_ASSIGN_OR_RETURN(bound_.missing_scratch_,
                        bound_.native_->take_missing_scratch(bound_.addresses_));
    if (!needs_aten) return base::ok_status();
    Result<std::unique_ptr<kernel::KernelProvider>> aten =
        kernel::open_aten_provider(plan_.threads);
    if (!aten.ok()) return std::move(aten).status().add_context(kernel::libtorch_operators(plan_));
    bound_.aten_ = std::move(*aten);
    DC_ASSIGN_OR_RETURN(const kernel::MissingScratch missing,
                        bound_.aten_->take_missing_scratch(bound_.addresses_));
    bound_.missing_scratch_.add(missing);
    return base::ok_status();
  }

  Status no_aten() const {
    return Status(ErrorKind::Unsupported, "DC6624",
                  "this version runs no kernels of libtorch on GPUs; run with --device cpu")
        .add_context(kernel::libtorch_operators(plan_));
  }

  template <typename Condition>
  bool has_kernel(Condition holds) const {
    return std::ranges::any_of(plan_.programs, [&](const plan::Program& program) {
      return std::ranges::any_of(program.instructions, [&](const plan::Instruction& in) {
        return in.kind == plan::InstructionKind::Kernel && holds(in);
      });
    });
  }

  // libtorch makes two pools of them. Where the system refuses one, OpenMP ends the process and the
  // other pool waits for ever; so it is tried before.
  Status enough_threads() const {
    if (plan_.threads == 1) return base::ok_status();
    return base::try_threads(2 * (plan_.threads - 1) + static_cast<int>(plan_.streams.size()));
  }

  void prepare_ahead() {
    std::vector<const plan::Instruction*> kernels;
    for (const plan::Program& program : plan_.programs) {
      for (const plan::Instruction& in : program.instructions) {
        if (in.kind == plan::InstructionKind::Kernel && in.provider != plan::Provider::Aten)
          kernels.push_back(&in);
      }
    }
    bound_.native_->prepare_ahead(kernels, bound_.addresses_);
  }

  Status add_program(int32_t id) {
    const plan::Program& program = plan_.programs[static_cast<size_t>(id)];
    BoundProgram bound;
    bound.commands.resize(bound_.streams_.size());
    latest_signal_.assign(static_cast<size_t>(plan_.events), -1);
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      Status status = add_instruction(bound, id, program.instructions[i], static_cast<int32_t>(i));
      if (!status.ok()) {
        return std::move(status).add_context("while preparing instruction " + std::to_string(i) +
                                             " of program '" + program.name + "'");
      }
      if (poison_) add_poison(bound, id, static_cast<int32_t>(i));
    }
    bound_.programs_.push_back(std::move(bound));
    return base::ok_status();
  }

  Status add_instruction(BoundProgram& bound, int32_t id, const plan::Instruction& instruction,
                         int32_t index) {
    auto& commands = bound.commands[static_cast<size_t>(instruction.stream)];
    switch (instruction.kind) {
      case plan::InstructionKind::Kernel: {
        DC_RETURN_IF_ERROR(bind_kernel(instruction));
        commands.push_back({CommandKind::Kernel, index, last(bound_.kernels_)});
        return base::ok_status();
      }
      case plan::InstructionKind::Collective: {
        DC_RETURN_IF_ERROR(bind_collective(instruction));
        commands.push_back({CommandKind::Collective, index, last(bound_.collectives_)});
        return base::ok_status();
      }
      case plan::InstructionKind::Copy: {
        DC_RETURN_IF_ERROR(bind_copy(instruction));
        commands.push_back({CommandKind::Copy, index, last(bound_.copies_)});
        return base::ok_status();
      }
      case plan::InstructionKind::Signal:
        // Every signal has its event, which counts runs of the program.
        bound_.events_.push_back(bound_.device_.make_event());
        latest_signal_[static_cast<size_t>(instruction.event)] = last(bound_.events_);
        signals_[instruction.event] = {last(bound_.events_), id};
        commands.push_back({CommandKind::Signal, index, last(bound_.events_)});
        return base::ok_status();
      case plan::InstructionKind::Wait: {
        const int32_t event = latest_signal_[static_cast<size_t>(instruction.event)];
        if (event >= 0) {
          commands.push_back({CommandKind::Wait, index, event});
          return base::ok_status();
        }
        // Without a signal before it the wait is for an earlier run.
        bound_.previous_signals_.push_back({instruction.event, -1});
        commands.push_back({CommandKind::WaitPreviousRun, index, last(bound_.previous_signals_)});
        return instruction.stream == 0
                   ? base::ok_status()
                   : Status(ErrorKind::Unsupported, "DC6604",
                            "a stream other than compute waits for an earlier run");
      }
    }
    return Status(ErrorKind::Internal, "DC6614", "unknown instruction kind; please report this");
  }

  // Events of the plan become those of their signals.
  Status bind_previous_signals() {
    for (PreviousSignal& signal : bound_.previous_signals_) {
      const auto found = signals_.find(signal.event);
      if (found == signals_.end()) {
        return Status(ErrorKind::BadInput, "DC6605",
                      "the plan waits for event " + std::to_string(signal.event) +
                          ", which nothing signals; compile it again");
      }
      signal = found->second;
      bound_.programs_[static_cast<size_t>(signal.program)].leaves_running = true;
    }
    return base::ok_status();
  }

  Status bind_kernel(const plan::Instruction& instruction) {
    kernel::KernelProvider* provider = nullptr;
    switch (instruction.provider) {
      case plan::Provider::Aten:
        provider = bound_.aten_.get();
        ++bound_.counts_.aten;
        break;
      case plan::Provider::Native:
        provider = bound_.native_.get();
        ++bound_.counts_.native;
        break;
      case plan::Provider::Fused:
        provider = bound_.native_.get();
        ++bound_.counts_.fused;
        break;
    }
    DC_ASSIGN_OR_RETURN(auto kernel, provider->prepare(instruction, bound_.addresses_));
    bound_.kernels_.push_back(std::move(kernel));
    return base::ok_status();
  }

  Status bind_collective(const plan::Instruction& instruction) {
    if (!base::has_op(instruction.collective)) {
      return Status(ErrorKind::Unsupported, "DC6616",
                    "the plan has a collective of kind " +
                        std::string(base::name(instruction.collective)) +
                        ", which this version cannot run; compile it with the dcc that belongs to "
                        "this dcrun");
    }
    const plan::Group& group = plan_.groups[static_cast<size_t>(instruction.group)];
    if (group.stream >= 0 && group.stream != instruction.stream) {
      return Status(ErrorKind::BadInput, "DC6617",
                    "a collective runs on stream " + std::to_string(instruction.stream) +
                        " but its group belongs to stream " + std::to_string(group.stream) +
                        "; compile the plan again");
    }
    BoundCollective bound;
    bound.kind = instruction.collective;
    bound.communicator = bound_.communicators_[static_cast<size_t>(instruction.group)].get();
    for (const plan::CollectiveBuffer& buffer : instruction.buffers) {
      comm::CollectiveBuffer one;
      DC_ASSIGN_OR_RETURN(one.input, reference(buffer.input, instruction.group));
      DC_ASSIGN_OR_RETURN(one.output, reference(buffer.output, instruction.group));
      one.dtype = plan_.tensors[static_cast<size_t>(buffer.input)].dtype;
      one.elements = buffer.elements;
      one.shard = buffer.shard;
      bound.buffers.push_back(one);
    }
    bound_.collectives_.push_back(std::move(bound));
    ++bound_.counts_.collectives;
    return base::ok_status();
  }

  // The stride from one member of the group to the next, who may differ along other axes than those
  // that the tensor's stride counts.
  Result<comm::Ref> reference(int32_t tensor, int32_t group) const {
    const plan::Tensor& entry = plan_.tensors[static_cast<size_t>(tensor)];
    const std::vector<int32_t>& ranks = group_ranks_[static_cast<size_t>(group)];
    const auto from_first = [&](size_t member) {
      return plan::rank_offset(plan_, entry, ranks[member]) -
             plan::rank_offset(plan_, entry, ranks[0]);
    };
    const int64_t stride = ranks.size() > 1 ? from_first(1) : entry.rank_stride;
    for (size_t member = 2; member < ranks.size(); ++member) {
      if (from_first(member) == static_cast<int64_t>(member) * stride) continue;
      return Status(ErrorKind::BadInput, "DC6620",
                    "the ranks of a collective along '" +
                        plan::axes_text(plan_, plan_.groups[static_cast<size_t>(group)].axes) +
                        "' do not have '" + entry.name +
                        "' at equal distances; compile the plan again");
    }
    return comm::Ref{bound_.addresses_.bind(tensor).data, stride};
  }

  Status bind_copy(const plan::Instruction& instruction) {
    const auto tensor = [&](int32_t id) -> const plan::Tensor& {
      return plan_.tensors[static_cast<size_t>(id)];
    };
    const plan::Tensor &src = tensor(instruction.src), &dst = tensor(instruction.dst);
    const int64_t numel = base::numel(src.sizes);
    const bool equal =
        src.dtype == dst.dtype && src.sizes == dst.sizes && src.strides == dst.strides;
    if (!equal || base::extent(src.sizes, src.strides) != numel) {
      return Status(ErrorKind::BadInput, "DC6618",
                    "a copy between tensors of different type, shape or strides, or with gaps; "
                    "compile the plan again");
    }
    BoundCopy bound;
    bound.bytes = numel * base::byte_size(src.dtype);
    const bool from_disk = is_on_disk(instruction.src), to_disk = is_on_disk(instruction.dst);
    if (from_disk && to_disk) {
      return Status(
          ErrorKind::Unsupported, "DC6619",
          "the plan copies '" + src.name + "' from disk to disk, which this version cannot do");
    }
    if ((from_disk || to_disk) && bound_.device_.kind() == base::DeviceKind::Cuda) {
      return Status(ErrorKind::Unsupported, "DC6626",
                    "the plan moves values between device and disk, which this version does not do "
                    "on GPUs; compile with --offload-space host, or run with --device cpu");
    }
    if (from_disk || to_disk) {
      bound.on_disk = bound_.outside_->disk->extent(from_disk ? instruction.src : instruction.dst);
    }
    if (!from_disk) bound.src = address(instruction.src);
    if (!to_disk) bound.dst = address(instruction.dst);
    bound_.copies_.push_back(bound);
    ++bound_.counts_.copies;
    return base::ok_status();
  }

  bool is_on_disk(int32_t tensor) const {
    return memory::space_of(plan_, tensor) == plan::Space::Disk;
  }
  std::byte* address(int32_t tensor) const {
    return static_cast<std::byte*>(bound_.addresses_.bind(tensor).data);
  }

  // Poisons the slices whose last instruction in total order is `index`. Compute issues it: by
  // then it has waited for all uses of them.
  void add_poison(BoundProgram& bound, int32_t program, int32_t index) {
    for (size_t s = 0; s < plan_.slices.size(); ++s) {
      const plan::Slice& slice = plan_.slices[s];
      if (slice.program != program || slice.last != index) continue;
      bound_.poisons_.push_back(bound_.poison_of(static_cast<int32_t>(s)));
      bound.commands[0].push_back({CommandKind::Poison, index, last(bound_.poisons_)});
    }
  }

  template <typename T>
  static int32_t last(const std::vector<T>& table) {
    return static_cast<int32_t>(table.size()) - 1;
  }

  BoundPlan& bound_;
  const plan::Plan& plan_;
  comm::ProcessGroup& job_;
  comm::Slab slab_;
  bool poison_;
  std::vector<std::vector<int32_t>> group_ranks_;  // of this rank's groups
  std::vector<int32_t> latest_signal_;  // by event of the plan: index into events_, or -1
  std::map<int32_t, PreviousSignal>
      signals_;  // by event of the plan: the last signal of all programs
};

Result<std::unique_ptr<BoundPlan>> BoundPlan::bind(const plan::Plan& plan, comm::ProcessGroup& job,
                                                   comm::Slab slab, memory::OffloadMemory* outside,
                                                   bool poison) {
  base::PerSpace<std::byte*> bases;
  for (const plan::Space space : base::kSpaces)
    bases[space] = outside ? outside->mapped[space].base() : nullptr;
  const kernel::AddressMap addresses(plan, slab.base, job.control().rank().v, bases);
  std::unique_ptr<BoundPlan> bound(new BoundPlan(plan, job.device(), addresses, outside));
  DC_RETURN_IF_ERROR(Binding(*bound, job, slab, poison).run());
  return bound;
}

}  // namespace dc::runtime::exec
