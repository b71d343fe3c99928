#include "runtime/train/train.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>

#include "runtime/comm/agreement.h"
#include "runtime/exec/trace.h"
#include "runtime/memory/free_memory.h"
#include "runtime/plan/peer_reads.h"
#include "runtime/train/claim.h"
#include "runtime/train/evaluation.h"
#include "runtime/train/gradients.h"
#include "runtime/train/loop.h"
#include "runtime/train/output_places.h"
#include "runtime/train/report.h"
#include "runtime/train/resuming.h"
#include "runtime/train/run_state.h"
#include "runtime/train/saving.h"
#include "runtime/train/signals.h"
#include "runtime/train/trace_file.h"
#include "runtime/train/weights.h"
#include "src/base/json_writer.h"
#include "src/base/partial_files.h"
#include "src/base/text.h"

namespace dc::runtime::train {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;
using Clock = std::chrono::steady_clock;

constexpr size_t kMaxTraceRecords = 1 << 17;  // per stream and rank
constexpr size_t kRecordingSteps = 20;

std::string saved_folder(const std::string& save) {
  return is_weights_path(save) ? base::folder_of(save) : save;
}

// What `work` returns, and how long it took.
template <typename Work>
auto timed(double& milliseconds, const Work& work) {
  const auto begin = Clock::now();
  auto result = work();
  milliseconds = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  return result;
}

// One run on one rank, from checks to the last save.
class Session {
 public:
  Session(const plan::Loaded& loaded, comm::ProcessGroup& job, const comm::LaunchInfo& launch,
          const TrainOptions& options)
      : plan_(loaded.plan),
        digest_(loaded.digest),
        job_(job),
        control_(job.control()),
        launch_(launch),
        options_(options),
        report_(control_.rank().v == 0, options.steps) {}

