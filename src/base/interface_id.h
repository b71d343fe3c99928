// Identity of what a plug-in and its program pass to each other: the headers of this build, and the
// compiler. A digest, so no number has to be raised by hand.
#pragma once

namespace dc::base {

const char* interface_id();  // "interfaces 3f2a..., compiler 12.2.0"

}  // namespace dc::base

// At the end of a plug-in's source, outside every namespace: what open_plugin asks for first.
#define DC_PLUGIN_INTERFACE                                                                \
  extern "C" __attribute__((visibility("default"))) const char* dcrun_plugin_interface() { \
    return dc::base::interface_id();                                                       \
  }
