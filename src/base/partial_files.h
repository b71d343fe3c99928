// Temporary names of files under construction. A writer holds a lock on its temporary, so that what
// a killed process left behind can be told from what another process is writing.
#pragma once

#include <string>

#include "src/base/status.h"

namespace dc::base {

struct PartialFile {
  std::string path;
  int descriptor = -1;  // open for reading and writing, locked until closed
};

// Creates ".NAME.<random>.partial" in the folder of `path`. Process numbers are no part of it: in
// containers they repeat. -1 with errno where none can be made.
PartialFile create_partial(const std::string& path);

// Removes partial files of `path` that no process is writing.
void remove_stale_partials(const std::string& path);
// Those of all files of the folder.
void remove_all_stale_partials(const std::string& folder);

std::string folder_of(const std::string& path);  // "." where there is none

}  // namespace dc::base
