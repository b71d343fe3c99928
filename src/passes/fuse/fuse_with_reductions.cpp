// disco: which operators become one kernel and which reductions travel as one, decided together by
// DisCo's search (src/fusion). fuse-jointly: the same decision by a descent from its result and
// from the rules'. fuse-greedily, bucket-by-size, bucket-as-ddp: the rules that it is compared
// with, each of which decides one of the two. Fused kernels give the bits of their operations
// apart, and what travels together is summed as it is alone; so all numbers stay.
#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "src/base/text.h"
#include "src/fusion/greedy.h"
#include "src/fusion/joint.h"
#include "src/fusion/random_fusion.h"
#include "src/fusion/search.h"
#include "src/passes/fuse/carry_out_fusion.h"
#include "src/passes/fuse/fuse_rules.h"
#include "src/passes/fuse/fusion_program.h"
#include "src/passes/fuse/region_time.h"
#include "src/passes/pass.h"

namespace dc::passes {
namespace {

struct Decided {
  fusion::Draft draft;
  std::vector<base::RemarkNumber> numbers{};
  std::string text{};
};
using Decide = std::function<Decided(fusion::Draft draft, const fusion::LinearTime& line)>;

struct FusionCounts {
  int64_t operators = 0, kernels = 0, copies = 0, joined = 0;

