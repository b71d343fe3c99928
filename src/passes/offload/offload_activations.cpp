// offload-activations: values without a use for a while spend that time in another memory
// space, as far as the budget demands it.
//
// A candidate is a gap between two uses of a value, seen through views: from the forward pass to
// the backward pass, above all. Which ones go: at the position furthest above the budget the gap
// that saves most bytes times time away per time that compute would wait for its copies; none that
// the budget does not need. Both copies are asynchronous: the copy out runs during the compute that
// follows the last use, as long as there is room for the bytes; the copy in starts as late as hides
// it behind the compute before the next use, and no earlier than there is room. (DeepCompile,
// arXiv 2504.09983 and its activation offload, copies out synchronously, largest values first.)
// Kernels and what they read stay the same; so do all numbers.
#include "src/passes/offload/activation_gaps.h"
#include "src/passes/offload/offload.h"

namespace dc::passes {
namespace {

class Offloader {
 public:
  Offloader(const ir::Step& step, const PassContext& context, schedule::MemoryPressure pressure)
      : step_(step), context_(context), pressure_(std::move(pressure)) {}

  Offloaded run() {
    if (!pressure_.survey()) return {0, 0, true, {}, {}};
    for (const ActivationGap& gap : find_activation_gaps(step_, pressure_)) {
      const bool helps = pressure_.first_over(gap.program, gap.from, gap.until) < gap.until;
      if (helps) gaps_.push_back(gap);
    }
    for (size_t i = 0; i < gaps_.size(); ++i)
      candidates_.push_back(candidate_of(step_, context_, gaps_[i], i));
    OffloadChoice(step_, context_, pressure_, candidates_).run([&](size_t chosen) {
      // Later gaps of the same bytes need no second copy out.
      for (size_t i = chosen + 1; i < gaps_.size() && gaps_[i].version == gaps_[chosen].version;
           ++i)
        std::erase_if(candidates_[i].copies, [](const PlannedCopy& copy) { return copy.out; });
    });
    std::optional<ir::Step> after = written(planned_copies());
    return {values_, bytes_, !pressure_.has_given_up(), {}, std::move(after)};
  }

 private:
  // One copy out for each interval in which the same bytes are outside the device, one copy in for
  // each gap.
  std::vector<PlannedCopy> planned_copies() {
    std::vector<PlannedCopy> copies;
    int64_t copied_out = -1;  // version
    for (size_t i = 0; i < gaps_.size(); ++i) {
      if (!candidates_[i].selected) continue;
      const OffloadCandidate whole = candidate_of(step_, context_, gaps_[i], i);
      if (gaps_[i].version != copied_out) {
        copies.push_back(whole.copies[0]);
        ++values_;
        bytes_ += whole.bytes;
      }
      copies.push_back(whole.copies[1]);
      copied_out = gaps_[i].version;
    }
    return copies;
  }

  std::optional<ir::Step> written(std::vector<PlannedCopy> copies) {
    if (copies.empty()) return std::nullopt;
    std::vector<PlannedCopy*> to_place;
    to_place.reserve(copies.size());
    for (PlannedCopy& copy : copies) to_place.push_back(&copy);
    place_copies(pressure_, to_place);
    ir::Step after = step_;
    write_copies(after, context_, pressure_, gaps_, copies);
    return after;
  }

  const ir::Step& step_;
  const PassContext& context_;
  schedule::MemoryPressure pressure_;
  std::vector<ActivationGap> gaps_;
  std::vector<OffloadCandidate> candidates_;  // of each gap
  int values_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace

base::Result<Change> offload_activations(ir::Step& step, const PassContext& context) {
  return offload_to_fit(step, context, "offload-activations",
                        {"activations-offloaded", "values", "leave the device between their uses"},
                        [&](const ir::Step& now, schedule::MemoryPressure pressure) {
                          return Offloader(now, context, std::move(pressure)).run();
                        });
}

}  // namespace dc::passes
