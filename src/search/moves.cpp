#include "src/search/moves.h"

#include <algorithm>

#include "src/search/chains.h"
#include "src/search/starts.h"

namespace dc::search {
namespace {

using passes::Chain;
using passes::PassCall;

// A chain that parse_passes() refuses is no neighbour.
void add(std::vector<Chain>& list, const Chain& chain) {
  if (passes::parse_passes(passes::print(chain)).ok()) list.push_back(chain);
}

// Half of the parameters for what is kept, a hundredth for a bucket.
int64_t first_size(const passes::Pass& pass, int64_t bytes) {
  return std::max<int64_t>(1, pass.name == "keep-resident" ? bytes / 2 : bytes / 100);
}

bool has_sizes(const passes::Pass& pass) {
  return !pass.argument.empty() && pass.name != "recompute";
}

// What exchanges decide: they expect that nothing is kept before them.
bool decides_what_is_kept(const passes::Pass& pass) {
  return pass.name == "recompute" || pass.name == "keep-resident" ||
         pass.name == "keep-resident-greedily";
}

// Exchanges expect collectives in their places.
bool places_collectives(const passes::Pass& pass) {
  return pass.name == "gather-by-block" || pass.name == "fuse-gathers" ||
         pass.name == "bucket-reductions" || pass.name == "prefetch-gathers" ||
         pass.name == "overlap-reductions";
}

// `chain` with what memory buys decided last, and as much made again before it as `chain` says.
Chain keeps_parameters_jointly(const Chain& chain, int64_t exchanges) {
  Chain result = chain;
  for (const char* keeper : {"keep-resident", "keep-resident-greedily", "keep-parameters"})
    result = without(result, *passes::find_pass(keeper));
  return with(result, *passes::find_pass("keep-jointly"), exchanges);
}

// Without the comma.
std::string_view fuse_text(size_t fusion) {
  return kFusions[fusion].substr(0, kFusions[fusion].size() - 1);
}

// Another size of a call: four times more, four times less, as much as fits. None is as large as
// all parameters: that is as much as fits. What exchanges would spend is left to them.
void add_sizes(std::vector<Chain>& list, const Chain& chain, const PassCall& call, int64_t bytes) {
  const passes::Pass& pass = *call.pass;
  const int64_t middle = std::min(call.argument.value_or(first_size(pass, bytes)), bytes);
  for (const int64_t other : {middle * 4, middle, middle / 4}) {
    if (other < bytes && other != call.argument) add(list, with(chain, pass, other));
  }
  const bool fills_budget = pass.name == "overlap-reductions" && find_exchanges(chain);
  if (call.argument && !fills_budget) add(list, with(chain, pass, std::nullopt));
}

}  // namespace

bool has_hosts(const ir::Step& imported, const passes::Options& options) {
  const int world = imported.mesh.world(), each = options.ranks_per_host.value_or(0);
  return each > 1 && each < world && world % each == 0;
}

bool offloads(const PassCall& call) { return call.pass->name.starts_with("offload-"); }
bool any_offloads(const Chain& chain) { return std::any_of(chain.begin(), chain.end(), offloads); }
bool splits_by_host(const PassCall& call) { return call.pass->name == "split-by-host"; }

const PassCall* find_call(const Chain& chain, std::string_view name) {
  const auto found = std::find_if(chain.begin(), chain.end(),
                                  [&](const PassCall& call) { return call.pass->name == name; });
  return found == chain.end() ? nullptr : &*found;
}

bool makes_exchanges(const passes::Pass& pass) {
  return pass.name == "keep-jointly" || pass.name == "keep-parameters";
}

const PassCall* find_exchanges(const Chain& chain) {
  const auto found = std::find_if(chain.begin(), chain.end(),
                                  [](const PassCall& call) { return makes_exchanges(*call.pass); });
  return found == chain.end() ? nullptr : &*found;
}

Keeping keeping_of(const Chain& chain) {
  const PassCall* exchanges = find_exchanges(chain);
  if (!exchanges) return Keeping::Apart;
  if (exchanges->pass->name == "keep-jointly") return Keeping::Jointly;
  return find_call(chain, "recompute") ? Keeping::Parameters : Keeping::AllActivations;
}

size_t fusion_of(const Chain& chain) {
  const PassCall* call = find_call(chain, "fuse-elementwise");
  if (!call) return kNothingFused;
  const auto known = std::ranges::find(kFusions, passes::print({*call}) + ",");
  if (known != std::end(kFusions)) return static_cast<size_t>(known - std::begin(kFusions));
  return kKeepsLess;  // another argument, of a chain of the user's
}

Chain fused(const Chain& chain, size_t fusion) {
  const passes::Pass& pass = *passes::find_pass("fuse-elementwise");
  Chain result = without(chain, pass);
  if (!kFusions[fusion].empty())
    result = with(result, pass, passes::parse_passes(fuse_text(fusion))->front().argument);
  return passes::parse_passes(passes::print(result)).ok() ? result : Chain();
}

Chain without(const Chain& chain, const passes::Pass& pass) {
  Chain result = chain;
  std::erase_if(result, [&](const PassCall& call) { return call.pass == &pass; });
  return result;
}

Chain with(const Chain& chain, const passes::Pass& pass, std::optional<int64_t> argument) {
  Chain result = without(chain, pass);
  const auto before = std::find_if(result.begin(), result.end(),
                                   [&](const PassCall& call) { return call.pass > &pass; });
  result.insert(before, {&pass, argument});
  return result;
}

Chain jointly(const Chain& chain, int64_t exchanges) {
  return keeps_parameters_jointly(with(chain, *passes::find_pass("recompute"), 0), exchanges);
}

Chain with_all_activations(const Chain& chain) {
  const PassCall* exchanges = find_exchanges(chain);
  const Chain apart = without(without(chain, *exchanges->pass), *passes::find_pass("recompute"));
  return with(apart, *passes::find_pass("keep-parameters"), exchanges->argument);
}

std::vector<Chain> kept_otherwise(const Chain& chain, bool decides_recompute) {
  const PassCall* recompute = find_call(chain, "recompute");
  const passes::Pass& made_again = *passes::find_pass("recompute");
  std::vector<Chain> result;
  const PassCall* exchanges = find_exchanges(chain);
  if (!exchanges) {
    if (recompute) add(result, jointly(chain, kFirstExchanges));
    add(result, keeps_parameters_jointly(chain, kFirstExchanges));
    if (!recompute) add(result, jointly(chain, kFirstExchanges));
    return result;
  }
  // The room that exchanges leave for the layout may be what whole parameters need.
  const Chain apart = with(without(chain, *exchanges->pass), made_again, 0);
  const Chain parameters = with(apart, *passes::find_pass("keep-parameters"), exchanges->argument);
  if (exchanges->pass->name == "keep-parameters") {
    add(result, with(apart, *passes::find_pass("keep-jointly"), exchanges->argument));
  } else {
    add(result, parameters);
  }
  if (recompute && decides_recompute) add(result, with_all_activations(chain));
  if (!recompute || !recompute->argument) add(result, with(chain, made_again, 0));
  if (!recompute || recompute->argument) add(result, with(chain, made_again, std::nullopt));
  add(result, with(apart, *passes::find_pass("keep-resident"), std::nullopt));
  return result;
}

int64_t RecomputeMoves::bytes_of(const Chain& chain) const {
  const PassCall* call = find_call(chain, "recompute");
  if (call && call->argument) return std::max(*call->argument, range.least);
  return std::min(budget, range.most);
}

int RecomputeMoves::part_of(int64_t bytes) const {
  const int64_t one = std::max<int64_t>(1, (range.most - range.least) / kRecomputeParts);
  if (bytes < range.least) return -1;
  return static_cast<int>(std::min<int64_t>((bytes - range.least) / one, kRecomputeParts));
}

Chain RecomputeMoves::at(const Chain& chain, int part) const {
  return with(chain, *passes::find_pass("recompute"), bytes(part));
}

int whole_part(const Chain& chain, int64_t parameter_bytes) {
  const PassCall* call = find_call(chain, "keep-resident");
  if (!call) return 0;
  const int64_t bytes = std::min(call->argument.value_or(parameter_bytes), parameter_bytes);
  return static_cast<int>(bytes / std::max<int64_t>(1, parameter_bytes / kWholeParts));
}

Chain with_whole_part(const Chain& chain, int part, int64_t parameter_bytes) {
  const passes::Pass& keeper = *passes::find_pass("keep-resident");
  if (part <= 0) return without(chain, keeper);
  return with(chain, keeper, std::max<int64_t>(1, parameter_bytes / kWholeParts) * part);
}

std::vector<const passes::Pass*> changeable_passes(const passes::Options& options) {
  std::vector<const passes::Pass*> result;
  for (const passes::Pass& pass : passes::all_passes()) {
    if (pass.needs != ir::Stage::Scheduled || pass.gives != ir::Stage::Scheduled) continue;
    if (!options.offload_space && offloads({&pass, {}})) continue;
    if (only_others_have(pass) || makes_exchanges(pass)) continue;
    if (pass.name == "recompute" && options.recompute == passes::Recompute::Full) continue;
    result.push_back(&pass);
  }
  return result;
}

std::vector<Chain> changed(const Chain& chain, const passes::Pass& pass, int64_t bytes) {
  std::vector<Chain> result;
  const bool is_joint = find_exchanges(chain) != nullptr;
  if (is_joint && decides_what_is_kept(pass)) return result;
  const PassCall* call = find_call(chain, pass.name);
  if (!call) {
    add(result, with(chain, pass, std::nullopt));
    // As much as fits may leave no room to what comes behind, or not fit its own addresses.
    if (has_sizes(pass)) add(result, with(chain, pass, first_size(pass, bytes)));
    return result;
  }
  if (has_sizes(pass)) add_sizes(result, chain, *call, bytes);
  // Of 39 chains with exchanges none was faster without early updates.
  const bool stays = is_joint && (places_collectives(pass) || pass.name == "overlap-update");
  if (!stays) add(result, without(chain, pass));
  return result;
}

Chain said_to_decide(const Chain& chain, passes::Recompute way) {
  const passes::Pass& recompute = *passes::find_pass("recompute");
  if (way == passes::Recompute::Off) return without(chain, recompute);
  if (way == passes::Recompute::Auto || !find_call(chain, recompute.name)) return chain;
  Chain result = with(chain, recompute, 0);
  // Exchanges give no activations back then.
  for (PassCall& call : result) {
    if (call.pass->name == "keep-jointly") call.pass = passes::find_pass("keep-parameters");
  }
  return result;
}

std::vector<Chain> grouped_otherwise(const Chain& chain, int64_t bytes) {
  std::vector<Chain> result;
  const passes::Pass& by_block = *passes::find_pass("gather-by-block");
  const passes::Pass& gathers = *passes::find_pass("fuse-gathers");
  const passes::Pass& reductions = *passes::find_pass("bucket-reductions");
  const passes::Pass& prefetch = *passes::find_pass("prefetch-gathers");
  if (find_call(chain, by_block.name)) {
    Chain other = with(without(chain, by_block), reductions, std::nullopt);
    other = with(other, prefetch, std::nullopt);
    const int64_t size = 4 * first_size(gathers, bytes);
    add(result, with(other, gathers, size));
    add(result, with(other, gathers, std::nullopt));
    add(result, with(with(other, gathers, size), reductions, size));
  } else if (find_call(chain, gathers.name)) {
    Chain other = chain;
    for (const passes::Pass* pass : {&gathers, &reductions, &prefetch})
      other = without(other, *pass);
    add(result, with(other, by_block, std::nullopt));
  }
  return result;
}

}  // namespace dc::search
