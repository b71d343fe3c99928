// What a plan decides for every parameter, activation and fragment of optimizer state, and what
// that saves and costs: read from the plan's own instructions, slices and durations, whatever the
// passes that made it. For verified plans.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/plan/plan.h"
#include "src/base/enum_names.h"

namespace dc::runtime::report {

enum class DecidedOn : uint8_t { Parameter, Activation, State };
inline constexpr auto kDecidedOnNames =
    base::enum_names<DecidedOn>({"parameter", "activation", "state"});
std::string_view name(DecidedOn on);

// Those up to Here hold bytes, the others free them.
enum class Decided : uint8_t {
  Whole,         // parameter: every rank always holds all of it
  Carried,       // parameter: gathered, whole from one program or step to the next
  Kept,          // parameter: of one gather, until its last use; activation: until the backward
                 // phase
  Here,          // state: always on the device
  PerUse,        // parameter: gathered for each phase that uses it
  MadeAgain,     // activation: by a kernel that runs again
  Away,          // in another space between uses
  UpdatedThere,  // state: in another space, and updated there
};
inline constexpr auto kDecidedNames =
    base::enum_names<Decided>({"whole", "carried", "kept", "here", "gathered per use", "made again",
                               "away", "updated there"});
std::string_view name(Decided decided);
constexpr bool holds_bytes(Decided decided) { return decided <= Decided::Here; }

inline constexpr int64_t kUnknownTime = -1;

struct Decision {
  DecidedOn on = DecidedOn::Parameter;
  Decided decided = Decided::Whole;
  std::string name;                         // parameter; state entry; the tensor of an activation
  std::string module;                       // of an activation
  std::string op;                           // that made it
  int32_t program = -1;                     // that decides it; -1: all of the step
  int32_t runs = 1;                         // of that program in a step
  plan::Space space = plan::Space::Device;  // where it lives, or waits
  int64_t bytes = 0;  // of the device, held or free between two instructions; as laid out
  int32_t from = 0;   // index of the instruction before; of all of the step: 0
  int32_t to = 0;     // of the instruction after; of all of the step: 0
  int32_t times = 0;  // gathers, kernels or copies that it takes in one run, the first included
  // Of a step, by the plan's durations. Held: what doing without would cost. Free: what that costs.
  int64_t time_ns = kUnknownTime;
  // Of these bytes, at the instants between, in time of the step: by the prices in the plan's
  // remarks (src/base/remark_codes.h).
  double price_ns = 0;
};

// Parameters, activations and state, each in the order of the plan. Programs of variants are left
// out.
std::vector<Decision> decisions(const plan::Plan& plan);

// `dcc inspect --as=decisions`: sums, then groups of equals, largest first.
std::string decisions_report(const plan::Plan& plan);
// `dcc inspect --as=decisions-json`: schema "dcc.decisions/1".
std::string decisions_json(const plan::Plan& plan);

}  // namespace dc::runtime::report
