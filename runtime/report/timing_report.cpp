// How long a step takes, what it waits for, and how much faster another schedule could be.
#include "runtime/report/report.h"
#include "runtime/report/report_line.h"
#include "src/base/text.h"

namespace dc::runtime::report {
namespace {

using base::format_duration;

bool has_copies(const plan::Prediction& p) { return p.copy_ns != 0; }

// Of the step, without compute.
int64_t waits(const plan::Prediction& p) { return p.step_ns - p.compute_ns - p.contention_ns; }

// Kernels of the host: what figures are of neither compute nor transfers.
int64_t on_host(const plan::Prediction& p) {
  int64_t all = 0;
  for (const int64_t time : p.figures_ns) all += time;
  return std::max<int64_t>(all - p.compute_ns - p.communication_ns - p.copy_ns, 0);
}

// What compute waits for.
std::string others(const plan::Prediction& p) {
  if (on_host(p) != 0) return "communication, copies and the host";
  return has_copies(p) ? "communication and copies" : "communication";
}

std::string step(const plan::Prediction& p) {
  std::string text = format_duration(p.step_ns) + " = compute " + format_duration(p.compute_ns);
  if (waits(p) != 0) text += " + waiting for " + others(p) + " " + format_duration(waits(p));
  if (p.contention_ns != 0)
    text += " + slowed by transfers at the same time " + format_duration(p.contention_ns);
  const bool profiled = p.origin.starts_with("profile ");
  return report_line("predicted step", text + ", from " +
                                           (profiled           ? "a profile"
                                            : p.origin.empty() ? "none"
                                                               : p.origin));
}

std::string communication(const plan::Prediction& p) {
  const int64_t all = p.communication_ns + p.copy_ns;
  if (all == 0) return "";
  std::string text = format_duration(all);
  if (on_host(p) != 0) {
    // Compute waits for the host too.
  } else if (waits(p) == all) {
    text += ", and compute waits for all of it";
  } else {
    text += ", of which compute waits " + format_duration(waits(p));
  }
  if (has_copies(p)) text += "; copies are " + format_duration(p.copy_ns) + " of it";
  return report_line("communication", text);
}

std::string host(const plan::Prediction& p) {
  if (on_host(p) == 0) return "";
  return report_line("host", format_duration(on_host(p)) + " of updates, on a stream of the host");
}

// "12.3 % off" what no schedule beats; the bounds are in src/sim/bounds.h.
std::string distance(int64_t step, int64_t bound) {
  if (step <= bound) return "this one reaches it";
  return "this one is " + percent(step - bound, bound) + " off";
}

std::string bounds(const plan::Prediction& p) {
  if (p.bounds_ns.size() != plan::kBounds || p.step_ns == 0) return "";
  const int64_t any = std::max({p.bounds_ns[0], p.bounds_ns[1], p.bounds_ns[3]});
  if (any == 0) return "";
  std::string text = "no schedule of this work can be faster than " + format_duration(any) + "; " +
                     distance(p.step_ns, any);
  if (p.bounds_ns[2] > any) {
    text += "; none that fits the memory faster than " + format_duration(p.bounds_ns[2]) + ", " +
            distance(p.step_ns, p.bounds_ns[2]);
  }
  const int64_t barrier = p.bounds_ns[1] - p.without_norm_ns;
  if (barrier > 0) text += "; the global norm delays the update by " + format_duration(barrier);
  return report_line("bounds", text);
}

// Where the figures come from, if there is more than one source.
std::string figures(const plan::Prediction& p) {
  int64_t all = 0;
  for (int64_t time : p.figures_ns) all += time;
  if (all == 0 || (p.figures_ns.back() == all && p.closed_form_ns == 0)) return "";
  std::string text;
  for (const FigureShare& share : figure_shares(p)) {
    if (share.time_ns == 0) continue;
    text += (text.empty() ? "" : ", ") + percent(share.time_ns, all) + " " + share.words;
  }
  return report_line("figures", text);
}

}  // namespace

std::vector<FigureShare> figure_shares(const plan::Prediction& p) {
  const std::vector<int64_t>& all = p.figures_ns;
  return {{"measured", "measured", all[0]},
          {"interpolated", "interpolated", all[1] - p.learned_ns},
          {"extrapolated", "extrapolated beyond what was measured", all[2]},
          {"table", "from a table", all[3] - p.closed_form_ns},
          {"learned", "learned from other fused kernels", p.learned_ns},
          {"closed_form", "from the operations of fused kernels", p.closed_form_ns}};
}

std::string limited_by(const plan::Prediction& p) {
  constexpr int64_t kNearlyAll = 95;  // percent
  if (p.step_ns <= 0) return "";
  std::string compute = "compute (" + percent(p.compute_ns, p.step_ns) + " of the step)";
  if (100 * p.compute_ns >= kNearlyAll * p.step_ns) return compute;
  const std::string waiting = others(p) + " (" + percent(waits(p), p.step_ns) + ")";
  const std::string contention =
      "transfers that slow compute (" + percent(p.contention_ns, p.step_ns) + ")";
  const std::string other = waits(p) >= p.contention_ns ? waiting : contention;
  return p.compute_ns >= std::max(waits(p), p.contention_ns) ? compute + " and " + other
                                                             : other + " and " + compute;
}

std::string timing_report(const plan::Prediction& p) {
  return step(p) + communication(p) + host(p) + bounds(p) + figures(p);
}

}  // namespace dc::runtime::report
