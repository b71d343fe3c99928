// Ancestors of this process, for launchers that give their ranks nothing else in common.
#pragma once

#include <string>

namespace dc::runtime::comm {

// Names the nearest ancestor called `program`, or else the parent, so that no other process ever
// has the same name: process id, start time, process namespace. Equal for all ranks that it started
// on this host.
std::string launcher_identity(const std::string& program);

}  // namespace dc::runtime::comm
