// What libdcrun_aten.so and the program agree on. Free of libtorch.
#pragma once

#include <string>

#include "runtime/kernel/kernel.h"

namespace dc::runtime::kernel::aten {

inline constexpr const char* kLibrary = "libdcrun_aten.so";
inline constexpr const char* kEntry = "dcrun_aten_open";

// The library's entry. Null, with the reason in `problem`, if libtorch cannot be set up.
using Open = KernelProvider* (*)(int threads, std::string* problem);

}  // namespace dc::runtime::kernel::aten
