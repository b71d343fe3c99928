// What commands that compile (compile, frontier) have in common: the files that they read, and what
// they say on standard error of a request and of its plans.
#pragma once

#include <string>
#include <vector>

#include "src/base/measurements.h"
#include "src/driver/compile.h"

namespace dc::cli {

// That no output may replace. Some may be empty.
std::vector<std::string> input_files(const std::string& model, const std::string& profile,
                                     const std::string& config,
                                     const driver::CompileOptions& options);

// Says which options cannot change anything. `search_time`: in seconds, 0 without a limit.
void note_idle_options(const driver::CompileOptions& options, double search_time, bool has_budget);

// Says that a profile was measured on another CPU, which is about this host, so no plan has it.
void warn_of_other_machine(const std::string& path, const base::Measurements& measured);

// Prints warnings and the plans' notes, each once.
void say_notes(const std::vector<const driver::CompileResult*>& compiled);

}  // namespace dc::cli
