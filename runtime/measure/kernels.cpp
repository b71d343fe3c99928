#include <algorithm>
#include <cstring>
#include <map>

#include "runtime/comm/agreement.h"
#include "runtime/exec/executor.h"
#include "runtime/exec/trace.h"
#include "runtime/kernel/elements.h"
#include "runtime/kernel/host_transfer.h"
#include "runtime/kernel/libtorch_operators.h"
#include "runtime/measure/measure.h"
#include "runtime/measure/pseudo_random.h"
#include "runtime/measure/samples.h"
#include "runtime/measure/slowest.h"
#include "runtime/plan/kernel_signature.h"
#include "src/base/step_scalars.h"

namespace dc::runtime::measure {
namespace {

using base::KernelMeasurement;
using base::KernelSignature;
using base::Result;
using base::Status;

void store(const kernel::BoundTensor& tensor, int64_t index, double value) {
  kernel::store_real(tensor.dtype,
                     static_cast<std::byte*>(tensor.data) + index * base::byte_size(tensor.dtype),
                     value);
}

double initial_value(const plan::Initializer& initializer, int64_t index) {
  switch (initializer.kind) {
    case plan::InitKind::Ones:
      return 1;
    case plan::InitKind::Zeros:
      return 0;
    case plan::InitKind::Constant:
      return initializer.a;
    case plan::InitKind::Normal:
    case plan::InitKind::Uniform:
    case plan::InitKind::Unknown:
      return 0.05 * pseudo_random(index);
  }
  return 0;
}

// Numbers that repeat: a table of a large model has hundreds of millions of elements.
constexpr int64_t kRepeatAfter = 1'000'003;  // a prime, so that rows of a matrix differ

Status fill(const kernel::BoundTensor& target, const plan::Initializer& initializer,
            const exec::Executor& executor) {
  const int64_t numel = target.numel(), size = base::byte_size(target.dtype);
  std::vector<std::byte> block(static_cast<size_t>(std::min(numel, kRepeatAfter) * size));
  kernel::BoundTensor host = target;
  host.data = block.data();
  for (int64_t i = 0; i < std::min(numel, kRepeatAfter); ++i)
    store(host, i, initial_value(initializer, i));
  auto* const to = static_cast<std::byte*>(target.data);
  for (int64_t i = 0; i < numel; i += kRepeatAfter) {
    const auto bytes = static_cast<size_t>(std::min(numel - i, kRepeatAfter) * size);
    DC_RETURN_IF_ERROR(executor.device().upload(to + i * size, std::span(block).first(bytes)));
  }
  return base::ok_status();
}

// Moments, and what belongs to no parameter or buffer, start as the memory does: as zeros.
Status fill_state(const plan::Plan& plan, const exec::Executor& executor) {
  for (const plan::StateEntry& entry : plan.state) {
    const kernel::BoundTensor target = executor.tensor(entry.tensor);
    if (entry.source == plan::StateSource::Data) {
      DC_RETURN_IF_ERROR(executor.device().upload(static_cast<std::byte*>(target.data),
                                                  std::as_bytes(std::span(entry.data))));
    } else if (entry.source == plan::StateSource::Zeros) {
      continue;
    } else if (entry.parameter >= 0) {
      const auto of = static_cast<size_t>(entry.parameter);
      DC_RETURN_IF_ERROR(fill(target, plan.parameters[of].initializer, executor));
    } else if (entry.buffer >= 0) {
      const auto of = static_cast<size_t>(entry.buffer);
      DC_RETURN_IF_ERROR(fill(target, plan.buffers[of].initializer, executor));
    }
  }
  return base::ok_status();
}

// What a program is given, made once and uploaded before each run, since an input's slice may be
// reused within the step. Every input is within its range; integers walk through it.
// Hyperparameters are those of a step of `ranks`, whose gradients are scaled if there are several.
class Given {
 public:
  Given(const plan::Plan& plan, const std::vector<plan::Input>& inputs,
        const exec::Executor& executor, int ranks) {
    for (const plan::Input& input : inputs) {
      copies_.emplace_back(executor.device(), executor.tensor(input.tensor));
      fill(input, copies_.back().tensor());
    }
    copies_.emplace_back(executor.device(), executor.tensor(plan.hyperparameters));
    fill_hyperparameters(plan, ranks, copies_.back().as<double>());
  }
  Status upload() const {
    for (const kernel::HostCopy& copy : copies_) DC_RETURN_IF_ERROR(copy.upload());
    return base::ok_status();
  }

