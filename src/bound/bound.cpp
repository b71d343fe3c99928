#include "src/bound/bound.h"

#include <algorithm>
#include <numeric>

#include "src/cost/transfer.h"

namespace dc::bound {
namespace {

// Steps at most, of small relaxations; of larger ones less, as each takes longer.
constexpr int64_t kMostSteps = 3600, kLeastSteps = 1200;
constexpr int64_t kChoicesOfSteps = 5'000'000;  // of all steps together
// Above this many times the bound without a budget the budget is out of reach: more says nothing.
constexpr double kOutOfReach = 1000;
// Of what is sufficient: the rest would take most of the steps.
constexpr double kNearlySufficient = 0.9998;

std::vector<ProgramView> views_of(const ir::Step& step, const cost::CostModel& cost) {
  std::vector<ProgramView> views;
  views.reserve(step.programs.size());
  for (const ir::Program& program : step.programs) views.emplace_back(step, program, cost);
  return views;
}

// All of a kind in one program, and gathers three times: a parameter's for the forward phase, for
// the backward phase and for kernels that run again may meet in one bucket.
void add_buckets(const ProgramView& program, Buckets& buckets) {
  Buckets sums;
  for (ir::NodeId id = program.graph.first(); id.valid(); id = program.graph.next(id)) {
    const auto transfer = cost::transfer_of(program.graph, program.graph.node(id));
    if (!transfer) continue;
    const int times = transfer->kind == cost::Collective::AllGather ? 3 : 1;
    sums[transfer->kind] += transfer->wire_bytes() * times;
  }
  for (const auto& [kind, bytes] : sums) buckets[kind] = std::max(buckets[kind], bytes);
}

// Where state may be away, its update may be away too.
Limits limits_of(const ir::Step& step, const LeastTime& least, const Allowed& allowed) {
  Limits limits;
  limits.one_queue = allowed.one_queue;
  limits.has_barrier = step.optimizer.clip && allowed.away.empty();
  if (!least.any_collective()) return limits;
  limits.compute = std::max(1.0, least.compute_contention());
  limits.collective = std::max(1.0, least.collective_contention());
  return limits;
}

// By program: the end of its instants.
template <typename Instants>
std::vector<size_t> ends_of(const Instants& instants, size_t programs) {
  std::vector<size_t> ends(programs);
  for (const auto& instant : instants) ++ends[static_cast<size_t>(instant.program)];
  std::partial_sum(ends.begin(), ends.end(), ends.begin());
  return ends;
}

// Each price at the instant that is as far through its program.
Prices prices_of(const LowerBound& alike, const Relaxation& relaxation, size_t programs) {
  Prices prices{alike.weights, std::vector<double>(relaxation.instants.size())};
  const std::vector<size_t> ends = ends_of(relaxation.instants, programs),
                            ends_there = ends_of(alike.instants, programs);
  for (size_t p = 0; p < programs; ++p) {
    const size_t begin = p > 0 ? ends[p - 1] : 0, begin_there = p > 0 ? ends_there[p - 1] : 0;
    const size_t count = ends[p] - begin, count_there = ends_there[p] - begin_there;
    for (size_t i = 0; count > 0 && i < count_there; ++i) {
      const size_t at = begin + i * count / count_there;
      prices.of_byte[at] +=
          alike.instants[begin_there + i].ns_per_byte * relaxation.instants[at].repeat;
    }
  }
  return prices;
}

}  // namespace

LowerBound lower_bound(const ir::Step& gathered, std::span<const ir::Step* const> others,
                       const cost::CostModel& cost, const Allowed& allowed, base::Nanos sufficient,
                       const LowerBound* alike) {
  const std::vector<ProgramView> programs = views_of(gathered, cost);
  std::vector<std::vector<ProgramView>> other_programs;
  for (const ir::Step* other : others) other_programs.push_back(views_of(*other, cost));
  Buckets buckets;
  for (const ProgramView& program : programs) add_buckets(program, buckets);
  for (const std::vector<ProgramView>& other : other_programs) {
    for (const ProgramView& program : other) add_buckets(program, buckets);
  }
  LeastTime least(cost, buckets);
  Relaxation relaxation;
  std::vector<ProgramMemory> memories;
  memories.reserve(programs.size());
  for (size_t p = 0; p < programs.size(); ++p) {
    const int32_t offset = memories.empty() ? 0 : memories.back().end();
    memories.emplace_back(programs[p], offset, allowed.budget ? kMostInstants : 0);
    for (const ir::NodeId kernel : memories.back().spine.kernels()) {
      relaxation.instants.push_back({static_cast<int32_t>(p), kernel, programs[p].repeat});
      const auto scratch = programs[p].scratch(programs[p].graph.node(kernel));
      relaxation.fixed_bytes.push_back(static_cast<double>(scratch));
    }
  }
  for (const ProgramMemory& memory : memories)
    add_activations(memory, cost, least, allowed, relaxation);
  add_placements(memories, other_programs, cost, least, allowed, relaxation);
  const Limits limits = limits_of(gathered, least, allowed);
  const DualBound free = ascend(relaxation, std::nullopt, limits, Weighing::Streams, 0, 0);
  const double enough = std::max(1.0, free.ns) * kOutOfReach;
  const double last = std::min(enough, static_cast<double>(sufficient.v) * kNearlySufficient);
  std::optional<Prices> from;
  if (alike != nullptr && !alike->instants.empty() && !alike->is_out_of_reach)
    from = prices_of(*alike, relaxation, programs.size());
  const auto steps = static_cast<int>(
      std::clamp<int64_t>(kChoicesOfSteps / (1 + static_cast<int64_t>(relaxation.choices.size())),
                          kLeastSteps, kMostSteps));
  DualBound best;
  LowerBound result;
  for (const Weighing weighing : {Weighing::Streams, Weighing::LinksInContention}) {
    // Without one queue for all transfers it weighs as Streams does.
    if (weighing == Weighing::LinksInContention && !(limits.contention() && limits.one_queue))
      continue;
    if (best.ns >= last) break;
    DualBound found =
        ascend(relaxation, allowed.budget, limits, weighing, steps, last, from ? &*from : nullptr);
    result.evaluations += found.evaluations;
    if (found.ns > best.ns) best = std::move(found);
  }
  // Sums of doubles are right to a ten-millionth by far. One evaluation may be far above enough,
  // more than fits an int64_t.
  const double ns = std::min(best.ns, enough);
  result.is_out_of_reach = allowed.budget && best.ns >= enough;
  result.time = {static_cast<int64_t>(std::max(0.0, ns * (1 - 1e-7) - 1))};
  result.weights = best.prices.weights;
  for (size_t i = 0; i < relaxation.instants.size() && i < best.prices.of_byte.size(); ++i) {
    const Instant& instant = relaxation.instants[i];
    result.instants.push_back(
        {instant.program, instant.node, best.prices.of_byte[i] / instant.repeat});
  }
  return result;
}

}  // namespace dc::bound
