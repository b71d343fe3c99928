// Moves: chains that differ from a given one in one decision.
#pragma once

#include <string_view>
#include <vector>

#include "src/passes/pass_manager.h"
#include "src/search/scheduled_steps.h"

namespace dc::search {

// Whether there are ranks to shard inside a host and hosts to replicate across.
bool has_hosts(const ir::Step& imported, const passes::Options& options);

bool offloads(const passes::PassCall& call);
bool any_offloads(const passes::Chain& chain);
bool splits_by_host(const passes::PassCall& call);

// The call of the pass called `name`; nullptr if the chain has none.
const passes::PassCall* find_call(const passes::Chain& chain, std::string_view name);

// Ways to fuse element-wise operators, as chains begin with them: what named chains have; the same
// with values made again through several operators, which keeps less and moves less, but has
// kernels do more; nothing fused; the second with further results of kernels, which keeps least and
// writes more.
inline constexpr std::string_view kFusions[] = {"fuse-elementwise,", "fuse-elementwise=8,", "",
                                                "fuse-elementwise=9,"};
inline constexpr size_t kKeepsLess = 1, kNothingFused = 2, kKeepsLeast = 3;
size_t fusion_of(const passes::Chain& chain);  // which of them
// `chain` fused in this way; empty if it has a pass that fuses by another rule.
passes::Chain fused(const passes::Chain& chain, size_t fusion);

passes::Chain without(const passes::Chain& chain, const passes::Pass& pass);
// `chain` with this one call of `pass`.
passes::Chain with(const passes::Chain& chain, const passes::Pass& pass,
                   std::optional<int64_t> argument);

// How memory is used: by exchanges of parameters and activations (keep-jointly), by those of
// parameters alone (keep-parameters), where activations are made again or where none is, or by
// passes that each take what there is.
enum class Keeping { Jointly, Parameters, AllActivations, Apart };
inline constexpr int kKeepings = 4;
Keeping keeping_of(const passes::Chain& chain);
// keep-jointly and keep-parameters.
bool makes_exchanges(const passes::Pass& pass);
// The call of one of them; nullptr if the chain has neither.
const passes::PassCall* find_exchanges(const passes::Chain& chain);

// `chain` with what memory buys decided last, by so many exchanges (keep-jointly), and nothing kept
// before.
passes::Chain jointly(const passes::Chain& chain, int64_t exchanges);

// `chain`, which has exchanges, with exchanges of parameters alone, and nothing made again.
passes::Chain with_all_activations(const passes::Chain& chain);

// `chain` with keep-jointly where it has no exchanges: they begin with all made again, or with what
// the chain makes again. Where it has them, they are of parameters alone and all is made again, or
// nothing, or of both again; or they begin otherwise: with all made again, or with what the budget
// asks; or there are none, all is made again, and whole parameters take what memory is left.
// `decides_recompute`: whether a chain may say that nothing is made again.
std::vector<passes::Chain> kept_otherwise(const passes::Chain& chain, bool decides_recompute);

// What `recompute` leaves the passes behind it, as parts of what recomputing can change at most. 0:
// what is left when only the inputs of blocks are kept; kRecomputeParts: nothing is made again.
// The parts do not depend on the budget: neighbouring budgets look at the same schedules.
inline constexpr int kRecomputeParts = 64;
struct RecomputeMoves {
  RecomputeRange range;
  int64_t budget = 0;
  bool chain_offloads = false;  // what is above the budget leaves the device

  bool pays() const { return range.most > range.least && (chain_offloads || budget > range.least); }
  // As the argument of `recompute`, which takes 0 for the inputs of blocks.
  int64_t bytes(int part) const {
    return part == 0 ? 0 : range.least + (range.most - range.least) / kRecomputeParts * part;
  }
  int last_part() const { return chain_offloads ? kRecomputeParts : part_of(budget); }
  // What the chain leaves, and the last part that leaves no more than so much; negative: none.
  int64_t bytes_of(const passes::Chain& chain) const;
  int part_of(int64_t bytes) const;
  passes::Chain at(const passes::Chain& chain, int part) const;
};

// What is whole through all micro-batches of a step (keep-resident) before exchanges decide about
// the rest, within each: in parts of all parameters. 0: none.
inline constexpr int kWholeParts = 64;
int whole_part(const passes::Chain& chain, int64_t parameter_bytes);
passes::Chain with_whole_part(const passes::Chain& chain, int part, int64_t parameter_bytes);

// The passes over scheduled steps that a search may add, drop or give another size.
std::vector<const passes::Pass*> changeable_passes(const passes::Options& options);

// `chain` with this pass, without it, or with another size of it. `bytes`: of all parameters. None
// for a pass that decides what exchanges decide, where the chain has these; then it drops none
// that places collectives, nor early updates.
std::vector<passes::Chain> changed(const passes::Chain& chain, const passes::Pass& pass,
                                   int64_t bytes);

// What makes the same step without the option `way` as `chain` with it.
passes::Chain said_to_decide(const passes::Chain& chain, passes::Recompute way);

// `chain` with collectives grouped by block where it has them grouped by size, and by size where it
// has them by block.
std::vector<passes::Chain> grouped_otherwise(const passes::Chain& chain, int64_t bytes);

}  // namespace dc::search
