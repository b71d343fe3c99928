// offload-activations-greedily: activation offloading as DeepCompile does it (DeepSpeed,
// deepspeed/compile/passes/offload_activation.py). The baseline of offload-activations.
//
// First the floor, with every candidate offloaded: a candidate is a floating-point value of 5 MiB
// or more that the backward pass reads, and it leaves after its last use in the forward pass. Its
// reload starts so far ahead of its reader that the nodes between hide the copy, but no earlier
// than nine tenths of the budget have room for it, counted as if nothing had left. Then those
// values stay on the device, the largest first, that fit between the floor's peak and nine tenths
// of the budget. That values may be live at different times is not considered.
//
// Different from DeepCompile: copies out run concurrent with compute, as long as there is room,
// instead of blocking it; each program has its floor. DeepCompile leaves a margin of 10
// to 25 % for fragmentation in its allocator. Here the margin is the smallest, because the arena
// is planned.
#include <algorithm>

#include "src/passes/offload/activation_gaps.h"
#include "src/passes/offload/offload.h"
#include "src/passes/published/published_rules.h"

namespace dc::passes {
namespace {

class Planner {
 public:
  Planner(const ir::Step& step, const PassContext& context, base::Bytes budget,
          schedule::MemoryPressure pressure)
      : step_(step),
        context_(context),
        budget_(budget.v),
        pressure_(std::move(pressure)),
        floor_(pressure_) {}

  Offloaded run() {
    find_candidates();
    std::vector<PlannedCopy> coming;
    for (size_t i = 0; i < gaps_.size(); ++i) {
      candidates_.push_back(candidate_of(step_, context_, gaps_[i], i));
      account(floor_, candidates_[i], 1);
      coming.push_back(candidates_[i].copies[1]);
    }
    start_ahead(coming);
    find_those_that_stay();
    std::vector<PlannedCopy> copies;
    Offloaded done;
    for (const PlannedCopy& copy : coming) {
      const OffloadCandidate& candidate = candidates_[copy.item];
      if (!candidate.selected) continue;
      copies.push_back(candidate.copies[0]);
      copies.push_back(copy);
      ++done.things;
      done.bytes += candidate.bytes;
    }
    if (done.things == 0) return done;
    let_run_beside_compute(copies);
    done.step = step_;
    write_copies(*done.step, context_, pressure_, gaps_, copies);
    return done;
  }

 private:
  // What the forward phase leaves for the backward phase.
  void find_candidates() {
    const int64_t least = context_.argument.value_or(published::kLeastActivation);
    for (const ActivationGap& gap : find_activation_gaps(step_, pressure_)) {
      const auto [begin, end] = pressure_.axis(gap.program).backward();
      const bool is_saved = gap.from <= begin && begin <= gap.until && gap.until < end;
      const ir::TensorType& type =
          step_.programs[static_cast<size_t>(gap.program)].graph.value(gap.root).type;
      if (is_saved && base::is_floating(type.dtype) && type.bytes().v >= least)
        gaps_.push_back(gap);
    }
  }

  // In order of need; a copy that comes in starts within the backward phase.
  void start_ahead(std::vector<PlannedCopy>& coming) {
    std::stable_sort(coming.begin(), coming.end(), [](const PlannedCopy& a, const PlannedCopy& b) {
      return a.program != b.program ? a.program < b.program : a.position < b.position;
    });
    int64_t reloaded = 0;
    for (size_t k = 0; k < coming.size(); ++k) {
      PlannedCopy& copy = coming[k];
      const int p = copy.program;
      if (k > 0 && coming[k - 1].program != p) reloaded = 0;
      std::vector<published::BackwardNode> before;
      const int32_t first = std::max(copy.bound, pressure_.axis(p).backward().begin);
      for (int32_t i = first; i < copy.position; ++i)
        before.push_back({pressure_.time(p, i + 1) - pressure_.time(p, i), pressure_.bytes(p, i)});
      const size_t ahead =
          published::reload_ahead(before, copy.bytes, copy.time, reloaded, budget_);
      copy.other_half = copy.position - static_cast<int32_t>(ahead);
      floor_.add(p, copy.other_half, copy.position - 1, copy.bytes);
      reloaded += copy.bytes;
    }
  }

  void find_those_that_stay() {
    for (int p = 0; p < floor_.programs(); ++p) {
      int64_t peak = 0;
      for (int32_t i = 0; i < floor_.positions(p); ++i) peak = std::max(peak, floor_.bytes(p, i));
      std::vector<OffloadCandidate*> here;
      std::vector<int64_t> sizes;
      for (size_t i = 0; i < gaps_.size(); ++i) {
        if (gaps_[i].program != p) continue;
        candidates_[i].selected = true;
        here.push_back(&candidates_[i]);
        sizes.push_back(candidates_[i].bytes);
      }
      const int64_t headroom = published::headroom(budget_, peak);
      for (const size_t i : published::activations_that_stay(sizes, headroom))
        here[i]->selected = false;
    }
  }

  // Copies out run concurrently with compute for as long as the device has room for their bytes.
  void let_run_beside_compute(std::vector<PlannedCopy>& copies) {
    for (const OffloadCandidate& candidate : candidates_) {
      if (candidate.selected) account(pressure_, candidate, 1);
    }
    std::vector<PlannedCopy*> to_place;
    for (PlannedCopy& copy : copies) {
      if (!copy.out) pressure_.add(copy.program, copy.other_half, copy.position - 1, copy.bytes);
      to_place.push_back(&copy);
    }
    place_copies(pressure_, to_place,
                 [](schedule::MemoryPressure&, std::vector<PlannedCopy*>& coming) {
                   for (PlannedCopy* copy : coming)
                     copy->other_half = std::max(copy->other_half, copy->bound);
                 });
  }

  const ir::Step& step_;
  const PassContext& context_;
  int64_t budget_;
  schedule::MemoryPressure pressure_, floor_;  // with all values there; with all gone
  std::vector<ActivationGap> gaps_;
  std::vector<OffloadCandidate> candidates_;  // of each gap
};

// Its floor is that of a step with all activations on the device: a second run has nothing to add.
bool has_run(const ir::Step& step) {
  return std::any_of(step.programs.begin(), step.programs.end(), [](const ir::Program& program) {
    const std::vector<ir::NodeId> order = program.graph.order();
    return std::any_of(order.begin(), order.end(), [&](ir::NodeId id) {
      return program.graph.node(id).kind == ir::OpKind::OffloadStart;
    });
  });
}

}  // namespace

base::Result<Change> offload_activations_greedily(ir::Step& step, const PassContext& context) {
  if (!context.options.memory() || has_run(step)) return Change::No;
  const base::Bytes usable{published::usable(context.options.memory()->v)};
  return offload_once(step, context, usable, "offload-activations-greedily",
                      {"activations-offloaded", "values",
                       "leave the device between the forward and the backward pass"},
                      [&](const ir::Step& now, schedule::MemoryPressure pressure) {
                        return Planner(now, context, usable, std::move(pressure)).run();
                      });
}

}  // namespace dc::passes
