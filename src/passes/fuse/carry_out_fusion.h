// What was decided over a program (fusion_program.h), done to it.
#pragma once

#include <vector>

#include "src/fusion/draft.h"
#include "src/passes/fuse/fusion_program.h"

namespace dc::passes {

// Kernels and starts of a program.
struct Fusions {
  struct Member {
    ir::NodeId node;
    bool is_copy = false;  // another group has the node itself
  };
  std::vector<std::vector<Member>> groups;       // of two or more, in program order
  std::vector<std::vector<ir::NodeId>> buckets;  // of two or more starts, in program order
};

// `like`: a program with as many fusible kernels and reductions as the draft's; the n-th stands for
// the n-th.
Fusions fusions_of(const fusion::Draft& draft, const FusionProgram& of, const FusionProgram& like);

// Whether both run the same fusible kernels one after the other, and as many reductions.
bool are_alike(const ir::Graph& a, const FusionProgram& of_a, const ir::Graph& b,
               const FusionProgram& of_b);

// Makes the copies, puts the members of each group and the starts of each bucket side by side where
// the last of them was, with as little moved of the rest as what reads what demands, and makes one
// kernel of each group, of the phase in which it then runs. Internal (70), DC2614, if they wait for
// each other.
base::Status carry_out(ir::Step& step, ir::Graph& graph, const Fusions& fusions,
                       const cost::CostModel& cost);

}  // namespace dc::passes
