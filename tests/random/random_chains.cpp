// random_chains FOLDER --seed S [--cases N] [--seconds T]: random cases over the models in FOLDER.
// random_chains FOLDER --case "model=... chain=...": that case again.
//
// Every case is compiled and verified up to level 3; a plan that was made is trained for three
// steps with poisoned memory and must give the reference plan's numbers to the bit. A case may not
// fit its budget (80); every other failure counts. Prints one line per failure and the counts as
// JSON; exit code 1 if anything failed.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>

#include "runtime/memory/offload_memory.h"
#include "tests/random/eager.h"

namespace dc::test {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;

FILE* out = nullptr;  // stdout; training prints into nothing
char current[4096];   // the case under way, for a crash

void crashed(int signal) {
  const char head[] = "FAIL crash: ";
  (void)!write(fileno(out), head, sizeof head - 1);
  (void)!write(fileno(out), current, strlen(current));
  (void)!write(fileno(out), "\n", 1);
  ::signal(signal, SIG_DFL);
  raise(signal);
}

struct Reference {
  int64_t bytes = 0;  // of its device arena
  Result<Numbers> numbers;
};

class Sweep {
 public:
  explicit Sweep(std::string folder) : folder_(std::move(folder)) {}

  // False: something failed.
  bool run(const RandomCase& one) {
    const std::string line = print(one);
    std::snprintf(current, sizeof current, "%s", line.c_str());
    ++cases_;
    const std::string problem = problem_of(one);
    if (problem.empty()) return true;
    fail(problem, line);
    return false;
  }

  // The reference plans that eager PyTorch ran too.
  void compare_with_eager(const std::string& model) {
    const auto runs = eager_runs(folder_, model);
    if (!runs.ok()) return fail(model + ": " + runs.status().to_string(), "");
    for (const EagerRun& run : *runs) {
      std::snprintf(current, sizeof current, "%s", print(run.facts).c_str());
      const Reference& reference = reference_of(run.facts);
      const std::string problem = reference.numbers.ok() ? difference(run, *reference.numbers)
                                                         : reference.numbers.status().to_string();
      if (problem.empty()) {
        ++near_eager_;
      } else {
        fail("not as eager PyTorch: " + problem, print(run.facts));
      }
    }
  }

  void print_counts(uint64_t seed) const {
    std::fprintf(
        out,
        "{\"seed\":%llu,\"near_eager\":%d,\"cases\":%d,\"plans_verified\":%d,\"bits_equal\":%d,"
        "\"over_budget\":%d,\"not_finite\":%d,\"searches\":%d,\"offloading\":%d,"
        "\"failed\":%d}\n",
        static_cast<unsigned long long>(seed), near_eager_, cases_, verified_, equal_, over_budget_,
        not_finite_, searches_, offloading_, failed_);
  }
  bool ok() const { return failed_ == 0; }

 private:
  void fail(const std::string& problem, const std::string& line) {
    ++failed_;
    std::fprintf(out, "FAIL %s\n  --case \"%s\"\n", problem.c_str(), line.c_str());
    std::fflush(out);
  }

  std::string problem_of(const RandomCase& one) {
    const Reference& reference = reference_of(one);
    if (reference.bytes == 0) return "the reference: " + reference.numbers.status().to_string();
    auto plan = compile_case(one, folder_, reference.bytes);
    if (!plan.ok()) {
      const Status& status = plan.status();
      if (status.kind() != ErrorKind::OutOfMemory || one.memory_fraction == 0)
        return status.to_string();
      ++over_budget_;
      return "";
    }
    for (const std::string& note : plan->plan.notes) {
      if (note.starts_with(driver::kLeftOut)) return note;
    }
    ++verified_;
    searches_ += one.chain == "auto";
    offloading_ += runtime::memory::arena_bytes(plan->plan, runtime::plan::Space::Host) +
                       runtime::memory::arena_bytes(plan->plan, runtime::plan::Space::Disk) >
                   0;
    const Result<Numbers> numbers = train_case(one, *plan, folder_);
    if (!numbers.ok()) {
      const bool same = !reference.numbers.ok() &&
                        numbers.status().kind() == reference.numbers.status().kind() &&
                        numbers.status().kind() == ErrorKind::NonFinite;
      if (!same) return numbers.status().to_string();
      ++not_finite_;
      return "";
    }
    if (!reference.numbers.ok())
      return "only the reference fails: " + reference.numbers.status().to_string();
    const std::string differs = difference(*reference.numbers, *numbers);
    if (!differs.empty()) return "the numbers differ from the reference plan's: " + differs;
    ++equal_;
    return "";
  }

