#include "runtime/report/changes.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "runtime/plan/awaited.h"
#include "runtime/plan/fields.h"
#include "runtime/plan/names.h"
#include "src/base/text.h"

namespace dc::runtime::report {
namespace {

// Where a collective sends a buffer in its program: where it starts, and where compute first waits
// for it. A place is named by the result of the next kernel of the model; the project's own
// operators are skipped, because passes move them together with collectives.
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
    if (in.kind == plan::InstructionKind::Kernel && in.op.starts_with("aten.")) {
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
    text += (text.empty() ? base::count_of(count, what) : ", " + std::to_string(count)) + " " + how;
  };
  add(more, "more");
  add(fewer, "fewer");
  add(moved, "start elsewhere");
  add(waited, "waited for elsewhere");
  add(joined, "now with another in one collective");
  add(parted, "no longer with another");
  return text;
}

// Fields that say something about programs and memory and change nothing that runs.
template <typename Struct>
constexpr plan::FieldSet<plan::kFields<Struct>> kSilent = {};
template <>
constexpr plan::FieldSet<plan::kFields<plan::Slice>> kSilent<plan::Slice> = {"kind"};
template <>
constexpr plan::FieldSet<plan::kFields<plan::Instruction>> kSilent<plan::Instruction> = {"module",
                                                                                         "phase"};
template <>
constexpr plan::FieldSet<plan::kFields<plan::Program>> kSilent<plan::Program> = {
    "duration_ns", "duration_origins"};
template <>
constexpr plan::FieldSet<plan::kFields<plan::Variant>> kSilent<plan::Variant> = {"inputs",
                                                                                 "prediction"};

template <typename T>
bool same(const T& a, const T& b);
template <typename T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const T& x, const T& y) { return same(x, y); });
}

bool same_body(const plan::Instruction& a, const plan::Instruction& b) {
  return a.kind == b.kind && plan::with_kind(a.kind, [&](auto kind) {
           bool all = true;
           plan::for_each_field(plan::kBodyFields<kind>, [&](const auto& field) {
             all = all && field.of(a) == field.of(b);
           });
           return all;
         });
}

template <typename T>
bool same(const T& a, const T& b) {
  if constexpr (kSilent<T>.is_empty()) {
    return a == b;
  } else {
    bool all = true;
    size_t index = 0;
    for_each_field(plan::kFields<T>, [&](const auto& field) {
      all = all && (kSilent<T>.has(index++) || same(field.of(a), field.of(b)));
    });
    if constexpr (std::is_same_v<T, plan::Instruction>) all = all && same_body(a, b);
    return all;
  }
}

// What runs, how often, and where its bytes lie.
bool runs_the_same(const plan::Plan& a, const plan::Plan& b) {
  return same(a.programs, b.programs) && a.step == b.step && same(a.variants, b.variants) &&
         a.tensors == b.tensors && same(a.slices, b.slices) && a.arena_bytes == b.arena_bytes &&
         a.groups == b.groups && a.mesh == b.mesh;
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
    const bool nothing = runs_the_same(a_, b_) && a_.optimizer == b_.optimizer;
    if (nothing) add("nothing changed", "the same instructions at the same addresses");
    if (a_.optimizer != b_.optimizer) add("optimizer", "another training configuration");
    add("options", differences(words(a_.options, ' '), words(b_.options, ' ')));
    if (a_.sums != b_.sums)
      add("sums", "gradients are summed in another order, so numbers agree within rounding only");
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