  Result<Outcome> run() {
    DC_RETURN_IF_ERROR(comm::check_equal(control_, digest_, "plan"));
    DC_RETURN_IF_ERROR(comm::check_equal(control_, options_text(), "run options"));
    if (options_.record && job_.device().kind() == base::DeviceKind::Cuda) {
      return Status(ErrorKind::Unsupported, "DC6625",
                    "a run on a GPU makes no profile: what times its kernels makes them longer; "
                    "leave out --record-profile, measure by dcc profile --device cuda, or look at "
                    "--trace");
    }
    report_.start(facts());
    const std::string spread = shards_across_hosts(plan_, job_.hosts());
    if (control_.rank().v == 0 && !spread.empty()) note(spread);
    if (!options_.resume.empty()) DC_RETURN_IF_ERROR(find_checkpoint_to_resume());
    Status files = timed(start_times_.files_ms, [this] { return open_files(); });
    if (Status opened = comm::agree(control_, std::move(files), "opening its files");
        !opened.ok()) {
      std::error_code ignored;
      for (const std::string& folder : made_) std::filesystem::remove(folder, ignored);
      return opened;
    }
    for (const std::string& folder : {saved_folder(options_.save), options_.dump_gradients}) {
      if (!folder.empty()) DC_RETURN_IF_ERROR(check_shared(folder, control_));
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
    json.integer(options_.steps).string(options_.resume);
    json.integer(options_.save_every).integer(options_.keep);
    json.integer(options_.eval_every).integer(options_.eval_batches);
    for (const std::string& data : options_.eval_data) json.string(data);
    json.boolean(is_weights_path(options_.save));
    json.string(options_.shuffle ? std::to_string(*options_.shuffle) : "");
    for (const std::string* path :
         {&options_.metrics, &options_.save, &options_.trace, &options_.dump_gradients}) {
      json.boolean(path->empty());
    }
    const plan::Optimizer& optimizer = options_.settings.optimizer;
    json.boolean(options_.poison).boolean(options_.record).real(options_.settings.loss_scale);
    json.real(optimizer.clip_norm).integer(static_cast<int64_t>(optimizer.seed));
    json.integer(static_cast<int64_t>(optimizer.schedule)).integer(optimizer.warmup_steps);
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
    facts.launcher = std::string(comm::name(launch_.launcher));
    facts.communicator = std::string(job_.name());
    facts.sums_in_rank_order = control_.sums_in_rank_order();
    facts.hosts = job_.hosts().empty() ? 0 : job_.hosts().back() + 1;
    for (const plan::Space space : base::kSpaces)
      facts.arena_bytes[space] = memory::arena_bytes(plan_, space);
    if (saving_) facts.save_bytes = saving_->copy_bytes();
    if (executor_) facts.providers = executor_->counts();
    facts.start = start_times_;
    facts.weights = options_.weights;
    facts.save = options_.save;
    for (const std::string& data : options_.data) {
      facts.data += (facts.data.empty() ? "" : ",") + data;
    }
    return facts;
  }

  // The run before this one may still write its last checkpoint: it has ended before the newest is
  // looked for.
  Status claim_checkpoints() {
    if (control_.rank().v != 0 || options_.save.empty() || is_weights_path(options_.save)) {
      return base::ok_status();
    }
    DC_ASSIGN_OR_RETURN(save_claim_, Claim::folder(options_.save));
    return base::ok_status();
  }

  Status find_checkpoint_to_resume() {
    DC_RETURN_IF_ERROR(
        comm::agree(control_, claim_checkpoints(), "looking at the place of --save"));
    DC_ASSIGN_OR_RETURN(resuming_, Resuming::open(options_.resume, options_.save, plan_, control_));
    const bool speaks = control_.rank().v == 0;
    if (!resuming_) {
      if (speaks) {
        note("no checkpoint in " + options_.save + " yet, so the run starts from --weights");
      }
      return base::ok_status();
    }
    start_ = resuming_->start();
    const std::string differences = resuming_->differences(run_configuration(plan_, options_));
    if (speaks && !differences.empty()) {
      note(resuming_->path() + " goes on with " + differences);
    }
    const std::string buffers = resuming_->moved_buffers(plan_);
    if (speaks && !buffers.empty()) note(resuming_->path() + ": " + buffers);
    return base::ok_status();
  }

  static void note(const std::string& text) {
    std::fprintf(stderr, "note: %s\n", base::printable(text).c_str());
  }

  Status open_weight_files() {
    if (resuming_) return base::ok_status();
    if (options_.weights.empty()) {
      return Status(ErrorKind::MissingInput, "DC6553",
                    "there is no checkpoint to resume from and no --weights to start from; give "
                    "one of them");
    }
    const int rank = control_.rank().v;
    DC_ASSIGN_OR_RETURN(
        weights_, open_weights(options_.weights, plan_, {rank, options_.weights_only_by_name}));
    if (rank != 0) return base::ok_status();
    for (const std::string& about : {weights_.unused, weights_.left_behind}) {
      if (!about.empty()) note(options_.weights + ": " + about);
    }
    return base::ok_status();
  }

  // What this rank can find out alone, before any memory is touched.
  Status open_files() {
    const int rank = control_.rank().v;
    DataRequest request = DataRequest::of(plan_, rank, options_.shuffle);
    request.start = start_;
    DC_ASSIGN_OR_RETURN(data_, DataSource::open(options_.data, request));
    DC_ASSIGN_OR_RETURN(evaluation_, Evaluation::open(plan_, rank, options_));
    DC_RETURN_IF_ERROR(open_weight_files());
    if (start_.step < options_.steps) DC_RETURN_IF_ERROR(data_->check(start_.step));
    DC_ASSIGN_OR_RETURN(
        outside_, memory::OffloadMemory::create(plan_, rank, options_.offload_dir, job_.device()));
    if (rank != 0) return base::ok_status();
    if (!options_.dump_gradients.empty()) {
      makes_dump_folder_ = !std::filesystem::exists(options_.dump_gradients);
      if (makes_dump_folder_) made_.push_back(options_.dump_gradients);
      DC_RETURN_IF_ERROR(prepare_folder(options_.dump_gradients));
    }
    if (!options_.trace.empty()) DC_RETURN_IF_ERROR(prepare_file(options_.trace));
    DC_ASSIGN_OR_RETURN(save_claim_, Saving::claim(options_, resuming_ ? resuming_->path() : "",
                                                   std::move(save_claim_), made_));
    if (options_.metrics.empty()) return base::ok_status();
    DC_RETURN_IF_ERROR(prepare_lines(options_.metrics));
    if (!options_.resume.empty()) {
      DC_ASSIGN_OR_RETURN(metrics_, Metrics::go_on(options_.metrics, start_.step, options_.save,
                                                   options_.overwrite));
      return base::ok_status();
    }
    DC_ASSIGN_OR_RETURN(metrics_, Metrics::open(options_.metrics, options_.overwrite));
    return base::ok_status();
  }

  Status prepare() {
    DC_RETURN_IF_ERROR(
        comm::agree(control_,
                    Saving::check_memory(options_, plan_, control_.rank().v, launch_.local_world,
                                         job_.device().kind(), memory::free_memory()),
                    "looking for memory"));
    const int64_t arena = memory::arena_bytes(plan_, plan::Space::Device);
    DC_ASSIGN_OR_RETURN(const comm::Slab slab, timed(start_times_.memory_ms, [&] {
                          return job_.allocate(base::round_up(std::max<int64_t>(arena, 1), 4096));
                        }));
    DC_RETURN_IF_ERROR(comm::agree(control_, job_.restrict_reads(slab, plan::peer_reads(plan_)),
                                   "looking for memory"));
    exec::ExecutorOptions options;
    options.poison = options_.poison;
    options.graphs = options_.graphs;
    options.outside = &outside_;
    if (!options_.trace.empty() || options_.record) {
      using Outside = exec::TraceRecorder::Outside;
      trace_ =
          std::make_shared<exec::TraceRecorder>(plan_, control_.rank().v, trace_capacity(),
                                                options_.record ? Outside::Begin : Outside::All);
      options.trace = trace_.get();
    }
    auto executor = timed(start_times_.kernels_ms,
                          [&] { return exec::Executor::prepare(plan_, job_, slab, options); });
    DC_RETURN_IF_ERROR(
        comm::agree(control_, executor.ok() ? Status() : executor.status(), "preparing the plan"));
    executor_ = std::move(executor).value();
    report_.other_device(plan_, job_.device().kind());
    report_.missing_scratch(executor_->missing_scratch(), arena);
    Status filled = timed(start_times_.weights_ms, [this] { return fill(); });
    DC_RETURN_IF_ERROR(comm::agree(control_, std::move(filled), "filling the state"));
    weights_ = WeightSet();  // the files are read; let go of them
    resuming_.reset();
    auto saving = Saving::create(options_, plan_, digest_, state_memory(), control_,
                                 [this] { return executor_->finish(); });
    DC_RETURN_IF_ERROR(
        comm::agree(control_, saving.ok() ? Status() : saving.status(), "preparing to save"));
    saving_ = std::move(*saving);
    saving_->begun_with(resumed_);
    if (!options_.dump_gradients.empty()) {
      DC_ASSIGN_OR_RETURN(dump_, GradientDump::create(options_.dump_gradients, plan_, control_));
    }
    Status metrics = metrics_ ? metrics_->begin(facts()) : Status();
    return comm::agree(control_, std::move(metrics), "writing its metrics");
  }

  Status fill() {
    if (!resuming_) {
      return fill_state(plan_, weights_, control_.rank().v, state_memory());
    }
    resumed_ = resuming_->path();
    DC_RETURN_IF_ERROR(fill_constants(plan_, state_memory()));
    return resuming_->restore(plan_, state_memory());
  }

  size_t trace_capacity() const {
    size_t per_step = 1;  // where an evaluation begins
    for (const plan::ProgramRun& run : plan_.step) {
      per_step += static_cast<size_t>(run.repeat) *
                  plan_.programs[static_cast<size_t>(run.program)].instructions.size();
    }
    // A trace holds at least one whole step, a recording enough of them for a median.
    const size_t steps =
        std::max<size_t>(kMaxTraceRecords / per_step, options_.record ? kRecordingSteps : 1);
    const int64_t left = std::max<int64_t>(options_.steps - start_.step, 1);
    return per_step * std::min(steps, static_cast<size_t>(left));
  }

  checkpoint::TensorBinder binder() const {
    return [this](int32_t id) { return executor_->tensor(id); };
  }
  checkpoint::StateMemory state_memory() {
    return {plan_, job_.device(), binder(), outside_.disk.get()};
  }

  Result<Outcome> train(Loop& loop) {
    Outcome outcome;
    outcome.begun = outcome.steps = start_.step;
    DC_ASSIGN_OR_RETURN(outcome.stopped, comm::any_rank(control_, stop_requested()));
    sent_before_ = executor_->traffic();
    waited_before_ns_ = executor_->waited_ns();
    account_ = Clock::now();
    checked_ = start_.step;
    if (start_.step > 0 && start_.step >= options_.steps) report_.nothing_to_do(start_.step);
    while (!outcome.stopped && outcome.steps < options_.steps) {
      DC_ASSIGN_OR_RETURN(const StepResult result, one_step(loop, outcome.steps));
      if (!result.finite) return not_finite(loop, outcome.steps);
      ++outcome.steps;
      outcome.stopped = result.stop_requests > 0;
      if (!outcome.stopped) {
        DC_ASSIGN_OR_RETURN(outcome.stopped, evaluate(outcome.steps));
      }
      const bool is_last = outcome.stopped || outcome.steps >= options_.steps;
      if (!is_last) {
        DC_RETURN_IF_ERROR(saving_->after_step(outcome.steps, data_->position(outcome.steps)));
      }
    }
    drop_unused_dump();
    DC_RETURN_IF_ERROR(report_hosts(outcome.steps));
    report_.finish();
    DC_ASSIGN_OR_RETURN(const Saved saved,
                        saving_->finish(outcome.steps, data_->position(outcome.steps), {}));
    if (!options_.trace.empty()) {
      DC_RETURN_IF_ERROR(comm::agree(control_, executor_->finish(), "finishing its last step"));
      DC_RETURN_IF_ERROR(save_trace(options_.trace, *trace_,
                                    {digest_, plan_.name, std::string(job_.name())}, control_));
    }
    if (saved.refused) {
      return Status(ErrorKind::NonFinite, "DC6552",
                    "after step " + std::to_string(outcome.steps) + saved.sentence +
                        "; try a lower learning rate, clipping, or other data");
    }
    DC_RETURN_IF_ERROR(report_problem(outcome.steps, saved));
    // A request that came during the last step or the save counts too.
    DC_ASSIGN_OR_RETURN(const bool late, comm::any_rank(control_, stop_requested()));
    outcome.stopped = outcome.stopped || late;
    if (options_.record) outcome.recording = trace_;
    outcome.saved = saved.sentence;
    return outcome;
  }

  // Where no step was made there are no gradients: neither a file nor the folder that was made for
  // it stays.
  void drop_unused_dump() {
    if (!dump_) return;
    dump_.reset();
    std::error_code ignored;
    if (makes_dump_folder_) std::filesystem::remove(options_.dump_gradients, ignored);
  }

  Result<StepResult> one_step(Loop& loop, int64_t step) {
    if (dump_) {
      executor_->observe([this](int32_t program, int32_t index) {
        return dump_->after_instruction(*executor_, program, index);
      });
    }
    const auto start = Clock::now();
    check_data(step + 1);
    const bool stops = !problem_.ok();
    const auto meanwhile = [&](bool is_last) {
      write_row();
      if (!is_last) return Loop::Ahead::Upload;
      check_data(step + 2);
      if (step + 1 >= options_.steps || stops) return Loop::Ahead::Nothing;
      return something_follows(step + 1) ? Loop::Ahead::Fill : Loop::Ahead::Upload;
    };
    Status ran = loop.run(step, stops, std::ref(meanwhile));  // a reference allocates nothing
    const std::chrono::duration<double, std::milli> spent = Clock::now() - start;
    write_row();
    DC_RETURN_IF_ERROR(std::move(ran));
    if (dump_) {
      executor_->observe(nullptr);
      DC_RETURN_IF_ERROR(dump_->finish());
      dump_.reset();
    }
    const StepResult result = loop.result();
    // Gathers that the last step started for a next step count for the last step.
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
    const comm::Traffic sent = executor_->traffic();
    const exec::Executor::CommunicationTime spent_so_far = executor_->communication_time();
    facts.wire = sent - sent_before_;
    across_hosts_ += facts.wire.across_hosts;
    facts.collective_ms = milliseconds(spent_so_far.collective_ns - spent_before_.collective_ns);
    facts.exposed_ms = milliseconds(spent_so_far.exposed_ns - spent_before_.exposed_ns);
    sent_before_ = sent;
    spent_before_ = spent_so_far;
    facts.host_ms = host_ms();
    row_ = facts;
    // Else it is written while the device works on the next step.
    if (is_last || !result.finite || something_follows(step + 1) ||
        !job_.device().works_beside_host()) {
      write_row();
    }
    return result;
  }

  // Before the next step, after so many.
  bool something_follows(int64_t steps) const {
    return (evaluation_ && evaluation_->is_due(steps, options_.steps)) ||
           (options_.save_every > 0 && steps % options_.save_every == 0);
  }

  // Of the last step, unless it is written.
  void write_row() {
    if (!row_) return;
    report_.step(*row_);
    add_metrics(*row_);
    row_.reset();
  }

  // Whether this rank's rows up to a step can be read.
  void check_data(int64_t step) {
    if (!problem_.ok() || step >= options_.steps || step <= checked_) return;
    problem_ = data_->check(step);
    checked_ = step;
  }

  // Since the account of the step before; evaluations and saves between are part of it.
  std::optional<double> host_ms() {
    if (!job_.device().works_beside_host()) return std::nullopt;
    const auto now = Clock::now();
    const int64_t waited_ns = executor_->waited_ns();
    const std::chrono::nanoseconds busy =
        now - account_ - std::chrono::nanoseconds(waited_ns - waited_before_ns_);
    account_ = now;
    waited_before_ns_ = waited_ns;
    return milliseconds(busy.count());
  }

  // A file of figures that takes no more costs no work: the run ends after the next step, with its
  // state saved.
  template <typename Facts>
  void add_metrics(const Facts& facts) {
    if (!metrics_) return;
    Status added = metrics_->add(facts);
    if (added.ok()) return;
    metrics_.reset();
    if (problem_.ok()) problem_ = std::move(added);
  }

  // What ended the run early, if anything did; needs all ranks.
  Status report_problem(int64_t steps, const Saved& saved) {
    DC_ASSIGN_OR_RETURN(const bool any, comm::any_rank(control_, !problem_.ok()));
    if (!any) return base::ok_status();
    Status mine = std::move(problem_);
    if (!mine.ok()) mine.add_context("found after step " + std::to_string(steps) + saved.sentence);
    return comm::agree(control_, std::move(mine), "reading its data or writing its metrics");
  }

  // What each host sent to others; needs all ranks. Nothing where there is one host, or hosts are
  // not known.
  Status report_hosts(int64_t steps) {
    const std::vector<int>& hosts = job_.hosts();
    if (hosts.empty() || hosts.back() == 0 || steps == start_.step) return base::ok_status();
    std::vector<int64_t> sent(hosts.size());
    DC_RETURN_IF_ERROR(control_.exchange(&across_hosts_, sizeof(across_hosts_), sent.data()));
    const AcrossHosts all = across_hosts(hosts, sent, steps, steps - start_.step);
    report_.hosts(all);
    add_metrics(all);
    return base::ok_status();
  }

  // Whether the run must stop: on request, or because a rank cannot read its evaluation data.
  Result<bool> evaluate(int64_t steps) {
    if (!evaluation_ || !evaluation_->is_due(steps, options_.steps)) return false;
    DC_ASSIGN_OR_RETURN(EvaluationResult result, evaluation_->run(*executor_, control_));
    if (!result.problem.ok()) problem_ = std::move(result.problem);
    if (result.stopped) return true;
    // What an evaluation takes is no step's.
    sent_before_ += result.wire;
    spent_before_.collective_ns += result.communication.collective_ns;
    spent_before_.exposed_ns += result.communication.exposed_ns;
    const EvaluationFacts facts{steps,
                                result.loss,
                                result.samples,
                                result.ms,
                                milliseconds(result.communication.collective_ns),
                                milliseconds(result.communication.exposed_ns),
                                result.wire};
    report_.evaluation(facts);
    add_metrics(facts);
    return false;
  }

  static double milliseconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e6; }

