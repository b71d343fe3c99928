// The entry point every fuzz target has, named by libFuzzer, and calls of it for the tests. With
// DC_FUZZ_SEEDS=FOLDER in the environment the tests write their first inputs there instead:
// libFuzzer starts from them (scripts/fuzz.sh).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace dc::fuzz {

inline bool save_seed(std::string_view bytes) {
  constexpr int kSeeds = 100;
  static int written = 0;
  const char* folder = std::getenv("DC_FUZZ_SEEDS");
  if (folder == nullptr) return false;
  if (written < kSeeds)
    std::ofstream(std::string(folder) + "/" + std::to_string(written++), std::ios::binary) << bytes;
  return true;
}

inline void run_target(std::string_view bytes) {
  if (save_seed(bytes)) return;
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}
inline void run_target(const std::vector<uint8_t>& bytes) {
  run_target(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

}  // namespace dc::fuzz
