#include <chrono>
#include <cstdio>

#include "cli/commands/commands.h"
#include "cli/commands/model.h"
#include "runtime/plan/file.h"
#include "runtime/plan/memory_report.h"
#include "src/base/build_id.h"
#include "src/base/file.h"
#include "src/base/sha256.h"
#include "src/base/text.h"
#include "src/cache/plan_cache.h"
#include "src/cost/analytic.h"
#include "src/cost/profiled.h"
#include "src/frontend/archive_digest.h"
#include "src/plan/compile.h"
#include "src/profile/profile_file.h"

namespace dc::cli {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;

// Where compile's own time went, for people who wonder.
class Stopwatch {
 public:
  void lap(const char* what) {
    const auto now = std::chrono::steady_clock::now();
    const double ms = std::chrono::duration<double, std::milli>(now - last_).count();
    char text[64];
    std::snprintf(text, sizeof text, "%s%s %.0f ms", text_.empty() ? "" : ", ", what, ms);
    text_ += text;
    last_ = now;
  }
  const std::string& text() const { return text_; }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  std::string text_;
};

Result<plan::CompileOptions> options_of(const CompileArguments& arguments) {
  plan::CompileOptions options;
  options.world = arguments.world;
  options.accumulation = arguments.grad_accum;
  options.threads = arguments.threads;
  options.passes.zero = arguments.zero;
  if (arguments.reduction_order == "per-step") options.passes.reduction_order = passes::ReductionOrder::PerStep;
  if (arguments.reduction_order == "per-micro-batch") options.passes.reduction_order = passes::ReductionOrder::PerMicroBatch;
  if (arguments.reduce_dtype == "float32") options.reduce_dtype = ir::DType::F32;
  if (arguments.reduce_dtype == "bfloat16") options.reduce_dtype = ir::DType::BF16;
  if (!arguments.memory.empty()) {
    DC_ASSIGN_OR_RETURN(const int64_t bytes, parse_bytes(arguments.memory));
    options.passes.memory = base::Bytes{bytes};
  }
  return options;
}

struct Job {
  CompileArguments arguments;
  plan::CompileOptions options;
  std::optional<profile::Profile> profile;
  cache::PlanCache cache{""};
  Stopwatch watch;
  std::vector<std::string> warnings;
};

void check_profile(Job& job, const ir::Step& step) {
  const base::Measurements& measured = job.profile->measurements;
  const auto warn = [&](const std::string& text) { job.warnings.push_back("profile " + job.arguments.profile + ": " + text); };
  if (!measured.model_digest.empty() && measured.model_digest != step.model_digest) {
    warn("it was measured on another model; kernels it does not know are estimated");
  }
  if (measured.machine.threads != job.options.threads) {
    warn("it was measured with " + std::to_string(measured.machine.threads) + " thread(s) per rank, the plan uses " +
         std::to_string(job.options.threads));
  }
  if (measured.machine.ranks != job.options.world && job.options.world > 1) {
    warn("it was measured on " + std::to_string(measured.machine.ranks) + " rank(s), collectives of " +
         std::to_string(job.options.world) + " are estimated");
  }
}

Result<runtime::plan::Plan> compile_model(Job& job, Model model) {
  const cost::AnalyticCost generic(job.options.threads);
  if (!job.profile) {
    DC_ASSIGN_OR_RETURN(runtime::plan::Plan plan, plan::compile(std::move(model.step), job.options, generic));
    plan.notes = std::move(model.notes);
    return plan;
  }
  check_profile(job, model.step);
  const cost::ProfiledCost measured(*job.profile, generic);
  DC_ASSIGN_OR_RETURN(runtime::plan::Plan plan, plan::compile(std::move(model.step), job.options, measured));
  plan.profile_digest = job.profile->digest;
  plan.notes = std::move(model.notes);
  plan.notes.insert(plan.notes.end(), job.warnings.begin(), job.warnings.end());
  return plan;
}

cache::KeyParts key_parts(const Job& job, const std::string& config) {
  return {job.profile ? job.profile->digest : "", job.options.canonical() + "\n" + config, std::string(base::build_id()),
          std::string(runtime::plan::kMagic)};
}

struct Compiled {
  std::string bytes;
  runtime::plan::Plan plan;
  bool hit = false;
};

Result<Compiled> from_bytes(std::string bytes, bool hit) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  DC_ASSIGN_OR_RETURN(runtime::plan::Plan plan, runtime::plan::decode({data, bytes.size()}));
  return Compiled{std::move(bytes), std::move(plan), hit};
}

