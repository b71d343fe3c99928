#include "runtime/report/memory_report.h"

#include <algorithm>

#include "runtime/plan/describe.h"
#include "runtime/plan/names.h"
#include "runtime/report/report.h"
#include "src/base/text.h"
#include "src/base/units.h"

namespace dc::runtime::report {
namespace {

constexpr size_t kLargest = 12;

int64_t rounded(const plan::Slice& slice) { return base::round_up(slice.bytes, base::kAlignment); }

// The instruction of `program` with the most live bytes; persistent slices count everywhere.
Peak peak_of_program(const plan::Plan& plan, plan::Space space, int32_t program) {
  const size_t count = plan.programs[static_cast<size_t>(program)].instructions.size();
  std::vector<int64_t> change(count + 1);
  for (const plan::Slice& slice : plan.slices) {
    if (slice.space != space) continue;
    if (slice.program < 0) {
      change[0] += rounded(slice);
    } else if (slice.program == program) {
      change[static_cast<size_t>(slice.first)] += rounded(slice);
      change[static_cast<size_t>(slice.last) + 1] -= rounded(slice);
    }
  }
  Peak peak;
  peak.program = program;
  int64_t live = 0;
  for (size_t i = 0; i < count; ++i) {
    live += change[i];
    if (live <= peak.bytes) continue;
    peak.bytes = live;
    peak.index = static_cast<int32_t>(i);
  }
  return peak;
}

// What to call each slice: its first tensor and how many more, or the kernel whose workspace it is.
std::vector<std::string> slice_names(const plan::Plan& plan) {
  std::vector<std::string> names(plan.slices.size());
  std::vector<int> more(plan.slices.size());
  for (const plan::Tensor& tensor : plan.tensors) {
    const auto slice = static_cast<size_t>(tensor.slice);
    if (names[slice].empty()) {
      names[slice] = tensor.name;
    } else {
      ++more[slice];
    }
  }
  for (const plan::Program& program : plan.programs) {
    for (const plan::Instruction& in : program.instructions) {
      if (in.scratch < 0) continue;
      std::string& slot = names[static_cast<size_t>(in.scratch)];
      if (slot.empty()) slot = "workspace of " + in.op;
    }
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) names[i] = "(no tensor)";
    if (more[i] > 0) names[i] += " and " + std::to_string(more[i]) + " more";
  }
  return names;
}

std::string padded(std::string text, size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

std::string right(const std::string& text, size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

std::string report_space(const plan::Plan& plan, plan::Space space, int64_t arena) {
  const Peak peak = find_peak(plan, space);
  std::string out = "space " + std::string(plan::name(space)) + ": arena " +
                    base::format_bytes(arena) + " (" + std::to_string(arena) +
                    " bytes), largest live sum " + std::to_string(peak.bytes) +
                    " bytes\npeak: " + describe_peak(plan, peak) + "\n";
  out += "alive there, by kind:\n";
  for (size_t k = 0; k < plan::kSliceKinds; ++k) {
    if (peak.by_kind[k] == 0) continue;
    const auto kind = static_cast<plan::SliceKind>(k);
    const bool estimate = kind == plan::SliceKind::Scratch && scratch_is_estimated(plan);
    out += "  " + padded(std::string(plan::name(kind)), 16) +
           right(base::format_bytes(peak.by_kind[k]), 12) + (estimate ? "  (estimate)" : "") + "\n";
  }
  out += "the largest alive there:\n";
  const std::vector<std::string> names = slice_names(plan);
  for (size_t i = 0; i < std::min(kLargest, peak.alive.size()); ++i) {
    const auto id = static_cast<size_t>(peak.alive[i]);
    out += "  " + right(base::format_bytes(plan.slices[id].bytes), 12) + "  " +
           padded(std::string(plan::name(plan.slices[id].kind)), 16) + names[id] + "\n";
  }
  if (peak.alive.size() > kLargest) {
    out += "  and " + std::to_string(peak.alive.size() - kLargest) + " smaller ones\n";
  }
  return out;
}

}  // namespace

Peak find_peak(const plan::Plan& plan, plan::Space space) {
  Peak peak;
  for (size_t p = 0; p < plan.programs.size(); ++p) {
    Peak here = peak_of_program(plan, space, static_cast<int32_t>(p));
    if (here.bytes > peak.bytes) peak = std::move(here);
  }
  for (size_t i = 0; i < plan.slices.size(); ++i) {
    const plan::Slice& slice = plan.slices[i];
    const bool alive = slice.program < 0 || (slice.program == peak.program &&
                                             slice.first <= peak.index && peak.index <= slice.last);
    if (slice.space != space || !alive) continue;
    peak.alive.push_back(static_cast<int32_t>(i));
    peak.by_kind[static_cast<size_t>(slice.kind)] += rounded(slice);
  }
  std::stable_sort(peak.alive.begin(), peak.alive.end(), [&](int32_t a, int32_t b) {
    return plan.slices[static_cast<size_t>(a)].bytes > plan.slices[static_cast<size_t>(b)].bytes;
  });
  return peak;
}

BytesPerKind kept_bytes(const plan::Plan& plan) {
  BytesPerKind kept{};
  for (const plan::Slice& slice : plan.slices) {
    const bool is_kept = slice.program < 0 && slice.space == plan::Space::Device;
    if (is_kept) kept[static_cast<size_t>(slice.kind)] += rounded(slice);
  }
  return kept;
}

std::string describe_peak(const plan::Plan& plan, const Peak& peak) {
  const auto& list = plan.programs[static_cast<size_t>(peak.program)].instructions;
  std::string text = base::format_bytes(peak.bytes) + " live at ";
  if (list.empty()) return text + "rest";
  const std::string& module = list[static_cast<size_t>(peak.index)].module;
  text += plan::describe_instruction(plan, peak.program, peak.index);
  return text + (module.empty() ? "" : ", module " + module);
}

std::string memory_report(const plan::Plan& plan) {
  std::string out =
      "plan " + plan.name + ", per rank, world " + std::to_string(plan.world()) + "\n";
  for (size_t i = 0; i < plan.arena_bytes.size(); ++i) {
    if (plan.arena_bytes[i] == 0) continue;
    out += report_space(plan, static_cast<plan::Space>(i), plan.arena_bytes[i]);
  }
  return out;
}

}  // namespace dc::runtime::report
