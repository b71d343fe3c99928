#include "src/search/chains.h"

#include <algorithm>

#include "src/base/text.h"
#include "src/search/opening.h"

namespace dc::search {
namespace {

// Every chain begins and ends alike.
//
// normalize-graph comes first, because every later pass relies on functional, dense, explicit
// graphs. fuse-loss, fuse-output-layer, fuse-products and fuse-elementwise come next, so that all
// others count their kernels, and what they need not store; products take additions before
// element-wise kernels do. shard-parameters gives every parameter its placement
// before any node depends on it: the collectives and the update read placements off the parameters.
// insert-collectives comes before add-update, because the update starts from reduced gradients;
// add-update closes the step: later passes only order, place and drop what is there. schedule makes
// the just-in-time baseline that the passes between it and the layout improve. recompute comes
// before the passes that spend memory on speed, so that they find the room it makes; it changes
// nothing unless the budget is too small or the user asks. layout-arenas is last: addresses follow
// from lifetimes, and lifetimes from the final order.
#define DC_BEGIN(zero)                                  \
  DC_OPENING "fuse-elementwise,shard-parameters=" #zero \
             ",insert-collectives,add-update,"          \
             "schedule"
#define DC_END ",layout-arenas"

constexpr NamedChain kChains[] = {
    {"zero0", DC_BEGIN(0) ",recompute" DC_END,
     "everything whole on every rank; gradients are all-reduced"},
    {"zero1", DC_BEGIN(1) ",recompute" DC_END, "optimizer state sharded"},
    {"zero2", DC_BEGIN(2) ",recompute" DC_END, "gradients and optimizer state sharded"},
    {"zero3", DC_BEGIN(3) ",recompute" DC_END, "parameters, gradients and optimizer state sharded"},
    // A block's reduction starts when that of the block before is done, which bounds its memory.
    {"fsdp", DC_BEGIN(3) ",recompute,gather-by-block,overlap-reductions=1" DC_END,
     "one collective per block, the next block's gather during the current one, as FSDP2"},
    {"hsdp",
     "split-by-host," DC_BEGIN(3) ",recompute,fuse-gathers,bucket-reductions,prefetch-gathers,"
                                  "overlap-reductions" DC_END,
     "sharded inside a host, replicated across hosts; needs --ranks-per-host or a profile that "
     "says it"},
    // DeepCompile (arXiv 2504.09983) with its published constants: 1 GB of gradients per bucket,
    // and, as buckets are double-buffered, one travels while the next one fills.
    {"deepcompile-p",
     DC_BEGIN(
         3) ",schedule-fast-free,recompute,bucket-reductions=1000000000,prefetch-gathers-greedily,"
            "overlap-reductions=1000000000" DC_END,
     "published rules: proactive prefetch"},
    {"deepcompile-s",
     DC_BEGIN(
         3) ",schedule-fast-free,recompute,bucket-reductions=1000000000,keep-resident-greedily,"
            "overlap-reductions=1000000000" DC_END,
     "published rules: selective unsharding"},
    {"deepcompile-ps",
     DC_BEGIN(
         3) ",schedule-fast-free,recompute,bucket-reductions=1000000000,prefetch-gathers-greedily,"
            "keep-resident-greedily,overlap-reductions=1000000000" DC_END,
     "published rules: prefetch, then unsharding in what memory is left"},
    // Offloading replaces prefetch and unsharding.
    {"deepcompile-offload-optimizer",
     DC_BEGIN(3) ",schedule-fast-free,recompute,bucket-reductions=1000000000,"
                 "offload-optimizer-greedily,overlap-reductions=1000000000" DC_END,
     "published rules: optimizer state offloaded as far as the budget asks"},
    {"deepcompile-offload-activations",
     DC_BEGIN(3) ",schedule-fast-free,recompute,bucket-reductions=1000000000,"
                 "offload-activations-greedily,overlap-reductions=1000000000" DC_END,
     "published rules: activations offloaded as far as the budget asks"},
    {"deepcompile-offload-parameters",
     DC_BEGIN(3) ",schedule-fast-free,recompute,bucket-reductions=1000000000,"
                 "offload-parameters-greedily,overlap-reductions=1000000000" DC_END,
     "published rules: all parameters offloaded"},
};

constexpr NamedChain kBaselines[] = {
    // Gradients are reduced in buckets of 5e8 elements, concurrently with compute (overlap_comm).
    {"zero3-trace",
     DC_BEGIN(3) ",recompute,bucket-reductions=1000000000,prefetch-gathers-by-trace,"
                 "overlap-reductions=1000000000" DC_END,
     "ZeRO-3 as DeepSpeed runs it without a compiler: prefetch by its trace"},
    // DeepSpeed's offload_optimizer with device=cpu, on top of that.
    {"zero-offload",
     DC_BEGIN(3) ",offload-update,recompute,bucket-reductions=1000000000,prefetch-gathers-by-trace,"
                 "overlap-reductions=1000000000,offload-gradients" DC_END,
     "ZeRO-Offload: the optimizer and its state on the host, the rest as zero3-trace"},
    {"fsdp-hf",
     DC_BEGIN(3) ",recompute,gather-by-block,gather-again-by-block,overlap-reductions=1" DC_END,
     "FSDP around Hugging Face's checkpoints: with --recompute full, blocks are gathered three "
     "times"},
};

// DisCo (arXiv 2209.12769) and what it is compared with: fusion in place of fuse-elementwise, ZeRO
// 0 with all-reduce. A gradient's reduction starts when its kernel ends; nothing else is placed.
// The output layer is one kernel, and products add, as everywhere, since that changes bits.
#define DC_FUSION(fuse, join)                                                                    \
  DC_OPENING "shard-parameters=0,insert-collectives,add-update,schedule," fuse "recompute," join \
             "overlap-reductions" DC_END

constexpr NamedChain kFusionChains[] = {
    {"no-fusion", DC_FUSION("", ""), "no operators fused, every gradient reduced on its own"},
    {"op-fusion", DC_FUSION("fuse-greedily,", ""), "operators fused in program order, as XLA"},
    {"allreduce-fusion", DC_FUSION("", "bucket-by-size,"),
     "gradients reduced in buckets by size, as XLA"},
    {"default-fusion", DC_FUSION("fuse-greedily,", "bucket-by-size,"),
     "op-fusion, then allreduce-fusion"},
    {"ddp", DC_FUSION("", "bucket-as-ddp,"),
     "no operators fused, gradients reduced in buckets as PyTorch's DistributedDataParallel"},
    {"disco", DC_FUSION("disco,", ""),
     "DisCo: operators and reductions fused by a search over both"},
    {"fuse-jointly", DC_FUSION("fuse-jointly,", ""),
     "operators and reductions fused by a descent over both, from DisCo's result"},
};
#undef DC_FUSION

#undef DC_BEGIN
#undef DC_END

}  // namespace

std::span<const NamedChain> named_chains() { return kChains; }
std::span<const NamedChain> baseline_chains() { return kBaselines; }
std::span<const NamedChain> fusion_chains() { return kFusionChains; }

bool only_others_have(const passes::Pass& pass) {
  const auto has = [&](const NamedChain& named) {
    const base::Result<passes::Chain> chain = passes::parse_passes(named.passes);
    return chain.ok() && std::any_of(chain->begin(), chain->end(),
                                     [&](const auto& call) { return call.pass == &pass; });
  };
  const auto any = [&](std::span<const NamedChain> chains) {
    return std::any_of(chains.begin(), chains.end(), has);
  };
  return (any(kBaselines) || any(kFusionChains)) && !any(kChains);
}

base::Result<passes::Chain> find_chain(std::string_view name) {
  std::vector<std::string_view> names;
  for (const std::span<const NamedChain> chains :
       {named_chains(), baseline_chains(), fusion_chains()}) {
    for (const NamedChain& chain : chains) {
      if (chain.name == name) return passes::parse_passes(chain.passes);
      names.push_back(chain.name);
    }
  }
  std::string known;
  for (const std::string_view one : names) known += (known.empty() ? "" : ", ") + std::string(one);
  return base::Status(base::ErrorKind::Usage, "DC2610",
                      "there is no chain '" + std::string(name) + "'" +
                          base::did_you_mean(name, names) + "; there are " + known);
}

}  // namespace dc::search
