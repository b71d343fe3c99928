// Looks for tokens outside the vocabulary: before the first step if the data is small, else in the
// background while steps run.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/train/token_file.h"

namespace dc::runtime::train {

// Each rank scans its share of every file: at once if that is little, else in a background thread
// of the lowest priority that ends with this object.
class TokenScan {
 public:
  static constexpr int64_t kAtOnce = 64 << 20;  // bytes

  // `files` outlive the scan. BadInput or Io if the part scanned at once has a bad token.
  static base::Result<std::unique_ptr<TokenScan>> start(const std::vector<TokenFile>& files,
                                                        int64_t vocabulary, int64_t rank,
                                                        int64_t world, int64_t at_once = kAtOnce);
  ~TokenScan();
  TokenScan(const TokenScan&) = delete;
  TokenScan& operator=(const TokenScan&) = delete;

  // What the background thread has found so far; stays. Allocates nothing while that is nothing.
  base::Status problem() const;
  bool finished() const { return state_.load(std::memory_order_acquire) != State::Running; }

 private:
  enum class State : uint8_t { Running, Clean, Bad };
  TokenScan(const std::vector<TokenFile>& files, int64_t vocabulary, int64_t rank, int64_t world)
      : files_(files), vocabulary_(vocabulary), rank_(rank), world_(world) {}
  int64_t share_bytes() const;
  base::Status scan() const;
  base::Status scan_file(const TokenFile& file) const;
  void run_in_background();

  const std::vector<TokenFile>& files_;
  int64_t vocabulary_, rank_, world_;
  std::atomic<bool> quit_{false};
  std::atomic<State> state_{State::Running};
  base::Status problem_;  // written before `state_` becomes Bad
  std::thread thread_;
};

}  // namespace dc::runtime::train
