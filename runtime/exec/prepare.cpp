#include <algorithm>
#include <map>

#include "runtime/exec/replay.h"
#include "src/base/refused.h"
#include "src/base/units.h"

namespace dc::runtime {

using base::ErrorKind;
using base::Result;
using base::Status;

// Binds a plan to one rank's memory, kernels and communicators.
class Preparation {
 public:
  Preparation(Replay& replay, Job& job, Slab slab)
      : replay_(replay), plan_(replay.plan_), job_(job), slab_(slab) {}

  Status run() {
    DC_RETURN_IF_ERROR(check_memory());
    // First what needs the other ranks, so that a local failure leaves nobody waiting here.
    DC_RETURN_IF_ERROR(open_communicators());
    DC_RETURN_IF_ERROR(open_providers());
    for (size_t p = 0; p < plan_.programs.size(); ++p) {
      DC_RETURN_IF_ERROR(add_program(static_cast<int32_t>(p)));
    }
    DC_RETURN_IF_ERROR(bind_crossings());
    start_streams();
    if (replay_.options_.poison) poison_transients();
    return base::ok_status();
  }

 private:
  Status check_memory() const {
    const OutsideMemory* outside = replay_.options_.outside;
    const int64_t host = outside ? outside->host.bytes() : 0;
    const bool has_disk = outside && outside->disk;
    if (arena_bytes(plan_, plan::Space::Host) > host ||
        (arena_bytes(plan_, plan::Space::Disk) > 0 && !has_disk)) {
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
    for (const plan::Group& group : plan_.groups) {
      bool whole = static_cast<int>(group.ranks.size()) == job_.control().size();
      for (size_t i = 0; i < group.ranks.size(); ++i) {
        whole = whole && group.ranks[i] == static_cast<int32_t>(i);
      }
      if (!whole) {
        return Status(ErrorKind::Unsupported, "DC6613",
                      "the plan has a group on axis '" + group.axis +
                          "' that is not all ranks in order; this version runs one axis only");
      }
      DC_ASSIGN_OR_RETURN(auto communicator, job_.open_communicator());
      replay_.communicators_.push_back(std::move(communicator));
    }
    return base::ok_status();
  }

  Status open_providers() {
    bool needs_aten = false;
    for (const plan::Program& program : plan_.programs) {
      for (const plan::Instruction& instruction : program.instructions) {
        needs_aten = needs_aten || (instruction.kind == plan::InstructionKind::Kernel &&
                                    instruction.provider == plan::Provider::Aten);
      }
    }
    replay_.native_ = make_native_provider();
    if (needs_aten) {
      DC_RETURN_IF_ERROR(enough_threads());
      DC_ASSIGN_OR_RETURN(replay_.aten_, open_aten_provider(plan_.threads));
      DC_ASSIGN_OR_RETURN(replay_.missing_scratch_,
                          replay_.aten_->take_missing_scratch(replay_.addresses_));
    }
    return base::ok_status();
  }

  // libtorch makes two pools of them. Where the system refuses one, OpenMP ends the process and the
  // other pool waits for ever; so it is tried before.
  Status enough_threads() const {
    if (plan_.threads == 1) return base::ok_status();
    return base::try_threads(2 * (plan_.threads - 1) + static_cast<int>(plan_.streams.size()));
  }

  Status add_program(int32_t id) {
    const plan::Program& program = plan_.programs[static_cast<size_t>(id)];
    PreparedProgram prepared;
    for (size_t s = 0; s < std::max<size_t>(plan_.streams.size(), 1); ++s) {
      prepared.queues.push_back(std::make_unique<Queue>(replay_, id, static_cast<int32_t>(s),
                                                        replay_.device_.make_event()));
    }
    latest_signal_.assign(static_cast<size_t>(plan_.events), -1);
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      Status status =
          add_instruction(prepared, id, program.instructions[i], static_cast<int32_t>(i));
      if (!status.ok()) {
        return std::move(status).add_context("while preparing instruction " + std::to_string(i) +
                                             " of program '" + program.name + "'");
      }
      if (replay_.options_.poison) add_poison(prepared, id, static_cast<int32_t>(i));
    }
    replay_.programs_.push_back(std::move(prepared));
    return base::ok_status();
  }

