// BoundPlan: a plan with everything decided that can be before the first step: addresses resolved,
// kernels prepared, communicators opened, a list of commands per program and stream. Which threads
// issue them is the issuer's (issuer.h). Private to this folder.
#pragma once

#include <memory>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/exec/executor.h"

namespace dc::runtime::exec {

// WaitPreviousRun waits for an event that an earlier run of a program signalled.
enum class CommandKind : uint8_t {
  Kernel,
  Collective,
  Copy,
  Signal,
  Wait,
  WaitPreviousRun,
  Poison
};

struct Command {
  CommandKind kind = CommandKind::Kernel;
  int32_t instruction = -1;  // index in the program
  int32_t target = -1;       // index into the table of its kind
};

struct BoundCollective {
  plan::CollectiveKind kind = plan::CollectiveKind::AllGather;
  comm::Communicator* communicator = nullptr;
  std::vector<comm::CollectiveBuffer> buffers;
};

// Between two places in memory, or one and the disk; the place on disk has no address.
struct BoundCopy {
  std::byte* dst = nullptr;
  const std::byte* src = nullptr;
  int64_t bytes = 0;
  memory::DiskSpace::Extent on_disk;
};

struct PoisonRange {
  std::byte* begin = nullptr;
  int64_t bytes = 0;
  int32_t slice_on_disk = -1;
};

// An event that a later run waits for, and the program that signals it.
struct PreviousSignal {
  int32_t event = -1, program = -1;
};

struct BoundProgram {
  std::vector<std::vector<Command>> commands;  // by stream, in the program's order
  uint32_t runs = 0;                           // begun so far; events count them
  bool leaves_running = false;                 // a later run waits for the end of its streams
};

class BoundPlan {
 public:
  // May be slow, may fail; `slab` holds the device arena. Collective: opens communicators.
  static base::Result<std::unique_ptr<BoundPlan>> bind(const plan::Plan& plan,
                                                       comm::ProcessGroup& job, comm::Slab slab,
                                                       memory::OffloadMemory* outside, bool poison);

  // Issues a command of run `run` of a program to the stream it belongs to. Unavailable if it waits
  // for an event that was cancelled.
  base::Status issue(const Command& command, int32_t program, device::Stream& stream, uint32_t run);
  // Whether a device can record the command: its work is the device's alone, and needs no earlier
  // run.
  bool can_be_recorded(const Command& command) const;
  // Signals, on a stream, what later runs of any program wait for, as run `run` of this one does.
  void signal_later_runs(int32_t program, device::Stream& stream, uint32_t run);
  void poison_transients();  // before the first run
  void cancel_waits();       // ends all waits for events, now and for good
  // What has ended a collective that was issued, or the end of a peer.
  base::Status collectives_health() const;
  void cancel();  // collectives too

  const plan::Plan& plan() const { return plan_; }
  device::Device& device() const { return device_; }
  kernel::BoundTensor tensor(int32_t id) const { return addresses_.bind(id); }
  BoundProgram& program(int32_t id) { return programs_[static_cast<size_t>(id)]; }
  std::vector<BoundProgram>& programs() { return programs_; }
  size_t stream_count() const { return streams_.size(); }  // at least one: compute
  device::Stream& stream(size_t id) { return *streams_[id]; }
  comm::Traffic traffic() const;
  Executor::ProviderCounts counts() const;
  const kernel::MissingScratch& missing_scratch() const { return missing_scratch_; }

 private:
  friend class Binding;
  BoundPlan(const plan::Plan& plan, device::Device& device, kernel::AddressMap addresses,
            memory::OffloadMemory* outside)
      : plan_(plan), device_(device), addresses_(addresses), outside_(outside) {}

  static base::Status wait(device::Stream& stream, device::Event& event, uint32_t value);
  static base::Status collective(const BoundCollective& bound, device::Stream& stream);
  base::Status copy(const BoundCopy& bound, device::Stream& stream);
  PoisonRange poison_of(int32_t slice) const;
  void poison(const PoisonRange& range, device::Stream& stream);

  const plan::Plan& plan_;
  device::Device& device_;
  kernel::AddressMap addresses_;
  memory::OffloadMemory* outside_;

  std::unique_ptr<kernel::KernelProvider> native_, aten_;
  std::vector<std::unique_ptr<comm::Communicator>> communicators_;  // by group
  std::vector<std::unique_ptr<kernel::Kernel>> kernels_;
  std::vector<BoundCollective> collectives_;
  std::vector<BoundCopy> copies_;
  std::vector<PoisonRange> poisons_;
  std::vector<std::unique_ptr<device::Event>> events_;  // one per signal instruction
  std::vector<PreviousSignal> previous_signals_;
  std::vector<BoundProgram> programs_;
  std::vector<std::unique_ptr<device::Stream>> streams_;
  Executor::ProviderCounts counts_;
  kernel::MissingScratch missing_scratch_;
};

}  // namespace dc::runtime::exec
