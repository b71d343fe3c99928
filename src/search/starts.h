// Where the search starts, next to the named chains: all passes at once, of which its moves then
// remove some.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "src/search/opening.h"

namespace dc::search {

// A chain in two parts.
struct Start {
  std::string_view begin, rest;
};

// Before the others: the same inside hosts.
inline constexpr std::string_view kByHost = "split-by-host,";

inline constexpr std::string_view kSharded = DC_OPENING
    "fuse-elementwise,shard-parameters=3,"
    "insert-collectives,add-update,schedule,recompute,";
inline constexpr std::string_view kRefreshed =
    "insert-collectives,add-update,schedule,recompute,bucket-reductions,overlap-reductions,"
    "overlap-update,layout-arenas";

inline constexpr Start kStarts[] = {
    {kSharded,
     "fuse-gathers,bucket-reductions,prefetch-gathers,overlap-reductions,overlap-update,"
     "layout-arenas"},
    {kSharded,
     "keep-resident,fuse-gathers,bucket-reductions,prefetch-gathers,"
     "overlap-reductions=1000000000,overlap-update,layout-arenas"},
    // Where the link is the bottleneck, memory is best used for whole parameters; gathers that
    // start early gain less, and gradients that wait for their reduction leave less memory for
    // both.
    {kSharded,
     "keep-resident,gather-by-block,overlap-reductions=1000000000,overlap-update,layout-arenas"},
    // The published rules, with all made again (Mixtral-8x7B for 32 ranks with four micro-batches,
    // 63 GiB: 5.38 s became 5.16 s).
    {DC_OPENING "fuse-elementwise,shard-parameters=3,"
                "insert-collectives,add-update,schedule,recompute=0,",
     "bucket-reductions,prefetch-gathers-greedily,keep-resident-greedily,"
     "overlap-reductions=1000000000,layout-arenas"},
    // Whole parameters, refreshed while the next step begins.
    {DC_OPENING "fuse-elementwise,shard-parameters=2,", kRefreshed},
    // The same, with what is kept of activations decided last.
    {DC_OPENING "fuse-elementwise,shard-parameters=2,"
                "insert-collectives,add-update,schedule,recompute=0,",
     "bucket-reductions,overlap-reductions,keep-jointly=400,overlap-update,layout-arenas"},
    // With clipping some gradients that reach all ranks early are worth more.
    {DC_OPENING "fuse-elementwise,shard-parameters=2,"
                "replicate-state,",
     kRefreshed},
};

// A schedule that makes and gathers all again, and what memory buys decided last, by few exchanges
// while the search looks for the passes before it. What reductions hold is memory too, so they get
// little.
inline constexpr std::string_view kJointStarts[] = {
    DC_OPENING
    "fuse-elementwise,shard-parameters=3,"
    "insert-collectives,add-update,schedule,recompute=0,"
    "fuse-gathers,bucket-reductions,prefetch-gathers,overlap-reductions=1000000000,"
    "keep-jointly=400,overlap-update,layout-arenas",
    DC_OPENING
    "fuse-elementwise,shard-parameters=3,"
    "insert-collectives,add-update,schedule,recompute=0,"
    "gather-by-block,overlap-reductions=1000000000,keep-jointly=400,overlap-update,"
    "layout-arenas",
    // Only as much made again as the budget asks: collectives are then placed between the kernels
    // that stay where there is much room.
    DC_OPENING
    "fuse-elementwise,shard-parameters=3,"
    "insert-collectives,add-update,schedule,recompute,"
    "fuse-gathers,bucket-reductions,prefetch-gathers,overlap-reductions=1000000000,"
    "keep-jointly=400,overlap-update,layout-arenas",
};
inline constexpr std::span kAllMadeAgain = std::span(kJointStarts).first<2>();
inline constexpr int64_t kFirstExchanges = 400, kLastExchanges = 2000;

// With --offload-space: what is above the budget, after all that is recomputed, leaves the device.
inline constexpr Start kOffloadStarts[] = {
    {kSharded,
     "fuse-gathers,bucket-reductions,offload-optimizer,offload-activations,offload-parameters,"
     "prefetch-gathers,overlap-reductions=1000000000,layout-arenas"},
    {kSharded,
     "gather-by-block,offload-optimizer,offload-activations,offload-parameters,"
     "overlap-reductions=1000000000,layout-arenas"},
};

}  // namespace dc::search
