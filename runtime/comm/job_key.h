// The secret by which ranks of several hosts recognise each other.
#pragma once

#include <string>

#include "runtime/comm/launch.h"

namespace dc::runtime::comm {

// What `file` holds, without the line end; without a file the value of DCRUN_JOB_KEY; otherwise
// nothing, and the job's name has to do. BadConfig (78), DC6122, for a key of fewer than 16
// characters; MissingInput (66) for a file that is not there.
base::Result<std::string> read_job_key(const std::string& file, const Environment& environment);
base::Result<std::string> read_job_key(const std::string& file);

}  // namespace dc::runtime::comm
