// Plug-ins of dcrun: shared libraries that are opened only when a job needs them. They pass C++
// objects to and from the program, so both must be built from the same interfaces.
#pragma once

#include <cstdint>
#include <string>

#include "src/base/status.h"

namespace dc::base {

enum class PluginSymbols : uint8_t { Local, Global };  // whether libraries opened later see them

struct PluginUse {
  const char* file;      // "libdcrun_aten.so"
  const char* entry;     // the symbol that is returned
  const char* code;      // of the error if it is not there or cannot be opened
  std::string why;       // "the plan has aten kernels"
  const char* built_by;  // the build option that makes it
};

// Opens the library in $DCRUN_PLUGIN_DIR if that is set, else in ../lib or next to the program, and
// returns its entry. It is never closed. Unavailable (69) with the given code if there is none that
// can be opened; Mismatch (76), DC6125, if it was built from other interfaces: then nothing in it
// has been called but the function that says so.
Result<void*> open_plugin(const PluginUse& use, PluginSymbols symbols);

}  // namespace dc::base
