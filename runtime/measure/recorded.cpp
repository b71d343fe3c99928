#include "runtime/measure/recorded.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "runtime/measure/samples.h"
#include "runtime/measure/slowest.h"
#include "runtime/plan/kernel_signature.h"
#include "runtime/plan/mesh.h"

namespace dc::runtime::measure {
namespace {

using base::Result;
using base::Status;
using base::Timing;

using RunSamples = std::vector<int64_t>;

// A step on the compute stream.
struct Extent {
  int64_t begin_ns = std::numeric_limits<int64_t>::max(), end_ns = 0;
  int64_t stood_ns = 0;
  int64_t events = 0;
};

// This rank's samples, by what was timed.
struct OwnSamples {
  std::vector<std::vector<RunSamples>> instructions;  // by program
  std::map<base::KernelSignature, RunSamples> kernels;
  // By level, kind, ranks of the group, bytes.
  std::map<std::tuple<base::CollectiveLevel, std::string, int32_t, int64_t>, RunSamples>
      collectives;
  RunSamples steps, compute;
};

// A step of which the ring kept only a part has fewer events than the others. The last one ends
// where compute ends, as does one that an evaluation follows. `others`: when instructions began
// that belong to no step.
void add_whole_steps(const std::map<int32_t, Extent>& steps, const std::set<int64_t>& others,
                     OwnSamples& own) {
  int64_t most = 0;
  for (const auto& [step, extent] : steps) most = std::max(most, extent.events);
  for (auto it = steps.begin(); it != steps.end(); ++it) {
    const auto next = std::next(it);
    const Extent& extent = it->second;
    if (extent.events != most) continue;
    int64_t end = next == steps.end() ? extent.end_ns : next->second.begin_ns;
    const auto other = others.lower_bound(extent.end_ns);
    if (other != others.end() && *other < end) end = extent.end_ns;
    own.steps.push_back(end - extent.begin_ns);
    own.compute.push_back(own.steps.back() - extent.stood_ns);
  }
}

void add(const exec::TraceEvent& event, const plan::Instruction& instruction, Extent& extent) {
  if (event.stream != 0) return;
  extent.begin_ns = std::min(extent.begin_ns, event.begin_ns);
  extent.end_ns = std::max(extent.end_ns, event.end_ns);
  const bool stands = instruction.kind == plan::InstructionKind::Collective ||
                      instruction.kind == plan::InstructionKind::Wait;
  if (stands) extent.stood_ns += event.end_ns - event.begin_ns;
  ++extent.events;
}

// What else a plan has belongs to no step and is not recorded.
std::set<size_t> programs_of_step(const plan::Plan& plan) {
  std::set<size_t> programs;
  for (const plan::ProgramRun& run : plan.step) programs.insert(static_cast<size_t>(run.program));
  return programs;
}

// As the compiler asks for a collective's time.
int64_t wire_bytes(const plan::Plan& plan, const plan::Instruction& in) {
  int64_t bytes = 0;
  for (const plan::CollectiveBuffer& buffer : in.buffers) {
    const plan::Tensor& input = plan.tensors[static_cast<size_t>(buffer.input)];
    bytes += base::wire_bytes(in.collective, buffer.elements, base::byte_size(input.dtype));
  }
  return bytes;
}

OwnSamples sort_samples(const plan::Plan& plan, const exec::TraceRecorder& trace) {
  OwnSamples own;
  for (const plan::Program& program : plan.programs) {
    own.instructions.emplace_back(program.instructions.size());
  }
  const std::set<size_t> of_step = programs_of_step(plan);
  std::map<int32_t, Extent> steps;
  std::set<int64_t> others;
  for (const exec::TraceEvent& event : trace.events()) {
    if (!of_step.contains(static_cast<size_t>(event.program))) {
      others.insert(event.begin_ns);
      continue;
    }
    if (event.step <= kRecordedWarmup) continue;
    const auto p = static_cast<size_t>(event.program), i = static_cast<size_t>(event.instruction);
    add(event, plan.programs[p].instructions[i], steps[event.step]);
    own.instructions[p][i].push_back(event.end_ns - event.begin_ns);
  }
  add_whole_steps(steps, others, own);
  // Every rank has the same rows, whichever records its trace buffer still holds.
  for (const size_t p : of_step) {
    for (size_t i = 0; i < plan.programs[p].instructions.size(); ++i) {
      const plan::Instruction& in = plan.programs[p].instructions[i];
      RunSamples* all = nullptr;
      if (in.kind == plan::InstructionKind::Kernel)
        all = &own.kernels[plan::signature_of(plan, in)];
      if (in.kind == plan::InstructionKind::Collective) {
        const uint32_t axes = plan.groups[static_cast<size_t>(in.group)].axes;
        all = &own.collectives[{plan::level_of(plan, axes), exec::instruction_name(in),
                                plan::group_size(plan, axes), wire_bytes(plan, in)}];
      }
      const RunSamples& mine = own.instructions[p][i];
      if (all) all->insert(all->end(), mine.begin(), mine.end());
    }
  }
  return own;
}

// The fewest steps that any rank counted.
Result<int32_t> fewest(size_t mine, comm::Communicator& control) {
  const auto steps = static_cast<int32_t>(mine);
  std::vector<int32_t> all(static_cast<size_t>(control.size()));
  DC_RETURN_IF_ERROR(control.exchange(&steps, sizeof steps, all.data()));
  return *std::min_element(all.begin(), all.end());
}

// Times `runs`: how often a program runs in a step.
void add(const plan::Program& program, const std::vector<Timing>& measured, int64_t runs,
         plan::InstructionKind kind, Deviation& sum) {
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    if (program.instructions[i].kind != kind || measured[i].samples == 0) continue;
    sum.measured_ns += runs * measured[i].median_ns;
    sum.predicted_ns += runs * program.duration_ns[i];
  }
}

double factor(const Deviation& deviation) {
  return deviation.predicted_ns == 0 ? 1
                                     : static_cast<double>(deviation.measured_ns) /
                                           static_cast<double>(deviation.predicted_ns);
}

Deviation compare_kind(const plan::Plan& plan, const Recorded& recorded,
                       plan::InstructionKind kind) {
  Deviation sum;
  for (const plan::ProgramRun& run : plan.step) {
    const auto p = static_cast<size_t>(run.program);
    add(plan.programs[p], recorded.instructions[p], run.repeat, kind, sum);
  }
  sum.bias = factor(sum) - 1;
  double apart = 0;
  for (const plan::ProgramRun& run : plan.step) {
    const auto p = static_cast<size_t>(run.program);
    const plan::Program& program = plan.programs[p];
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      const Timing& measured = recorded.instructions[p][i];
      if (program.instructions[i].kind != kind || measured.samples == 0) continue;
      apart += run.repeat * std::abs(static_cast<double>(measured.median_ns) -
                                     factor(sum) * static_cast<double>(program.duration_ns[i]));
    }
  }
  if (sum.measured_ns > 0) sum.residual = apart / static_cast<double>(sum.measured_ns);
  return sum;
}

}  // namespace

