#include "src/search/chains.h"

#include "src/base/text.h"

namespace dc::search {
namespace {

// Every chain begins and ends alike.
//
// normalize-graph comes first, because every later pass relies on functional, dense, explicit
// graphs. shard-parameters gives every parameter its placement before any node depends on it: the
// collectives and the update read placements off the parameters. insert-collectives comes before
// add-update, because the update starts from reduced gradients; add-update closes the step: later
// passes only order, place and drop what is there. schedule makes the just-in-time baseline that
// the passes between it and the layout improve. layout-arenas is last: addresses follow from
// lifetimes, and lifetimes from the final order.
#define DC_BEGIN(zero) \
  "normalize-graph,shard-parameters=" #zero ",insert-collectives,add-update,schedule"
#define DC_END ",layout-arenas"

constexpr NamedChain kChains[] = {
    {"zero0", DC_BEGIN(0) DC_END, "everything whole on every rank; gradients are all-reduced"},
    {"zero1", DC_BEGIN(1) DC_END, "optimizer state sharded"},
    {"zero2", DC_BEGIN(2) DC_END, "gradients and optimizer state sharded"},
    {"zero3", DC_BEGIN(3) DC_END, "parameters, gradients and optimizer state sharded"},
};

#undef DC_BEGIN
#undef DC_END

}  // namespace

std::span<const NamedChain> named_chains() { return kChains; }

base::Result<passes::Chain> find_chain(std::string_view name) {
  std::vector<std::string_view> names;
  for (const NamedChain& chain : kChains) {
    if (chain.name == name) return passes::parse_passes(chain.passes);
    names.push_back(chain.name);
  }
  std::string known;
  for (const std::string_view one : names) known += (known.empty() ? "" : ", ") + std::string(one);
  return base::Status(base::ErrorKind::Usage, "DC2610",
                      "there is no chain '" + std::string(name) + "'" +
                          base::did_you_mean(name, names) + "; there are " + known);
}

}  // namespace dc::search
