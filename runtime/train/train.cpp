#include "runtime/train/train.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>

#include "runtime/exec/trace.h"
#include "runtime/train/agreement.h"
#include "runtime/train/checkpoint.h"
#include "runtime/train/claim.h"
#include "runtime/train/gradients.h"
#include "runtime/train/loop.h"
#include "runtime/train/report.h"
#include "runtime/train/signals.h"
#include "runtime/train/state_check.h"
#include "runtime/train/trace_file.h"
#include "runtime/train/weights.h"
#include "src/base/json_writer.h"
#include "src/base/text.h"

namespace dc::runtime {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;
using Clock = std::chrono::steady_clock;

constexpr size_t kMaxTraceRecords = 1 << 17;  // per stream and rank
constexpr size_t kRecordingSteps = 20;

// One run on one rank, from checks to the last save.
class Session {
 public:
  Session(const plan::Loaded& loaded, Job& job, const LaunchInfo& launch,
          const TrainOptions& options)
      : plan_(loaded.plan),
        digest_(loaded.digest),
        job_(job),
        control_(job.control()),
        launch_(launch),
        options_(options),
        report_(control_.rank().v == 0, options.steps) {}

  Result<Outcome> run() {
    DC_RETURN_IF_ERROR(check_equal(control_, digest_, "plan"));
    DC_RETURN_IF_ERROR(check_equal(control_, options_text(), "run options"));
    report_.start(facts());
    if (Status opened = agree(control_, open_files(), "opening its files"); !opened.ok()) {
      std::error_code ignored;
      for (const std::string& folder : made_) std::filesystem::remove(folder, ignored);
      return opened;
    }
    for (const std::string* folder : {&options_.save, &options_.dump_gradients}) {
      if (!folder->empty()) DC_RETURN_IF_ERROR(check_shared(*folder, control_));
    }
    DC_RETURN_IF_ERROR(prepare());
    DC_ASSIGN_OR_RETURN(
        auto loop, Loop::create(plan_, *executor_, *data_, options_.settings, control_.rank().v));
    return train(loop);
  }

 private:
  std::string options_text() const {
    base::JsonWriter json;
    json.begin_array().boolean(options_.weights_only_by_name).string(options_.weights);
    for (const std::string& data : options_.data) json.string(data);
    json.integer(options_.steps);
    json.string(options_.shuffle ? std::to_string(*options_.shuffle) : "");
    for (const std::string* path :
         {&options_.metrics, &options_.save, &options_.trace, &options_.dump_gradients}) {
      json.boolean(path->empty());
    }
    const plan::Optimizer& optimizer = options_.settings.optimizer;
    json.boolean(options_.poison).boolean(options_.record).real(options_.settings.loss_scale);
    json.real(optimizer.clip_norm).integer(static_cast<int64_t>(optimizer.seed));
    json.integer(optimizer.schedule).integer(optimizer.warmup_steps);
    json.integer(optimizer.total_steps).real(optimizer.final_lr_fraction);
    for (const plan::OptimizerGroup& group : optimizer.groups) {
      json.real(group.lr).real(group.weight_decay);
    }
    return json.end_array().take();
  }

  RunFacts facts() const {
    RunFacts facts;
    facts.plan_digest = digest_;
    facts.plan_name = plan_.name;
    facts.chain = plan_.chain;
    facts.world = plan_.world();
    facts.threads = plan_.threads;
    facts.accumulation = plan_.accumulation;
    facts.launcher = std::string(name(launch_.launcher));
    facts.communicator = std::string(control_.name());
    facts.sums_in_rank_order = control_.sums_in_rank_order();
    facts.arena_bytes = arena_bytes(plan_, plan::Space::Device);
    facts.host_bytes = arena_bytes(plan_, plan::Space::Host);
    facts.disk_bytes = arena_bytes(plan_, plan::Space::Disk);
    if (executor_) facts.providers = executor_->counts();
    facts.weights = options_.weights;
    for (const std::string& data : options_.data) {
      facts.data += (facts.data.empty() ? "" : ",") + data;
    }
    return facts;
  }

  // What this rank can find out alone, before any memory is touched.
  Status open_files() {
    const int rank = control_.rank().v;
    DC_ASSIGN_OR_RETURN(
        data_, DataSource::open(options_.data, DataRequest::of(plan_, rank, options_.shuffle)));
    DC_ASSIGN_OR_RETURN(
        weights_, open_weights(options_.weights, plan_, {rank, options_.weights_only_by_name}));
    if (rank == 0 && !weights_.unused.empty()) {
      std::fprintf(stderr, "note: %s: %s\n", options_.weights.c_str(),
                   base::printable(weights_.unused).c_str());
    }
    DC_RETURN_IF_ERROR(data_->check(0));
    DC_ASSIGN_OR_RETURN(outside_, OutsideMemory::create(plan_, rank, options_.offload_dir));
    if (rank != 0) return base::ok_status();
    for (const std::string* folder : {&options_.save, &options_.dump_gradients}) {
      if (folder->empty()) continue;
      if (!std::filesystem::exists(*folder)) made_.push_back(*folder);
      DC_RETURN_IF_ERROR(prepare_folder(*folder));
    }
    if (!options_.trace.empty()) DC_RETURN_IF_ERROR(prepare_file(options_.trace));
    if (!options_.save.empty()) {
      if (!options_.overwrite) {
        DC_RETURN_IF_ERROR(refuse_to_replace(options_.save + "/model.safetensors", "--save"));
      }
      DC_ASSIGN_OR_RETURN(save_claim_, Claim::folder(options_.save));
    }
    if (options_.metrics.empty()) return base::ok_status();
    DC_RETURN_IF_ERROR(prepare_file(options_.metrics));
    DC_ASSIGN_OR_RETURN(metrics_, Metrics::open(options_.metrics, options_.overwrite));
    return base::ok_status();
  }

