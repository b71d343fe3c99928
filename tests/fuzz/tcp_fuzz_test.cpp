// Drives the fuzz target over mutations of a good hello and of a store's answers from fixed seeds.
#include <gtest/gtest.h>

#include <cstring>

#include "runtime/comm/tcp_door.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/mutation.h"

namespace dc::runtime {
namespace {

constexpr uint32_t kRounds = 300;

void run_mutations(const std::vector<uint8_t>& good) {
  fuzz::run_target(good);
  for (uint32_t seed = 0; seed < kRounds; ++seed) {
    std::mt19937 random(seed);
    std::vector<uint8_t> bytes = good;
    fuzz::mutate_bytes(bytes, random);
    SCOPED_TRACE(seed);
    fuzz::run_target(bytes);
  }
}

TEST(TcpFuzz, MutatedHellosNeverCrash) {
  const Hello hello;
  std::vector<uint8_t> bytes(sizeof(hello) + sizeof(Proof));
  std::memcpy(bytes.data(), &hello, sizeof(hello));
  run_mutations(bytes);
}

TEST(TcpFuzz, MutatedAnswersOfAStoreNeverCrash) {
  // Ready, then 0 to a wait, then a value of five bytes.
  run_mutations({0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 'a', 'b', 'c', 'd', 'e'});
}

}  // namespace
}  // namespace dc::runtime
