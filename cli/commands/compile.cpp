#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/commands/model.h"
#include "runtime/measure/measure.h"
#include "runtime/plan/changes.h"
#include "runtime/plan/file.h"
#include "runtime/plan/report.h"
#include "src/base/build_id.h"
#include "src/base/file.h"
#include "src/base/json_writer.h"
#include "src/base/text.h"
#include "src/base/train_config.h"
#include "src/cache/plan_cache.h"
#include "src/cost/costs.h"
#include "src/plan/compile.h"
#include "src/plan/emit.h"
#include "src/profile/profile_file.h"

namespace dc::cli {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;

// Where compile's own time went: laps of one name add up, everything between two laps counts.
class Stopwatch {
 public:
  void lap(std::string_view what) {
    const auto now = std::chrono::steady_clock::now();
    const double ms = std::chrono::duration<double, std::milli>(now - last_).count();
    last_ = now;
    for (auto& [name, sum] : laps_) {
      if (name == what) {
        sum += ms;
        return;
      }
    }
    laps_.emplace_back(what, ms);
  }
  const std::vector<std::pair<std::string, double>>& laps() const { return laps_; }
  double total() const {
    double sum = 0;
    for (const auto& [name, ms] : laps_) sum += ms;
    return sum;
  }
  std::string text() const {
    char number[32];
    std::snprintf(number, sizeof number, "%.0f ms", total());
    std::string text = number;
    for (size_t i = 0; i < laps_.size(); ++i) {
      std::snprintf(number, sizeof number, " %.0f", laps_[i].second);
      text += (i == 0 ? " = " : " + ") + laps_[i].first + number;
    }
    return text;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  std::vector<std::pair<std::string, double>> laps_;
};

Result<plan::CompileOptions> options_of(const CompileArguments& arguments) {
  plan::CompileOptions options;
  options.world = arguments.world;
  options.accumulation = arguments.grad_accum;
  options.threads = arguments.threads;
  options.chain = arguments.chain;
  options.search_effort = arguments.search_effort;
  options.own_passes = arguments.passes;
  options.any_order = arguments.reduction_order == "auto";
  if (arguments.reduction_order == "per-step")
    options.passes.reduction_order = passes::ReductionOrder::PerStep;
  if (arguments.reduction_order == "per-micro-batch")
    options.passes.reduction_order = passes::ReductionOrder::PerMicroBatch;
  if (arguments.recompute == "full") options.passes.recompute = passes::Recompute::Full;
  if (arguments.recompute == "off") options.passes.recompute = passes::Recompute::Off;
  if (arguments.reduce_dtype == "float32") options.reduce_dtype = ir::DType::F32;
  if (arguments.reduce_dtype == "bfloat16") options.reduce_dtype = ir::DType::BF16;
  const auto budget = [](const std::string& text, std::optional<base::Bytes>& to) -> Status {
    if (text.empty()) return {};
    DC_ASSIGN_OR_RETURN(const int64_t bytes, parse_bytes(text));
    to = base::Bytes{bytes};
    return {};
  };
  DC_RETURN_IF_ERROR(budget(arguments.memory, options.passes.memory));
  DC_RETURN_IF_ERROR(budget(arguments.host_memory, options.passes.host_memory));
  DC_RETURN_IF_ERROR(budget(arguments.disk_memory, options.passes.disk_memory));
  if (arguments.offload_space == "host") options.passes.offload_space = ir::Space::Host;
  if (arguments.offload_space == "disk") options.passes.offload_space = ir::Space::Disk;
  return options;
}

struct Job {
  CompileArguments arguments;
  plan::CompileOptions options;
  std::optional<profile::Profile> profile;
  cache::PlanCache cache{""};
  Stopwatch watch;
};

// What makes the profile's figures doubtful for this plan. Notes become part of the plan, so they
// depend on the profile, the model and the options only; nothing about this host or any path.
std::vector<std::string> profile_notes(const Job& job, const ir::Step& step) {
  const base::Measurements& measured = job.profile->measurements;
  std::vector<std::string> notes;
  const auto ranks = [](int count) {
    return std::to_string(count) + (count == 1 ? " rank" : " ranks");
  };
  const bool is_synthetic = measured.origin == base::ProfileOrigin::Synthetic;
  if (is_synthetic) {
    notes.push_back(
        "synthetic-profile: nothing was measured; times are from published figures of " +
        measured.machine.cpu + ", workspace is an estimate");
  }
  if (!is_synthetic && measured.model_digest != step.model_digest) {
    notes.push_back(
        "foreign-profile: the profile was measured on another model; kernels it does "
        "not know are estimated");
  }
  if (!is_synthetic && measured.machine.software != base::build_id()) {
    notes.push_back("stale-profile: the profile was measured by " + measured.machine.software +
                    ", this is " + std::string(base::build_id()));
  }
  if (!is_synthetic && measured.machine.threads != job.options.threads) {
    notes.push_back("profile-threads: the profile was measured with " +
                    std::to_string(measured.machine.threads) +
                    " thread(s) per rank, the plan uses " + std::to_string(job.options.threads));
  }
  if (measured.machine.ranks != job.options.world && job.options.world > 1) {
    notes.push_back("profile-ranks: the profile is of " + ranks(measured.machine.ranks) +
                    ", the collectives of " + ranks(job.options.world) + " are estimated");
  } else if (!is_synthetic && job.options.world > 1 && !measured.complete.collectives) {
    notes.push_back(
        "partial-profile: the profile has collectives of the sizes of one step only, none of them "
        "beside compute; others are estimated, and overlap is taken to cost nothing");
  } else if (!is_synthetic && job.options.world > 1 && !measured.complete.beside_compute) {
    notes.push_back(
        "partial-profile: the profile has no collectives beside compute; overlap is taken to cost "
        "nothing");
  }
  return notes;
}

// Kernels whose scratch depends on the CPU: convolutions, and products and attention in 16 bits.
bool has_scratch_of_its_cpu(const ir::Graph& graph, const ir::Node& node) {
  if (node.kind != ir::OpKind::Aten) return false;
  const ir::AtenClass cls = ir::aten_info(node.overload)->cls;
  if (cls == ir::AtenClass::Convolution)
    return node.overload.find("convolution") != std::string::npos;
  if (cls != ir::AtenClass::Matmul && cls != ir::AtenClass::Attention) return false;
  const ir::DType dtype = graph.value(node.operands[0]).type.dtype;
  return dtype == ir::DType::BF16 || dtype == ir::DType::F16;
}

// Without a profile: what the plan's memory then rests on.
std::vector<std::string> estimate_notes(const ir::Step& step) {
  int64_t kernels = 0;
  for (const ir::Program& program : step.programs) {
    for (ir::NodeId id = program.graph.first(); id.valid(); id = program.graph.next(id)) {
      kernels += has_scratch_of_its_cpu(program.graph, program.graph.node(id)) ? 1 : 0;
    }
  }
  if (kernels == 0) return {};
  return {"estimated-scratch: without a profile the scratch of " + std::to_string(kernels) +
          " convolutions or 16-bit products is an estimate; where a CPU needs more, dcrun takes it "
          "on top of the plan's memory and says so; dcc profile measures it"};
}

// About this host, so it is said but not recorded.
void warn_of_other_machine(const Job& job) {
  if (!job.profile || job.profile->measurements.origin == base::ProfileOrigin::Synthetic) return;
  const std::string &then = job.profile->measurements.machine.cpu, now = runtime::cpu_name();
  if (then == now) return;
  std::fprintf(stderr, "warning: other-machine: profile %s was measured on %s, this is %s\n",
               job.arguments.profile.c_str(), then.c_str(), now.c_str());
}

Result<runtime::plan::Plan> compile_model(Job& job, Model model) {
  const cost::Costs costs(job.profile, job.options.threads);
  if (job.profile) {
    for (std::string& note : profile_notes(job, model.step)) model.notes.push_back(std::move(note));
  }
  if (!job.profile) {
    for (std::string& note : estimate_notes(model.step)) model.notes.push_back(std::move(note));
  }
  plan::OutOfTime out_of_time;
  if (job.arguments.search_time > 0) {
    const std::chrono::duration<double> limit(job.arguments.search_time);
    const auto start = std::chrono::steady_clock::now();
    out_of_time = [=] { return std::chrono::steady_clock::now() - start > limit; };
  }
  DC_ASSIGN_OR_RETURN(runtime::plan::Plan plan,
                      plan::compile(
                          std::move(model.step), job.options, costs.model(),
                          [&](const char* part) { job.watch.lap(part); }, out_of_time));
  plan.notes.insert(plan.notes.begin(), model.notes.begin(), model.notes.end());
  if (job.profile) plan.profile_digest = job.profile->digest;
  return plan;
}

cache::KeyParts key_parts(const Job& job, const std::string& config) {
  return {job.profile ? job.profile->digest : "", job.options.canonical() + "\n" + config,
          std::string(base::build_id()), std::string(runtime::plan::kMagic)};
}

struct Compiled {
  std::string bytes;
  runtime::plan::Plan plan;
  bool hit = false;
};

// The plan under `key`, if the cache has a sound one that is of this model and these options.
std::optional<Compiled> look_up(Job& job, const Model& model, const std::string& key) {
  const cache::KeyParts parts = key_parts(job, "");
  const cache::Request request{
      model.step.model_digest, parts.profile_digest, job.options.canonical(),
      parts.compiler,          model.notes,          plan::emit_optimizer(model.step.optimizer),
      model.step.step_digest};
  std::string warning;
  std::optional<cache::Found> found = job.cache.find(key, request, warning);
  if (!warning.empty()) std::fprintf(stderr, "warning: %s\n", warning.c_str());
  if (!found) return std::nullopt;
  return Compiled{std::move(found->bytes), std::move(found->plan), true};
}

Result<Compiled> compile_anew(Job& job, Model model) {
  Compiled compiled;
  DC_ASSIGN_OR_RETURN(const runtime::plan::Plan plan, compile_model(job, std::move(model)));
  compiled.bytes = runtime::plan::encode(plan);
  const auto* data = reinterpret_cast<const uint8_t*>(compiled.bytes.data());
  auto decoded = runtime::plan::decode({data, compiled.bytes.size()});
  if (!decoded.ok()) return plan::own_fault(decoded.status());
  compiled.plan = std::move(decoded).value();
  job.watch.lap("encode");
  return compiled;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

Result<Compiled> obtain(Job& job) {
  DC_ASSIGN_OR_RETURN(Model model,
                      read_model(job.arguments.model, job.arguments.config, job.arguments.dims));
  job.watch.lap("read");
  // Notes are in the plan, so they count; the archive's own names of things do not.
  const std::string key = cache::key_of(model.step.model_digest + joined(model.step.step_digest),
                                        key_parts(job, model.config + joined(model.notes)));
  std::optional<Compiled> compiled = look_up(job, model, key);
  job.watch.lap("look up");
  if (!compiled) {
    DC_ASSIGN_OR_RETURN(compiled, compile_anew(job, std::move(model)));
  }
  const bool is_final = std::none_of(
      compiled->plan.notes.begin(), compiled->plan.notes.end(), [](const std::string& note) {
        return note == plan::kCutShort || note.starts_with(plan::kLeftOut);
      });
  if (!is_final) return std::move(*compiled);
  if (Status stored = job.cache.store(key, compiled->bytes); !stored.ok()) {
    std::fprintf(stderr, "warning: the plan was not cached: %s\n", stored.sentence().c_str());
  }
  job.watch.lap("cache");
  return std::move(*compiled);
}

const char* cache_word(const Job& job, const Compiled& compiled) {
  if (!job.cache.enabled()) return "off";
  return compiled.hit ? "hit" : "miss";
}

// What was in the output file: the plan that this one takes the place of.
std::optional<runtime::plan::Plan> plan_before(const std::string& output) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(output, none)) return std::nullopt;
  Result<runtime::plan::Loaded> loaded = runtime::plan::load(output);
  if (!loaded.ok()) return std::nullopt;  // whatever it was, it is replaced
  return std::move(loaded->plan);
}

// Empty: the output held no plan of this model.
std::vector<std::string> changes(const std::optional<runtime::plan::Plan>& before,
                                 const runtime::plan::Plan& after) {
  if (!before || before->model_digest != after.model_digest) return {};
  return runtime::plan::changes(*before, after);
}

std::string text_report(const Job& job, const Compiled& compiled,
                        const std::vector<std::string>& changes) {
  std::string text = runtime::plan::report(compiled.plan);
  if (job.arguments.verbose) text += runtime::plan::identity(compiled.plan);
  if (changes.empty()) return text;
  text += "changes            against the plan that the file held before\n";
  for (const std::string& line : changes) text += "  " + line + "\n";
  return text;
}

std::string json_report(const Job& job, const Compiled& compiled,
                        const std::vector<std::string>& changes) {
  base::JsonWriter json(1);
  json.begin_object();
  json.field("schema", "dcc.compile/2").field("output", job.arguments.output);
  json.field("bytes", static_cast<int64_t>(compiled.bytes.size()));
  json.field("cache", cache_word(job, compiled));
  json.field(
      "schedules_left_out",
      std::count_if(compiled.plan.notes.begin(), compiled.plan.notes.end(),
                    [](const std::string& note) { return note.starts_with(plan::kLeftOut); }));
  json.key("compile_ms").begin_object();
  for (const auto& [what, ms] : job.watch.laps()) json.field(what, ms);
  json.end_object();
  runtime::plan::write_report(json, compiled.plan);
  if (!changes.empty()) {
    json.key("changes").begin_array();
    for (const std::string& line : changes) json.string(line);
    json.end_array();
  }
  return json.end_object().take() + "\n";
}

}  // namespace