  Status prepare() {
    const int64_t arena = arena_bytes(plan_, plan::Space::Device);
    DC_ASSIGN_OR_RETURN(const Slab slab,
                        job_.allocate(base::round_up(std::max<int64_t>(arena, 1), 4096)));
    ExecutorOptions options;
    options.poison = options_.poison;
    options.outside = &outside_;
    if (!options_.trace.empty() || options_.record) {
      trace_ = std::make_shared<TraceRecorder>(plan_, control_.rank().v, trace_capacity());
      options.trace = trace_.get();
    }
    auto executor = Executor::prepare(plan_, job_, slab, options);
    DC_RETURN_IF_ERROR(
        agree(control_, executor.ok() ? Status() : executor.status(), "preparing the plan"));
    executor_ = std::move(executor).value();
    report_.missing_scratch(executor_->missing_scratch(), arena);
    const TensorBinder bind = binder();
    DC_RETURN_IF_ERROR(
        agree(control_, fill_state(plan_, weights_, control_.rank().v, bind, outside_.disk.get()),
              "filling the state"));
    weights_ = WeightSet();  // the files are read; let go of them
    if (!options_.dump_gradients.empty()) {
      DC_ASSIGN_OR_RETURN(dump_, GradientDump::create(options_.dump_gradients, plan_, control_));
    }
    Status metrics = metrics_ ? metrics_->begin(facts()) : Status();
    return agree(control_, std::move(metrics), "writing its metrics");
  }

  size_t trace_capacity() const {
    size_t per_step = 0;
    for (const plan::ProgramRun& run : plan_.step) {
      per_step += static_cast<size_t>(run.repeat) *
                  plan_.programs[static_cast<size_t>(run.program)].instructions.size();
    }
    // A trace holds at least one whole step, a recording enough of them for a median.
    const size_t steps = std::max<size_t>(kMaxTraceRecords / std::max<size_t>(per_step, 1),
                                          options_.record ? kRecordingSteps : 1);
    return per_step * std::min(steps, static_cast<size_t>(options_.steps));
  }

  TensorBinder binder() const {
    return [this](int32_t id) { return executor_->tensor(id); };
  }

  Result<Outcome> train(Loop& loop) {
    Outcome outcome;
    DC_ASSIGN_OR_RETURN(outcome.stopped, any_rank(control_, stop_requested()));
    sent_before_ = executor_->traffic();
    while (!outcome.stopped && outcome.steps < options_.steps) {
      DC_ASSIGN_OR_RETURN(const StepResult result, one_step(loop, outcome.steps));
      if (!result.finite) return not_finite(loop, outcome.steps);
      ++outcome.steps;
      outcome.stopped = result.stop_requests > 0;
    }
    report_.finish();
    DC_ASSIGN_OR_RETURN(const Saved saved, save(outcome.steps, {}));
    if (!options_.trace.empty()) {
      DC_RETURN_IF_ERROR(save_trace(options_.trace, *trace_,
                                    {digest_, plan_.name, std::string(control_.name())}, control_));
    }
    if (saved.refused) {
      return Status(ErrorKind::NonFinite, "DC6552",
                    "after step " + std::to_string(outcome.steps) + saved.sentence +
                        "; try a lower learning rate, clipping, or other data");
    }
    if (outcome.stopped && outcome.steps < options_.steps) {
      Status data = std::move(data_problem_);
      if (!data.ok())
        data.add_context("found after step " + std::to_string(outcome.steps) + saved.sentence);
      DC_RETURN_IF_ERROR(agree(control_, std::move(data), "looking at its data"));
    }
    // A request that came during the last step or the save counts too.
    DC_ASSIGN_OR_RETURN(const bool late, any_rank(control_, stop_requested()));
    outcome.stopped = outcome.stopped || late;
    if (options_.record) outcome.recording = trace_;
    return outcome;
  }

