#include "src/driver/compile.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "runtime/plan/file.h"
#include "src/base/build_id.h"
#include "src/cache/plan_cache.h"
#include "src/cost/costs.h"
#include "src/cost/fitted_fused.h"
#include "src/driver/compile_step.h"
#include "src/driver/decisions.h"
#include "src/driver/provenance.h"
#include "src/driver/request_check.h"
#include "src/plan/emit.h"

namespace dc::driver {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;
using runtime::plan::Plan;

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

// A plan that depends on the clock, or that a bug of ours shaped, is made again next time.
bool may_be_cached(const Plan& plan) {
  return std::none_of(plan.notes.begin(), plan.notes.end(), [](const std::string& note) {
    return note == kCutShort || note.starts_with(kLeftOut);
  });
}

class Compilation {
 public:
  Compilation(const CompileRequest& request, const Model& model, CompileOptions options,
              Stopwatch& watch)
      : request_(request),
        model_(model),
        options_(std::move(options)),
        watch_(watch),
        cache_(request.cache_directory) {}

  Result<CompileResult> run() {
    // Notes are in the plan, so they count; the archive's own names of things do not.
    const ir::Step& step = model_.step;
    const std::string evaluation = step.evaluation ? step.evaluation->digest : "";
    const std::string key = cache::key_of(step.model_digest + joined(step.step_digest) + evaluation,
                                          key_parts(model_.config + joined(model_.notes)));
    const bool is_hit = look_up(key);
    watch_.lap("look up");
    if (!is_hit) DC_RETURN_IF_ERROR(compile_anew());
    if (may_be_cached(result_.plan)) store(key);
    return std::move(result_);
  }

 private:
  std::string profile_digest() const { return request_.profile ? request_.profile->digest : ""; }

  cache::KeyParts key_parts(const std::string& config) const {
    return {profile_digest(), options_.canonical() + "\n" + config, std::string(base::build_id()),
            std::string(runtime::plan::kMagic)};
  }

  // Whether the cache has a sound plan under `key` that is of this model and these options.
  bool look_up(const std::string& key) {
    result_.cache = cache_.enabled() ? CacheUse::Miss : CacheUse::Off;
    const cache::Request request{model_.step.model_digest,
                                 profile_digest(),
                                 options_.canonical(),
                                 std::string(base::build_id()),
                                 model_.notes,
                                 plan::emit_optimizer(model_.step.optimizer),
                                 model_.step.step_digest};
    std::string warning;
    std::optional<cache::CacheHit> found = cache_.find(key, request, warning);
    if (!warning.empty()) result_.warnings.push_back(warning);
    if (!found) return false;
    result_.bytes = std::move(found->bytes);
    result_.plan = std::move(found->plan);
    result_.cache = CacheUse::Hit;
    return true;
  }

  Result<Plan> compile_model() {
    const std::optional<profile::Profile>& profile = request_.profile;
    std::vector<std::string> notes = model_.notes;
    for (std::string& note : profile ? profile_notes(*profile, model_.step, options_)
                                     : estimate_notes(model_.step, options_)) {
      notes.push_back(std::move(note));
    }
    OutOfTime out_of_time;
    if (request_.search_time > 0) {
      const std::chrono::duration<double> limit(request_.search_time);
      const auto start = std::chrono::steady_clock::now();
      out_of_time = [=] { return std::chrono::steady_clock::now() - start > limit; };
    }
    const cost::Costs costs(profile, options_.threads, options_.fused_estimate.network);
    DC_ASSIGN_OR_RETURN(Plan plan, compile_step(
                                       model_.step, options_, costs.model(),
                                       [&](const char* part) { watch_.lap(part); }, out_of_time));
    plan.notes.insert(plan.notes.begin(), notes.begin(), notes.end());
    plan.profile_digest = profile_digest();
    if (profile) add_library_memory(profile->measurements.machine, plan);
    return plan;
  }

  // What is returned is what a reader of the file will find.
  Status compile_anew() {
    DC_ASSIGN_OR_RETURN(const Plan plan, compile_model());
    result_.bytes = runtime::plan::encode(plan);
    const auto* data = reinterpret_cast<const uint8_t*>(result_.bytes.data());
    Result<Plan> decoded = runtime::plan::decode({data, result_.bytes.size()});
    if (!decoded.ok()) return own_fault(decoded.status());
    result_.plan = std::move(decoded).value();
    watch_.lap("encode");
    return {};
  }

  void store(const std::string& key) {
    if (Status stored = cache_.store(key, result_.bytes); !stored.ok())
      result_.warnings.push_back("the plan was not cached: " + stored.sentence());
    watch_.lap("cache");
  }

  const CompileRequest& request_;
  const Model& model_;
  const CompileOptions options_;
  Stopwatch& watch_;
  cache::PlanCache cache_;
  CompileResult result_;
};

// Reads the network, or sees that there is enough to fit.
Status complete(const CompileRequest& request, FusedEstimate& estimate) {
  if (estimate.choice.empty()) return {};
  if (!request.profile) {
    return Status(ErrorKind::BadConfig, "DC7037",
                  "--fusion-estimator " + estimate.choice +
                      ": there is no profile, whose kernels it starts from; give one by --profile "
                      "(dcc profile MODEL --fusions 2000 measures it), or leave out "
                      "--fusion-estimator");
  }
  if (estimate.choice != kFitted) {
    DC_ASSIGN_OR_RETURN(cost::FusedNetwork network, cost::FusedNetwork::read(estimate.choice));
    estimate.digest = network.digest();
    estimate.network = std::make_shared<const cost::FusedNetwork>(std::move(network));
    return {};
  }
  const size_t has = cost::fused_rows(*request.profile);
  if (has >= cost::FittedFused::kFewestSamples) return {};
  return Status(
      ErrorKind::BadConfig, "DC7037",
      "--fusion-estimator fitted: the profile has " + std::to_string(has) + " fused kernels, and " +
          std::to_string(cost::FittedFused::kFewestSamples) +
          " are the fewest to fit to; measure some with dcc profile MODEL --fusions 2000, and give "
          "that profile");
}

}  // namespace

Result<CompileOptions> completed(const CompileRequest& request) {
  CompileOptions options = request.options;
  if (!options.start_from.file.empty()) {
    DC_ASSIGN_OR_RETURN(options.start_from, read_earlier_plan(options.start_from.file));
  }
  DC_RETURN_IF_ERROR(complete(request, options.fused_estimate));
  if (!request.profile) return options;
  const base::MachineIdentity& machine = request.profile->measurements.machine;
  if (!options.device && machine.device == base::DeviceKind::Cuda) options.device = machine.device;
  if (options.passes.ranks_per_host) return options;
  if (machine.ranks_per_host > 0 && machine.ranks_per_host < machine.ranks)
    options.passes.ranks_per_host = machine.ranks_per_host;
  return options;
}

Result<CompileResult> compile(const CompileRequest& request, Stopwatch& watch) {
  DC_RETURN_IF_ERROR(check_request(request));
  DC_ASSIGN_OR_RETURN(const Model model, read_model(request.model, request.config, request.dims));
  watch.lap("read");
  return compile(request, model, watch);
}

Result<CompileResult> compile(const CompileRequest& request, const Model& model, Stopwatch& watch) {
  DC_RETURN_IF_ERROR(check(request.options));
  DC_ASSIGN_OR_RETURN(CompileOptions options, completed(request));
  return Compilation(request, model, std::move(options), watch).run();
}

}  // namespace dc::driver