Status run_compile(const CompileArguments& arguments) {
  Job job;
  job.arguments = arguments;
  DC_ASSIGN_OR_RETURN(job.options, options_of(arguments));
  DC_RETURN_IF_ERROR(plan::check(job.options));
  DC_RETURN_IF_ERROR(base::check_writable(arguments.output));
  if (!arguments.profile.empty()) {
    DC_ASSIGN_OR_RETURN(job.profile, profile::read_profile(arguments.profile));
    warn_of_other_machine(job);
  }
  if (!arguments.no_cache) job.cache = cache::PlanCache(cache::PlanCache::default_directory());
  DC_ASSIGN_OR_RETURN(const Compiled compiled, obtain(job));
  const std::optional<runtime::plan::Plan> before = plan_before(arguments.output);
  const std::vector<std::string> changed = changes(before, compiled.plan);
  if (before) job.watch.lap("compare");
  DC_RETURN_IF_ERROR(base::write_file_atomically(arguments.output, compiled.bytes));
  job.watch.lap("write");
  for (const std::string& note : compiled.plan.notes) {
    std::fprintf(stderr, "note: %s\n", note.c_str());
  }
  const std::string report =
      arguments.json ? json_report(job, compiled, changed) : text_report(job, compiled, changed);
  std::fputs(report.c_str(), stdout);
  std::fprintf(stderr, "%s: %s, cache %s; %s\n", arguments.output.c_str(),
               base::format_bytes(static_cast<int64_t>(compiled.bytes.size())).c_str(),
               cache_word(job, compiled), job.watch.text().c_str());
  return {};
}

}  // namespace dc::cli
