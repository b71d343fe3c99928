// Random small models and machines, equal on every host: the standard's distributions are not.
#pragma once

#include <random>
#include <string>

#include "src/ir/step.h"
#include "src/profile/profile_file.h"

namespace dc::bound::test {

class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}
  int below(int count) { return static_cast<int>(engine_() % static_cast<uint64_t>(count)); }
  bool chance(int percent) { return below(100) < percent; }

 private:
  std::mt19937_64 engine_;
};

// A few layers of product, function and perhaps sum, with a backward phase of the same data flow,
// as a normalized step: some layers share a parameter, some activations are saved twice.
ir::Step random_step(Dice& dice, int world, int accumulation);

// Collectives with a bend or two, contention in every other machine, copies, and rates that make
// compute and collectives equally long, roughly.
profile::Profile random_profile(Dice& dice, int world);

}  // namespace dc::bound::test
