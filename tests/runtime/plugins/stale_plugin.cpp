// As a library of an older build is: its entries would read other layouts.
#include <cstdlib>

extern "C" const char* dcrun_plugin_interface() { return "interfaces 0123, compiler 1.0"; }
extern "C" void dcrun_aten_open() { std::abort(); }
extern "C" void dcrun_open_mpi() { std::abort(); }
extern "C" void dcrun_test_entry() { std::abort(); }
