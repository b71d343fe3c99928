// --metrics: one JSON object per line, a header first and then one per step.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "runtime/exec/executor.h"
#include "src/base/json_writer.h"
#include "src/base/status.h"

namespace dc::runtime {

struct RunFacts {
  std::string plan_digest, plan_name, chain;
  int world = 1, threads = 1, accumulation = 1;
  std::string launcher, communicator;
  bool sums_in_rank_order = true;
  int64_t arena_bytes = 0, host_bytes = 0, disk_bytes = 0;  // per rank
  Executor::ProviderCounts providers;
  std::string weights, data;
};

struct StepFacts {
  int64_t step = 0;   // 1 for the first
  int64_t epoch = 0;  // 0 for the first
  double loss = 0, grad_norm = 0, lr = 0;
  int64_t tokens = 0;  // of this step, over all ranks; samples where the model reads no tokens
  double step_ms = 0;
  double collective_ms = 0;  // of this rank in collectives, over all streams; waiting included
  double exposed_ms = 0;     // of it compute stood waiting; the rest was hidden behind kernels
  // Bytes this rank sent since the last step's account. What goes on into the next step counts
  // there, but for the last step, so the sum over a run is exact.
  Traffic wire;
};

class Metrics {
 public:
  // Creates the file and writes the header; CannotWrite (73) when it cannot.
  static base::Result<std::unique_ptr<Metrics>> create(const std::string& path,
                                                       const RunFacts& facts);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;
  base::Status add(const StepFacts& facts);  // reaches the file at once

 private:
  Metrics(std::FILE* file, std::string path) : file_(file), path_(std::move(path)) {}
  base::Status write_line();  // what is in line_
  std::FILE* file_;
  std::string path_;
  base::JsonWriter line_;  // kept, so that a step's line allocates nothing
};

}  // namespace dc::runtime
