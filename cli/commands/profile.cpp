#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/progress_line.h"
#include "cli/rank_threads.h"
#include "runtime/comm/agreement.h"
#include "runtime/comm/gpu_ranks.h"
#include "runtime/comm/hosts.h"
#include "runtime/comm/job_key.h"
#include "runtime/comm/rendezvous.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/exec/open_gpu.h"
#include "runtime/measure/measure.h"
#include "src/base/file.h"
#include "src/base/refused.h"
#include "src/base/text.h"
#include "src/driver/model.h"
#include "src/driver/profile.h"
#include "src/profile/profile_file.h"

namespace dc::cli {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;

// A bar: of kernels, then of fused kernels drawn at random if any are asked for, then with several
// ranks of collectives.
class ProgressBar {
 public:
  ProgressBar(bool wanted, bool has_fusions, bool has_collectives)
      : line_(wanted), fusions_(has_fusions ? 0.4 : 0), collectives_(has_collectives ? 0.2 : 0) {}

  void show(double fraction, std::string_view what) {
    constexpr int kWidth = 40;
    const double kernels = 1 - fusions_ - collectives_;
    const double total = what == "kernels"   ? kernels * fraction
                         : what == "fusions" ? kernels + fusions_ * fraction
                                             : 1 - collectives_ * (1 - fraction);
    std::string bar(static_cast<size_t>(total * kWidth), '#');
    bar.resize(kWidth, '.');
    std::string percent = std::to_string(static_cast<int>(100 * total));
    percent.insert(0, 3 - std::min<size_t>(3, percent.size()), ' ');
    std::string name(what);
    name.resize(std::max<size_t>(12, name.size()), ' ');  // over a longer one
    line_.show("[" + bar + "] " + percent + " % " + name);
  }

 private:
  ProgressLine line_;
  double fusions_, collectives_;  // parts of the whole
};

Status check_output(const ProfileArguments& arguments) {
  const std::string inputs[] = {arguments.model, arguments.job_key};
  return base::check_output(arguments.output, inputs);
}

// Of options that GPUs do not take.
Status check_device(const ProfileArguments& arguments) {
  if (arguments.device != base::name(base::DeviceKind::Cuda)) return {};
  const char* const given = !arguments.offload_dir.empty() ? "--offload-dir"
                            : arguments.fusions > 0        ? "--fusions"
                                                           : nullptr;
  if (given == nullptr) return {};
  return Status(ErrorKind::Unsupported, "DC2818",
                std::string(given) +
                    ": this version does not measure that on GPUs; leave it out, "
                    "or profile with --device cpu");
}

// What can go wrong before anything is measured; the output is rank 0's.
Status make_ready(const ProfileArguments& arguments, int rank, driver::Model& model) {
  if (rank == 0) DC_RETURN_IF_ERROR(check_output(arguments));
  DC_ASSIGN_OR_RETURN(model, driver::read_model(arguments.model, "", arguments.dims));
  return {};
}

// How many different GPUs the ranks have.
Result<int> count_gpus(runtime::comm::ProcessGroup& job) {
  using runtime::device::cuda::Uuid;
  const Uuid own = static_cast<runtime::device::CudaDevice&>(job.device()).uuid();
  std::vector<Uuid> all(static_cast<size_t>(job.control().size()));
  DC_RETURN_IF_ERROR(job.control().exchange(&own, sizeof own, all.data()));
  std::set<std::string_view> different;
  for (const Uuid& gpu : all) different.emplace(gpu.bytes, sizeof gpu.bytes);
  return static_cast<int>(different.size());
}

// `gauge`: of this rank's GPU, if there is one; left out where ranks share it.
Status measure(const ProfileArguments& arguments, const runtime::comm::LaunchInfo& launch,
               runtime::comm::ProcessGroup& job,
               std::optional<runtime::measure::MemoryGauge> gauge) {
  runtime::comm::Communicator& control = job.control();
  driver::Model model;
  DC_RETURN_IF_ERROR(
      runtime::comm::agree(control, make_ready(arguments, launch.rank, model), "getting ready"));
  ProgressBar bar(launch.rank == 0, arguments.fusions > 0, launch.world > 1);
  const runtime::measure::Progress progress = [&](double fraction, std::string_view what) {
    bar.show(fraction, what);
  };
  const int per_host = arguments.ranks_per_host > 0 ? arguments.ranks_per_host
                                                    : runtime::comm::ranks_per_host(job.hosts());
  const bool on_gpus = job.device().kind() == base::DeviceKind::Cuda;
  DC_ASSIGN_OR_RETURN(const int gpus, on_gpus ? count_gpus(job) : Result<int>(0));
  if (gpus != launch.world) gauge.reset();
  DC_ASSIGN_OR_RETURN(const base::Measurements all,
                      driver::measure(model.step,
                                      {arguments.offload_dir, arguments.threads, per_host,
                                       arguments.fusions, gauge ? &*gauge : nullptr},
                                      launch, job, progress));
  Status written;
  if (launch.rank == 0) written = profile::write_profile(arguments.output, all);
  DC_RETURN_IF_ERROR(runtime::comm::agree(control, std::move(written), "writing the profile"));
  if (launch.rank != 0) return {};
  const auto fused = static_cast<int64_t>(all.alone.size());
  const std::string alone =
      arguments.fusions > 0 ? ", " + base::count_of(fused, "fused kernel") + " alone" : "";
  const std::string own =
      gpus == launch.world ? "a GPU each" : base::count_of(gpus, "GPU") + " together";
  const std::string where =
      all.machine.gpu ? own + ", " + all.machine.gpu->name
                      : base::count_of(arguments.threads, "thread") + " each on " + all.machine.cpu;
  std::printf("%s: %zu kernels%s, %zu collective sizes, %s with %s\n", arguments.output.c_str(),
              all.kernels.size(), alone.c_str(), all.collectives.size(),
              base::count_of(launch.world, "rank").c_str(), where.c_str());
  const bool has_libtorch =
      std::ranges::any_of(all.kernels, [](const base::KernelMeasurement& kernel) {
        return kernel.signature.provider() == base::Provider::Aten;
      });
  if (!has_libtorch && !all.machine.gpu)
    std::printf("libtorch's kernels have no figures: libdcrun_aten.so cannot be used here\n");
  return {};
}

// The ranks, connected, on the devices that are to be measured.
Result<std::unique_ptr<runtime::comm::ProcessGroup>> connect(
    const ProfileArguments& arguments, const runtime::comm::LaunchInfo& launch) {
  const bool on_gpus = arguments.device == base::name(base::DeviceKind::Cuda);
  runtime::comm::CommOptions comm;
  comm.backend = arguments.comm;
  comm.threads_per_rank = arguments.threads;  // pinned as dcrun's ranks are
  if (on_gpus && launch.world == 1) {
    DC_ASSIGN_OR_RETURN(comm.device,
                        runtime::device::open_device(base::DeviceKind::Cuda, launch.local_rank));
  }
  DC_ASSIGN_OR_RETURN(std::unique_ptr<runtime::comm::ProcessGroup> job,
                      runtime::comm::connect(launch, comm));
  if (!on_gpus || launch.world == 1) return job;
  return runtime::comm::add_gpus(
      std::move(job), runtime::exec::open_gpu(launch.local_rank, comm.timeout), arguments.comm);
}

Status profile_rank(const ProfileArguments& arguments, const runtime::comm::LaunchInfo& launch) {
  set_threads(arguments.threads);
  std::optional<runtime::measure::MemoryGauge> gauge;
  if (arguments.device == base::name(base::DeviceKind::Cuda))
    gauge = runtime::measure::MemoryGauge::before_use(launch.local_rank);
  DC_ASSIGN_OR_RETURN(const std::unique_ptr<runtime::comm::ProcessGroup> job,
                      connect(arguments, launch));
  Status status = measure(arguments, launch, *job, gauge);
  job->leave(status);
  return status;
}

}  // namespace

