// The table of passes (passes.def), and chains of them: read, checked, run.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/passes/pass.h"

namespace dc::passes {

struct Pass {
  std::string_view name;       // kebab-case, verb first
  std::string_view summary;    // one line
  ir::Stage needs, gives;      // stage before and after
  std::string_view argument;   // what "name=..." means; empty: takes none
  std::string_view follows;    // a pass that must be in the chain before it; empty: none
  std::string_view conflicts;  // comma-separated passes that cannot be in the same chain
  base::Result<Change> (*run)(ir::Step&, const PassContext&);
};

std::span<const Pass> all_passes();            // in the order in which they may run
const Pass* find_pass(std::string_view name);  // null if unknown

struct PassCall {
  const Pass* pass = nullptr;
  std::optional<int64_t> argument;
  bool operator==(const PassCall&) const = default;
};
using Chain = std::vector<PassCall>;

// "a,b=64MiB,c" to calls. Checks every contract before anything runs: names, arguments, order,
// conflicts; of a chain for an imported step also that each pass has what must come before it.
// Usage (64): DC2602 no such pass (with the nearest name), DC2607 argument, DC2608 order,
// repetition or a pass without the one before it, DC2609 conflict.
base::Result<Chain> parse_passes(std::string_view list);
std::string print(const Chain& chain);  // parse_passes(print(c)) equals c

// Runs one pass, without the verifier: for a search that tries many chains and runs the one it
// chooses through run_passes. The context of an error names the pass.
base::Result<Change> apply(const PassCall& call, ir::Step& step, const PassContext& context);

// The same, and verifies the step after it.
base::Result<Change> apply_verified(const PassCall& call, ir::Step& step,
                                    const PassContext& context);

// Runs passes in order; verifies the step before the first and, unless the caller knows what the
// passes make, after each. The context of an error names the pass. `done` hears of each pass that
// went well, for those who measure.
enum class Verify { Before, AfterEach };
using PassDone = std::function<void(const Pass&)>;
base::Result<Change> run_passes(ir::Step& step, std::span<const PassCall> chain,
                                const PassContext& context, Verify verify = Verify::AfterEach,
                                const PassDone& done = {});

}  // namespace dc::passes