// The plan under `key`, if the cache has a sound one.
std::optional<std::string> look_up(Job& job, const std::string& key) {
  std::string warning;
  std::optional<std::string> found = job.cache.find_plan(key, warning);
  if (!warning.empty()) std::fprintf(stderr, "warning: %s\n", warning.c_str());
  return found;
}

Result<Compiled> obtain(Job& job) {
  std::string config_text;
  if (!job.arguments.config.empty()) {
    DC_ASSIGN_OR_RETURN(config_text, base::read_file(job.arguments.config));
  }
  DC_ASSIGN_OR_RETURN(const std::string archive, frontend::archive_digest(job.arguments.model));
  const std::string direct = cache::key_of(archive, key_parts(job, config_text));
  if (const std::optional<std::string> key = job.cache.find_direct(direct)) {
    if (std::optional<std::string> bytes = look_up(job, *key)) return from_bytes(std::move(*bytes), true);
  }
  job.watch.lap("look up");
  DC_ASSIGN_OR_RETURN(Model model, read_model(job.arguments.model, job.arguments.config));
  job.watch.lap("read");
  const std::string key = cache::key_of(model.step.model_digest, key_parts(job, model.config));
  std::optional<std::string> bytes = look_up(job, key);
  const bool hit = bytes.has_value();
  if (!hit) {
    DC_ASSIGN_OR_RETURN(const runtime::plan::Plan plan, compile_model(job, std::move(model)));
    job.watch.lap("passes");
    bytes = runtime::plan::encode(plan);
    DC_RETURN_IF_ERROR(runtime::plan::verify_meaning(plan).add_context("the plan just compiled did not pass its own verification"));
    job.watch.lap("encode and verify");
  }
  if (Status stored = job.cache.store(direct, key, *bytes); !stored.ok()) {
    std::fprintf(stderr, "warning: the plan was not cached: %s\n", stored.sentence().c_str());
  }
  return from_bytes(std::move(*bytes), hit);
}

}  // namespace

Status run_compile(const CompileArguments& arguments) {
  Job job;
  job.arguments = arguments;
  DC_ASSIGN_OR_RETURN(job.options, options_of(arguments));
  if (!arguments.profile.empty()) {
    DC_ASSIGN_OR_RETURN(job.profile, profile::read_profile(arguments.profile));
  }
  if (!arguments.no_cache) job.cache = cache::PlanCache(cache::PlanCache::default_directory());
  DC_ASSIGN_OR_RETURN(const Compiled compiled, obtain(job));
  DC_RETURN_IF_ERROR(base::write_file_atomically(arguments.output, compiled.bytes));
  job.watch.lap("write");
  for (const std::string& note : compiled.plan.notes) std::fprintf(stderr, "note: %s\n", note.c_str());
  const std::string report = arguments.json ? runtime::plan::to_json(compiled.plan)
                                            : runtime::plan::summary(compiled.plan) + runtime::plan::memory_report(compiled.plan);
  std::fputs(report.c_str(), stdout);
  std::fprintf(stderr, "%s: %s (%s), cache %s; %s\n", arguments.output.c_str(), base::format_bytes(static_cast<int64_t>(compiled.bytes.size())).c_str(),
               compiled.plan.chain.c_str(), arguments.no_cache ? "off" : (compiled.hit ? "hit" : "miss"), job.watch.text().c_str());
  return {};
}

}  // namespace dc::cli
