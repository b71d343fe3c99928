// `dcc inspect --as=summary`: the plan in a screenful, for people.
#include <map>

#include "runtime/plan/extent.h"
#include "runtime/plan/memory_report.h"
#include "runtime/plan/names.h"
#include "runtime/plan/plan.h"
#include "src/base/text.h"

namespace dc::runtime::plan {
namespace {

std::string or_none(const std::string& text) { return text.empty() ? "none" : text; }

std::string head(const Plan& plan) {
  std::string out = "plan " + or_none(plan.name) + ": " + std::to_string(plan.world()) + " ranks (";
  for (size_t i = 0; i < plan.mesh.size(); ++i) {
    out += (i > 0 ? " x " : "") + plan.mesh[i].first + "=" + std::to_string(plan.mesh[i].second);
  }
  out += "), threads per rank " + std::to_string(plan.threads) + ", micro-batches per step " +
         std::to_string(plan.accumulation) + ", chain " + or_none(plan.chain) + "\n";
  out += "model " + or_none(plan.model_digest) + "\nprofile " + or_none(plan.profile_digest) +
         "\noptions " + or_none(plan.options_digest) + " (" + plan.options + ")\ncompiler " +
         or_none(plan.compiler) + "\n";
  return out;
}

std::string parameters(const Plan& plan) {
  int64_t elements = 0, trainable = 0, bytes = 0;
  for (const Parameter& p : plan.parameters) {
    const int64_t count = element_count(p.sizes).value_or(0);
    elements += count;
    bytes += count * base::byte_size(p.dtype);
    trainable += p.trainable ? count : 0;
  }
  return "parameters: " + std::to_string(plan.parameters.size()) + " values, " +
         std::to_string(elements) + " elements (" + std::to_string(trainable) + " trainable), " +
         base::format_bytes(bytes) + "; optimizer " +
         std::string(optimizer_name(plan.optimizer.kind)) +
         (plan.optimizer.clip ? ", clipped" : ", not clipped") + "\n";
}

// Bytes that a rank keeps from step to step, per kind, and the arena.
std::string memory(const Plan& plan) {
  const std::vector<SliceKind> kinds = slice_kinds(plan);
  BytesPerKind state{};
  for (size_t i = 0; i < plan.slices.size(); ++i) {
    if (plan.slices[i].program < 0) state[static_cast<size_t>(kinds[i])] += plan.slices[i].bytes;
  }
  std::string out = "kept per rank:";
  for (size_t k = 0; k < kSliceKinds; ++k) {
    if (state[k] == 0) continue;
    out += " " + std::string(name(static_cast<SliceKind>(k))) + " " + base::format_bytes(state[k]) +
           ",";
  }
  out.back() = '\n';
  const Peak peak = find_peak(plan, Space::Device);
  out += "at the peak per rank:";
  for (size_t k = 0; k < kSliceKinds; ++k) {
    if (peak.by_kind[k] == 0) continue;
    out += " " + std::string(name(static_cast<SliceKind>(k))) + " " +
           base::format_bytes(peak.by_kind[k]) + ",";
  }
  out.back() = '\n';
  for (size_t i = 0; i < plan.arena_bytes.size(); ++i) {
    out += "arena " + std::string(name(static_cast<Space>(i))) + ": " +
           base::format_bytes(plan.arena_bytes[i]) + " per rank\n";
  }
  return out;
}

struct CollectiveCount {
  int64_t count = 0, buffers = 0, bytes = 0;  // bytes of whole values
};

std::string program(const Plan& plan, const Program& p, int64_t repeat) {
  std::map<std::string, int64_t> kernels;  // by provider
  std::map<CollectiveKind, CollectiveCount> collectives;
  int64_t others = 0;
  for (const Instruction& in : p.instructions) {
    if (in.kind == InstructionKind::Kernel) {
      ++kernels[std::string(name(in.provider))];
    } else if (in.kind == InstructionKind::Collective) {
      CollectiveCount& c = collectives[in.collective];
      ++c.count;
      for (const CollectiveBuffer& b : in.buffers) {
        ++c.buffers;
        c.bytes += b.elements * base::byte_size(plan.tensors[static_cast<size_t>(b.input)].dtype);
      }
    } else {
      ++others;
    }
  }
  std::string out = "  " + std::to_string(repeat) + " x " + p.name + ": " +
                    std::to_string(p.instructions.size()) + " instructions (";
  for (const auto& [provider, count] : kernels) {
    out += std::to_string(count) + " " + provider + ", ";
  }
  int64_t total = 0;
  for (const auto& [kind, c] : collectives) total += c.count;
  out += std::to_string(total) + " collectives, " + std::to_string(others) + " others)\n";
  for (const auto& [kind, c] : collectives) {
    out += "    " + std::string(name(kind)) + ": " + std::to_string(c.count) + " with " +
           std::to_string(c.buffers) + " buffers, whole values of " + base::format_bytes(c.bytes) +
           "\n";
  }
  return out;
}

std::string prediction(const Plan& plan) {
  const Prediction& p = plan.prediction;
  std::string out = "predicted step: " + base::format_duration(p.step_ns) + " (compute " +
                    base::format_duration(p.compute_ns) + ", communication " +
                    base::format_duration(p.communication_ns) + "; from " + or_none(p.origin) +
                    ")\n";
  out += "sent by one rank per step:";
  bool any = false;
  for (size_t i = 0; i < p.wire_bytes.size(); ++i) {
    if (p.wire_bytes[i] == 0) continue;
    out += (any ? ", " : " ") + std::string(name(static_cast<CollectiveKind>(i))) + " " +
           base::format_bytes(p.wire_bytes[i]) + " (" + std::to_string(p.wire_bytes[i]) + " bytes)";
    any = true;
  }
  return out + (any ? "\n" : " nothing\n");
}

}  // namespace

std::string summary(const Plan& plan) {
  std::string out = head(plan) + parameters(plan) + memory(plan) + "step:\n";
  for (const ProgramRun& run : plan.step) {
    out += program(plan, plan.programs[static_cast<size_t>(run.program)], run.repeat);
  }
  out += prediction(plan);
  for (const std::string& note : plan.notes) out += "note: " + note + "\n";
  return out;
}

}  // namespace dc::runtime::plan
