#include "runtime/train/token_scan.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace dc::runtime::train {

using base::Result;
using base::Status;

Result<std::unique_ptr<TokenScan>> TokenScan::start(const std::vector<TokenFile>& files,
                                                    int64_t vocabulary, int64_t rank, int64_t world,
                                                    int64_t at_once) {
  std::unique_ptr<TokenScan> scan(new TokenScan(files, vocabulary, rank, world));
  if (scan->share_bytes() <= at_once) {
    DC_RETURN_IF_ERROR(scan->scan());
    scan->state_.store(State::Clean, std::memory_order_release);
  } else {
    scan->run_in_background();
  }
  return scan;
}

TokenScan::~TokenScan() {
  quit_.store(true, std::memory_order_relaxed);
  if (thread_.joinable()) thread_.join();
}

Status TokenScan::problem() const {
  return state_.load(std::memory_order_acquire) == State::Bad ? problem_ : base::ok_status();
}

int64_t TokenScan::share_bytes() const {
  int64_t bytes = 0;
  for (const TokenFile& file : files_) bytes += file.tokens() * byte_size(file.type());
  return bytes / world_;
}

void TokenScan::run_in_background() {
  sigset_t all, before;  // signals are the main thread's
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] {
    setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 19);
    problem_ = scan();
    state_.store(problem_.ok() ? State::Clean : State::Bad, std::memory_order_release);
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Status TokenScan::scan() const {
  for (const TokenFile& file : files_) DC_RETURN_IF_ERROR(scan_file(file));
  return base::ok_status();
}

Status TokenScan::scan_file(const TokenFile& file) const {
  constexpr int64_t kChunk = 1 << 16;  // tokens
  std::vector<int64_t> tokens(kChunk);
  std::vector<uint8_t> raw(kChunk * sizeof(int64_t));
  // In two steps, so that the product stays within 64 bits.
  const int64_t each = file.tokens() / world_, rest = file.tokens() % world_;
  const int64_t first = each * rank_ + std::min(rank_, rest);
  const int64_t end = first + each + (rank_ < rest ? 1 : 0);
  for (int64_t at = first; at < end && !quit_.load(std::memory_order_relaxed); at += kChunk) {
    const std::span<int64_t> part(tokens.data(), static_cast<size_t>(std::min(kChunk, end - at)));
    DC_RETURN_IF_ERROR(file.read(at, part, raw));
    for (size_t i = 0; i < part.size(); ++i) {
      if (part[i] >= 0 && part[i] < vocabulary_) continue;
      return check_token(file, at + static_cast<int64_t>(i), part[i], vocabulary_);
    }
  }
  return base::ok_status();
}

}  // namespace dc::runtime::train
