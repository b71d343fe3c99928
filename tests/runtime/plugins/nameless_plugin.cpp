// As a library is that was built before plug-ins named their interfaces.
#include <cstdlib>

extern "C" void dcrun_test_entry() { std::abort(); }
