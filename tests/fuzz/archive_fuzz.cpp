// Fuzz target: arbitrary bytes as a model.pt2, and as the documents inside a well-formed one: the
// graph, extra/dcc.json, the configurations of weights and constants, separated by the record
// separator 0x1e. What is imported prints and parses again alike, and compiles or is refused in
// words.
#include <cstdio>
#include <cstdlib>

#include "src/cost/analytic.h"
#include "src/driver/compile_step.h"
#include "src/frontend/import.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/memory_file.h"
#include "tests/src/archive/zip_builder.h"

namespace {

using namespace dc;  // NOLINT

constexpr const char* kDocuments[] = {"models/model.json", "extra/dcc.json",
                                      "data/weights/model_weights_config.json",
                                      "data/constants/model_constants_config.json"};
constexpr int kWeights = 8;
constexpr size_t kWeightBytes = 16384;

void try_file(std::string_view bytes) {
  const fuzz::MemoryFile file(bytes);
  auto step = frontend::import_archive(file.path());
  if (!step.ok()) {
    if (step.status().to_string().empty()) std::abort();
    return;
  }
  const std::string text = ir::print(*step);
  const auto again = ir::parse(text);
  if (!again.ok() || ir::print(*again) != text) std::abort();
  static const cost::AnalyticCost costs(1);
  driver::CompileOptions options;
  options.world = 2;
  const auto plan = driver::compile_step(std::move(*step), options, costs);
  if (plan.ok()) return;
  // Whatever the graph is: what was imported is compiled or refused, and no pass or verifier finds
  // a bug of ours in it.
  if (plan.status().to_string().empty() || plan.status().kind() == base::ErrorKind::Internal) {
    std::fprintf(stderr, "%s\n", plan.status().to_string().c_str());
    std::abort();
  }
}

std::string wrapped(std::string_view documents) {
  tests::ZipBuilder zip;
  zip.add("m/archive_format", "pt2");
  for (const char* name : kDocuments) {
    const size_t end = std::min(documents.find('\x1e'), documents.size());
    if (end > 0) zip.add(std::string("m/") + name, std::string(documents.substr(0, end)));
    documents.remove_prefix(std::min(end + 1, documents.size()));
  }
  for (int i = 0; i < kWeights; ++i) {
    zip.add("m/data/weights/weight_" + std::to_string(i), std::string(kWeightBytes, '\0'));
  }
  return zip.build();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try_file(bytes);
  try_file(wrapped(bytes));
  return 0;
}
