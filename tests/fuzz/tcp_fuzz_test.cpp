// Drives the fuzz target over mutations of a good hello and of a store's answers from fixed seeds.
#include <gtest/gtest.h>

#include <cstring>

#include "runtime/comm/tcp_door.h"
#include "tests/fuzz/mutation_runs.h"

namespace dc::runtime {
namespace {

constexpr uint32_t kRounds = 300;

TEST(TcpFuzz, MutatedHellosNeverCrash) {
  const comm::Hello hello;
  std::string bytes(sizeof(hello) + sizeof(comm::Proof), '\0');
  std::memcpy(bytes.data(), &hello, sizeof(hello));
  fuzz::run_byte_mutations(bytes, kRounds);
}

TEST(TcpFuzz, MutatedAnswersOfAStoreNeverCrash) {
  // Ready, then 0 to a wait, then a value of five bytes.
  fuzz::run_byte_mutations(std::string("\0\0\5\0\0\0\0\0\0\0abcde", 15), kRounds);
}

}  // namespace
}  // namespace dc::runtime
