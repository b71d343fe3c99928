#include <cstdio>
#include <filesystem>

#include "cli/commands/commands.h"
#include "cli/commands/compile_request.h"
#include "cli/frontier_report.h"
#include "cli/progress_line.h"
#include "src/base/cache_directory.h"
#include "src/base/file.h"
#include "src/base/output_names.h"
#include "src/base/text.h"

namespace dc::cli {
namespace {

using base::Result;
using base::Status;

Result<driver::Frontier> made_with_progress(const driver::FrontierRequest& request,
                                            driver::Stopwatch& watch) {
  ProgressLine line;
  return driver::frontier(request, watch, [&line](int plans, int all) {
    line.show(std::to_string(plans) + " of " + std::to_string(all) + " plans");
  });
}

// "45GiB:130GiB"; either side may be empty.
Status read_range(const std::string& text, driver::FrontierRequest& request) {
  if (text.empty()) return {};
  const size_t colon = text.find(':');
  if (colon == std::string::npos) {
    return Status(base::ErrorKind::Usage, "DC2814",
                  "--memory of frontier is a range, not '" + text +
                      "'; give FROM:TO, for example 40GiB:80GiB");
  }
  const std::string from = text.substr(0, colon), to = text.substr(colon + 1);
  if (!from.empty()) {
    DC_ASSIGN_OR_RETURN(const int64_t bytes, parse_bytes("--memory", from));
    request.from = base::Bytes{bytes};
  }
  if (!to.empty()) {
    DC_ASSIGN_OR_RETURN(const int64_t bytes, parse_bytes("--memory", to));
    request.to = base::Bytes{bytes};
  }
  return {};
}

// The plan of a row, counted from 0.
std::string plan_path(const std::string& directory, size_t row) {
  return directory + "/" + std::to_string(row + 1) + ".dcp";
}

// Before anything is compiled. Makes the folder of the plans.
Status check_outputs(const FrontierArguments& arguments) {
  const std::vector<std::string> inputs =
      input_files(arguments.model, arguments.profile, arguments.config, arguments.options);
  std::vector<std::string> outputs;
  if (!arguments.output.empty()) outputs.push_back(arguments.output);
  if (!arguments.plans.empty()) {
    std::error_code failed;
    std::filesystem::create_directories(arguments.plans, failed);
    for (int row = 0; row < arguments.points; ++row)
      outputs.push_back(plan_path(arguments.plans, static_cast<size_t>(row)));
  }
  DC_RETURN_IF_ERROR(base::check_distinct(outputs));
  for (const std::string& output : outputs) {
    DC_RETURN_IF_ERROR(base::check_output(output, inputs));
  }
  return {};
}

std::vector<const driver::CompileResult*> plans_of_points(const driver::Frontier& frontier) {
  std::vector<const driver::CompileResult*> plans;
  for (const driver::FrontierPoint& point : frontier.points)
    plans.push_back(&frontier.plans[point.plan]);
  return plans;
}

Status write_plans(const std::string& directory, const driver::Frontier& frontier) {
  const size_t rows = frontier.points.size();
  for (size_t i = 0; i < rows; ++i) {
    const driver::CompileResult& plan = frontier.plans[frontier.points[i].plan];
    DC_RETURN_IF_ERROR(base::write_file_atomically(plan_path(directory, i), plan.bytes));
  }
  if (std::error_code ignored; std::filesystem::exists(plan_path(directory, rows), ignored)) {
    std::fprintf(stderr, "note: %s, and plans with higher numbers, are of an earlier frontier\n",
                 plan_path(directory, rows).c_str());
  }
  return {};
}

}  // namespace

Status run_frontier(const FrontierArguments& arguments) {
  driver::FrontierRequest request;
  request.points = arguments.points;
  DC_RETURN_IF_ERROR(read_range(arguments.range, request));
  driver::CompileRequest& compile = request.compile;
  compile.model = arguments.model;
  compile.dims = arguments.dims;
  compile.config = arguments.config;
  compile.options = arguments.options;
  DC_RETURN_IF_ERROR(check_outputs(arguments));
  note_idle_options(arguments.options, 0, true);
  if (!arguments.profile.empty()) {
    DC_ASSIGN_OR_RETURN(compile.profile, profile::read_profile(arguments.profile));
    warn_of_other_machine(arguments.profile, compile.profile->measurements);
  }
  if (!arguments.no_cache) compile.cache_directory = base::cache_directory();
  driver::Stopwatch watch;
  DC_ASSIGN_OR_RETURN(const driver::Frontier found, made_with_progress(request, watch));
  const std::vector<FrontierRow> rows = frontier_rows(found);
  if (!arguments.plans.empty()) DC_RETURN_IF_ERROR(write_plans(arguments.plans, found));
  if (!arguments.output.empty()) {
    const std::string title =
        found.plans.front().plan.name + " for " + std::to_string(compile.options.world) + " ranks";
    DC_RETURN_IF_ERROR(base::write_file_atomically(arguments.output, frontier_page(rows, title)));
  }
  const std::string text =
      arguments.json ? frontier_json(rows, found.too_small) : frontier_table(rows);
  say_notes(plans_of_points(found));
  std::fputs(text.c_str(), stdout);
  if (found.too_small)
    std::fprintf(stderr, "note: %s\n", begins_later(*found.too_small, rows.front()).c_str());
  std::fprintf(stderr, "%zu plans; %s\n", found.plans.size(), watch.text().c_str());
  return {};
}

}  // namespace dc::cli
