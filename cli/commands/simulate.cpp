#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "cli/commands/commands.h"
#include "cli/progress_line.h"
#include "cli/scaling_report.h"
#include "cli/table_text.h"
#include "runtime/plan/file.h"
#include "runtime/report/report.h"
#include "runtime/verify/verify.h"
#include "src/base/cache_directory.h"
#include "src/base/file.h"
#include "src/base/json_writer.h"
#include "src/base/text.h"
#include "src/cost/costs.h"
#include "src/driver/decisions.h"
#include "src/driver/scaling.h"
#include "src/profile/profile_file.h"
#include "src/sim/what_if.h"

namespace dc::cli {
namespace {

using base::format_duration;
using base::Result;
using base::Status;

// "4,8,16"
Result<std::vector<int>> read_list(const char* flag, std::string_view text) {
  std::vector<int> numbers;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    const char* end = word.data() + word.size();
    int number = 0;
    const bool is_last = word.size() == text.size();
    const bool is_whole =
        std::from_chars(word.data(), end, number) == std::from_chars_result{end, {}};
    if (!is_whole || number < 1 || (!is_last && word.size() + 1 == text.size())) {
      return Status(base::ErrorKind::Usage, "DC2815",
                    std::string(flag) +
                        " takes whole numbers of 1 or more with commas between them, as in 4,8,16");
    }
    numbers.push_back(number);
    text.remove_prefix(std::min(word.size() + 1, text.size()));
  }
  return numbers;
}

// A world that is not the plan's is an error of sim::simulate.
Result<sim::WhatIf> what_if_of(const SimulateArguments& arguments, const std::vector<int>& worlds) {
  sim::WhatIf what_if;
  if (!worlds.empty()) what_if.world = worlds.front();
  if (!arguments.memory.empty()) {
    DC_ASSIGN_OR_RETURN(const int64_t bytes, parse_bytes("--memory", arguments.memory));
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

Status contradiction(const std::string& what) {
  return Status(base::ErrorKind::Usage, "DC2816", what);
}

// A zip file is meant as an archive, everything else as a plan.
Result<bool> is_archive(const std::string& path) {
  DC_ASSIGN_OR_RETURN(const base::MappedFile file, base::MappedFile::open(path));
  const std::string_view magic = "PK";
  const std::span<const uint8_t> bytes = file.bytes();
  return bytes.size() >= magic.size() && std::equal(magic.begin(), magic.end(), bytes.begin());
}

// Whether it is said how to compile. An estimator of fused kernels only says how long they take.
bool has_options(const SimulateArguments& arguments) {
  driver::CompileOptions options = arguments.options;
  options.fused_estimate = {};
  return options.canonical() != driver::CompileOptions().canonical();
}

std::string decisions_in_words(const SimulateArguments& arguments,
                               const std::optional<runtime::plan::Loaded>& loaded) {
  if (loaded) return "of plan " + loaded->digest.substr(0, 12) + ", chain " + loaded->plan.passes;
  const driver::CompileOptions& options = arguments.options;
  if (!options.own_passes.empty()) return "chain " + options.own_passes;
  return "chain " + options.chain + (options.chain == "auto" ? ", a search for each row" : "");
}

// The first row's error if no row has a step; a bug of ours in any row.
Status outcome(const std::vector<driver::ScalingRow>& rows) {
  for (const driver::ScalingRow& row : rows) {
    if (!row.why.ok() && row.why.kind() == base::ErrorKind::Internal) return row.why;
  }
  const bool any =
      std::any_of(rows.begin(), rows.end(), [](const auto& row) { return row.has_step(); });
  return any ? Status() : rows.front().why;
}

Result<driver::Scaling> made_with_progress(const driver::ScalingRequest& request,
                                           driver::Stopwatch& watch) {
  ProgressLine line;
  return driver::scaling(request, watch, [&line](int rows, int all) {
    line.show(std::to_string(rows) + " of " + std::to_string(all) + " rows");
  });
}

Status run_scaling(const SimulateArguments& arguments, const std::string& model,
                   const sim::WhatIf& what_if, driver::ScalingRequest request,
                   const std::optional<runtime::plan::Loaded>& loaded) {
  driver::CompileRequest& compile = request.compile;
  compile.model = model;
  compile.dims = arguments.dims;
  compile.config = arguments.config;
  compile.options = arguments.options;
  compile.options.passes.budgets[ir::Space::Device] = what_if.memory;
  if (!arguments.no_cache) compile.cache_directory = base::cache_directory();
  request.link_per_second = what_if.link_per_second;
  if (loaded) request.plan = loaded->plan;
  driver::Stopwatch watch;
  DC_ASSIGN_OR_RETURN(const driver::Scaling found, made_with_progress(request, watch));
  const std::string decided = decisions_in_words(arguments, loaded);
  std::fputs(
      (arguments.json ? scaling_json(found, decided) : scaling_table(found, decided)).c_str(),
      stdout);
  return outcome(found.rows);
}

Status run_plan_alone(const SimulateArguments& arguments, const runtime::plan::Plan& plan,
                      const sim::WhatIf& what_if, driver::CompileRequest request) {
  request.options.fused_estimate = arguments.options.fused_estimate;
  DC_ASSIGN_OR_RETURN(const driver::CompileOptions options, driver::completed(request));
  const cost::Costs costs(request.profile, plan.threads, options.fused_estimate.network);
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

// What the plan's own prediction stands on and this one does not.
void note_other_figures(const SimulateArguments& arguments, const runtime::plan::Plan& plan) {
  if (arguments.profile.empty()) {
    if (plan.profile_digest.empty()) return;
    std::fprintf(stderr,
                 "note: the plan was compiled with profile %s; without --profile a generic CPU is "
                 "assumed\n",
                 plan.profile_digest.c_str());
    return;
  }
  note_estimator_left_out(plan, arguments.options.fused_estimate);
}

}  // namespace

void note_estimator_left_out(const runtime::plan::Plan& plan, const driver::FusedEstimate& given) {
  const std::string estimator = driver::estimator_of(plan);
  if (estimator.empty() || !given.choice.empty()) return;
  std::fprintf(stderr,
               "note: the plan was compiled with an estimator of fused kernels of digest %s; "
               "without --fusion-estimator those that the profile does not have are estimated "
               "from the profile\n",
               estimator.c_str());
}

Status run_simulate(const SimulateArguments& arguments) {
  driver::ScalingRequest request;
  DC_ASSIGN_OR_RETURN(request.worlds, read_list("--world", arguments.worlds));
  DC_ASSIGN_OR_RETURN(request.accumulations, read_list("--grad-accum", arguments.accumulations));
  DC_ASSIGN_OR_RETURN(const sim::WhatIf what_if, what_if_of(arguments, request.worlds));
  DC_ASSIGN_OR_RETURN(const bool from_archive, is_archive(arguments.input));
  std::optional<runtime::plan::Loaded> loaded;
  if (from_archive) {
    if (!arguments.model.empty())
      return contradiction(arguments.input + " is an archive itself; leave --model out");
    if (request.worlds.empty())
      return contradiction(arguments.input + " is an archive; say for how many ranks: --world 4,8");
  } else {
    if (has_options(arguments))
      return contradiction(arguments.input +
                           " is a plan, which decides how it is compiled; leave out the options "
                           "of dcc compile, or give the archive in its place");
    const bool wants_model = request.worlds.size() > 1 || !request.accumulations.empty() ||
                             !arguments.config.empty() || !arguments.dims.empty();
    if (arguments.model.empty() && wants_model)
      return contradiction(
          "lists of --world, --grad-accum, --config and --dim need the archive that the plan was "
          "compiled from: --model");
    DC_ASSIGN_OR_RETURN(loaded, runtime::verify::load(arguments.input));
  }
  std::optional<profile::Profile>& profile = request.compile.profile;
  if (!arguments.profile.empty()) {
    DC_ASSIGN_OR_RETURN(profile, profile::read_profile(arguments.profile));
  }
  if (loaded) note_other_figures(arguments, loaded->plan);
  if (loaded && arguments.model.empty())
    return run_plan_alone(arguments, loaded->plan, what_if, std::move(request.compile));
  const std::string model = from_archive ? arguments.input : arguments.model;
  return run_scaling(arguments, model, what_if, std::move(request), loaded);
}

}  // namespace dc::cli