  Status not_finite(Loop& loop, int64_t step) {
    DC_ASSIGN_OR_RETURN(const std::string what, loop.culprit());
    DC_ASSIGN_OR_RETURN(const std::vector<std::string> updated, loop.updated());
    const std::string number = std::to_string(step + 1);
    // A rank that ends while others are in the step would end theirs as a lost peer.
    DC_RETURN_IF_ERROR(comm::agree(control_, executor_->finish(), "finishing its last step"));
    DC_ASSIGN_OR_RETURN(const Saved saved, saving_->finish(step, data_->position(step), updated));
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
  comm::ProcessGroup& job_;
  comm::Communicator& control_;
  const comm::LaunchInfo& launch_;
  const TrainOptions& options_;
  Report report_;

  std::vector<std::string> made_;  // folders of this run, empty so far
  Claim save_claim_;               // rank 0
  std::unique_ptr<DataSource> data_;
  Status problem_;  // with the data of a later step, or with the metrics
  std::unique_ptr<Evaluation> evaluation_;
  std::unique_ptr<Resuming> resuming_;  // until the state is filled
  std::string resumed_;                 // its path
  DataStart start_;
  StartTimes start_times_;
  WeightSet weights_;
  memory::OffloadMemory outside_;
  std::shared_ptr<exec::TraceRecorder> trace_;
  std::unique_ptr<exec::Executor> executor_;
  std::unique_ptr<GradientDump> dump_;  // until the first step is made
  bool makes_dump_folder_ = false;      // rank 0
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<Saving> saving_;
  // Up to the end of the last step's account: streams work on between steps.
  comm::Traffic sent_before_;
  int64_t across_hosts_ = 0;  // bytes that this rank sent to other hosts in its steps
  exec::Executor::CommunicationTime spent_before_;
  int64_t waited_before_ns_ = 0;
  std::optional<StepFacts> row_;  // of the last step, while it is not written
  int64_t checked_ = 0;           // data is, up to this step
  Clock::time_point account_;     // when it ended
};

}  // namespace

Result<Outcome> train(const plan::Loaded& loaded, comm::ProcessGroup& job,
                      const comm::LaunchInfo& launch, const TrainOptions& options) {
  return Session(loaded, job, launch, options).run();
}

}  // namespace dc::runtime::train