 private:
  static void fill(const plan::Input& input, const kernel::BoundTensor& tensor) {
    const double width = input.high > input.low ? input.high - input.low : 1;
    const auto choices = std::max<int64_t>(1, static_cast<int64_t>(width));
    for (int64_t i = 0; i < tensor.numel(); ++i) {
      double value = input.low + (0.5 + 0.5 * pseudo_random(i)) * width;
      if (!base::is_floating(tensor.dtype))
        value = input.low + static_cast<double>((i * 7919) % choices);
      if (input.role == plan::InputRole::LossScale || input.role == plan::InputRole::Mask)
        value = 1;
      store(tensor, i, value);
    }
  }
  static void fill_hyperparameters(const plan::Plan& plan, int ranks, double* hyperparameters) {
    hyperparameters[base::kHyperGradScale] = 1.0 / ranks;
    hyperparameters[base::kHyperClipNorm] = 1;
    hyperparameters[base::kHyperStep] = 1;
    hyperparameters[base::kHyperLossDivisor] = 1;
    for (size_t g = 0; g < plan.optimizer.groups.size(); ++g) {
      double* group =
          hyperparameters + base::kHyperGroups + base::kHyperPerGroup * static_cast<int64_t>(g);
      group[base::kGroupLr] = 1e-6;
      group[base::kGroupBeta1] = 0.9;
      group[base::kGroupBeta2] = 0.999;
      group[base::kGroupEps] = 1e-8;
    }
  }

  std::vector<kernel::HostCopy> copies_;
};

Status first_failure(const Status& mine, comm::Communicator& control) {
  const int32_t failed = mine.ok() ? 0 : 1;
  std::vector<int32_t> all(static_cast<size_t>(control.size()));
  DC_RETURN_IF_ERROR(control.exchange(&failed, sizeof failed, all.data()));
  if (!mine.ok()) return mine;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank]) {
      return Status(base::ErrorKind::PeerDied, "DC6505",
                    "rank " + std::to_string(rank) + " could not measure; see its message");
    }
  }
  return {};
}

using Samples = std::vector<std::vector<int64_t>>;  // by instruction of one program

// A program that is timed, and what the host fills before it runs.
struct Timed {
  int32_t program = 0;
  const std::vector<plan::Input>* inputs = nullptr;
};

// The last program of the step, which holds all kernels of the others, and those of variants.
std::vector<Timed> timed_programs(const plan::Plan& plan) {
  std::vector<Timed> list = {{plan.step.back().program, &plan.inputs}};
  for (const plan::Variant& variant : plan.variants) {
    for (const plan::ProgramRun& run : variant.step) list.push_back({run.program, &variant.inputs});
  }
  return list;
}

// Work for so long raises the clocks of a GPU that had nothing to do, and lowers those of one that
// comes to the limit of its power; on a CPU figures are steadier.
constexpr int64_t kWarmupNs = 50'000'000, kWarmupOfGpuNs = 500'000'000;
// For so long a GPU works before each replay, since its clocks rise again where the host is slow.
constexpr int64_t kBetweenNs = 20'000'000;

// A GPU waits at timestamps, for longer than those in a row show. What all instructions take
// together more than the program without timestamps is taken off them, each the same.
void take_off(Samples& samples, int64_t program_ns) {
  int64_t sum = 0, count = 0;
  for (const std::vector<int64_t>& each : samples) {
    const int64_t median = median_of(each);
    sum += median;
    count += median > 0 ? 1 : 0;
  }
  if (count == 0) return;
  const int64_t more = (sum - program_ns) / count;
  for (std::vector<int64_t>& each : samples)
    for (int64_t& time : each)
      if (time > 0) time = std::max<int64_t>(time - more, 1);
}

Result<Samples> replay(const plan::Plan& plan, const Timed& timed, exec::Executor& executor,
                       int ranks, const TimingOptions& options, const Progress& progress) {
  Samples samples(plan.programs[static_cast<size_t>(timed.program)].instructions.size());
  const bool is_gpu = executor.device().kind() == base::DeviceKind::Cuda;
  const Given given(plan, *timed.inputs, executor, ranks);
  const auto work_for = [&](int64_t nanoseconds) -> Status {
    for (const int64_t begin = exec::TraceRecorder::now();
         exec::TraceRecorder::now() - begin < nanoseconds;) {
      DC_RETURN_IF_ERROR(given.upload());
      DC_RETURN_IF_ERROR(executor.run(timed.program, {}));
    }
    return base::ok_status();
  };
  const auto ready = [&]() -> Status {
    if (is_gpu) DC_RETURN_IF_ERROR(work_for(kBetweenNs));
    return given.upload();
  };
  DC_RETURN_IF_ERROR(work_for(is_gpu ? kWarmupOfGpuNs : kWarmupNs));
  for (int round = 0; round < options.warmup + options.repeats; ++round) {
    DC_RETURN_IF_ERROR(ready());
    DC_ASSIGN_OR_RETURN(const std::vector<int64_t> times, executor.time(timed.program));
    for (size_t i = 0; i < times.size() && round >= options.warmup; ++i)
      samples[i].push_back(times[i]);
    progress(static_cast<double>(round + 1) / (options.warmup + options.repeats), "kernels");
  }
  if (is_gpu) {
    std::vector<int64_t> whole;
    for (int round = 0; round < options.repeats; ++round) {
      DC_RETURN_IF_ERROR(ready());
      DC_ASSIGN_OR_RETURN(whole.emplace_back(), executor.time_program(timed.program));
    }
    take_off(samples, median_of(whole));
  }
  return samples;
}

