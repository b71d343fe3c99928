#include "runtime/exec/bound_plan.h"

namespace dc::runtime::exec {

using base::ErrorKind;
using base::Status;

namespace {

// NaN in every floating type, and an unlikely number in every other.
constexpr std::byte kPoisonByte{0xFF};

}  // namespace

Status BoundPlan::issue(const Command& command, int32_t program, device::Stream& stream,
                        uint32_t run) {
  const auto target = static_cast<size_t>(command.target);
  switch (command.kind) {
    case CommandKind::Kernel:
      return kernels_[target]->launch(stream);
    case CommandKind::Collective:
      return collective(collectives_[target], stream);
    case CommandKind::Copy:
      return copy(copies_[target], stream);
    case CommandKind::Signal:
      stream.signal(*events_[target], run);
      return base::ok_status();
    case CommandKind::Wait:
      return wait(stream, *events_[target], run);
    case CommandKind::WaitPreviousRun: {
      // Only compute has such waits (bind.cpp), and compute begins the programs: `runs` does not
      // change during the wait.
      const PreviousSignal& signal = previous_signals_[target];
      const uint32_t runs = programs_[static_cast<size_t>(signal.program)].runs;
      return wait(stream, *events_[static_cast<size_t>(signal.event)],
                  signal.program == program ? runs - 1 : runs);
    }
    case CommandKind::Poison:
      poison(poisons_[target], stream);
      return base::ok_status();
  }
  return Status(ErrorKind::Internal, "DC6602", "unknown command kind; please report this");
}

bool BoundPlan::can_be_recorded(const Command& command) const {
  const auto target = static_cast<size_t>(command.target);
  switch (command.kind) {
    case CommandKind::Kernel:
    case CommandKind::Signal:
    case CommandKind::Wait:
      return true;
    case CommandKind::Copy:
      return copies_[target].dst != nullptr && copies_[target].src != nullptr;
    case CommandKind::Poison:
      return poisons_[target].slice_on_disk < 0;
    case CommandKind::Collective:
    case CommandKind::WaitPreviousRun:
      return false;
  }
  return false;
}

void BoundPlan::signal_later_runs(int32_t program, device::Stream& stream, uint32_t run) {
  for (const PreviousSignal& signal : previous_signals_) {
    if (signal.program == program) stream.signal(*events_[static_cast<size_t>(signal.event)], run);
  }
}

// An event is cancelled only after another stream failed. That stream's failure is the one to
// report.
Status BoundPlan::wait(device::Stream& stream, device::Event& event, uint32_t value) {
  if (stream.wait(event, value)) return base::ok_status();
  return Status(ErrorKind::Unavailable, "DC6601", "another stream of this rank failed");
}

Status BoundPlan::collective(const BoundCollective& bound, device::Stream& stream) {
  switch (bound.kind) {
    case plan::CollectiveKind::AllGather:
      return bound.communicator->all_gather(bound.buffers, stream);
    case plan::CollectiveKind::ReduceScatter:
      return bound.communicator->reduce_scatter(bound.buffers, stream);
    case plan::CollectiveKind::AllReduce:
      return bound.communicator->all_reduce(bound.buffers, stream);
    case plan::CollectiveKind::Broadcast:
    case plan::CollectiveKind::AllToAll:
      break;  // refused by bind
  }
  return Status(ErrorKind::Internal, "DC6603", "unprepared collective; please report this");
}

// The host's cores do what concerns the disk, on this stream.
Status BoundPlan::copy(const BoundCopy& bound, device::Stream& stream) {
  if (bound.dst == nullptr) return outside_->disk->write(bound.on_disk, stream.resolve(bound.src));
  if (bound.src == nullptr) return outside_->disk->read(bound.on_disk, stream.resolve(bound.dst));
  stream.copy(bound.dst, bound.src, bound.bytes);
  return base::ok_status();
}

PoisonRange BoundPlan::poison_of(int32_t slice) const {
  const plan::Slice& what = plan_.slices[static_cast<size_t>(slice)];
  if (what.space == plan::Space::Disk) return {nullptr, what.bytes, slice};
  return {addresses_.slice(slice), what.bytes};
}

// What is dead on disk cannot be read any more.
void BoundPlan::poison(const PoisonRange& range, device::Stream& stream) {
  if (range.slice_on_disk >= 0) {
    outside_->disk->forget(range.slice_on_disk);
  } else {
    stream.fill(range.begin, kPoisonByte, range.bytes);
  }
}

void BoundPlan::poison_transients() {
  for (size_t s = 0; s < plan_.slices.size(); ++s) {
    if (plan_.slices[s].program >= 0) poison(poison_of(static_cast<int32_t>(s)), *streams_[0]);
  }
}

void BoundPlan::cancel_waits() {
  for (const auto& event : events_) event->cancel();
}

void BoundPlan::cancel() {
  cancel_waits();
  for (const auto& communicator : communicators_) {
    if (communicator) communicator->abort();
  }
}

Status BoundPlan::collectives_health() const {
  for (const auto& communicator : communicators_) {
    if (communicator) DC_RETURN_IF_ERROR(communicator->health());
  }
  return base::ok_status();
}

comm::Traffic BoundPlan::traffic() const {
  comm::Traffic sum;
  for (const auto& communicator : communicators_) sum += communicator->traffic();
  return sum;
}

Executor::ProviderCounts BoundPlan::counts() const {
  Executor::ProviderCounts counts = counts_;
  for (const kernel::KernelProvider* provider : {native_.get(), aten_.get()}) {
    if (provider) counts.repairs += provider->repairs();
  }
  return counts;
}

}  // namespace dc::runtime::exec
