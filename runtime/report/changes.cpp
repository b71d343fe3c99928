#include "runtime/report/changes.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string_view>
#include <tuple>

#include "runtime/plan/awaited.h"
#include "runtime/plan/names.h"
#include "src/base/text.h"

namespace dc::runtime::report {
namespace {

// Where a collective sends a buffer in its program: where it starts, and where compute first waits
// for it. A place is named by the result of the next libtorch kernel; native kernels are skipped,
// because passes move them together with collectives.
struct Journey {
  std::string place, waited;  // where it starts; where the first wait for it is
  bool joins = false;         // travels with a buffer before it in the same collective
};
// By program, tensor that is sent, and how often that was sent before.
using Journeys = std::map<std::tuple<std::string, std::string, int>, Journey>;

void add_journeys(const plan::Plan& plan, const plan::Program& program, bool gathers,
                  Journeys& all) {
  const std::vector<int32_t> causes = plan::awaited(plan, program);
  const auto count = program.instructions.size();
  std::vector<std::string> waited(count);  // by collective
  std::vector<std::pair<std::string, Journey>> found;
  std::string next = "the end";
  for (size_t i = count; i-- > 0;) {
    const plan::Instruction& in = program.instructions[i];
    if (in.kind == plan::InstructionKind::Kernel && in.provider == plan::Provider::Aten) {
      const int32_t made = in.outputs.empty() ? -1 : in.outputs[0];
      next = made < 0 ? in.op : plan.tensors[static_cast<size_t>(made)].name;
    }
    if (causes[i] >= 0) waited[static_cast<size_t>(causes[i])] = next;
    const bool is_gather = in.collective == plan::CollectiveKind::AllGather;
    if (in.kind != plan::InstructionKind::Collective || is_gather != gathers) continue;
    for (size_t b = in.buffers.size(); b-- > 0;) {
      const std::string& sent = plan.tensors[static_cast<size_t>(in.buffers[b].input)].name;
      found.emplace_back(sent, Journey{next, waited[i], b > 0});
    }
  }
  std::map<std::string, int> times;
  for (auto at = found.rbegin(); at != found.rend(); ++at)
    all.emplace(std::tuple{program.name, at->first, times[at->first]++}, at->second);
}

Journeys journeys(const plan::Plan& plan, bool gathers) {
  Journeys all;
  for (const plan::Program& program : plan.programs) add_journeys(plan, program, gathers, all);
  return all;
}

std::string counted(int64_t count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

// "3 gathers more, 2 fewer, 12 start elsewhere"; empty: as before.
std::string describe(const Journeys& before, const Journeys& after, const char* what) {
  int64_t more = 0, fewer = 0, moved = 0, waited = 0, joined = 0, parted = 0;
  for (const auto& [key, journey] : after) {
    const auto old = before.find(key);
    if (old == before.end()) {
      ++more;
      continue;
    }
    moved += journey.place != old->second.place;
    waited += journey.waited != old->second.waited;
    joined += journey.joins && !old->second.joins;
    parted += !journey.joins && old->second.joins;
  }
  for (const auto& [key, journey] : before) fewer += !after.contains(key);
  std::string text;
  const auto add = [&](int64_t count, const char* how) {
    if (count == 0) return;
    text += (text.empty() ? counted(count, what) : ", " + std::to_string(count)) + " " + how;
  };
  add(more, "more");
  add(fewer, "fewer");
  add(moved, "start elsewhere");
  add(waited, "waited for elsewhere");
  add(joined, "now with another in one collective");
  add(parted, "no longer with another");
  return text;
}

bool same(const plan::Arg& a, const plan::Arg& b) {
  return std::tie(a.name, a.kind, a.i, a.f, a.ints, a.floats, a.s) ==
         std::tie(b.name, b.kind, b.i, b.f, b.ints, b.floats, b.s);
}

bool same(const plan::CollectiveBuffer& a, const plan::CollectiveBuffer& b) {
  return std::tie(a.input, a.output, a.elements, a.shard) ==
         std::tie(b.input, b.output, b.elements, b.shard);
}

bool same(const plan::Slice& a, const plan::Slice& b) {
  return std::tie(a.space, a.offset, a.bytes, a.program, a.first, a.last) ==
         std::tie(b.space, b.offset, b.bytes, b.program, b.first, b.last);
}

bool same(const plan::Tensor& a, const plan::Tensor& b) {
  return std::tie(a.name, a.dtype, a.sizes, a.strides, a.slice, a.offset, a.rank_stride,
                  a.stride_axes) == std::tie(b.name, b.dtype, b.sizes, b.strides, b.slice, b.offset,
                                             b.rank_stride, b.stride_axes);
}

bool same(const plan::Group& a, const plan::Group& b) {
  return std::tie(a.axes, a.stream) == std::tie(b.axes, b.stream);
}

bool same(const plan::OptimizerGroup& a, const plan::OptimizerGroup& b) {
  return std::tie(a.match, a.lr, a.weight_decay, a.beta1, a.beta2, a.eps, a.momentum, a.dampening,
                  a.nesterov) == std::tie(b.match, b.lr, b.weight_decay, b.beta1, b.beta2, b.eps,
                                          b.momentum, b.dampening, b.nesterov);
}

bool same(const plan::Instruction& a, const plan::Instruction& b);
bool same(const plan::Program& a, const plan::Program& b);
bool same(const plan::ProgramRun& a, const plan::ProgramRun& b);
bool same(const plan::Variant& a, const plan::Variant& b);

template <typename T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const T& x, const T& y) { return same(x, y); });
}