  void add(const Fusions& fusions) {
    for (const auto& group : fusions.groups) {
      operators += static_cast<int64_t>(group.size());
      copies += std::ranges::count(group, true, &Fusions::Member::is_copy);
    }
    kernels += static_cast<int64_t>(fusions.groups.size());
    for (const auto& bucket : fusions.buckets) joined += static_cast<int64_t>(bucket.size()) - 1;
  }
};

void report(const PassContext& context, std::string_view pass, const FusionCounts& counts,
            const fusion::Timeline& before, const Decided& decided, const fusion::Timeline& after) {
  base::Remark remark{
      std::string(pass),
      "fused-with-reductions",
      {},
      {{"operators", counts.operators},
       {"kernels", counts.kernels},
       {"copies", counts.copies},
       {"joined", counts.joined},
       {"before_ns", before.time.v},
       {"after_ns", after.time.v},
       {"full_overlap_ns", after.full_overlap().v}},
      std::to_string(counts.operators) + " operators, " + std::to_string(counts.copies) +
          " of them copies, became " + std::to_string(counts.kernels) + " kernels; " +
          std::to_string(counts.joined) +
          " reductions join another: forward, backward and reductions take " +
          base::format_duration(after.time.v) + " instead of " +
          base::format_duration(before.time.v) + " by DisCo's simulator" + decided.text};
  remark.numbers.insert(remark.numbers.end(), decided.numbers.begin(), decided.numbers.end());
  context.remarks.push_back(std::move(remark));
}

Change left_alone(const PassContext& context, std::string_view pass) {
  context.remarks.push_back({std::string(pass),
                             "not-fused",
                             {},
                             {},
                             "nothing is fused where parameters are gathered, or values copied, "
                             "during the forward and backward phase"});
  return Change::No;
}

// Decides over the last program, which reduces the gradients; the programs before it run the same
// kernels, and are fused alike.
base::Result<Change> fuse_step(ir::Step& step, const PassContext& context, std::string_view pass,
                               const Decide& decide) {
  ir::Graph& last = step.programs.back().graph;
  const std::optional<FusionProgram> found = fusion_program(step, last, context.cost);
  if (!found) return left_alone(context, pass);
  const FusionProgram& program = *found;
  const fusion::LinearTime line = reduction_line(step, last, program, context.cost);
  const RegionTime fused(last, program, context.cost);
  const fusion::Draft start(program.problem, fused);
  const Decided decided = decide(start, line);
  FusionCounts counts;
  for (ir::Program& other : step.programs) {
    const bool is_last = &other.graph == &last;
    const std::optional<FusionProgram> own = fusion_program(step, other.graph, context.cost);
    if (!own || (!is_last && !are_alike(last, program, other.graph, *own))) continue;
    const Fusions fusions = fusions_of(decided.draft, program, *own);
    counts.add(fusions);
    if (fusions.groups.empty() && fusions.buckets.empty()) continue;
    DC_RETURN_IF_ERROR(carry_out(step, other.graph, fusions, context.cost));
  }
  if (counts.kernels == 0 && counts.joined == 0) return Change::No;
  if (context.collect_remarks) {
    const auto played = [&](const fusion::Draft& draft) {
      return fusion::play(draft, line, fusion::Order::FirstReady);
    };
    report(context, pass, counts, played(start), decided, played(decided.draft));
  }
  return Change::Yes;
}

base::Result<Change> bucket(ir::Step& step, const PassContext& context, std::string_view pass,
                            fusion::Closing closing, int64_t most, int64_t first) {
  return fuse_step(
      step, context, pass, [&](fusion::Draft draft, const fusion::LinearTime&) -> Decided {
        fusion::merge_in_order(draft, fusion::Order::Program, closing, {most}, {first});
        return {std::move(draft)};
      });
}

}  // namespace

fusion::ClosedFormTime closed_form_time(const cost::CostModel& cost) {
  constexpr int64_t kBytes = 1 << 30;
  const auto copy = [&](int64_t bytes) {
    return cost.copy({bytes}, ir::Space::Device, ir::Space::Device).time;
  };
  const base::Nanos launch = copy(0);
  const int64_t moving = std::max<int64_t>((copy(kBytes) - launch).v, 1);
  return {launch, std::max<int64_t>(kBytes * 1'000'000'000 / moving, 1)};
}

base::Result<Change> disco(ir::Step& step, const PassContext& context) {
  fusion::SearchRules rules;
  if (context.argument) rules.patience = *context.argument;
  return fuse_step(step, context, "disco",
                   [&](fusion::Draft draft, const fusion::LinearTime& line) -> Decided {
                     fusion::Found found =
                         fusion::search(std::move(draft), line, fusion::Order::FirstReady, rules);
                     return {std::move(found.best),
                             {{"candidates", found.candidates}, {"played", found.played}},
                             "; " + std::to_string(found.candidates) + " candidates"};
                   });
}

base::Result<Change> fuse_jointly(ir::Step& step, const PassContext& context) {
  return fuse_step(step, context, "fuse-jointly",
                   [](const fusion::Draft& draft, const fusion::LinearTime& line) -> Decided {
                     fusion::Joint joint =
                         fusion::decide_jointly(draft, line, fusion::Order::FirstReady);
                     return {std::move(joint.best), {{"played", joint.played}}};
                   });
}

base::Result<Change> fuse_greedily(ir::Step& step, const PassContext& context) {
  return fuse_step(step, context, "fuse-greedily",
                   [](fusion::Draft draft, const fusion::LinearTime&) -> Decided {
                     fusion::fuse_in_order(draft);
                     return {std::move(draft)};
                   });
}

base::Status fuse_at_random(ir::Step& step, const cost::CostModel& cost, uint64_t seed) {
  const Options options;
  std::vector<Remark> remarks;
  return fuse_step(step, {cost, options, remarks}, "fuse-at-random",
                   [seed](fusion::Draft draft, const fusion::LinearTime&) -> Decided {
                     fusion::fuse_at_random(draft, seed);
                     return {std::move(draft)};
                   })
      .status();
}

base::Result<Change> bucket_by_size(ir::Step& step, const PassContext& context) {
  return bucket(step, context, "bucket-by-size", fusion::Closing::UpTo,
                context.argument.value_or(kXlaBucket), 0);
}

base::Result<Change> bucket_as_ddp(ir::Step& step, const PassContext& context) {
  const int64_t most = context.argument.value_or(kDdpBucket);
  return bucket(step, context, "bucket-as-ddp", fusion::Closing::Past, most,
                std::min(most, kDdpFirstBucket));
}

}  // namespace dc::passes
