#include "runtime/train/report.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string_view>

#include "runtime/train/signals.h"
#include "src/base/text.h"

namespace dc::runtime::train {
namespace {

bool capable_terminal() {
  const char* term = std::getenv("TERM");
  return isatty(STDERR_FILENO) && term && std::strcmp(term, "dumb") != 0 && !std::getenv("CI");
}

// A full disk behind standard output ends no run.
void warn_once(int error) {
  static bool said = false;
  if (said) return;
  said = true;
  std::fprintf(
      stderr,
      "dcrun: warning: cannot write to standard output: %s; the run goes on, and --metrics "
      "keeps the record\n",
      std::strerror(error));
}

// Standard output. A reader that does not keep up slows the run down, but not for so long that the
// peers of rank 0 would give it up: then lines are left out until it reads again. Nor does it keep
// the run from stopping: a launcher that ends a job may no longer read what the ranks print.
class Lines {
 public:
  void print(std::string_view text) {
    if (is_cut_ && !write("\n")) return;
    is_cut_ = false;
    if (!write(text)) return;
    if (left_out_ > 0) {
      std::fprintf(stderr,
                   "dcrun: warning: standard output was not read for a while, and %lld lines were "
                   "left out; --metrics keeps the record\n",
                   static_cast<long long>(left_out_));
    }
    left_out_ = 0;
  }

 private:
  static constexpr int kWaits = 5, kWaitMs = 1000;

  bool is_ready() const {
    pollfd ready{STDOUT_FILENO, POLLOUT, 0};
    for (int waits = left_out_ > 0 ? 0 : kWaits; waits >= 0; --waits) {
      if (poll(&ready, 1, waits == 0 || stop_requested() ? 0 : kWaitMs) > 0) return true;
      if (stop_requested()) return false;
    }
    return false;
  }
  // Whether all of the text was written.
  bool write(std::string_view text) {
    for (size_t done = 0; done < text.size();) {
      if (!is_ready()) {
        is_cut_ = is_cut_ || done > 0;
        ++left_out_;
        return false;
      }
      const ssize_t count = ::write(STDOUT_FILENO, text.data() + done, text.size() - done);
      if (count > 0) {
        done += static_cast<size_t>(count);
      } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
        if (count < 0 && errno != EPIPE) warn_once(errno);
        return false;  // stdout has no reader any more; the metrics file is the record
      }
    }
    return true;
  }

  int64_t left_out_ = 0;
  bool is_cut_ = false;  // the last line that was begun has no end
};

void print(std::string_view text) {
  static Lines lines;
  lines.print(text);
}

// Without the sign that a NaN may have: it says nothing.
double unsigned_nan(double value) {
  return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
}

double per_second(const StepFacts& facts) {
  return facts.step_ms > 0 ? static_cast<double>(facts.tokens) * 1000.0 / facts.step_ms : 0;
}

}  // namespace

Report::Report(bool rank_zero, int64_t steps)
    : prints_(rank_zero), progress_(rank_zero && capable_terminal()), steps_(steps) {}

Report::~Report() { clear(); }

void Report::start(const RunFacts& facts) const {
  if (!prints_) return;
  print("plan " + facts.plan_name + " (" + facts.plan_digest.substr(0, 12) + ") world " +
        std::to_string(facts.world) + " launcher " + facts.launcher + " communicator " +
        facts.communicator + " threads " + std::to_string(facts.threads) + "\n");
}

void Report::other_device(const plan::Plan& plan, base::DeviceKind runs_on) const {
  const bool is_other = runs_on == base::DeviceKind::Cuda && plan.device != runs_on;
  if (!prints_ || !is_other || plan.profile_digest.empty()) return;
  const std::string from(base::name(plan.device)), to(base::name(runs_on));
  std::fprintf(stderr,
               "dcrun: warning: the plan was compiled with a profile of device '%s' and runs on "
               "'%s': its times and its scratch are not this device's; profile the model with dcc "
               "profile --device %s and compile with that\n",
               from.c_str(), to.c_str(), to.c_str());
}

