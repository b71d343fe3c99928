// RandomCase: one way to compile one model, drawn from a seed or read from a line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "src/driver/compile_step.h"

namespace dc::test {

struct RandomCase {
  std::string model;  // file name without folder
  int world = 1, accumulation = 1;
  passes::ReductionOrder order = passes::ReductionOrder::PerMicroBatch;
  bool sgd = false, clip = true;
  bool bf16_reductions = false;
  int64_t link_bytes = 0;      // per second and rank, of the profile; 0: no profile
  double memory_fraction = 0;  // of what the reference plan needs; 0: no budget
  passes::Recompute recompute = passes::Recompute::Auto;
  std::optional<ir::Space> offload;
  int effort = 48;    // of the search
  std::string chain;  // passes, or "auto"

  driver::CompileOptions options(int64_t reference_bytes) const;
  // The plan whose numbers all cases with these facts must have: ZeRO 3, just in time, no budget.
  RandomCase reference() const;
};

RandomCase draw_case(uint64_t seed, const std::string& model);
// "model=a.pt2 world=2 ...": read(print(c)) prints equal. BadInput on a line that is none.
std::string print(const RandomCase& one);
base::Result<RandomCase> read_case(std::string_view line);

}  // namespace dc::test
