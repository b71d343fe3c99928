// Places of outputs, proved writable before any training.
#pragma once

#include <string>

#include "runtime/comm/communicator.h"
#include "src/base/status.h"

namespace dc::runtime::train {

// Creates the folder if needed and proves that a file can be made in it: CannotWrite (73)
// otherwise.
base::Status prepare_folder(const std::string& folder);
// Collective. All ranks write into the folder together, so on several hosts it must be one that
// they share: CannotWrite (73) before the first step otherwise.
base::Status check_shared(const std::string& folder, comm::Communicator& control);
// The same as prepare_folder for a file that will be written later and then takes its place: no
// pipe or device, whose name it would take.
base::Status prepare_file(const std::string& path);
// The same for a file to which lines are appended as they come: a pipe or a device will do.
base::Status prepare_lines(const std::string& path);

}  // namespace dc::runtime::train
