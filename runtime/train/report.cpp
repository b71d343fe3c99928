#include "runtime/train/report.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "src/base/text.h"

namespace dc::runtime {
namespace {

bool capable_terminal() {
  const char* term = std::getenv("TERM");
  return isatty(STDERR_FILENO) && term && std::strcmp(term, "dumb") != 0 && !std::getenv("CI");
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
  std::printf("plan %s (%.12s) world %d launcher %s communicator %s threads %d\n",
              facts.plan_name.c_str(), facts.plan_digest.c_str(), facts.world,
              facts.launcher.c_str(), facts.communicator.c_str(), facts.threads);
  std::fflush(stdout);
}

void Report::step(const StepFacts& facts) {
  if (!prints_) return;
  clear();
  std::printf("step %lld loss %.6f grad_norm %.6f lr %.6g tokens/s %.0f\n",
              static_cast<long long>(facts.step), facts.loss, facts.grad_norm, facts.lr,
              per_second(facts));
  std::fflush(stdout);
  spent_ms_ += facts.step_ms;
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

void Report::clear() const {
  if (!progress_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
}

}  // namespace dc::runtime