int run_profile(const ProfileArguments& arguments, int argc, char** argv) {
  const auto finish = [](const Status& status) {
    if (status.ok()) return 0;
    std::fprintf(stderr, "%s\n", status.to_string().c_str());
    return base::exit_code(status.kind());
  };
  Result<runtime::comm::LaunchInfo> launch = runtime::comm::detect_launch();
  if (!launch.ok()) return finish(launch.status());
  Result<std::string> secret = runtime::comm::read_job_key(arguments.job_key);
  if (!secret.ok()) return finish(secret.status());
  launch->secret = std::move(secret).value();
  const bool starts_ranks = launch->is_alone() && arguments.ranks > 1;
  const int world = starts_ranks ? arguments.ranks : launch->world;
  if (arguments.ranks_per_host > 0 && world % arguments.ranks_per_host != 0) {
    return finish(Status(ErrorKind::Usage, "DC2810",
                         "--ranks-per-host " + std::to_string(arguments.ranks_per_host) +
                             " does not divide the " + std::to_string(world) +
                             " ranks; give the number of ranks of each host"));
  }
  if (Status status = check_device(arguments); !status.ok()) return finish(status);
  if (starts_ranks) {
    // One message here instead of one from every rank.
    if (Status status = check_output(arguments); !status.ok()) return finish(status);
    return runtime::comm::spawn_ranks(arguments.ranks, argc, argv);
  }
  if (arguments.ranks > 0 && arguments.ranks != launch->world) {
    return finish(Status(ErrorKind::BadConfig, "DC2804",
                         "-n " + std::to_string(arguments.ranks) +
                             " contradicts the launcher, which started " +
                             std::to_string(launch->world) + " ranks; leave out -n"));
  }
  const Status status = base::or_refused([&] { return profile_rank(arguments, *launch); });
  // A failure that another rank has reported is reported again only by the first rank of each
  // host, which refers to that rank.
  if (runtime::comm::is_reported_elsewhere(status) && launch->local_rank != 0)
    return base::exit_code(status.kind());
  return finish(status);
}

}  // namespace dc::cli