bool same(const plan::Instruction& a, const plan::Instruction& b) {
  return std::tie(a.kind, a.stream, a.provider, a.op, a.outputs, a.scratch, a.collective, a.group,
                  a.src, a.dst, a.event, a.reads, a.writes) ==
             std::tie(b.kind, b.stream, b.provider, b.op, b.outputs, b.scratch, b.collective,
                      b.group, b.src, b.dst, b.event, b.reads, b.writes) &&
         same(a.args, b.args) && same(a.buffers, b.buffers);
}

bool same(const plan::Program& a, const plan::Program& b) {
  return a.name == b.name && same(a.instructions, b.instructions);
}

bool same(const plan::ProgramRun& a, const plan::ProgramRun& b) {
  return a.program == b.program && a.repeat == b.repeat;
}

bool same(const plan::Variant& a, const plan::Variant& b) {
  return a.purpose == b.purpose && same(a.step, b.step);
}

bool same(const plan::Optimizer& a, const plan::Optimizer& b) {
  return std::tie(a.kind, a.clip, a.clip_norm, a.seed, a.schedule, a.warmup_steps, a.total_steps,
                  a.final_lr_fraction) == std::tie(b.kind, b.clip, b.clip_norm, b.seed, b.schedule,
                                                   b.warmup_steps, b.total_steps,
                                                   b.final_lr_fraction) &&
         same(a.groups, b.groups);
}

// What runs, how often, and where its bytes lie.
bool runs_the_same(const plan::Plan& a, const plan::Plan& b) {
  return same(a.programs, b.programs) && same(a.step, b.step) && same(a.variants, b.variants) &&
         same(a.tensors, b.tensors) && same(a.slices, b.slices) && a.arena_bytes == b.arena_bytes &&
         same(a.groups, b.groups) && a.mesh == b.mesh;
}

std::vector<std::string> words(std::string_view list, char separator) {
  std::vector<std::string> found;
  while (!list.empty()) {
    const size_t end = list.find(separator);
    found.emplace_back(list.substr(0, end));
    list = end == std::string_view::npos ? std::string_view() : list.substr(end + 1);
  }
  return found;
}

// "without a, with b, c=2 instead of c=1" for lists of "name" and "name=value".
std::string differences(const std::vector<std::string>& before,
                        const std::vector<std::string>& after) {
  const auto name = [](const std::string& word) { return word.substr(0, word.find('=')); };
  const auto find = [&](const std::vector<std::string>& in, const std::string& word) {
    return std::find_if(in.begin(), in.end(),
                        [&](const std::string& other) { return name(other) == name(word); });
  };
  std::string text;
  const auto add = [&](const std::string& one) { text += (text.empty() ? "" : ", ") + one; };
  for (const std::string& word : before) {
    if (find(after, word) == after.end()) add("without " + word);
  }
  for (const std::string& word : after) {
    const auto old = find(before, word);
    if (old == before.end()) {
      add("with " + word);
    } else if (*old != word) {
      add(word + " instead of " + *old);
    }
  }
  return text;
}