  Status add_instruction(PreparedProgram& prepared, int32_t id,
                         const plan::Instruction& instruction, int32_t index) {
    auto& commands = prepared.queues[static_cast<size_t>(instruction.stream)]->commands;
    switch (instruction.kind) {
      case plan::InstructionKind::Kernel: {
        DC_RETURN_IF_ERROR(bind_kernel(instruction));
        commands.push_back({CommandKind::Kernel, index, last(replay_.kernels_)});
        return base::ok_status();
      }
      case plan::InstructionKind::Collective: {
        DC_RETURN_IF_ERROR(bind_collective(instruction));
        commands.push_back({CommandKind::Collective, index, last(replay_.collectives_)});
        return base::ok_status();
      }
      case plan::InstructionKind::Copy: {
        DC_RETURN_IF_ERROR(bind_copy(instruction));
        commands.push_back({CommandKind::Copy, index, last(replay_.copies_)});
        return base::ok_status();
      }
      case plan::InstructionKind::Signal:
        // Every signal has an event of its own, which counts runs of the program.
        replay_.events_.push_back(replay_.device_.make_event());
        latest_signal_[static_cast<size_t>(instruction.event)] = last(replay_.events_);
        signals_[instruction.event] = {last(replay_.events_), id};
        commands.push_back({CommandKind::Signal, index, last(replay_.events_)});
        return base::ok_status();
      case plan::InstructionKind::Wait: {
        const int32_t event = latest_signal_[static_cast<size_t>(instruction.event)];
        if (event >= 0) {
          commands.push_back({CommandKind::Wait, index, event});
          return base::ok_status();
        }
        // Without a signal before it the wait is for an earlier run.
        replay_.crossings_.push_back({instruction.event, -1});
        commands.push_back({CommandKind::WaitBefore, index, last(replay_.crossings_)});
        return instruction.stream == 0
                   ? base::ok_status()
                   : Status(ErrorKind::Unsupported, "DC6604",
                            "a stream other than compute waits for an earlier run");
      }
    }
    return Status(ErrorKind::Internal, "DC6614", "unknown instruction kind; please report this");
  }

  // Events of the plan become those of their signals.
  Status bind_crossings() {
    for (Crossing& crossing : replay_.crossings_) {
      const auto found = signals_.find(crossing.event);
      if (found == signals_.end()) {
        return Status(ErrorKind::BadInput, "DC6605",
                      "the plan waits for event " + std::to_string(crossing.event) +
                          ", which nothing signals; compile it again");
      }
      crossing = found->second;
      replay_.programs_[static_cast<size_t>(crossing.program)].leaves_running = true;
    }
    return base::ok_status();
  }

  Status bind_kernel(const plan::Instruction& instruction) {
    KernelProvider* provider = nullptr;
    switch (instruction.provider) {
      case plan::Provider::Aten:
        provider = replay_.aten_.get();
        ++replay_.counts_.aten;
        break;
      case plan::Provider::Native:
        provider = replay_.native_.get();
        ++replay_.counts_.native;
        break;
      case plan::Provider::Fused:
        return Status(ErrorKind::Unsupported, "DC6615",
                      "the plan has fused kernels, which this version cannot run; compile it with "
                      "the dcc that belongs to this dcrun");
    }
    DC_ASSIGN_OR_RETURN(auto kernel, provider->prepare(instruction, replay_.addresses_));
    replay_.kernels_.push_back(std::move(kernel));
    return base::ok_status();
  }