  const Reference& reference_of(const RandomCase& one) {
    const RandomCase plain = one.reference();
    const std::string key = print(plain);
    const auto found = references_.find(key);
    if (found != references_.end()) return found->second;
    Reference made{0, Status(ErrorKind::Internal, "DC0001", "not run")};
    auto plan = compile_case(plain, folder_, 0);
    if (plan.ok()) {
      made.bytes = runtime::memory::arena_bytes(plan->plan, runtime::plan::Space::Device);
      made.numbers = train_case(plain, *plan, folder_);
    } else {
      made.numbers = plan.status();
    }
    return references_.emplace(key, std::move(made)).first->second;
  }

  std::string folder_;
  std::map<std::string, Reference> references_;
  int cases_ = 0, verified_ = 0, equal_ = 0, over_budget_ = 0, not_finite_ = 0, searches_ = 0,
      offloading_ = 0, near_eager_ = 0, failed_ = 0;
};

struct Arguments {
  std::string folder, one_case;
  uint64_t seed = 0;
  int64_t cases = 1 << 30, seconds = 1 << 30;
};

bool parse(int argc, char** argv, Arguments& arguments) {
  if (argc < 2 || argc % 2 != 0) return false;
  arguments.folder = argv[1];
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--seed") {
      arguments.seed = std::stoull(value);
    } else if (flag == "--cases") {
      arguments.cases = std::stoll(value);
    } else if (flag == "--seconds") {
      arguments.seconds = std::stoll(value);
    } else if (flag == "--case") {
      arguments.one_case = value;
    } else {
      return false;
    }
  }
  return true;
}

int run(const Arguments& arguments) {
  Sweep sweep(arguments.folder);
  if (!arguments.one_case.empty()) {
    const auto one = read_case(arguments.one_case);
    if (!one.ok()) {
      std::fprintf(stderr, "%s\n", one.status().to_string().c_str());
      return 64;
    }
    sweep.run(*one);
    sweep.print_counts(0);
    return sweep.ok() ? 0 : 1;
  }
  std::vector<std::string> models;
  for (const auto& entry : std::filesystem::directory_iterator(arguments.folder)) {
    if (entry.path().extension() == ".pt2") models.push_back(entry.path().filename());
  }
  std::sort(models.begin(), models.end());
  if (models.empty()) return 64;
  const auto start = std::chrono::steady_clock::now();
  for (const std::string& model : models) sweep.compare_with_eager(model);
  for (int64_t i = 0; i < arguments.cases; ++i) {
    if (std::chrono::steady_clock::now() - start > std::chrono::seconds(arguments.seconds)) break;
    const std::string& model = models[static_cast<size_t>(i) % models.size()];
    sweep.run(draw_case(arguments.seed * 1000003 + static_cast<uint64_t>(i), model));
  }
  sweep.print_counts(arguments.seed);
  return sweep.ok() ? 0 : 1;
}

}  // namespace
}  // namespace dc::test

int main(int argc, char** argv) {
  dc::test::Arguments arguments;
  if (!dc::test::parse(argc, argv, arguments)) {
    std::fprintf(
        stderr, "usage: random_chains FOLDER [--seed S] [--cases N] [--seconds T] [--case LINE]\n");
    return 64;
  }
  dc::test::out = fdopen(dup(1), "w");
  if (dc::test::out == nullptr || freopen("/dev/null", "w", stdout) == nullptr) return 73;
  for (const int one : {SIGABRT, SIGSEGV, SIGFPE, SIGBUS}) signal(one, dc::test::crashed);
  const int code = dc::test::run(arguments);
  std::fflush(dc::test::out);
  _exit(code);  // libtorch does not survive its own end
}
