// Passes: transformations of a Step from one stage to the next (or within one). The table is
// passes.def.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/remark.h"
#include "src/base/status.h"
#include "src/cost/cost_model.h"
#include "src/ir/step.h"

namespace dc::passes {

// When gradients are summed over ranks: once per step, or after every micro-batch.
enum class ReductionOrder : uint8_t { PerStep, PerMicroBatch };

// Which activations the backward phase makes again instead of keeping them: as many as the budget
// asks for; none; all but the inputs of each block.
enum class Recompute : uint8_t { Auto, Off, Full };

struct Pass;

struct Options {
  std::optional<ReductionOrder>
      reduction_order;  // empty: per-step for ZeRO 0 and 1, per-micro-batch for 2 and 3
  std::optional<base::Bytes> memory;                    // budget of space device, per rank
  std::optional<base::Bytes> host_memory, disk_memory;  // of the spaces that are offloaded to
  // Where offload passes put what they move: the host if empty. A search may offload only if it is
  // set.
  std::optional<ir::Space> offload_space;
  Recompute recompute = Recompute::Auto;
  // Called after each pass, whose result becomes its own: a test plants failures with it. Empty:
  // none.
  std::function<base::Status(const Pass&, ir::Step&)> after_pass = {};
};

using base::Remark;

// All a pass may know: no globals, no clock, no communication.
struct PassContext {
  const cost::CostModel& cost;
  const Options& options;
  std::vector<Remark>& remarks;
  std::optional<int64_t>
      argument{};        // of the pass that runs, as the chain says: "name=3", "name=64MiB"
  bool explains = true;  // false: nobody reads the remarks, so none need be worked out
};

enum class Change : uint8_t { No, Yes };

struct Pass {
  std::string_view name;       // kebab-case, verb first
  std::string_view summary;    // one line
  ir::Stage needs, gives;      // stage before and after
  std::string_view argument;   // what "name=..." means; empty: takes none
  std::string_view conflicts;  // comma-separated passes that cannot be in the same chain
  base::Result<Change> (*run)(ir::Step&, PassContext&);
};

std::span<const Pass> all_passes();            // in the order in which they may run
const Pass* find_pass(std::string_view name);  // null if unknown

struct PassCall {
  const Pass* pass = nullptr;
  std::optional<int64_t> argument;
};
using Chain = std::vector<PassCall>;

// "a,b=64MiB,c" to calls. Checks every contract before anything runs: names, arguments, order,
// conflicts. Usage (64): DC2602 no such pass (with the nearest name), DC2607 argument, DC2608 order
// or repetition, DC2609 conflict.
base::Result<Chain> parse_passes(std::string_view list);
std::string print(const Chain& chain);  // parse_passes(print(c)) equals c

// Runs one pass, without the verifier: for a search that tries many chains and runs the one it
// chooses through run_passes. The context of an error names the pass.
base::Result<Change> apply(const PassCall& call, ir::Step& step, PassContext& context);

// Runs passes in order; verifies the step before the first and after each. The context of an error
// names the pass. `done` hears of each pass that went well, for those who measure.
using PassDone = std::function<void(const Pass&)>;
base::Result<Change> run_passes(ir::Step& step, std::span<const PassCall> chain,
                                PassContext& context, const PassDone& done = {});

}  // namespace dc::passes
