// Simulates one run of a program, with the transfers that the previous run left under way.
#pragma once

#include "src/sim/machine.h"

namespace dc::sim {

struct Played {
  Totals totals;  // `time`: until compute has ended, and every stream unless the schedule leaves
                  // transfers running
  Record record;  // by event; from the beginning of this run
};

// `before`: the program that started what arrives in this one; null: nothing is under way.
Played play(const Schedule& schedule, const Schedule* before);

// All runs of a program in a step, of which `first` was the first: what arrives does so in that
// one.
Totals play_repeated(const Schedule& schedule, int repeat, const Totals& first);

}  // namespace dc::sim
