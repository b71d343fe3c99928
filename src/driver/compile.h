// From an archive to a plan, as `dcc compile` does it and as a program may: reads the model, looks
// the plan up in the cache, else compiles, verifies and stores it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/plan/plan.h"
#include "src/base/status.h"
#include "src/driver/compile_options.h"
#include "src/driver/model.h"
#include "src/driver/stopwatch.h"
#include "src/profile/profile_file.h"

namespace dc::driver {

struct CompileRequest {
  std::string model;                        // an archive, .pt2
  std::vector<std::string> dims;            // sizes of dynamic dims: "batch=4"
  std::string config;                       // a train.json; empty: the archive's own description
  std::optional<profile::Profile> profile;  // empty: times are estimated
  CompileOptions options;
  double search_time = 0;       // seconds after which "auto" takes what it has; 0: no limit
  std::string cache_directory;  // empty: no cache
};

enum class CacheUse : uint8_t { Off, Miss, Hit };

struct CompileResult {
  runtime::plan::Plan plan;
  std::string bytes;  // of the plan file
  CacheUse cache = CacheUse::Off;
  std::vector<std::string> warnings;  // about the cache; the plan is sound all the same
};

// Errors: what reading the model, check_request() and compile_step() say. Each part's time goes to
// `watch`.
base::Result<CompileResult> compile(const CompileRequest& request, Stopwatch& watch);
// Of the request's model, read before: for several plans of one model.
base::Result<CompileResult> compile(const CompileRequest& request, const Model& model,
                                    Stopwatch& watch);

// The request's options, with what a profile of several hosts knows where no option says it, and
// with the plan to start from and the estimator of fused kernels read. Errors: those of
// read_earlier_plan() and FusedNetwork::read(); BadConfig (78), DC7037, if an estimator has no
// profile, or one with too little to fit to.
base::Result<CompileOptions> completed(const CompileRequest& request);

}  // namespace dc::driver
