// Executor: replays a plan on one rank.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/rendezvous.h"
#include "runtime/kernel/kernel.h"
#include "runtime/memory/offload_memory.h"
#include "runtime/plan/plan.h"
#include "src/base/status.h"

namespace dc::runtime::exec {

class TraceRecorder;  // trace.h

struct ExecutorOptions {
  bool poison = false;  // fill every slice with NaN bytes after its last use, and before its first
  // Devices that can record programs as graphs do so, with equal bits.
  bool graphs = true;
  TraceRecorder* trace = nullptr;
  memory::OffloadMemory* outside =
      nullptr;  // needed by plans that offload; must outlive the executor
};

class Executor {
 public:
  // Binds every instruction: may be slow, may fail. `slab` holds the device arena. Communicators
  // are opened through `job` (collective). Plan, job and slab must outlive the executor.
  static base::Result<std::unique_ptr<Executor>> prepare(const plan::Plan& plan,
                                                         comm::ProcessGroup& job, comm::Slab slab,
                                                         ExecutorOptions options);
  virtual ~Executor() = default;

  // Addresses of a tensor on the device or in the host space; the host reads and writes what lies
  // there through device().
  virtual kernel::BoundTensor tensor(int32_t id) const = 0;
  virtual device::Device& device() const = 0;
  // Called on the compute stream after compute instruction `index` of `program` completed.
  using Observer = std::function<base::Status(int32_t program, int32_t index)>;
  virtual void observe(Observer observer) = 0;  // empty: none; costs nothing when empty
  // Compute's stream: what is issued to it between runs comes before the next.
  virtual device::Stream& compute() const = 0;
  // Called in each run with compute's stream when all is issued, before the host waits: for copies
  // of what the host reads afterwards.
  using AtEnd = std::function<void(device::Stream& compute)>;
  virtual void at_end_of_runs(AtEnd at_end) = 0;
  // Runs one program of the step once. No allocation outside aten kernels, no lookup by name, no
  // logging. After a failure on any stream every later call returns the same failure.
  // Collectives that a later run waits for may still be under way when it returns.
  // `meanwhile`: called once all is issued, for what the host does while the device works; never
  // where the host's cores are the device. What it issues to compute() is done when this returns.
  using Meanwhile = std::function<void()>;
  virtual base::Status run(int32_t program, const Meanwhile& meanwhile) = 0;
  base::Status run(int32_t program) { return run(program, {}); }
  // Runs the program once, waits until nothing is under way, and says how long each of its
  // instructions took compute, by timestamps on its stream: nanoseconds by instruction, from the
  // end of the one before to its own, 0 for those of other streams. What is launched as a graph by
  // run() is so here, with the timestamps in it.
  virtual base::Result<std::vector<int64_t>> time(int32_t program) = 0;
  // The same without timestamps between the instructions: nanoseconds that compute's stream takes
  // for the program.
  virtual base::Result<int64_t> time_program(int32_t program) = 0;
  virtual base::Status finish() = 0;  // waits until nothing is under way: before state is read
  virtual comm::Traffic traffic() const = 0;  // summed over communicators
  // Since prepare, on this rank. What is not exposed was hidden behind compute.
  struct CommunicationTime {
    int64_t collective_ns = 0;  // in collectives, summed over streams; waiting for peers included
    int64_t exposed_ns = 0;  // compute waited: for other streams, or in collectives on its stream
  };
  virtual CommunicationTime communication_time() const = 0;  // between runs
  // How long the device worked while the host waited for it, launched the rest of a step that had
  // begun, or did the work of `meanwhile`, since prepare. What outlasts the device does not count.
  // 0 where the host's cores are the device.
  virtual int64_t waited_ns() const = 0;
  struct ProviderCounts {
    int aten = 0, native = 0, fused = 0, collectives = 0, copies = 0;
    int64_t repairs = 0;
  };
  virtual ProviderCounts counts() const = 0;
  virtual const kernel::MissingScratch& missing_scratch()
      const = 0;  // what was taken beyond the plan
};

}  // namespace dc::runtime::exec