void Report::missing_scratch(const kernel::MissingScratch& missing, int64_t arena) const {
  if (!prints_ || missing.bytes == 0) return;
  std::fprintf(
      stderr,
      "dcrun: warning: kernels need more scratch on this CPU than the plan has: %lld bytes "
      "per rank on top of its %lld (most lacks '%s': %lld needed, %lld planned); profile the "
      "model on this machine with dcc profile and compile with --profile to have it in "
      "the plan\n",
      static_cast<long long>(missing.bytes), static_cast<long long>(arena), missing.op.c_str(),
      static_cast<long long>(missing.needed), static_cast<long long>(missing.planned));
}

void Report::nothing_to_do(int64_t step) const {
  if (!prints_) return;
  std::fprintf(
      stderr,
      "dcrun: note: the checkpoint is of step %lld and --steps is %lld: no step is left to "
      "run; give the number of the last step to reach\n",
      static_cast<long long>(step), static_cast<long long>(steps_));
}

void Report::step(const StepFacts& facts) {
  if (!prints_) return;
  clear();
  char line[256];
  std::snprintf(line, sizeof(line), "step %lld loss %.6f grad_norm %.6f lr %.6g tokens/s %.0f\n",
                static_cast<long long>(facts.step), unsigned_nan(facts.loss),
                unsigned_nan(facts.grad_norm), facts.lr, per_second(facts));
  print(line);
  spent_ms_ += facts.step_ms;
  collective_ms_ += facts.collective_ms;
  exposed_ms_ += facts.exposed_ms;
  ++done_;
  if (!progress_) return;
  const double left_ms =
      spent_ms_ / static_cast<double>(done_) * static_cast<double>(steps_ - facts.step);
  std::fprintf(stderr, "%lld/%lld  loss %.4f  %.0f tokens/s  %s left",
               static_cast<long long>(facts.step), static_cast<long long>(steps_), facts.loss,
               per_second(facts),
               base::format_duration(static_cast<int64_t>(left_ms * 1e6)).c_str());
  std::fflush(stderr);
}

void Report::evaluation(const EvaluationFacts& facts) const {
  if (!prints_) return;
  clear();
  char line[256];
  std::snprintf(line, sizeof(line), "step %lld eval_loss %.6f samples %lld ms %.0f\n",
                static_cast<long long>(facts.step), unsigned_nan(facts.loss),
                static_cast<long long>(facts.samples), facts.ms);
  print(line);
  if (std::isfinite(facts.loss)) return;
  std::fprintf(stderr,
               "dcrun: warning: the evaluation after step %lld is not finite; the training goes "
               "on, its own loss was\n",
               static_cast<long long>(facts.step));
}

void Report::hosts(const AcrossHosts& sent) const {
  if (!prints_) return;
  clear();
  const auto [least, most] = std::ranges::minmax(sent.hosts, {}, &AcrossHosts::Host::bytes);
  std::string bytes = std::to_string(least.bytes / sent.steps);
  if (most.bytes != least.bytes) bytes += " to " + std::to_string(most.bytes / sent.steps);
  print("each of " + std::to_string(sent.hosts.size()) + " hosts sent " + bytes +
        " bytes per step to other hosts\n");
}

void Report::finish() {
  if (!prints_ || done_ == 0 || collective_ms_ == 0) return;
  clear();
  const auto steps = static_cast<double>(done_);
  char line[256];
  std::snprintf(line, sizeof(line),
                "mean step %.2f ms collectives %.2f ms exposed %.2f ms hidden %.0f %%\n",
                spent_ms_ / steps, collective_ms_ / steps, exposed_ms_ / steps,
                100 * std::max(0.0, 1 - exposed_ms_ / collective_ms_));
  print(line);
}

void Report::clear() const {
  if (!progress_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
}

}  // namespace dc::runtime::train
