// What passes that move collectives share: they move them program by program under one limit, and
// say in a remark what it brought.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "src/passes/pass.h"

namespace dc::passes {

// Moves collectives in one graph and returns how many moved. `limit`: bytes that transients may
// take under the budget; empty: no budget.
using MoveInGraph = std::function<int(ir::Graph&, std::optional<int64_t> limit)>;

// What a move does to collectives, as remarks say it.
struct Movement {
  std::string_view code, text;
  bool gathers = false, reductions = false;  // of which it speaks
};
inline constexpr Movement kGathersEarlier{"gathers-earlier", "gathers start earlier", true, false};
inline constexpr Movement kGathersJoined{"gathers-joined", "gathers join the one before them", true,
                                         false};
inline constexpr Movement kGathersAgain{"gathers-again", "gathers are added for gradients", true,
                                        false};
inline constexpr Movement kReductionsJoined{"reductions-joined",
                                            "reductions join the one before them", false, true};
inline constexpr Movement kReductionsOverlapped{
    "reductions-overlapped", "reductions run concurrently with compute", false, true};
inline constexpr Movement kGradientsEarlier{"gradients-leave-earlier",
                                            "copies of gradients start when these are reduced"};
inline constexpr Movement kByBlock{"collectives-by-block", "collectives go by block", true, true};
inline constexpr Movement kNodesMoved{"nodes-moved", "nodes change places"};

// Runs `move` on every program; a remark of `pass` says how many moved, what that means, and the
// exposed communication before and after.
Change move_collectives(ir::Step& step, const PassContext& context, std::string_view pass,
                        const Movement& what, const MoveInGraph& move);

}  // namespace dc::passes