  Status bind_collective(const plan::Instruction& instruction) {
    if (instruction.collective == plan::CollectiveKind::Broadcast ||
        instruction.collective == plan::CollectiveKind::AllToAll) {
      return Status(ErrorKind::Unsupported, "DC6616",
                    "the plan has a broadcast or all-to-all, which this version cannot run");
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
    bound.communicator = replay_.communicators_[static_cast<size_t>(instruction.group)].get();
    for (const plan::CollectiveBuffer& buffer : instruction.buffers) {
      CollectiveBuffer one;
      one.input = reference(buffer.input);
      one.output = reference(buffer.output);
      one.dtype = plan_.tensors[static_cast<size_t>(buffer.input)].dtype;
      one.elements = buffer.elements;
      one.shard = buffer.shard;
      bound.buffers.push_back(one);
    }
    replay_.collectives_.push_back(std::move(bound));
    ++replay_.counts_.collectives;
    return base::ok_status();
  }

  Ref reference(int32_t tensor) const {
    return {replay_.addresses_.bind(tensor).data,
            plan_.tensors[static_cast<size_t>(tensor)].rank_stride};
  }

  Status bind_copy(const plan::Instruction& instruction) {
    const auto tensor = [&](int32_t id) -> const plan::Tensor& {
      return plan_.tensors[static_cast<size_t>(id)];
    };
    const plan::Tensor &src = tensor(instruction.src), &dst = tensor(instruction.dst);
    int64_t numel = 1;
    for (const int64_t size : src.sizes) numel *= size;
    int64_t extent = numel == 0 ? 0 : 1;
    for (size_t d = 0; d < src.sizes.size() && extent > 0; ++d) {
      extent += (src.sizes[d] - 1) * src.strides[d];
    }
    const bool equal =
        src.dtype == dst.dtype && src.sizes == dst.sizes && src.strides == dst.strides;
    if (!equal || extent != numel) {
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
    if (from_disk || to_disk) {
      bound.on_disk =
          replay_.options_.outside->disk->extent(from_disk ? instruction.src : instruction.dst);
    }
    if (!from_disk) bound.src = address(instruction.src);
    if (!to_disk) bound.dst = address(instruction.dst);
    replay_.copies_.push_back(bound);
    ++replay_.counts_.copies;
    return base::ok_status();
  }

  bool is_on_disk(int32_t tensor) const { return space_of(plan_, tensor) == plan::Space::Disk; }
  std::byte* address(int32_t tensor) const {
    return static_cast<std::byte*>(replay_.addresses_.bind(tensor).data);
  }

  // After instruction `index` in total order, on compute: what ended there has been waited for.
  void add_poison(PreparedProgram& prepared, int32_t program, int32_t index) {
    for (size_t s = 0; s < plan_.slices.size(); ++s) {
      const plan::Slice& slice = plan_.slices[s];
      if (slice.program != program || slice.last != index) continue;
      replay_.poisons_.push_back(poison_of(static_cast<int32_t>(s)));
      prepared.queues[0]->commands.push_back({CommandKind::Poison, index, last(replay_.poisons_)});
    }
  }

  void poison_transients() const {
    for (size_t s = 0; s < plan_.slices.size(); ++s) {
      const plan::Slice& slice = plan_.slices[s];
      if (slice.program < 0) continue;
      replay_.poison(poison_of(static_cast<int32_t>(s)), *replay_.streams_[0]);
    }
  }

  PoisonRange poison_of(int32_t slice) const {
    const plan::Slice& what = plan_.slices[static_cast<size_t>(slice)];
    if (what.space == plan::Space::Disk) return {nullptr, what.bytes, slice};
    return {replay_.addresses_.slice(slice), what.bytes};
  }

  void start_streams() {
    const size_t count = std::max<size_t>(plan_.streams.size(), 1);
    replay_.times_ = std::vector<Replay::StreamTime>(count);
    replay_.threads_.resize(count);
    for (size_t s = 0; s < count; ++s) replay_.streams_.push_back(replay_.device_.make_stream());
    for (size_t s = 1; s < count; ++s) {
      replay_.threads_[s] = std::make_unique<IssuingThread>(plan_.streams[s].name);
    }
  }

  template <typename T>
  static int32_t last(const std::vector<T>& table) {
    return static_cast<int32_t>(table.size()) - 1;
  }

  Replay& replay_;
  const plan::Plan& plan_;
  Job& job_;
  Slab slab_;
  std::vector<int32_t> latest_signal_;   // by event of the plan: index into events_, or -1
  std::map<int32_t, Crossing> signals_;  // by event of the plan: the last signal of all programs
};

Result<std::unique_ptr<Executor>> Executor::prepare(const plan::Plan& plan, Job& job, Slab slab,
                                                    ExecutorOptions options) {
  auto replay = std::make_unique<Replay>(plan, job.device(), slab, job.control().rank().v, options);
  DC_RETURN_IF_ERROR(Preparation(*replay, job, slab).run());
  return std::unique_ptr<Executor>(std::move(replay));
}

}  // namespace dc::runtime
