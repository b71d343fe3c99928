#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/comm/control_page.h"
#include "runtime/comm/launch.h"

namespace dc::runtime::comm {
namespace {

using base::ErrorKind;

constexpr int64_t kGrace =
    5'000'000'000;  // nanoseconds for the others to end by themselves once a rank failed

std::string random_id() {
  uint64_t words[2] = {static_cast<uint64_t>(getpid()), static_cast<uint64_t>(monotonic_ns())};
  if (getrandom(words, sizeof(words), 0) != sizeof(words)) words[0] ^= words[1] << 20;
  char text[33];
  std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(words[0]),
                static_cast<unsigned long long>(words[1]));
  return text;
}

// After these ends the other ranks go on as they should: the run is over, or they still save the
// state.
bool others_may_go_on(int code) {
  return code == 0 || code == exit_code(ErrorKind::Stopped) ||
         code == exit_code(ErrorKind::NonFinite);
}

// As under nohup, or SIGINT in what a shell without job control starts with `&`.
bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

class RankGroup {
 public:
  explicit RankGroup(int ranks) : pids_(static_cast<size_t>(ranks), 0), codes_(pids_.size(), 0) {}

  // Signals are taken one by one in `run`, never by handlers. A blocked signal is taken even if it
  // is to be ignored, so such ones are left alone.
  void hold_signals() {
    signal(SIGCHLD, SIG_DFL);  // of ranks that end while it is ignored nothing is heard
    sigemptyset(&held_);
    for (const int signal : {SIGTERM, SIGCHLD, SIGCONT}) sigaddset(&held_, signal);
    for (const int signal : {SIGINT, SIGHUP, SIGTSTP}) {
      if (!is_ignored(signal)) sigaddset(&held_, signal);
    }
    sigprocmask(SIG_BLOCK, &held_, &before_);
  }
  void release_signals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }

  bool start(char** argv) {
    const std::string job = random_id();
    const pid_t parent = getpid();
    for (size_t rank = 0; rank < pids_.size(); ++rank) {
      const pid_t pid = fork();
      if (pid == 0) become_rank(static_cast<int>(rank), job, parent, argv);
      if (pid < 0) {
        std::fprintf(stderr,
                     "%s: cannot start rank %zu: %s; the limit on processes may be too low\n",
                     program_invocation_short_name, rank, std::strerror(errno));
        return false;
      }
      pids_[rank] = pid;
      ++running_;
      // In a separate group a rank hears a Ctrl-C once, from here, and not a second time from the
      // terminal.
      setpgid(pid, pid);
    }
    return true;
  }

  // Until all ranks have ended. Returns the signal that ended the wait by force, or 0.
  int run() {
    while (running_ > 0) {
      siginfo_t info{};
      timespec patience{3600, 0};
      if (deadline_ != 0) {
        const int64_t left = std::max<int64_t>(deadline_ - monotonic_ns(), 0);
        patience = {left / 1'000'000'000, left % 1'000'000'000};
      }
      const int signal = sigtimedwait(&held_, &info, &patience);
      if (signal < 0 && errno == EAGAIN && deadline_ != 0 && monotonic_ns() >= deadline_)
        kill_stragglers();
      if (signal == SIGCHLD) reap();
      if (signal == SIGTSTP || signal == SIGCONT) pause_or_resume(signal);
      if (signal == SIGTERM || signal == SIGINT || signal == SIGHUP) {
        if (asked_ != 0) return kill_all(), signal;
        asked_ = signal;
        send(signal == SIGHUP ? SIGTERM : signal);
      }
    }
    return 0;
  }

  void kill_all() {
    send(SIGKILL);
    while (running_ > 0) {
      int status = 0;
      const pid_t pid = waitpid(-1, &status, 0);
      if (pid < 0 && errno != EINTR) return;
      if (pid > 0) ended(pid, status);
    }
  }

  // The signal on whose account the ranks ended that do not handle it, as those of dcc profile; 0:
  // none, or a rank failed otherwise.
  int ended_on_request() const {
    const int passed = asked_ == SIGHUP ? SIGTERM : asked_;
    bool any = false;
    for (const int code : codes_) {
      if (passed != 0 && code == -passed) any = true;
      const bool is_consequence =
          code == -passed || code == 0 || code == exit_code(ErrorKind::PeerDied);
      if (!is_consequence) return 0;
    }
    return any ? asked_ : 0;
  }

  const std::vector<int>& codes() const { return codes_; }
  const std::vector<bool>& put_down() const { return put_down_; }

