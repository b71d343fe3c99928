// The plan in a screenful, for people: what `dcc compile` prints and `dcc inspect --as=summary`.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>

#include "runtime/plan/names.h"
#include "runtime/plan/saved_state.h"
#include "runtime/report/host_traffic.h"
#include "runtime/report/kernel_shares.h"
#include "runtime/report/memory_report.h"
#include "runtime/report/report.h"
#include "runtime/report/report_line.h"
#include "src/base/text.h"

namespace dc::runtime::report {
namespace {

using base::count_of;
using base::format_bytes;

constexpr size_t kFigureWidth = 12;

std::string or_none(const std::string& text) { return text.empty() ? "none" : text; }

std::string line(std::string name, const std::string& text) {
  return report_line(std::move(name), text);
}

std::string right(const std::string& text) {
  return text.size() < kFigureWidth ? std::string(kFigureWidth - text.size(), ' ') + text : text;
}

// For who reads one line only.
std::string outcome(const plan::Plan& plan) {
  const plan::Prediction& p = plan.prediction;
  const int64_t bytes = plan.arena_bytes.empty() ? 0 : plan.arena_bytes.front();
  std::string text = p.step_ns > 0 ? base::format_duration(p.step_ns) + " predicted, " : "";
  text += format_bytes(bytes) +
          (plan.world() == 1 ? " on 1 rank" : " on each of " + count_of(plan.world(), "rank"));
  if (const int64_t budget = plan.budgets.empty() ? 0 : plan.budgets.front(); budget > 0)
    text += " (" + percent(bytes, budget) + " of the budget)";
  const std::string limit = limited_by(p);
  return line("step", text + (limit.empty() ? "" : "; limited by " + limit));
}

std::string head(const plan::Plan& plan) {
  const bool on_gpus = plan.device == base::DeviceKind::Cuda;
  return line("plan", or_none(plan.name) + " for " + count_of(plan.world(), "rank") + " with " +
                          (on_gpus ? "a GPU" : count_of(plan.threads, "thread")) + " each, " +
                          count_of(plan.accumulation, "micro-batch") + " per step, chain " +
                          or_none(plan.chain));
}

std::string copied(const plan::Prediction& p) {
  if (p.copied_out_bytes == 0 && p.copied_in_bytes == 0) return "";
  return line("copied per step", format_bytes(p.copied_out_bytes) + " from the device, " +
                                     format_bytes(p.copied_in_bytes) + " to it, " +
                                     base::format_duration(p.copy_ns) + ", by each rank");
}

std::string across_hosts(const plan::Plan& plan) {
  const int64_t bytes = sent_across_hosts(plan);
  if (bytes == 0) return "";
  return line("", "and " + format_bytes(bytes) + " (" + std::to_string(bytes) +
                      " bytes) to other hosts, by all ranks of a host");
}

std::string prediction(const plan::Plan& plan) {
  const plan::Prediction& p = plan.prediction;
  std::string wire;
  for (size_t i = 0; i < p.wire_bytes.size(); ++i) {
    if (p.wire_bytes[i] == 0) continue;
    wire += (wire.empty() ? "" : ", ") +
            std::string(plan::name(static_cast<plan::CollectiveKind>(i))) + " " +
            format_bytes(p.wire_bytes[i]) + " (" + std::to_string(p.wire_bytes[i]) + " bytes)";
  }
  return timing_report(p) + line("sent per step", wire.empty() ? "nothing" : wire + ", by rank 0") +
         across_hosts(plan) + copied(p);
}

// Bytes of each kind: what a rank keeps from step to step, and what is alive at the peak.
std::string memory_table(const plan::Plan& plan, const Peak& peak) {
  const BytesPerKind kept = kept_bytes(plan);
  std::string out = line("  per rank", right("always") + right("at the peak"));
  int64_t always = 0;
  for (size_t k = 0; k < plan::kSliceKinds; ++k) {
    if (kept[k] == 0 && peak.by_kind[k] == 0) continue;
    always += kept[k];
    const auto kind = static_cast<plan::SliceKind>(k);
    const bool estimate = kind == plan::SliceKind::Scratch && scratch_is_estimated(plan);
    out += line("  " + std::string(plan::name(kind)),
                right(kept[k] == 0 ? "" : format_bytes(kept[k])) +
                    right(peak.by_kind[k] == 0 ? "" : format_bytes(peak.by_kind[k])) +
                    (estimate ? "  (estimate; dcc profile measures it)" : ""));
  }
  return out + line("  all", right(format_bytes(always)) + right(format_bytes(peak.bytes)));
}

// What --memory does not count.
std::string beyond_arena(const plan::Plan& plan) {
  if (plan.device != base::DeviceKind::Cuda) return "";
  const int64_t bytes = plan.prediction.library_bytes;
  return line("beyond it", bytes > 0 ? format_bytes(bytes) + " (" + std::to_string(bytes) +
                                           " bytes) more of each rank's GPU, for its context, "
                                           "libraries and kernels, as measured"
                                     : "what the GPU's context, libraries and kernels take, which "
                                       "the profile does not say");
}

std::string memory(const plan::Plan& plan) {
  std::string arenas;
  for (size_t i = 0; i < plan.arena_bytes.size(); ++i) {
    if (plan.arena_bytes[i] == 0) continue;
    arenas += (arenas.empty() ? "" : ", ") + std::string(plan::name(static_cast<plan::Space>(i))) +
              " " + format_bytes(plan.arena_bytes[i]) + " (" + std::to_string(plan.arena_bytes[i]) +
              " bytes)";
  }
  const Peak peak = find_peak(plan, plan::Space::Device);
  const int64_t copy = plan::copy_bytes(plan, 0);
  return line("memory", arenas.empty() ? "none" : arenas + " per rank") + beyond_arena(plan) +
         line("copy to save",
              format_bytes(copy) + " (" + std::to_string(copy) +
                  " bytes) more per rank, in host memory, with dcrun --save-every") +
         line("peak", describe_peak(plan, peak)) + memory_table(plan, peak);
}

std::string program(const plan::Plan& plan, const plan::Program& p, int64_t repeat) {
  std::map<std::string, int64_t> kernels;  // by provider
  std::map<plan::CollectiveKind, int64_t> collectives, whole_bytes;
  int64_t copies = 0, others = 0;
  for (const plan::Instruction& in : p.instructions) {
    if (in.kind == plan::InstructionKind::Kernel) {
      ++kernels[std::string(name(in.provider))];
    } else if (in.kind == plan::InstructionKind::Collective) {
      ++collectives[in.collective];
      for (const plan::CollectiveBuffer& b : in.buffers) {
        const plan::Tensor& wire = plan.tensors[static_cast<size_t>(b.input)];
        whole_bytes[in.collective] += b.elements * base::byte_size(wire.dtype);
      }
    } else if (in.kind == plan::InstructionKind::Copy) {
      ++copies;
    } else {
      ++others;
    }
  }
  std::string out = std::to_string(repeat) + " x " + p.name + ": ";
  for (const auto& [provider, count] : kernels) out += count_of(count, provider + " kernel") + "; ";
  for (const auto& [kind, count] : collectives) {
    out += count_of(count, plan::name(kind)) + ", " + format_bytes(whole_bytes[kind]) +
           (count == 1 ? "" : " together") + "; ";
  }
  if (copies > 0) out += count_of(copies, "copy") + "; ";
  return out + (others == 1 ? "1 signal or wait" : std::to_string(others) + " signals and waits");
}

// The evaluation of one micro-batch on each rank, and what it runs.
std::string evaluation(const plan::Plan& plan) {
  const plan::Variant* variant = plan.variant(plan::Purpose::Evaluate);
  if (variant == nullptr) return "";
  const plan::Prediction& p = variant->prediction;
  std::string out = line("evaluation", base::format_duration(p.step_ns) + " predicted, " +
                                           format_bytes(p.peak_bytes) + ", by each rank for one " +
                                           "micro-batch");
  for (const plan::ProgramRun& run : variant->step) {
    out += line("", program(plan, plan.programs[static_cast<size_t>(run.program)], run.repeat));
  }
  return out;
}

// What passes report, under the name of each: "recompute        program 'step': ...".
std::string remarks(const plan::Plan& plan) {
  std::string out, last;
  for (const base::Remark& remark : plan.remarks) {
    if (remark.text.empty()) continue;  // for programs only
    out += line(remark.pass == last ? "" : remark.pass, remark.text);
    last = remark.pass;
  }
  return out;
}

}  // namespace

std::string identity(const plan::Plan& plan) {
  return line("model", or_none(plan.model_digest)) + line("profile", or_none(plan.profile_digest)) +
         line("options", plan.options) + line("compiler", or_none(plan.compiler));
}

std::string report(const plan::Plan& plan) {
  std::string out =
      outcome(plan) + head(plan) + training_report(plan) + prediction(plan) + memory(plan);
  for (size_t i = 0; i < plan.step.size(); ++i) {
    const plan::ProgramRun& run = plan.step[i];
    out += line(i == 0 ? "instructions" : "",
                program(plan, plan.programs[static_cast<size_t>(run.program)], run.repeat));
  }
  return out + evaluation(plan) + kernel_report(plan) + remarks(plan);
}

std::string summary(const plan::Plan& plan) {
  std::string out = report(plan);
  for (const std::string& note : plan.notes) out += "note: " + note + "\n";
  return out;
}

}  // namespace dc::runtime::report
