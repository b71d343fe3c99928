#include "runtime/plan/slice_kind.h"

namespace dc::runtime::plan {
namespace {

class Classifier {
 public:
  explicit Classifier(const Plan& plan)
      : plan_(plan), kinds_(plan.slices.size(), SliceKind::Activations) {}

  std::vector<SliceKind> run() {
    for (const Program& program : plan_.programs) {
      for (const Instruction& in : program.instructions) instruction(in);
    }
    for (const Parameter& p : plan_.parameters) mark(p.gradient, SliceKind::Gradients);
    // What the state table says outweighs what an instruction does with it.
    for (const StateEntry& entry : plan_.state) state(entry);
    for (int32_t id : {plan_.slots, plan_.rng, plan_.scalars, plan_.table, plan_.loss_sum}) {
      mark(id, SliceKind::Scalars);
    }
    for (const Input& input : plan_.inputs) mark(input.tensor, SliceKind::Inputs);
    for (const Program& program : plan_.programs) {
      for (const Instruction& in : program.instructions) copy(in);
    }
    return std::move(kinds_);
  }

 private:
  SliceKind& kind_of(int32_t tensor) {
    return kinds_[static_cast<size_t>(plan_.tensors[static_cast<size_t>(tensor)].slice)];
  }
  void mark(int32_t tensor, SliceKind kind) {
    if (tensor >= 0) kind_of(tensor) = kind;
  }
  void instruction(const Instruction& in) {
    if (in.scratch >= 0) kinds_[static_cast<size_t>(in.scratch)] = SliceKind::Scratch;
    if (in.kind == InstructionKind::Kernel && in.op == "dc.accumulate" && !in.args.empty() &&
        in.args[0].kind == ArgKind::Tensor) {
      mark(static_cast<int32_t>(in.args[0].i), SliceKind::Gradients);
    }
    if (in.kind != InstructionKind::Collective) return;
    for (const CollectiveBuffer& b : in.buffers) {
      if (in.collective == CollectiveKind::AllGather) {
        if (kind_of(b.output) != SliceKind::Gradients) mark(b.output, SliceKind::Gathered);
      } else if (in.collective == CollectiveKind::ReduceScatter ||
                 in.collective == CollectiveKind::AllReduce) {
        mark(b.input, SliceKind::Gradients);
        mark(b.output, SliceKind::Gradients);
      }
    }
  }
  // A copy in another space is for what its source is for.
  void copy(const Instruction& in) {
    if (in.kind != InstructionKind::Copy) return;
    if (kind_of(in.dst) == SliceKind::Activations) mark(in.dst, kind_of(in.src));
  }
  void state(const StateEntry& entry) {
    switch (entry.source) {
      case StateSource::ParameterWhole:
      case StateSource::ParameterShard:
        mark(entry.tensor, SliceKind::Parameters);
        return;
      case StateSource::Buffer:
      case StateSource::Data:
        mark(entry.tensor, SliceKind::Buffers);
        return;
      case StateSource::Runtime:
        mark(entry.tensor, SliceKind::Scalars);
        return;
      case StateSource::Zeros:
        if (kind_of(entry.tensor) != SliceKind::Gradients) {
          mark(entry.tensor, SliceKind::OptimizerState);
        }
        return;
    }
  }

  const Plan& plan_;
  std::vector<SliceKind> kinds_;
};

constexpr std::array<std::string_view, kSliceKinds> kNames = {
    "parameters", "optimizer state", "gradients",   "buffers", "inputs",
    "scalars",    "gathered",        "activations", "scratch"};

}  // namespace

std::string_view name(SliceKind kind) { return kNames[static_cast<size_t>(kind)]; }
std::vector<SliceKind> slice_kinds(const Plan& plan) { return Classifier(plan).run(); }

}  // namespace dc::runtime::plan