 private:
  [[noreturn]] void become_rank(int rank, const std::string& job, pid_t parent, char** argv) const {
    setpgid(0, 0);
    // To a terminal that group is in the background, where `stty tostop` would stop who writes.
    signal(SIGTTOU, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
      _exit(exit_code(ErrorKind::PeerDied));  // it died before the line above
    setenv("DCRUN_RANK", std::to_string(rank).c_str(), 1);
    setenv("DCRUN_WORLD", std::to_string(pids_.size()).c_str(), 1);
    setenv("DCRUN_JOB", job.c_str(), 1);
    sigprocmask(SIG_SETMASK, &before_, nullptr);
    execv("/proc/self/exe", argv);
    std::fprintf(stderr, "%s: cannot start rank %d: %s\n", program_invocation_short_name, rank,
                 std::strerror(errno));
    _exit(exit_code(ErrorKind::Unavailable));
  }

  void send(int signal) const {
    for (const pid_t pid : pids_) {
      if (pid > 0) kill(pid, signal);
    }
  }

  void pause_or_resume(int signal) const {
    send(signal == SIGTSTP ? SIGSTOP : SIGCONT);
    if (signal == SIGTSTP) kill(getpid(), SIGSTOP);
  }

  void reap() {
    int status = 0;
    for (pid_t pid = waitpid(-1, &status, WNOHANG); pid > 0; pid = waitpid(-1, &status, WNOHANG))
      ended(pid, status);
  }

  void ended(pid_t pid, int status) {
    for (size_t rank = 0; rank < pids_.size(); ++rank) {
      if (pids_[rank] != pid) continue;
      pids_[rank] = 0;
      --running_;
      codes_[rank] = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
      if (deadline_ == 0 && !others_may_go_on(codes_[rank])) deadline_ = monotonic_ns() + kGrace;
    }
  }

  void kill_stragglers() {
    put_down_.resize(pids_.size());
    for (size_t rank = 0; rank < pids_.size(); ++rank) put_down_[rank] = pids_[rank] > 0;
    send(SIGKILL);
    deadline_ = monotonic_ns() + kGrace;
  }

  std::vector<pid_t> pids_;     // 0: not running
  std::vector<int> codes_;      // -S: killed by signal S
  std::vector<bool> put_down_;  // killed by us after the grace
  int running_ = 0;
  int asked_ = 0;  // the first signal we passed on
  int64_t deadline_ = 0;
  sigset_t held_{}, before_{};
};

// The last line of the job on stderr.
void report(const RankGroup& group, int code) {
  const std::vector<int>& codes = group.codes();
  const auto was_put_down = [&](size_t rank) {
    return rank < group.put_down().size() && group.put_down()[rank];
  };
  std::string what;
  for (size_t rank = 0; rank < codes.size(); ++rank) {
    const std::string prefix = (what.empty() ? "rank " : "; rank ") + std::to_string(rank);
    if (was_put_down(rank))
      what += prefix + " did not end by itself and was killed";
    else if (codes[rank] < 0)
      what += prefix + " was killed by signal " + std::to_string(-codes[rank]) + " (" +
              strsignal(-codes[rank]) + ")";
  }
  if (what.empty() && code == exit_code(ErrorKind::Stopped)) what = "stopped on request";
  for (size_t rank = 0; what.empty() && rank < codes.size(); ++rank) {
    if (codes[rank] == code) what = "see the message of rank " + std::to_string(rank);
  }
  std::fprintf(stderr, "%s: exit %d: %s\n", program_invocation_short_name, code, what.c_str());
}

}  // namespace

int job_exit_code(const std::vector<int>& codes) {
  const int peer_died = exit_code(ErrorKind::PeerDied);
  int result = 0;
  for (const int raw : codes) {
    const int code = raw < 0 ? peer_died : raw;
    if (result == 0 || (result == peer_died && code != 0)) result = code;
  }
  return result;
}

int spawn_ranks(int ranks, int argc, char** argv) {
  if (ranks < 1 || argc < 1) {
    std::fprintf(stderr, "%s: -n needs at least one rank\n", program_invocation_short_name);
    return exit_code(ErrorKind::Usage);
  }
  const auto launch = detect_launch();
  if (!launch.ok()) {
    std::fprintf(stderr, "%s: %s\n", program_invocation_short_name,
                 launch.status().to_string().c_str());
    return exit_code(launch.status().kind());
  }
  if (launch.value().world > 1) {
    std::fprintf(
        stderr,
        "%s: -n %d inside rank %d of %d that %s started: leave out -n, or the other launcher\n",
        program_invocation_short_name, ranks, launch.value().rank, launch.value().world,
        std::string(name(launch.value().launcher)).c_str());
    return exit_code(ErrorKind::BadConfig);
  }
  RankGroup group(ranks);
  group.hold_signals();
  if (!group.start(argv)) {
    group.kill_all();
    group.release_signals();
    return exit_code(ErrorKind::Unavailable);
  }
  const int forced = group.run();
  group.release_signals();
  if (forced != 0) {
    std::fprintf(stderr, "%s: exit %d: killed on a second %s\n", program_invocation_short_name,
                 128 + forced, strsignal(forced));
    return 128 + forced;
  }
  if (const int signal = group.ended_on_request(); signal != 0) {
    std::fprintf(stderr, "%s: exit %d: ended on request (%s)\n", program_invocation_short_name,
                 128 + signal, strsignal(signal));
    return 128 + signal;
  }
  const int code = job_exit_code(group.codes());
  if (code != 0) report(group, code);
  return code;
}

}  // namespace dc::runtime::comm