  Result<StepResult> one_step(Loop& loop, int64_t step) {
    if (dump_) {
      executor_->observe([this](int32_t program, int32_t index) {
        return dump_->after_instruction(*executor_, program, index);
      });
    }
    const auto start = Clock::now();
    if (data_problem_.ok() && step + 1 < options_.steps) data_problem_ = data_->check(step + 1);
    DC_RETURN_IF_ERROR(loop.run(step, !data_problem_.ok()));
    const std::chrono::duration<double, std::milli> spent = Clock::now() - start;
    if (dump_) {
      executor_->observe(nullptr);
      DC_RETURN_IF_ERROR(dump_->finish());
      dump_.reset();
    }
    const StepResult result = loop.result();
    // What the last step sends into the next one is its own.
    const bool is_last = result.stop_requests > 0 || step + 1 == options_.steps;
    if (is_last) DC_RETURN_IF_ERROR(executor_->finish());
    StepFacts facts;
    facts.step = step + 1;
    facts.epoch = data_->epoch(step);
    facts.loss = result.loss;
    facts.grad_norm = result.norm;
    facts.lr = options_.settings.optimizer.groups.empty()
                   ? 0
                   : options_.settings.optimizer.groups[0].lr *
                         lr_factor(options_.settings.optimizer, step + 1);
    facts.tokens = tokens_per_step(plan_);
    facts.step_ms = spent.count();
    const Traffic sent = executor_->traffic();
    const Executor::CommunicationTime spent_so_far = executor_->communication_time();
    facts.wire = difference(sent, sent_before_);
    facts.collective_ms = milliseconds(spent_so_far.collective_ns - spent_before_.collective_ns);
    facts.exposed_ms = milliseconds(spent_so_far.exposed_ns - spent_before_.exposed_ns);
    sent_before_ = sent;
    spent_before_ = spent_so_far;
    report_.step(facts);
    if (metrics_) DC_RETURN_IF_ERROR(metrics_->add(facts));
    return result;
  }

  static double milliseconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e6; }

  static Traffic difference(const Traffic& after, const Traffic& before) {
    return {after.all_gather - before.all_gather, after.reduce_scatter - before.reduce_scatter,
            after.all_reduce - before.all_reduce, after.other - before.other};
  }

  struct Saved {
    bool refused = false;  // the state is not finite, so nothing was written
    std::string sentence;  // what became of the state; empty without --save
  };

  // Collective. A state that is not finite is never written: older files stay.
  Result<Saved> save(int64_t steps, std::vector<std::string> updated) {
    Saved saved;
    if (options_.save.empty()) return saved;
    auto found = find_non_finite(plan_, binder(), control_.rank().v, outside_.disk.get());
    DC_RETURN_IF_ERROR(
        agree(control_, found.ok() ? Status() : found.status(), "checking the state"));
    DC_ASSIGN_OR_RETURN(saved.refused, any_rank(control_, !found->empty()));
    if (saved.refused) {
      saved.sentence = ", the state is not finite" +
                       (found->empty() ? std::string() : " (" + *found + ")") +
                       ", so nothing was written to " + options_.save + " and what was there stays";
      return saved;
    }
    const bool partly = !updated.empty();
    DC_RETURN_IF_ERROR(save_checkpoint(options_.save, plan_, binder(),
                                       {digest_, steps, std::move(updated)}, control_,
                                       outside_.disk.get()));
    saved.sentence = partly
                         ? ", and the partly updated parameters with their names are in "
                         : ", and the parameters after step " + std::to_string(steps) + " are in ";
    saved.sentence += options_.save;
    return saved;
  }

  Status not_finite(const Loop& loop, int64_t step) {
    const std::string what = loop.culprit();
    const std::vector<std::string> updated = loop.updated();
    const std::string number = std::to_string(step + 1);
    DC_RETURN_IF_ERROR(executor_->finish());
    DC_ASSIGN_OR_RETURN(const Saved saved, save(step, updated));
    std::string sentence = what + " is not finite in step " + number + "; ";
    if (updated.empty()) {
      sentence += "nothing was updated in that step";
    } else {
      sentence += std::to_string(updated.size()) + " parameters were updated in that step before";
    }
    sentence += saved.sentence + "; try a lower learning rate, clipping, or other data";
    return Status(ErrorKind::NonFinite, "DC6551", std::move(sentence));
  }

  const plan::Plan& plan_;
  const std::string& digest_;
  Job& job_;
  Communicator& control_;
  const LaunchInfo& launch_;
  const TrainOptions& options_;
  Report report_;

  std::vector<std::string> made_;  // folders of this run, empty so far
  Claim save_claim_;               // rank 0
  std::unique_ptr<DataSource> data_;
  Status data_problem_;  // found while another step ran
  WeightSet weights_;
  OutsideMemory outside_;
  std::shared_ptr<TraceRecorder> trace_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<GradientDump> dump_;
  std::unique_ptr<Metrics> metrics_;
  // Up to the end of the last step's account: streams work on between steps.
  Traffic sent_before_;
  Executor::CommunicationTime spent_before_;
};

}  // namespace

Result<Outcome> train(const plan::Loaded& loaded, Job& job, const LaunchInfo& launch,
                      const TrainOptions& options) {
  return Session(loaded, job, launch, options).run();
}

}  // namespace dc::runtime
