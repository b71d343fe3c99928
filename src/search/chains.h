// Named chains: lists of passes under one name, from the just-in-time baselines to the published
// rules we compare with. A chain is text, so what one does can be read, printed and changed.
#pragma once

#include <span>
#include <string_view>

#include "src/passes/pass_manager.h"

namespace dc::search {

struct NamedChain {
  std::string_view name;     // for `--chain`
  std::string_view passes;   // as parse_passes reads it
  std::string_view summary;  // one line
};

std::span<const NamedChain> named_chains();  // ours, and the published rules
// How ZeRO-3 and FSDP run without a compiler, to compare with. `auto` tries them behind the named
// ones; passes that only they have are no moves of its descent.
std::span<const NamedChain> baseline_chains();
// DisCo and what it is compared with. `auto` does not try them: they have fewer or more kernels
// than those that its bound counts, and DisCo's own search takes longer than all of the others'
// together.
std::span<const NamedChain> fusion_chains();
// Whether no chain of named_chains() has the pass.
bool only_others_have(const passes::Pass& pass);
// Of any. Usage (64), DC2610, with the nearest name for an unknown one.
base::Result<passes::Chain> find_chain(std::string_view name);

}  // namespace dc::search
