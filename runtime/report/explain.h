// What a plan does as one instruction that could be several: fused kernels, and collectives of
// several buffers. `dcc explain`. For verified plans.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/plan/plan.h"
#include "src/base/status.h"

namespace dc::runtime::report {

struct FusedOperation {
  std::string text;        // "t1:f32 = mul.Tensor(self=t0, other=%12)"
  bool is_stored = false;  // others read its value; else it never lies in memory
};

// A fused kernel next to its operations as kernels of their own.
struct ExplainedFusion {
  int32_t program = 0, index = 0;
  std::string module;
  plan::Phase phase = plan::Phase::Forward;
  std::vector<int32_t> operands, results;  // tensors
  std::vector<FusedOperation> operations;
  int64_t launches_saved = 0;
  int64_t bytes_saved = 0;   // that operations would write and read for one another, or read again
  int64_t predicted_ns = 0;  // of the kernel; 0: the plan does not say
  plan::FigureOrigin origin = plan::FigureOrigin::Unknown;  // of predicted_ns
};

// One of the values that travel together. Times are from the begin of the program by the plan's own
// prediction, 0 if it has none.
struct ExplainedMember {
  int32_t tensor = -1;   // that the rank gives
  std::string module;    // of what made it
  int32_t made_at = -1;  // the last instruction before that writes it; -1: none
  int64_t made_ns = 0;   // when that ended
  int64_t waits_ns = 0;  // for the last of the others to be made
  int64_t bytes = 0;
};
struct ExplainedMerge {
  int32_t program = 0, index = 0;
  plan::CollectiveKind collective = plan::CollectiveKind::AllReduce;
  std::vector<ExplainedMember> members;
  int32_t last = -1;  // of `members`: the one that the others wait for
  int64_t begins_ns = 0, ends_ns = 0;
};

struct Explanation {
  std::vector<ExplainedFusion> fusions;
  std::vector<ExplainedMerge> merges;
  std::string asked;  // what they are of: "[12] aten.mm.default in model.layers.0", "the plan"
};

// `what`: nothing (all), an index of the last program, a tensor ("%12", or its name), a parameter
// with its state and gradient, or a module with what is inside it. Usage (64), DC2817, if that
// names nothing of the plan.
base::Result<Explanation> explain(const plan::Plan& plan, const std::string& what);

std::string to_text(const plan::Plan& plan, const Explanation& explanation);
std::string to_json(const plan::Plan& plan, const Explanation& explanation);  // "dcc.explain/1"

}  // namespace dc::runtime::report
