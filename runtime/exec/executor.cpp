#include "runtime/exec/executor.h"

#include "runtime/exec/replay.h"
#include "runtime/exec/trace.h"

namespace dc::runtime {

using base::ErrorKind;
using base::Status;

void Queue::run() {
  replay_.replay(commands, program_, stream_, ++runs_);
  replay_.streams_[static_cast<size_t>(stream_)]->signal(*done_, runs_);
}

Replay::~Replay() {
  for (const auto& event : events_) event->cancel();
  threads_.clear();  // joins before anything that a queue touches goes away
}

Status Replay::run(int32_t program) {
  PreparedProgram& prepared = programs_[static_cast<size_t>(program)];
  if (!failed_.load(std::memory_order_acquire)) {
    ++prepared.epoch;
    for (size_t s = 1; s < prepared.queues.size(); ++s) {
      if (!prepared.queues[s]->commands.empty()) threads_[s]->submit(*prepared.queues[s]);
    }
    prepared.queues[0]->run();
    if (!prepared.leaves_running) wait_for_streams(prepared);
  }
  return status();
}

Status Replay::finish() {
  for (PreparedProgram& prepared : programs_) wait_for_streams(prepared);
  return status();
}

void Replay::wait_for_streams(PreparedProgram& prepared) {
  for (size_t s = 1; s < prepared.queues.size(); ++s) {
    if (!prepared.queues[s]->commands.empty()) prepared.queues[s]->wait(prepared.epoch);
  }
}

Status Replay::status() {
  if (!failed_.load(std::memory_order_acquire)) return base::ok_status();
  std::lock_guard lock(failure_mutex_);
  return failure_;
}

void Replay::replay(const std::vector<Command>& commands, int32_t program, int32_t stream,
                    uint32_t epoch) {
  const bool observed = stream == 0 && observer_ != nullptr;
  Stream& on = *streams_[static_cast<size_t>(stream)];
  for (const Command& command : commands) {
    if (failed_.load(std::memory_order_acquire)) return;
    const bool timed =
        options_.trace || command.kind == CommandKind::Collective ||
        ((command.kind == CommandKind::Wait || command.kind == CommandKind::WaitBefore) &&
         stream == 0);
    const int64_t begin = timed ? TraceRecorder::now() : 0;
    Status status = execute(command, program, on, epoch);
    const int64_t end = timed ? TraceRecorder::now() : 0;
    if (status.ok() && observed && command.kind != CommandKind::Poison) {
      status = observer_(program, command.instruction);
    }
    if (!status.ok()) return fail(std::move(status), program, command);
    count(command.kind, stream, end - begin);
    if (options_.trace && command.kind != CommandKind::Poison &&
        command.kind != CommandKind::Signal) {
      options_.trace->record(stream, program, command.instruction, epoch, begin, end);
    }
  }
}

void Replay::count(CommandKind kind, int32_t stream, int64_t spent_ns) {
  StreamTime& time = times_[static_cast<size_t>(stream)];
  const bool collective = kind == CommandKind::Collective;
  const bool waits = kind == CommandKind::Wait || kind == CommandKind::WaitBefore;
  if (collective) time.collective_ns.fetch_add(spent_ns, std::memory_order_relaxed);
  if (stream == 0 && (collective || waits))
    time.exposed_ns.fetch_add(spent_ns, std::memory_order_relaxed);
}

Status Replay::execute(const Command& command, int32_t program, Stream& stream, uint32_t epoch) {
  const auto target = static_cast<size_t>(command.target);
  switch (command.kind) {
    case CommandKind::Kernel:
      return kernels_[target]->launch();
    case CommandKind::Collective:
      return collective(collectives_[target]);
    case CommandKind::Copy:
      return copy(copies_[target], stream);
    case CommandKind::Signal:
      stream.signal(*events_[target], epoch);
      return base::ok_status();
    case CommandKind::Wait:
      return wait(stream, target, epoch);
    case CommandKind::WaitBefore: {
      // Compute's, so no program begins meanwhile.
      const Crossing& crossing = crossings_[target];
      const uint32_t runs = programs_[static_cast<size_t>(crossing.program)].epoch;
      return wait(stream, static_cast<size_t>(crossing.event),
                  crossing.program == program ? runs - 1 : runs);
    }
    case CommandKind::Poison:
      poison(poisons_[target], stream);
      return base::ok_status();
  }
  return Status(ErrorKind::Internal, "DC6602", "unknown command kind; please report this");
}

// Cancelled only after another stream failed: its failure is the one to report.
Status Replay::wait(Stream& stream, size_t event, uint32_t value) {
  if (stream.wait(*events_[event], value)) return base::ok_status();
  return Status(ErrorKind::Unavailable, "DC6601", "another stream of this rank failed");
}

Status Replay::collective(const BoundCollective& bound) {
  switch (bound.kind) {
    case plan::CollectiveKind::AllGather:
      return bound.communicator->all_gather(bound.buffers);
    case plan::CollectiveKind::ReduceScatter:
      return bound.communicator->reduce_scatter(bound.buffers);
    case plan::CollectiveKind::AllReduce:
      return bound.communicator->all_reduce(bound.buffers);
    case plan::CollectiveKind::Broadcast:
    case plan::CollectiveKind::AllToAll:
      break;  // refused by prepare
  }
  return Status(ErrorKind::Internal, "DC6603", "unprepared collective; please report this");
}

// The host's cores do what concerns the disk, on this stream.
Status Replay::copy(const BoundCopy& bound, Stream& stream) {
  if (bound.dst == nullptr) {
    return options_.outside->disk->write(bound.on_disk, stream.resolve(bound.src));
  }
  if (bound.src == nullptr) {
    return options_.outside->disk->read(bound.on_disk, stream.resolve(bound.dst));
  }
  stream.copy(bound.dst, bound.src, bound.bytes);
  return base::ok_status();
}

// What is dead on disk cannot be read any more.
void Replay::poison(const PoisonRange& range, Stream& stream) {
  if (range.slice_on_disk >= 0) {
    options_.outside->disk->forget(range.slice_on_disk);
  } else {
    stream.fill(range.begin, kPoisonByte, range.bytes);
  }
}

// The first failure is reported, except that a peer's death explains whatever came before it.
void Replay::fail(Status status, int32_t program, const Command& command) {
  {
    std::lock_guard lock(failure_mutex_);
    const bool first = failure_.ok();
    const bool explains =
        !first && status.kind() == ErrorKind::PeerDied && failure_.kind() != ErrorKind::PeerDied;
    if (first || explains) {
      const plan::Program& owner = plan_.programs[static_cast<size_t>(program)];
      const auto index = static_cast<size_t>(command.instruction);
      std::string where = "at instruction " + std::to_string(command.instruction) +
                          " of program '" + owner.name + "'";
      if (index < owner.instructions.size()) {
        const plan::Instruction& instruction = owner.instructions[index];
        if (!instruction.op.empty()) where += ", " + instruction.op;
        if (!instruction.module.empty()) where += ", module " + instruction.module;
      }
      failure_ = std::move(status);
      failure_.add_context(std::move(where));
    }
    failed_.store(true, std::memory_order_release);
  }
  for (const auto& event : events_) event->cancel();
  for (const auto& communicator : communicators_) {
    if (communicator) communicator->abort();
  }
}

Traffic Replay::traffic() const {
  Traffic sum;
  for (const auto& communicator : communicators_) {
    const Traffic one = communicator->traffic();
    sum.all_gather += one.all_gather;
    sum.reduce_scatter += one.reduce_scatter;
    sum.all_reduce += one.all_reduce;
    sum.other += one.other;
  }
  return sum;
}

Executor::CommunicationTime Replay::communication_time() const {
  CommunicationTime sum;
  for (const StreamTime& time : times_) {
    sum.collective_ns += time.collective_ns.load(std::memory_order_relaxed);
    sum.exposed_ns += time.exposed_ns.load(std::memory_order_relaxed);
  }
  return sum;
}

Executor::ProviderCounts Replay::counts() const {
  ProviderCounts counts = counts_;
  for (const KernelProvider* provider : {native_.get(), aten_.get()}) {
    if (provider) counts.repairs += provider->repairs();
  }
  return counts;
}

}  // namespace dc::runtime