std::string becomes(const std::string& before, const std::string& after) {
  return before + " becomes " + after;
}

// Passes by name where both are lists of passes.
std::string chains(std::string_view before, std::string_view after) {
  const bool lists = before.find(',') != before.npos && after.find(',') != after.npos;
  if (lists) return differences(words(before, ','), words(after, ','));
  return before == after ? "" : becomes(std::string(before), std::string(after));
}

struct Counts {
  int64_t kernels = 0, copies = 0;
  explicit Counts(const plan::Plan& plan) {
    for (const plan::Program& program : plan.programs) {
      for (const plan::Instruction& instruction : program.instructions) {
        kernels += instruction.kind == plan::InstructionKind::Kernel;
        copies += instruction.kind == plan::InstructionKind::Copy;
      }
    }
  }
};

class Comparison {
 public:
  Comparison(const plan::Plan& before, const plan::Plan& after) : a_(before), b_(after) {}

  std::vector<std::string> run() {
    const bool nothing = runs_the_same(a_, b_) && same(a_.optimizer, b_.optimizer);
    if (nothing) add("nothing changed", "the same instructions at the same addresses");
    if (!same(a_.optimizer, b_.optimizer)) add("optimizer", "another training configuration");
    add("options", differences(words(a_.options, ' '), words(b_.options, ' ')));
    if (!nothing) add("chain", chains(a_.passes, b_.passes));
    time("predicted step", a_.prediction.step_ns, b_.prediction.step_ns);
    time("compute", a_.prediction.compute_ns, b_.prediction.compute_ns);
    time("communication", a_.prediction.communication_ns, b_.prediction.communication_ns);
    evaluation();
    if (nothing) return std::move(lines_);
    const size_t told = lines_.size();
    for (size_t i = 0; i < std::min(a_.arena_bytes.size(), b_.arena_bytes.size()); ++i)
      bytes("memory on the " + std::string(plan::name(static_cast<plan::Space>(i))),
            a_.arena_bytes[i], b_.arena_bytes[i]);
    bytes("peak", a_.prediction.live_bytes, b_.prediction.live_bytes);
    add("gathers", describe(journeys(a_, true), journeys(b_, true), "gather"));
    add("reductions", describe(journeys(a_, false), journeys(b_, false), "reduction"));
    const Counts old(a_), now(b_);
    if (old.kernels != now.kernels)
      add("kernels", becomes(std::to_string(old.kernels), std::to_string(now.kernels)));
    if (old.copies != now.copies)
      add("copies", becomes(std::to_string(old.copies), std::to_string(now.copies)));
    if (lines_.size() == told)
      add("layout", "the same collectives; other addresses, or kernels in another order");
    return std::move(lines_);
  }

 private:
  void add(const std::string& what, const std::string& how) {
    if (!how.empty()) lines_.push_back(what + ": " + how);
  }
  void evaluation() {
    const plan::Variant* old = a_.variant(plan::Purpose::Evaluate);
    const plan::Variant* now = b_.variant(plan::Purpose::Evaluate);
    if ((old == nullptr) != (now == nullptr)) {
      add("evaluation", now == nullptr ? "no longer in the plan" : "in the plan now");
    } else if (now != nullptr) {
      time("predicted evaluation", old->prediction.step_ns, now->prediction.step_ns);
    }
  }
  void time(const char* what, int64_t before, int64_t after) {
    if (before == after) return;
    char percent[32] = "";
    if (before > 0) {
      const double change = static_cast<double>(after - before) / static_cast<double>(before);
      std::snprintf(percent, sizeof percent, " (%+.1f %%)", 100 * change);
    }
    add(what, becomes(base::format_duration(before), base::format_duration(after)) + percent);
  }
  void bytes(const std::string& what, int64_t before, int64_t after) {
    const std::string old = base::format_bytes(before), now = base::format_bytes(after);
    if (old != now) add(what, becomes(old, now));
  }

  const plan::Plan &a_, &b_;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> changes(const plan::Plan& before, const plan::Plan& after) {
  return Comparison(before, after).run();
}

}  // namespace dc::runtime::report
