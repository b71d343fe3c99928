#include "src/search/search_state.h"

#include <algorithm>

namespace dc::search {
namespace {

constexpr int64_t kTakenByUpdates = 8;    // parts of what is live, of which early updates take one
constexpr int64_t kFusedAlike = 500;      // parts of a time, of which two differ by at most one
constexpr int64_t kFusedFarBehind = 103;  // per cent of a chain's time with operators fused as now

int64_t bytes_of_parameters(const ir::Step& step) {
  int64_t bytes = 0;
  for (const ir::Parameter& parameter : step.parameters)
    bytes += parameter.numel() * base::byte_size(parameter.dtype);
  return bytes;
}

std::vector<size_t> all_fusions(const SearchOptions& asked, const passes::Options& options) {
  if (asked.fusion) return {*asked.fusion};
  if (options.providers == passes::Providers::Aten) return {0};
  return {0, 1, 2, 3};
}

// Of two times that are known.
bool differ_little(int64_t a, int64_t b) {
  return a != 0 && b != 0 && std::abs(a - b) <= std::max(a, b) / kFusedAlike;
}

passes::Chain without_exchanges(const passes::Chain& chain) {
  const passes::PassCall* exchanges = find_exchanges(chain);
  return exchanges ? without(chain, *exchanges->pass) : chain;
}

}  // namespace

SearchState::SearchState(const ir::Step& imported, const passes::Options& options,
                         const cost::CostModel& cost, const SearchOptions& asked, StepStore& store)
    : imported_(imported),
      options_(options),
      cost_(cost),
      asked_(asked),
      parameter_bytes_(bytes_of_parameters(imported)),
      trials_(imported, options_, cost, asked, store),
      fusions_(all_fusions(asked, options_)) {}

base::Status SearchState::compare_fusions() {
  if (fusions_.size() > 1) {
    DC_ASSIGN_OR_RETURN(fusions_, trials_.steps().different_fusions());
  }
  return {};
}

std::vector<passes::Chain> SearchState::fused_otherwise(const passes::Chain& chain) const {
  std::vector<passes::Chain> result;
  const int64_t now = of_fusion_[fusion_of(chain)].v;
  for (const size_t fusion : fusions()) {
    const bool is_behind = now != 0 && of_fusion_[fusion].v / kFusedFarBehind > now / 100;
    if (fusion != fusion_of(chain) && !is_behind) result.push_back(fused(chain, fusion));
  }
  std::erase_if(result, [](const passes::Chain& other) { return other.empty(); });
  return result;
}

bool SearchState::are_alike(size_t fusion, size_t other) const {
  return differ_little(of_fusion_[fusion].v, of_fusion_[other].v);
}

bool SearchState::were_alike(size_t fusion, size_t other) const {
  return differ_little(before_[fusion].v, before_[other].v);
}

base::Result<passes::Chain> SearchState::as_asked(base::Result<passes::Chain> chain) const {
  return chain.ok() && asked_.fusion ? fused(*chain, *asked_.fusion) : std::move(chain);
}

bool SearchState::keeps_through_micro_batches(const passes::Chain& chain) const {
  const passes::PassCall* shard = find_call(chain, "shard-parameters");
  return imported_.accumulation > 1 && find_exchanges(chain) && shard && shard->argument == 3;
}

base::Result<MaybeScore> SearchState::try_next(const Candidate& candidate) {
  if (!best().chain.empty() && trials_.done()) return MaybeScore();
  return trials_.try_candidate(candidate);
}

base::Result<bool> SearchState::is_tight(const passes::Chain& chain) {
  DC_ASSIGN_OR_RETURN(const RecomputeMoves moves, recompute_moves(without_exchanges(chain)));
  const auto& [least, most] = moves.range;
  return most > least && moves.budget < least + (most - least) / 2;
}

base::Result<bool> SearchState::keeps_all(const passes::Chain& chain) {
  const passes::PassCall* recompute = find_call(chain, "recompute");
  if (!recompute || recompute->argument) return !recompute;
  DC_ASSIGN_OR_RETURN(const RecomputeMoves moves, recompute_moves(without_exchanges(chain)));
  return moves.range.most > moves.range.least && moves.budget >= moves.range.most;
}

// Early updates may take away some of what the just-in-time schedule has live.
base::Result<bool> SearchState::may_keep_all(const passes::Chain& chain) {
  DC_ASSIGN_OR_RETURN(const RecomputeMoves moves, recompute_moves(without_exchanges(chain)));
  return moves.range.most - moves.range.most / kTakenByUpdates <= moves.budget;
}

base::Result<RecomputeMoves> SearchState::recompute_moves(const passes::Chain& chain) {
  if (!options_.memory() || options_.recompute != passes::Recompute::Auto ||
      find_exchanges(chain) || !find_call(chain, "recompute"))
    return RecomputeMoves{};
  const base::Result<RecomputeRange> range = trials_.steps().recompute_range(chain);
  if (!range.ok()) {
    DC_RETURN_IF_ERROR(trials_.left_out(chain, range.status()));
    return RecomputeMoves{};
  }
  return RecomputeMoves{*range, options_.memory()->v, any_offloads(chain)};
}

}  // namespace dc::search
