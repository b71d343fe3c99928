// What may be asked of a compilation; each option can change the plan.
#pragma once

#include <optional>
#include <string>

#include "src/base/status.h"
#include "src/ir/types.h"
#include "src/passes/pass.h"

namespace dc::driver {

struct CompileOptions {
  int world = 1;
  int accumulation = 1;
  int threads = 1;                        // per rank
  std::optional<ir::DType> reduce_dtype;  // wire dtype of gradients
  passes::Options passes;
  std::string chain = "auto";  // a name that search::find_chain knows, or "auto": search::find_best
  int search_effort = 48;      // schedules that "auto" may simulate
  bool any_order = false;      // "auto" may choose the reduction order
  std::string own_passes;      // a chain as text instead of a name; empty: none

  // Every option that can change the plan, in one canonical line; part of the cache key.
  std::string canonical() const;
};

inline constexpr int kMaxWorld = 65536;
base::Status check(const CompileOptions& options);  // Usage (64) naming the option

}  // namespace dc::driver
