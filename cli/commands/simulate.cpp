#include <cmath>
#include <cstdio>

#include "cli/commands/commands.h"
#include "runtime/plan/file.h"
#include "runtime/report/report.h"
#include "runtime/verify/verify.h"
#include "src/base/json_writer.h"
#include "src/base/text.h"
#include "src/cost/costs.h"
#include "src/profile/profile_file.h"
#include "src/sim/what_if.h"

namespace dc::cli {
namespace {

using base::format_duration;
using base::Result;
using base::Status;

Result<sim::WhatIf> what_if_of(const SimulateArguments& arguments) {
  sim::WhatIf what_if;
  what_if.world = arguments.world;
  if (!arguments.memory.empty()) {
    DC_ASSIGN_OR_RETURN(const int64_t bytes, parse_bytes(arguments.memory));
    what_if.memory = base::Bytes{bytes};
  }
  if (arguments.link != 0) {
    if (!std::isfinite(arguments.link) || arguments.link < 1e-6 || arguments.link > 1e6) {
      return Status(base::ErrorKind::Usage, "DC2806",
                    "--link is in GB/s of one rank, between 0.000001 and 1000000");
    }
    what_if.link_per_second = static_cast<int64_t>(arguments.link * 1e9);
  }
  return what_if;
}

std::string fixed(double value, int digits) {
  char text[48];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

// What a change saves of the step: "1.20 ms less (0.4 %)".
std::string saving(int64_t before, int64_t after) {
  if (before == after || before == 0) return "nothing";
  const double part = 100 * static_cast<double>(before - after) / static_cast<double>(before);
  return format_duration(before - after) + " less (" + fixed(part, 2) + " %)";
}

std::string link_line(const sim::Simulated& run) {
  if (run.link_per_second == 0) return "link               the step has no collectives\n";
  return "link               " + fixed(static_cast<double>(run.link_per_second) / 1e9, 3) +
         " GB/s sent by each rank while a collective is on the wire; 1 GB/s more: " +
         saving(run.prediction.step_ns, run.time_with_faster_link.v) + "\n";
}

std::string memory_line(const sim::Simulated& run) {
  std::string text = "memory             " + base::format_bytes(run.arena.v) + " per rank";
  if (run.memory != run.arena)
    text += ", " + base::format_bytes(run.memory.v - run.arena.v) + " to spare";
  text += "; 1 GiB more buys this plan nothing, its addresses are fixed";
  const int64_t bound = run.prediction.bounds_ns[2];
  if (run.within_more_memory.v < bound)
    text +=
        "; the bound within_memory takes " + saving(bound, run.within_more_memory.v) + " with it";
  return text + "; what a plan made for it gains, only dcc compile --memory says\n";
}

std::string json_report(const runtime::plan::Plan& plan, const sim::Simulated& run) {
  base::JsonWriter json(1);
  json.begin_object();
  json.field("schema", "dcc.simulate/1").field("plan", plan.name).field("world", plan.world());
  json.key("prediction").begin_object();
  runtime::report::write_timing(json, run.prediction);
  json.field("exposed_ns", run.exposed.v);
  json.end_object();
  json.key("link").begin_object();
  json.field("bytes_per_s", run.link_per_second);
  json.field("step_ns_with_1e9_more", run.time_with_faster_link.v);
  json.end_object();
  json.key("memory").begin_object();
  json.field("arena_bytes", run.arena.v).field("budget_bytes", run.memory.v);
  json.field("within_1GiB_more_ns", run.within_more_memory.v);
  json.end_object();
  return json.end_object().take() + "\n";
}

}  // namespace

Status run_simulate(const SimulateArguments& arguments) {
  DC_ASSIGN_OR_RETURN(const sim::WhatIf what_if, what_if_of(arguments));
  DC_ASSIGN_OR_RETURN(const runtime::plan::Loaded loaded, runtime::verify::load(arguments.plan));
  const runtime::plan::Plan& plan = loaded.plan;
  std::optional<profile::Profile> profile;
  if (!arguments.profile.empty()) {
    DC_ASSIGN_OR_RETURN(profile, profile::read_profile(arguments.profile));
  } else if (!plan.profile_digest.empty()) {
    std::fprintf(stderr,
                 "note: the plan was compiled with profile %s; without --profile a generic CPU is "
                 "assumed\n",
                 plan.profile_digest.c_str());
  }
  const cost::Costs costs(profile, plan.threads);
  DC_ASSIGN_OR_RETURN(const sim::Simulated run, sim::simulate(plan, costs.model(), what_if));
  if (arguments.json) {
    std::fputs(json_report(plan, run).c_str(), stdout);
    return {};
  }
  const std::string text = "plan               " + plan.name + " for " +
                           std::to_string(plan.world()) + " ranks, chain " + plan.chain + "\n" +
                           runtime::report::timing_report(run.prediction) + link_line(run) +
                           memory_line(run);
  std::fputs(text.c_str(), stdout);
  return {};
}

}  // namespace dc::cli
