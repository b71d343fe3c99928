// Writes a hand-made plan: make_training_plan FILE WORLD ACCUMULATION [HOSTS]
#include <cstdio>
#include <cstdlib>

#include "runtime/plan/file.h"
#include "src/base/file.h"
#include "tests/runtime/train/training_plan.h"

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) return 64;
  const dc::runtime::test::TrainingPlan hand(std::atoi(argv[2]), std::atoi(argv[3]), true,
                                             dc::base::Space::Device,
                                             argc == 5 ? std::atoi(argv[4]) : 1);
  const auto status = dc::base::write_file_atomically(
      argv[1], std::string_view(dc::runtime::plan::encode(hand.plan)));
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status.ok() ? 0 : 1;
}
