// Which provider has how many of a plan's kernels, and what still needs libtorch.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "runtime/plan/plan.h"
#include "src/base/json_writer.h"

namespace dc::runtime::report {

struct KernelShares {
  // Kernel instructions of all programs, each once.
  std::map<plan::Provider, int64_t> kernels;
  std::map<std::string, int64_t> aten_operators;  // by name: kernels of libtorch
};
KernelShares kernel_shares(const plan::Plan& plan);

// A line of the report; empty for a plan without kernels.
std::string kernel_report(const plan::Plan& plan);
// Member "kernels" of an open object.
void write_kernels(base::JsonWriter& json, const plan::Plan& plan);

}  // namespace dc::runtime::report
