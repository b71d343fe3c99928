// dcrun: trains a compiled plan. Parses, connects the ranks, runs, and turns the outcome into an
// exit code.
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "cli/dcrun_options.h"
#include "cli/rank_threads.h"
#include "cli/record_profile.h"
#include "runtime/comm/agreement.h"
#include "runtime/comm/gpu_ranks.h"
#include "runtime/comm/job_key.h"
#include "runtime/comm/launch.h"
#include "runtime/comm/rendezvous.h"
#include "runtime/exec/open_gpu.h"
#include "runtime/kernel/cuda/compiler_process.h"
#include "runtime/plan/file.h"
#include "runtime/train/settings.h"
#include "runtime/train/signals.h"
#include "runtime/train/train.h"
#include "runtime/verify/verify.h"
#include "src/base/build_id.h"
#include "src/base/file.h"
#include "src/base/mapped_inputs.h"
#include "src/base/output_names.h"
#include "src/base/refused.h"
#include "src/base/standard_streams.h"
#include "src/base/text.h"
#include "src/base/train_config.h"

namespace {

using namespace dc;
using base::ErrorKind;
using base::Result;
using base::Status;

// "dcrun[rank 1]: error[DC6302]: ... (exit 76)": one line, the last of this rank.
int report(const Status& status, const std::string& who) {
  std::string line = "error[" + status.code() + "]: " + status.sentence();
  for (const std::string& context : status.context()) line += "; " + context;
  for (char& c : line) {
    if (c == '\n') c = ' ';
  }
  const int code = base::exit_code(status.kind());
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s (exit %d)\n", who.c_str(), base::printable(line).c_str(), code);
  return code;
}

// A failure that another rank has reported is reported again only by the first rank of each host,
// which refers to that rank.
int report_rank(const Status& status, const runtime::comm::LaunchInfo& launch,
                const std::string& who) {
  if (runtime::comm::is_reported_elsewhere(status) && launch.local_rank != 0)
    return base::exit_code(status.kind());
  return report(status, who);
}

int report_stop(const runtime::train::Outcome& outcome, const cli::DcrunOptions& options,
                const std::string& who) {
  std::string saved = "; nothing was saved, because there is no --save";
  if (!options.save.empty()) {
    saved = outcome.saved + (runtime::train::is_weights_path(options.save)
                                 ? ""
                                 : "; start again with --resume latest to go on");
  }
  const int code = base::exit_code(ErrorKind::Stopped);
  std::fflush(stdout);
  std::fprintf(stderr, "%s: stopped on request after step %lld (exit %d)%s\n", who.c_str(),
               static_cast<long long>(outcome.steps), code, saved.c_str());
  return code;
}

Status check_world(const runtime::plan::Loaded& loaded, const runtime::comm::LaunchInfo& launch) {
  const int world = loaded.plan.world();
  if (world == launch.world) return base::ok_status();
  return Status(ErrorKind::Mismatch, "DC6011",
                "the plan is for " + base::count_of(world, "rank") + " but " +
                    std::to_string(launch.world) + (launch.world == 1 ? " was" : " were") +
                    " started; start " + std::to_string(world) + " (dcrun -n " +
                    std::to_string(world) + ") or compile with --world " +
                    std::to_string(launch.world));
}

Result<runtime::train::TrainOptions> train_options(const cli::DcrunOptions& options,
                                                   const runtime::plan::Plan& plan) {
  base::TrainConfig config;
  if (!options.config.empty()) {
    DC_ASSIGN_OR_RETURN(config, base::read_train_config(options.config));
  }
  runtime::train::TrainOptions train;
  DC_ASSIGN_OR_RETURN(train.settings, runtime::train::run_settings(plan, config, options.lr));
  train.weights = options.weights;
  train.weights_only_by_name = options.weights_only_by_name;
  train.data = options.data;
  train.steps = options.steps;
  train.shuffle = options.shuffle;
  train.metrics = options.metrics;
  train.save = options.save;
  train.save_every = options.save_every;
  train.eval_every = options.eval_every;
  train.eval_data = options.eval_data;
  train.eval_batches = options.eval_batches;
  train.keep = options.keep;
  train.resume = options.resume;
  train.trace = options.trace;
  train.record = !options.record_profile.empty();
  train.dump_gradients = options.dump_gradients;
  train.offload_dir = options.offload_dir;
  train.overwrite = options.overwrite;
  train.poison = options.poison;
  train.graphs = !options.no_graph;
  return train;
}

// No output takes the place of an input, or of another output. --save may take an input's, if
// --overwrite says so.
Status check_outputs(const cli::DcrunOptions& options) {
  std::vector<std::string> inputs = {options.plan, options.weights, options.config,
                                     options.job_key};
  for (const std::vector<std::string>& list : {options.data, options.eval_data}) {
    for (const std::string& data : list) {
      inputs.push_back(data);
      inputs.push_back(data.substr(0, data.rfind(':')));
    }
  }
  for (const std::string& output : {options.trace, options.record_profile, options.metrics}) {
    if (!output.empty()) DC_RETURN_IF_ERROR(base::check_no_input(output, inputs));
  }
  const std::string gradients =
      options.dump_gradients.empty() ? "" : options.dump_gradients + "/gradients.safetensors";
  const std::string outputs[] = {options.trace, options.record_profile, options.metrics,
                                 options.save, gradients};
  return base::check_distinct(outputs);
}

struct Ready {
  runtime::plan::Loaded loaded;
  runtime::train::TrainOptions options;
};

Result<Ready> make_ready(const cli::DcrunOptions& options,
                         const runtime::comm::LaunchInfo& launch) {
  Ready ready;
  if (launch.rank == 0) DC_RETURN_IF_ERROR(check_outputs(options));
  DC_ASSIGN_OR_RETURN(ready.loaded, runtime::verify::load(options.plan));
  DC_RETURN_IF_ERROR(check_world(ready.loaded, launch));
  DC_ASSIGN_OR_RETURN(ready.options, train_options(options, ready.loaded.plan));
  if (launch.rank == 0 && !options.record_profile.empty()) {
    DC_RETURN_IF_ERROR(base::check_writable(options.record_profile));
  }
  return ready;
}

// The one that was asked for, or the plan's.
base::DeviceKind device_of(const cli::DcrunOptions& options, const Result<Ready>& ready) {
  const base::DeviceKind planned = ready.ok() ? ready->loaded.plan.device : base::DeviceKind::Cpu;
  return base::device_kind(options.device).value_or(planned);
}

Result<runtime::train::Outcome> run_rank(const cli::DcrunOptions& options,
                                         const runtime::comm::LaunchInfo& launch) {
  auto ready = make_ready(options, launch);
  const base::DeviceKind kind = device_of(options, ready);
  const bool between_gpus = kind == base::DeviceKind::Cuda && launch.world > 1;
  runtime::comm::CommOptions comm;
  if (!between_gpus) {
    if (auto device = runtime::device::open_device(kind, launch.local_rank); device.ok()) {
      comm.device = *device;
    } else {
      ready = std::move(device).status();
    }
  }
  comm.backend = options.comm;
  comm.timeout = std::chrono::seconds(options.timeout_seconds);
  if (ready.ok()) {
    comm.threads_per_rank = ready->loaded.plan.threads;
    cli::set_threads(ready->loaded.plan.threads);
  }
  auto connected = base::or_refused([&] { return runtime::comm::connect(launch, comm); });
  if (!connected.ok()) return ready.ok() ? connected.status() : ready.status();
  std::unique_ptr<runtime::comm::ProcessGroup> job = std::move(connected).value();
  // First the ranks agree whether all of them could read their plan and configuration.
  Status status = runtime::comm::agree(job->control(), ready.ok() ? Status() : ready.status(),
                                       "reading the plan and the configuration");
  if (!status.ok()) return status;
  DC_RETURN_IF_ERROR(runtime::comm::check_equal(job->control(), std::string(base::runtime_id()),
                                                "version of dcrun"));
  if (between_gpus) {
    DC_ASSIGN_OR_RETURN(
        job, runtime::comm::add_gpus(std::move(job),
                                     runtime::exec::open_gpu(launch.local_rank, comm.timeout),
                                     options.comm));
  }
  auto outcome = base::or_refused(
      [&] { return runtime::train::train(ready->loaded, *job, launch, ready->options); });
  if (outcome.ok() && outcome->recording) {
    status = cli::record_profile(options.record_profile, options.offload_dir, ready->loaded,
                                 *outcome, *job, launch);
    if (!status.ok()) outcome = std::move(status);
  }
  if (!outcome.ok()) job->leave(outcome.status());  // peers that wait for this rank hear why
  return outcome;
}

Status check_launch(const cli::DcrunOptions& options, const runtime::comm::LaunchInfo& launch) {
  const bool is_ours = launch.launcher == runtime::comm::Launcher::Dcrun;
  if (options.ranks == 0 || is_ours || launch.is_alone()) return base::ok_status();
  return Status(ErrorKind::BadConfig, "DC6012",
                "-n " + std::to_string(options.ranks) + " was given, but " +
                    std::string(runtime::comm::name(launch.launcher)) +
                    " has started this process as one of its ranks; leave out -n, or start dcrun "
                    "without that launcher");
}

int run(int argc, char** argv) {
  runtime::train::hold_stop_signals();  // first, so that an early signal is not lost
  signal(SIGPIPE, SIG_IGN);             // a launcher that stops reading must not end a save
  signal(SIGXFSZ, SIG_IGN);             // a file that may not grow is an error like a full disk
  auto options = cli::parse_dcrun_options(argc, argv);
  if (!options.ok()) return report(options.status(), "dcrun");
  if (!options->text.empty()) {
    std::fputs(options->text.c_str(), stdout);
    return 0;
  }
  auto launch = runtime::comm::detect_launch();
  if (!launch.ok()) return report(launch.status(), "dcrun");
  if (Status status = check_launch(*options, *launch); !status.ok()) return report(status, "dcrun");
  auto secret = runtime::comm::read_job_key(options->job_key);
  if (!secret.ok()) return report(secret.status(), "dcrun");
  launch->secret = std::move(secret).value();
  if (options->ranks > 0 && launch->is_alone()) {
    return runtime::comm::spawn_ranks(options->ranks, argc, argv);  // takes what is held
  }
  runtime::train::watch_stop_signals();
  const std::string who = "dcrun[rank " + std::to_string(launch->rank) + "]";
  base::report_lost_inputs(who);
  auto outcome = run_rank(*options, *launch);
  if (!outcome.ok()) return report_rank(outcome.status(), *launch, who);
  return outcome->stopped ? report_stop(*outcome, *options, who) : 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (runtime::kernel::cuda::serve_compiler(argc, argv)) return 0;
  base::open_standard_streams();
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    return report(base::refused(error), "dcrun");
  }
}