Result<Recorded> measure_recorded(const plan::Plan& plan, const exec::TraceRecorder& trace,
                                  comm::Communicator& control) {
  const OwnSamples own = sort_samples(plan, trace);
  DC_ASSIGN_OR_RETURN(const int32_t steps, fewest(own.steps.size(), control));
  if (steps < kRecordedSteps) {
    return Status(base::ErrorKind::Unavailable, "DC6504",
                  "only " + std::to_string(steps) + " steps were measured after " +
                      std::to_string(kRecordedWarmup) + " to warm up, and a profile needs " +
                      std::to_string(kRecordedSteps) + "; let it run longer");
  }
  std::vector<Timing> rows{summarize(own.steps), summarize(own.compute)};
  for (const auto& program : own.instructions) {
    for (const RunSamples& samples : program) rows.push_back(summarize(samples));
  }
  for (const auto& [kernel, samples] : own.kernels) rows.push_back(summarize(samples));
  for (const auto& [kind, samples] : own.collectives) rows.push_back(summarize(samples));
  DC_RETURN_IF_ERROR(keep_slowest(rows, control));

  Recorded recorded;
  recorded.steps = steps;
  auto row = rows.begin();
  recorded.step = *row++;
  recorded.compute = *row++;
  for (const auto& program : own.instructions) {
    const auto count = static_cast<std::ptrdiff_t>(program.size());
    recorded.instructions.emplace_back(row, row + count);
    row += count;
  }
  for (const auto& [kernel, samples] : own.kernels) recorded.kernels.push_back({kernel, *row++, 0});
  for (const auto& [key, samples] : own.collectives) {
    const auto& [level, kind, ranks, bytes] = key;
    recorded.collectives.push_back({kind, ranks, bytes, *row++, level});
  }
  return recorded;
}

Deviations compare(const plan::Plan& plan, const Recorded& recorded) {
  Deviations all;
  all.step.measured_ns = recorded.step.median_ns;
  all.step.predicted_ns = plan.prediction.step_ns;
  all.step.bias = factor(all.step) - 1;
  all.kernels = compare_kind(plan, recorded, plan::InstructionKind::Kernel);
  all.collectives = compare_kind(plan, recorded, plan::InstructionKind::Collective);
  return all;
}

}  // namespace dc::runtime::measure
