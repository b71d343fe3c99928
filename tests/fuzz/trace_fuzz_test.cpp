// Drives the fuzz target over mutations of good events from fixed seeds.
#include <gtest/gtest.h>

#include "tests/fuzz/mutation_runs.h"

namespace dc::runtime {
namespace {

const char* const kEvents =
    R"({"ph":"M","pid":0,"name":"process_name","args":{"name":"rank 0"}},
{"ph":"X","pid":0,"tid":0,"ts":1000.25,"dur":3.5,"name":"x","args":{"step":1,"run":0,"program":"step","index":1}},
{"ph":"X","pid":1,"tid":1,"ts":1003.0,"dur":0,"name":"y","args":{"step":2,"run":0,"program":"step","index":7}})";

TEST(TraceFuzz, MutatedEventsNeverCrash) { fuzz::run_text_mutations(kEvents, 5000); }

}  // namespace
}  // namespace dc::runtime
