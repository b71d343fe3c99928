// The sub-commands of dcc. Parsing is in dcc_main.cpp; each command gets a filled struct, prints
// data to stdout and diagnostics to stderr.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/plan/plan.h"
#include "src/base/status.h"
#include "src/driver/compile_options.h"

namespace dc::cli {

struct CompileArguments {
  std::string model;
  std::vector<std::string> dims;  // "batch=4": sizes of dynamic dims
  std::string profile;            // prof.json; empty: the built-in table
  std::string output;             // plan.dcp
  std::string config;             // train.json; empty: the archive's own
  driver::CompileOptions options;
  double search_time = 0;  // seconds; 0: no limit
  bool no_cache = false;
  bool json = false;
  bool verbose = false;
};
base::Status run_compile(const CompileArguments& arguments);

struct FrontierArguments {
  std::string model;
  std::vector<std::string> dims;  // "batch=4": sizes of dynamic dims
  std::string profile;            // prof.json; empty: the built-in table
  std::string config;             // train.json; empty: the archive's own
  std::string range;              // "FROM:TO" of --memory; empty: all that is of use
  driver::CompileOptions options;
  int points = 8;
  std::string output;  // an HTML page; empty: none
  std::string plans;   // a folder for the plans; empty: none
  bool no_cache = false;
  bool json = false;
};
base::Status run_frontier(const FrontierArguments& arguments);

struct ProfileArguments {
  std::string model;
  std::vector<std::string> dims;  // "batch=4": sizes of dynamic dims
  std::string output;
  int ranks = 0;               // 0: as the launcher says, one if there is none
  std::string device = "cpu";  // or "cuda"
  std::string comm = "auto";
  std::string job_key;      // a file; empty: DCRUN_JOB_KEY or nothing
  std::string offload_dir;  // empty: copies to disk are not measured
  int ranks_per_host = 0;   // 0: as the launcher says
  int threads = 1;
  int fusions = 0;  // fused kernels drawn at random to measure too
};
// Starts its own ranks with -n; returns the process exit code.
int run_profile(const ProfileArguments& arguments, int argc, char** argv);

struct InspectArguments {
  std::string plan;
  std::string trace;  // of `dcrun --trace`, for timeline; empty: none
  // summary | text | json | memory | decisions | decisions-json | timeline
  std::string as = "summary";
  std::string output;    // empty: stdout
  bool verbose = false;  // summary with digests
};
base::Status run_inspect(const InspectArguments& arguments);

struct ExplainArguments {
  std::string plan;
  std::string what;  // an index, a tensor or a module; empty: all
  bool json = false;
};
base::Status run_explain(const ExplainArguments& arguments);

struct VerifyArguments {
  std::string plan;
};
base::Status run_verify(const VerifyArguments& arguments);

struct OptArguments {
  std::string file;    // .dcir, "-" for stdin
  std::string passes;  // comma-separated
};
base::Status run_opt(const OptArguments& arguments);

base::Status run_passes_list();

struct SimulateArguments {
  std::string input;              // a plan, or an archive
  std::string model;              // the archive that the plan was compiled from; empty: not given
  std::vector<std::string> dims;  // "batch=4": sizes of dynamic dims
  std::string config;             // train.json; empty: the archive's own
  std::string profile;            // prof.json; empty: the built-in table
  std::string worlds;             // "4,8"; empty: the plan's
  std::string accumulations;      // "1,2"; empty: the plan's, else 1
  std::string memory;             // bytes of each device; empty: what the plan needs, or its budget
  double link = 0;                // GB/s that one rank sends; 0: as the profile has it
  driver::CompileOptions options;  // of an archive
  bool no_cache = false;
  bool json = false;
};
base::Status run_simulate(const SimulateArguments& arguments);

struct CalibrateArguments {
  std::string plan;
  std::string profile;             // prof.json to correct
  std::string recorded;            // written by a run of the plan
  std::string output;              // the corrected profile
  driver::CompileOptions options;  // of these the estimator of fused kernels
};
base::Status run_calibrate(const CalibrateArguments& arguments);

struct CacheArguments {
  std::string keep = "5GiB";  // gc
};
base::Status run_cache_list();
base::Status run_cache_collect(const CacheArguments& arguments);

// A note on stderr where the plan was compiled with an estimator of fused kernels and the command
// has none.
void note_estimator_left_out(const runtime::plan::Plan& plan, const driver::FusedEstimate& given);

// base::parse_bytes; Usage (64), with the option, for what it does not read.
base::Result<int64_t> parse_bytes(const std::string& option, const std::string& text);

}  // namespace dc::cli
