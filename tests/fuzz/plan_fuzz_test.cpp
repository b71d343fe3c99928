// Drives the fuzz target without libFuzzer: mutations of a good payload from fixed seeds, so that
// every run does the same.
#include <gtest/gtest.h>

#include <random>

#include "runtime/plan/file.h"
#include "tests/runtime/plan/plan_builder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace dc::runtime::plan {
namespace {

constexpr int kRounds = 20000;

void run(const std::vector<uint8_t>& bytes) { LLVMFuzzerTestOneInput(bytes.data(), bytes.size()); }

std::vector<uint8_t> good_payload() {
  const std::string file = encode(test::tiny_plan());
  return std::vector<uint8_t>(file.begin() + kHeaderBytes, file.end());
}

// One to eight edits: bytes, 32-bit words (offsets, ids, lengths), blocks moved, the end cut.
void mutate(std::vector<uint8_t>& bytes, std::mt19937& random) {
  const auto pick = [&](size_t below) { return static_cast<size_t>(random() % below); };
  const size_t edits = 1 + pick(8);
  for (size_t e = 0; e < edits && bytes.size() > 16; ++e) {
    switch (random() % 5) {
      case 0:
        bytes[pick(bytes.size())] = static_cast<uint8_t>(random());
        break;
      case 1: {
        const size_t at = pick(bytes.size() - 8) / 4 * 4;
        const uint32_t words[] = {0,           1,           0xffffffffu,
                                  0x7fffffffu, 0x80000000u, static_cast<uint32_t>(random() % 64)};
        const uint32_t word = words[pick(6)];
        for (size_t i = 0; i < 4; ++i) bytes[at + i] = static_cast<uint8_t>(word >> (8 * i));
        break;
      }
      case 2: {
        const size_t from = pick(bytes.size() - 8) / 4 * 4, to = pick(bytes.size() - 8) / 4 * 4;
        for (size_t i = 0; i < 4; ++i) bytes[to + i] = bytes[from + i];
        break;
      }
      case 3:
        bytes[pick(bytes.size())] ^= static_cast<uint8_t>(1u << (random() % 8));
        break;
      default:
        if (random() % 8 == 0) bytes.resize(pick(bytes.size()));
        break;
    }
  }
}

TEST(PlanFuzz, MutatedPayloadsNeverCrash) {
  const std::vector<uint8_t> good = good_payload();
  for (uint32_t seed = 0; seed < kRounds; ++seed) {
    std::mt19937 random(seed);
    std::vector<uint8_t> bytes = good;
    mutate(bytes, random);
    SCOPED_TRACE(seed);
    run(bytes);
  }
}

TEST(PlanFuzz, NoiseNeverCrashes) {
  std::mt19937 random(7);
  for (size_t size = 0; size < 300; ++size) {
    std::vector<uint8_t> bytes(size);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    run(bytes);
  }
}

}  // namespace
}  // namespace dc::runtime::plan
