// Where a plan's figures come from, as notes that become part of it: they depend on the profile,
// the model and the options only; nothing about this host or any path.
#pragma once

#include <string>
#include <vector>

#include "runtime/plan/plan.h"
#include "src/driver/compile_options.h"
#include "src/ir/step.h"
#include "src/profile/profile_file.h"

namespace dc::driver {

// What makes the profile's figures doubtful for this plan.
std::vector<std::string> profile_notes(const profile::Profile& profile, const ir::Step& step,
                                       const CompileOptions& options);

// What a process takes of a GPU beyond the arena of a plan for GPUs, as the profile has it; and as
// a note, if the GPU that was measured does not have as much as both.
void add_library_memory(const base::MachineIdentity& machine, runtime::plan::Plan& plan);

// Without a profile: what the plan's memory then rests on.
std::vector<std::string> estimate_notes(const ir::Step& step, const CompileOptions& options);

}  // namespace dc::driver
