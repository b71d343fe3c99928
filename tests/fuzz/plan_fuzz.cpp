// Fuzz target: arbitrary bytes as a plan file and as the payload of a well-sealed one. Nothing may
// crash; whatever is accepted can be shown and encodes to a file that decodes again. Built with
// clang as a libFuzzer program; plan_fuzz_test.cpp drives it with fixed seeds.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "runtime/plan/file.h"
#include "runtime/report/memory_report.h"
#include "runtime/report/report.h"
#include "runtime/verify/verify.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

using namespace dc::runtime::plan;  // NOLINT

void try_file(std::span<const uint8_t> file) {
  auto decoded = decode(file);
  if (!decoded.ok()) return;
  if (dc::runtime::report::to_text(*decoded).empty() ||
      dc::runtime::report::to_json(*decoded).empty())
    std::abort();
  if (!dc::runtime::verify::verify_meaning(*decoded).ok()) return;
  if (dc::runtime::report::summary(*decoded).empty() ||
      dc::runtime::report::memory_report(*decoded).empty())
    std::abort();
  const std::string again = encode(*decoded);
  if (!decode({reinterpret_cast<const uint8_t*>(again.data()), again.size()}).ok()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try_file({data, size});
  const std::string sealed = seal({reinterpret_cast<const char*>(data), size});
  try_file({reinterpret_cast<const uint8_t*>(sealed.data()), sealed.size()});
  return 0;
}
