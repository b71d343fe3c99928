#include "tests/fuzz/mutation_runs.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iterator>
#include <random>
#include <vector>

#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/mutation.h"

namespace dc::fuzz {
namespace {

// Readers run on one thread, where the thread sanitizer sees nothing: a tenth of the rounds there.
#ifdef __SANITIZE_THREAD__
constexpr uint32_t kFewer = 10;
#else
constexpr uint32_t kFewer = 1;
#endif

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
struct sigaction previous[std::size(kSignals)];
std::string_view running_text;  // empty while bytes are run
std::string running_name;       // "seed 17"

void say(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

// Only calls that a signal handler may make. What had the signal before gets it after this.
void tell_input(int) {
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &previous[i], nullptr);
  say("the fuzz target broke on ");
  say(running_name);
  say(running_text.empty() ? "\n" : ":\n");
  say(running_text);
}

class TellsInput {
 public:
  TellsInput() {
    struct sigaction action = {};
    action.sa_handler = tell_input;
    for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &action, &previous[i]);
  }
  ~TellsInput() {
    for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &previous[i], nullptr);
    running_text = {};
  }
};

}  // namespace

void run_byte_mutations(std::string_view good, uint32_t rounds) {
  const TellsInput tells;
  running_name = "the input itself";
  run_target(good);
  for (uint32_t seed = 0; seed < rounds / kFewer; ++seed) {
    std::mt19937 random(seed);
    std::vector<uint8_t> bytes(good.begin(), good.end());
    mutate_bytes(bytes, random);
    running_name = "seed " + std::to_string(seed);
    run_target(bytes);
  }
}

void run_text_mutations(std::string_view good, uint32_t rounds) {
  const TellsInput tells;
  running_name = "the input itself";
  running_text = good;
  run_target(good);
  for (uint32_t seed = 0; seed < rounds / kFewer; ++seed) {
    std::mt19937 random(seed);
    std::string text(good);
    mutate_text(text, random);
    running_name = "seed " + std::to_string(seed);
    running_text = text;
    run_target(text);
  }
}

void run_random_tails(std::string_view head, size_t tail, uint32_t rounds) {
  const TellsInput tells;
  std::vector<uint8_t> bytes(head.begin(), head.end());
  bytes.resize(head.size() + tail);
  running_name = "the head itself";
  run_target(bytes);
  std::seed_seq seeds(head.begin(), head.end());
  std::mt19937 random(seeds);
  for (uint32_t round = 0; round < rounds / kFewer; ++round) {
    std::generate(bytes.begin() + static_cast<ptrdiff_t>(head.size()), bytes.end(),
                  [&] { return static_cast<uint8_t>(random()); });
    running_name = "round " + std::to_string(round);
    run_target(bytes);
  }
}

}  // namespace dc::fuzz
