// What libdcrun_aten.so and the program agree on. Free of libtorch.
#pragma once

#include <string>

#include "runtime/kernel/kernel.h"

namespace dc::runtime::aten {

// Both sides pass C++ objects to each other, so they must come from one compiler and one version of
// the interfaces. Raise the number when kernel.h, plan.h or status.h change.
inline constexpr const char* kAbi = "dcrun-aten-2 g++ " __VERSION__;
inline constexpr const char* kLibrary = "libdcrun_aten.so";
inline constexpr const char* kEntry = "dcrun_aten_open";

// The library's only entry. Null, with the reason in `problem`, if the abi differs or libtorch
// cannot be set up.
using Open = KernelProvider* (*)(const char* abi, int threads, std::string* problem);

}  // namespace dc::runtime::aten
