#include "src/base/interface_id.h"

extern "C" int dcrun_test_entry() { return 7; }

DC_PLUGIN_INTERFACE
