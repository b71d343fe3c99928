// ProgramView: one program of a scheduled step as the relaxation reads it: what bytes its values
// take, which kernels the forward phase runs for certain, and which parameter a node works for.
#pragma once

#include <vector>

#include "src/analysis/liveness.h"
#include "src/cost/cost_model.h"

namespace dc::bound {

class ProgramView {
 public:
  // The step and the cost model must outlive this.
  ProgramView(const ir::Step& step, const ir::Program& program, const cost::CostModel& cost);

  const ir::Step& step;
  const ir::Graph& graph;
  const int repeat;
  const analysis::StorageMap storages;
  const analysis::Liveness live;

  ir::ValueId root(ir::ValueId value) const { return storages.root(value); }
  // Of the transient that owns the value's storage, aligned; 0 for state.
  int64_t bytes(ir::ValueId value) const { return bytes_[root(value).index()]; }
  // The transients that a kernel reads or makes, each once.
  std::vector<ir::ValueId> touched(const ir::Node& kernel) const;
  int64_t scratch(const ir::Node& kernel) const;

  // A kernel of the model: of ATen, in forward or backward, on compute.
  static bool is_model_kernel(const ir::Node& node);
  // Whether the first run of the node is in the forward phase, whatever is made again: the loss
  // stands on it. Other nodes of that phase may be put off to the backward phase, if only that
  // reads them.
  bool feeds_loss(ir::NodeId node) const { return feeds_loss_[node.index()]; }

  // The parameter that a node outside the model works for, -1 if none: a collective of it or of its
  // gradient, and what scales, adds, rounds and updates.
  int parameter(ir::NodeId node) const { return parameter_[node.index()]; }
  // The parameter whose shard a start gathers for the model's kernels, or a cast rounds for that;
  // -1 for others.
  int gathered(const ir::Node& node) const;

 private:
  void find_loss();
  void find_parameters();
  int of_entry(ir::ValueId value) const;
  int of_shard(ir::ValueId value) const;
  void tag_makers(ir::ValueId value, int parameter);

  const cost::CostModel& cost_;
  std::vector<int64_t> bytes_;    // by root
  std::vector<bool> feeds_loss_;  // by node
  std::vector<int> parameter_;    // by node
};

}  // namespace dc::bound
