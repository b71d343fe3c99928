// Mapped input files that become shorter, or whose disk fails, while they are read: the kernel says
// so with SIGBUS. With this handler the process ends with a message and exit code 74 instead.
#pragma once

#include <cstddef>
#include <string>

namespace dc::base {

// `program` begins the message ("dcrun[rank 0]"); at most 63 bytes of it. Other causes of SIGBUS
// end the process as before.
void report_lost_inputs(const std::string& program);

// For MappedFile. The handler can name up to 1024 mappings at a time.
void remember_mapping(const void* data, size_t bytes, const std::string& path);
void forget_mapping(const void* data);

}  // namespace dc::base