// A plan of one rank, with memory allocated for the measurement.
struct Alone {
  std::unique_ptr<comm::ProcessGroup> job;
  std::unique_ptr<exec::Executor> executor;
};

// Kernels are launched as in the steps of so many ranks: collectives are not part of graphs.
Status prepare(const plan::Plan& plan, comm::ProcessGroup& ranks, Alone& alone) {
  comm::CommOptions single;
  single.device = &ranks.device();
  exec::ExecutorOptions options;
  options.graphs = ranks.control().size() == 1;
  DC_ASSIGN_OR_RETURN(alone.job, comm::connect(comm::LaunchInfo{}, single));
  DC_ASSIGN_OR_RETURN(const comm::Slab slab, alone.job->allocate(plan.arena_bytes[0]));
  DC_ASSIGN_OR_RETURN(alone.executor, exec::Executor::prepare(plan, *alone.job, slab, options));
  return fill_state(plan, *alone.executor);
}

Status no_kernels(const plan::Plan& plan) {
  Status status(
      base::ErrorKind::Unsupported, "DC6506",
      "this version has no kernels for GPUs of some operators; profile with --device cpu");
  return std::move(status).add_context(kernel::libtorch_operators(plan));
}

}  // namespace

Result<bool> has_libtorch(int threads, comm::Communicator& control) {
  Status opened = kernel::open_aten_provider(threads).status();
  const bool is_absent = !opened.ok() && opened.kind() == base::ErrorKind::Unavailable;
  DC_RETURN_IF_ERROR(
      comm::agree(control, is_absent ? Status() : std::move(opened), "opening libtorch's plug-in"));
  DC_ASSIGN_OR_RETURN(const bool any_lacks, comm::any_rank(control, is_absent));
  return !any_lacks;
}

Result<std::vector<KernelMeasurement>> measure_scratch(const plan::Plan& plan,
                                                       device::Device& device) {
  std::map<KernelSignature, KernelMeasurement> rows;
  const std::unique_ptr<kernel::KernelProvider> native = kernel::make_provider(device);
  std::unique_ptr<kernel::KernelProvider> aten;
  const kernel::AddressMap nowhere(plan, nullptr, 0);
  for (const plan::Program& program : plan.programs) {
    for (const plan::Instruction& instruction : program.instructions) {
      if (instruction.kind != plan::InstructionKind::Kernel) continue;
      KernelSignature signature = plan::signature_of(plan, instruction);
      if (rows.contains(signature)) continue;
      const bool is_aten = instruction.provider == plan::Provider::Aten;
      if (is_aten && device.kind() == base::DeviceKind::Cuda) return no_kernels(plan);
      if (is_aten && !aten) {
        auto opened = kernel::open_aten_provider(plan.threads);
        if (!opened.ok())
          return std::move(opened).status().add_context(kernel::libtorch_operators(plan));
        aten = std::move(opened).value();
      }
      kernel::KernelProvider& provider = is_aten ? *aten : *native;
      KernelMeasurement row;
      row.signature = signature;
      DC_ASSIGN_OR_RETURN(row.scratch_bytes, provider.measure_scratch(instruction, nowhere));
      rows.emplace(std::move(signature), std::move(row));
    }
  }
  std::vector<KernelMeasurement> list;
  list.reserve(rows.size());
  for (auto& [signature, row] : rows) list.push_back(std::move(row));
  return list;
}

Result<std::vector<KernelMeasurement>> measure_kernels(const plan::Plan& plan,
                                                       std::vector<KernelMeasurement> measured,
                                                       comm::ProcessGroup& ranks,
                                                       const TimingOptions& options,
                                                       const Progress& progress) {
  comm::Communicator& control = ranks.control();
  Alone alone;
  // The exchange of verdicts is also the barrier: all ranks measure at once or none does.
  DC_RETURN_IF_ERROR(first_failure(prepare(plan, ranks, alone), control));
  std::map<KernelSignature, std::vector<int64_t>> by_kernel;
  const auto run = [&](const Timed& timed) -> Status {
    DC_ASSIGN_OR_RETURN(const Samples samples,
                        replay(plan, timed, *alone.executor, control.size(), options, progress));
    const plan::Program& program = plan.programs[static_cast<size_t>(timed.program)];
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      if (program.instructions[i].kind != plan::InstructionKind::Kernel) continue;
      std::vector<int64_t>& all = by_kernel[plan::signature_of(plan, program.instructions[i])];
      all.insert(all.end(), samples[i].begin(), samples[i].end());
    }
    return {};
  };
  for (const Timed& timed : timed_programs(plan)) {
    DC_RETURN_IF_ERROR(first_failure(run(timed), control));
  }
  if (options.gauge != nullptr) options.gauge->note(plan.arena_bytes[0]);
  std::vector<base::Timing> timings;
  timings.reserve(measured.size());
  for (const KernelMeasurement& row : measured)
    timings.push_back(summarize(by_kernel[row.signature]));
  DC_RETURN_IF_ERROR(keep_slowest(timings, control));
  for (size_t i = 0; i < measured.size(); ++i) measured[i].timing = timings[i];
  return measured;
}

}  // namespace dc::runtime::measure
