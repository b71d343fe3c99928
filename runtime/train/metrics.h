// --metrics: one JSON object per line, a header first and then one per step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "runtime/exec/executor.h"
#include "runtime/train/across_hosts.h"
#include "runtime/train/claim.h"
#include "src/base/json_writer.h"
#include "src/base/status.h"
#include "src/base/step_enums.h"

namespace dc::runtime::train {

// What this rank did before step 1 took so long.
struct StartTimes {
  double files_ms = 0;    // opening data and weights, and memory outside of the device
  double memory_ms = 0;   // of the device
  double kernels_ms = 0;  // preparing the plan
  double weights_ms = 0;  // filling the state
};

struct RunFacts {
  std::string plan_digest, plan_name, chain;
  int world = 1, threads = 1, accumulation = 1;
  std::string launcher, communicator;
  bool sums_in_rank_order = true;
  int hosts = 0;                        // that the ranks are on; 0: the launcher does not say
  base::PerSpace<int64_t> arena_bytes;  // per rank
  int64_t save_bytes = 0;               // host memory for copies of the state, per rank
  exec::Executor::ProviderCounts providers;
  std::string weights, data, save;  // as they were given
  StartTimes start;
};

struct StepFacts {
  int64_t step = 0;   // 1 for the first
  int64_t epoch = 0;  // 0 for the first
  double loss = 0, grad_norm = 0, lr = 0;
  int64_t tokens = 0;  // of this step, over all ranks; samples where the model reads no tokens
  double step_ms = 0;
  // Between the account of the step before and this one's the host did not wait for the device so
  // long; nothing where its cores are the device.
  std::optional<double> host_ms;
  double collective_ms = 0;  // of this rank in collectives, over all streams; waiting included
  double exposed_ms = 0;     // of it compute waited; the rest was hidden behind kernels
  // Bytes this rank sent since the last step's account. What goes on into the next step counts
  // there, but for the last step, so the sum over a run is exact.
  comm::Traffic wire;
};

// Of one evaluation between two steps.
struct EvaluationFacts {
  int64_t step = 0;  // updates done before it
  double loss = 0;
  int64_t samples = 0;
  double ms = 0, collective_ms = 0, exposed_ms = 0;  // as of a step
  comm::Traffic wire;
};

class Metrics {
 public:
  // Opens and claims the file, and leaves what is in it. CannotWrite (73) if it cannot be written,
  // if another run writes it, or if it has contents and may not be replaced. A file that begin()
  // was never called for goes away again.
  static base::Result<std::unique_ptr<Metrics>> open(const std::string& path, bool overwrite);
  // The same for a run that goes on after `steps` steps: rows up to them stay, later ones go. A
  // file that is there must be of metrics; after 0 steps, where all rows go, of a run that was to
  // `save` into the same place, unless it may be replaced.
  static base::Result<std::unique_ptr<Metrics>> go_on(const std::string& path, int64_t steps,
                                                      const std::string& save, bool overwrite);
  // Empties the file and writes the header; of a file that has rows, drops those that do not stay.
  base::Status begin(const RunFacts& facts);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;
  base::Status add(const StepFacts& facts);  // reaches the file at once
  base::Status add(const EvaluationFacts& facts);
  base::Status add(const AcrossHosts& sent);

 private:
  Metrics(Claim claim, std::string path, bool is_new)
      : claim_(std::move(claim)), path_(std::move(path)), is_new_(is_new) {}
  base::Status failed() const;  // by errno
  base::Status write_line();    // what is in line_, in one piece
  Claim claim_;
  std::string path_;
  bool is_new_;  // made by open(), nothing in it yet
  bool several_hosts_ = false;
  int64_t kept_bytes_ = 0;  // of the file's header and rows
  base::JsonWriter line_;   // kept, so that a step's line allocates nothing
};

}  // namespace dc::runtime::train
