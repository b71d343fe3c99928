// What prepare makes of a plan: one queue of bound commands per program and stream. Private to this
// folder.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/exec/executor.h"
#include "runtime/exec/issuing_thread.h"

namespace dc::runtime {

// WaitBefore: for what a run before this one signalled.
enum class CommandKind : uint8_t { Kernel, Collective, Copy, Signal, Wait, WaitBefore, Poison };

struct Command {
  CommandKind kind = CommandKind::Kernel;
  int32_t instruction = -1;  // index in the program
  int32_t target = -1;       // index into the table of its kind
};

struct BoundCollective {
  plan::CollectiveKind kind = plan::CollectiveKind::AllGather;
  Communicator* communicator = nullptr;
  std::vector<CollectiveBuffer> buffers;
};

// Between two places in memory, or one and the disk; the place on disk has no address.
struct BoundCopy {
  std::byte* dst = nullptr;
  const std::byte* src = nullptr;
  int64_t bytes = 0;
  DiskSpace::Extent on_disk;
};

struct PoisonRange {
  std::byte* begin = nullptr;
  int64_t bytes = 0;
  int32_t slice_on_disk = -1;
};

class Replay;

// An event that another run waits for, and the program that signals it.
struct Crossing {
  int32_t event = -1, program = -1;
};

// The commands of one program on one stream, as work for that stream. Its runs follow each other;
// one may be submitted while the one before is under way.
class Queue final : public Work {
 public:
  Queue(Replay& replay, int32_t program, int32_t stream, std::unique_ptr<Event> done)
      : replay_(replay), program_(program), stream_(stream), done_(std::move(done)) {}
  void run() override;
  void wait(uint32_t epoch) { (void)done_->wait(epoch); }

  std::vector<Command> commands;

 private:
  Replay& replay_;
  int32_t program_, stream_;
  uint32_t runs_ = 0;
  std::unique_ptr<Event> done_;  // never cancelled: it always comes
};

struct PreparedProgram {
  std::vector<std::unique_ptr<Queue>> queues;  // by stream
  uint32_t epoch = 0;                          // runs so far; events count them
  bool leaves_running = false;                 // a later run waits for the end of its streams
};

class Replay final : public Executor {
 public:
  Replay(const plan::Plan& plan, Device& device, Slab slab, int rank, ExecutorOptions options)
      : plan_(plan),
        device_(device),
        addresses_(plan, slab.base, rank, options.outside ? options.outside->host.base() : nullptr),
        options_(options) {}
  ~Replay() override;

  BoundTensor tensor(int32_t id) const override { return addresses_.bind(id); }
  Device& device() const override { return device_; }
  void observe(Observer observer) override { observer_ = std::move(observer); }
  base::Status run(int32_t program) override;
  base::Status finish() override;
  Traffic traffic() const override;
  CommunicationTime communication_time() const override;
  ProviderCounts counts() const override;
  const MissingScratch& missing_scratch() const override { return missing_scratch_; }

 private:
  friend class Queue;
  friend class Preparation;

  // Runs commands until the end or until some stream failed.
  void replay(const std::vector<Command>& commands, int32_t program, int32_t stream,
              uint32_t epoch);
  base::Status execute(const Command& command, int32_t program, Stream& stream, uint32_t epoch);
  base::Status wait(Stream& stream, size_t event, uint32_t value);
  static base::Status collective(const BoundCollective& bound);
  base::Status copy(const BoundCopy& bound, Stream& stream);
  void poison(const PoisonRange& range, Stream& stream);
  void count(CommandKind kind, int32_t stream, int64_t spent_ns);
  void wait_for_streams(PreparedProgram& prepared);
  base::Status status();
  void fail(base::Status status, int32_t program, const Command& command);

  const plan::Plan& plan_;
  Device& device_;
  AddressMap addresses_;
  ExecutorOptions options_;
  Observer observer_;

  std::unique_ptr<KernelProvider> native_, aten_;
  std::vector<std::unique_ptr<Communicator>> communicators_;  // by group
  std::vector<std::unique_ptr<Kernel>> kernels_;
  std::vector<BoundCollective> collectives_;
  std::vector<BoundCopy> copies_;
  std::vector<PoisonRange> poisons_;
  std::vector<std::unique_ptr<Event>> events_;  // one per signal instruction
  std::vector<Crossing> crossings_;
  ProviderCounts counts_;
  MissingScratch missing_scratch_;

  std::atomic<bool> failed_{false};
  std::mutex failure_mutex_;
  base::Status failure_;

  std::vector<PreparedProgram> programs_;
  struct alignas(64) StreamTime {
    std::atomic<int64_t> collective_ns = 0, exposed_ns = 0;
  };
  std::vector<StreamTime> times_;  // by stream, written by its thread
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<std::unique_ptr<IssuingThread>> threads_;  // entry 0 is empty: the caller issues it
};

// NaN in every floating type, and an unlikely number in every other.
inline constexpr std::byte kPoisonByte{0xFF};

}  // namespace dc::runtime
