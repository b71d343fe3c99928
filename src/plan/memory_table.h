// MemoryTable: the slices and tensors of the plan under construction. A tensor is made when
// something first refers to it; equal views are one tensor.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/plan/plan.h"
#include "src/analysis/liveness.h"
#include "src/ir/step.h"

namespace dc::plan {

// First and last instruction of each position of one program; an empty span has last = first - 1.
struct Span {
  int32_t first = 0, last = -1;
};

class MemoryTable {
 public:
  // Adds the slices of the state.
  MemoryTable(const ir::Step& step, runtime::plan::Plan& plan);

  // Adds the slices of a program's transients and scratch; later calls of `tensor` mean values of
  // this program, whose number in the plan is `program`. `shares_inputs`: with other programs.
  void begin_program(int32_t program, const ir::Graph& graph, bool shares_inputs,
                     const analysis::Liveness& live, const std::vector<Span>& spans);

  int32_t tensor(ir::ValueId value);
  // The bytes of a value without gaps, in the order in which they lie, as one dim.
  int32_t flat_tensor(ir::ValueId value);
  int32_t scratch(ir::NodeId node) const { return scratch_[node.index()]; }
  int32_t state_tensor(int entry);

 private:
  // From a rank's place to that of the next one of its group along `axes`.
  struct Stride {
    int64_t bytes = 0;
    uint32_t axes = runtime::plan::kAllAxes;
  };
  using Key = std::tuple<int32_t, runtime::plan::DType, std::vector<int64_t>, std::vector<int64_t>,
                         int64_t, int64_t, uint32_t>;

  int32_t tensor(ir::ValueId value, const ir::TensorType& type);
  int32_t add_slice(const ir::Location& location, int32_t program, Span live,
                    runtime::plan::SliceKind kind);
  int32_t shared_input(const std::string& name, const ir::Location& location);
  int32_t add_tensor(const std::string& name, const ir::TensorType& type, int32_t slice,
                     Stride stride);
  Stride stride_of(int entry) const;

  const ir::Step& step_;
  runtime::plan::Plan& plan_;
  std::vector<int32_t> state_slices_;  // by entry; those of a range are the whole entry's
  std::map<std::string, int32_t> shared_inputs_;  // slices, by name
  std::map<Key, int32_t> tensors_;
  const ir::Graph* graph_ = nullptr;  // of the current program
  std::vector<ir::ValueId> roots_;    // by value
  std::vector<int> entries_;          // by value: state entry as named, or -1
  std::vector<int32_t> slices_;       // by root value: of transients, or -1
  std::vector<int32_t> scratch_;      // by node, or -1
};

}  // namespace dc::plan
