#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/commands/compile_request.h"
#include "runtime/plan/file.h"
#include "runtime/report/changes.h"
#include "runtime/report/report.h"
#include "runtime/verify/verify.h"
#include "src/base/cache_directory.h"
#include "src/base/file.h"
#include "src/base/json_writer.h"
#include "src/base/text.h"
#include "src/driver/compile.h"
#include "src/driver/compile_step.h"

namespace dc::cli {
namespace {

using base::Result;
using base::Status;

const char* name(driver::CacheUse use) {
  switch (use) {
    case driver::CacheUse::Off:
      return "off";
    case driver::CacheUse::Miss:
      return "miss";
    case driver::CacheUse::Hit:
      return "hit";
  }
  return "";
}

// What was in the output file: the plan that this one takes the place of.
std::optional<runtime::plan::Plan> plan_before(const std::string& output) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(output, none)) return std::nullopt;
  Result<runtime::plan::Loaded> loaded = runtime::verify::load(output);
  if (!loaded.ok()) return std::nullopt;  // whatever it was, it is replaced
  return std::move(loaded->plan);
}

// Empty: the output held no plan of this model.
std::vector<std::string> changes(const std::optional<runtime::plan::Plan>& before,
                                 const runtime::plan::Plan& after) {
  if (!before || before->model_digest != after.model_digest) return {};
  return runtime::report::changes(*before, after);
}

std::string text_report(const CompileArguments& arguments, const driver::CompileResult& compiled,
                        const std::vector<std::string>& changes) {
  std::string text = runtime::report::report(compiled.plan);
  if (arguments.verbose) text += runtime::report::identity(compiled.plan);
  if (changes.empty()) return text;
  text += "changes            against the plan that the file held before\n";
  for (const std::string& line : changes) text += "  " + line + "\n";
  return text;
}

std::string json_report(const CompileArguments& arguments, const driver::CompileResult& compiled,
                        const driver::Stopwatch& watch, const std::vector<std::string>& changes) {
  base::JsonWriter json(1);
  json.begin_object();
  json.field("schema", "dcc.compile/2").field("output", arguments.output);
  json.field("bytes", static_cast<int64_t>(compiled.bytes.size()));
  json.field("cache", name(compiled.cache));
  json.field(
      "schedules_left_out",
      std::count_if(compiled.plan.notes.begin(), compiled.plan.notes.end(),
                    [](const std::string& note) { return note.starts_with(driver::kLeftOut); }));
  json.key("compile_ms").begin_object();
  for (const auto& [what, ms] : watch.laps()) json.field(what, ms);
  json.end_object();
  runtime::report::write_report(json, compiled.plan);
  if (!changes.empty()) {
    json.key("changes").begin_array();
    for (const std::string& line : changes) json.string(line);
    json.end_array();
  }
  return json.end_object().take() + "\n";
}

}  // namespace

Status run_compile(const CompileArguments& arguments) {
  driver::Stopwatch watch;
  driver::CompileRequest request;
  request.model = arguments.model;
  request.dims = arguments.dims;
  request.config = arguments.config;
  request.search_time = arguments.search_time;
  request.options = arguments.options;
  DC_RETURN_IF_ERROR(driver::check(request.options));
  note_idle_options(arguments.options, arguments.search_time,
                    arguments.options.passes.memory().has_value());
  DC_RETURN_IF_ERROR(base::check_output(
      arguments.output,
      input_files(arguments.model, arguments.profile, arguments.config, arguments.options)));
  if (!arguments.profile.empty()) {
    DC_ASSIGN_OR_RETURN(request.profile, profile::read_profile(arguments.profile));
    warn_of_other_machine(arguments.profile, request.profile->measurements);
  }
  if (!arguments.no_cache) request.cache_directory = base::cache_directory();
  DC_ASSIGN_OR_RETURN(const driver::CompileResult compiled, driver::compile(request, watch));
  const std::optional<runtime::plan::Plan> before = plan_before(arguments.output);
  const std::vector<std::string> changed = changes(before, compiled.plan);
  if (before) watch.lap("compare");
  DC_RETURN_IF_ERROR(base::write_file_atomically(arguments.output, compiled.bytes));
  watch.lap("write");
  say_notes({&compiled});
  const std::string report = arguments.json ? json_report(arguments, compiled, watch, changed)
                                            : text_report(arguments, compiled, changed);
  std::fputs(report.c_str(), stdout);
  std::fprintf(stderr, "%s: %s, cache %s; %s\n", arguments.output.c_str(),
               base::format_bytes(static_cast<int64_t>(compiled.bytes.size())).c_str(),
               name(compiled.cache), watch.text().c_str());
  return {};
}

}  // namespace dc::cli
