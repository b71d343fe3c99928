// The command line of dcrun. The table of its options is dcrun_options.def.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/base/status.h"

namespace dc::cli {

struct DcrunOptions {
  std::string plan, weights;
  std::vector<std::string> data;
  int ranks = 0;  // -n; 0: not given
  int64_t steps = 1;
  std::string config;
  std::optional<double> lr;
  std::optional<uint64_t> shuffle;
  std::string comm = "auto";
  std::string device;   // empty: the plan's
  std::string job_key;  // a file; empty: DCRUN_JOB_KEY or nothing
  int64_t timeout_seconds = 600;
  int64_t save_every = 0, keep = 0;          // 0: not given
  int64_t eval_every = 0, eval_batches = 0;  // the same
  std::vector<std::string> eval_data;
  std::string metrics, save, resume, trace, record_profile, dump_gradients, offload_dir;
  bool weights_only_by_name = false, overwrite = false, no_graph = false, poison = false,
       version = false;
  std::string text;  // what to print instead of running (--help, --version); empty: run
};

// Usage (64) with a suggestion for misspelt flags.
base::Result<DcrunOptions> parse_dcrun_options(int argc, const char* const* argv);

std::vector<std::string> dcrun_flags();  // all long flags, sorted; frozen by a test

}  // namespace dc::cli
