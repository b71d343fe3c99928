// Fuzz target: arbitrary bytes as a safetensors file, and as the header of one whose length field
// is right and whose data is 256 zeros. What is accepted lies inside the file and is laid out again
// alike.
#include <cstdlib>

#include "src/base/archive/safetensors.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/memory_file.h"

namespace {

using namespace dc::base::archive;  // NOLINT

void try_file(const std::string& bytes) {
  const dc::fuzz::MemoryFile file(bytes);
  const auto opened = SafetensorsFile::open(file.path());
  if (!opened.ok()) {
    if (opened.status().to_string().empty()) std::abort();
    return;
  }
  uint64_t sum = 0;
  for (const SafeTensor& tensor : opened->tensors()) {
    const auto data = opened->bytes(tensor);
    if (data.size() != static_cast<size_t>(tensor.bytes)) std::abort();
    for (const uint8_t byte : data) sum += byte;
    if (opened->find(tensor.name) == nullptr) std::abort();
  }
  if (sum > bytes.size() * 255) std::abort();
  const auto layout = layout_safetensors(opened->tensors(), opened->metadata());
  if (layout.ok() && layout->tensors.size() != opened->tensors().size()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  try_file(bytes);
  std::string length(8, '\0');
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(size >> (8 * i) & 255);
  try_file(length + bytes + std::string(256, '\0'));
  return 0;
}
