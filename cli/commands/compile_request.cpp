#include "cli/commands/compile_request.h"

#include <cstdio>
#include <set>

#include "runtime/measure/measure.h"
#include "src/search/chains.h"
#include "src/search/moves.h"

namespace dc::cli {
namespace {

// Whether the chain, one that is not searched for, may move anything out.
bool moves_out(const driver::CompileOptions& options) {
  const base::Result<passes::Chain> chain = options.own_passes.empty()
                                                ? search::find_chain(options.chain)
                                                : passes::parse_passes(options.own_passes);
  return !chain.ok() || search::any_offloads(*chain);  // what is no chain gets its own error
}

}  // namespace

std::vector<std::string> input_files(const std::string& model, const std::string& profile,
                                     const std::string& config,
                                     const driver::CompileOptions& options) {
  return {model, profile, config, options.fused_estimate.choice, options.start_from.file};
}

void note_idle_options(const driver::CompileOptions& options, double search_time, bool has_budget) {
  const auto idle = [](const char* option, const char* why) {
    std::fprintf(stderr, "note: %s does nothing %s\n", option, why);
  };
  if (options.chain != "auto" || !options.own_passes.empty()) {
    constexpr const char* kNoSearch = "here: only --chain auto searches";
    if (options.search_effort) idle("--search-effort", kNoSearch);
    if (search_time > 0) idle("--search-time", kNoSearch);
    if (options.passes.offload_space && !moves_out(options))
      idle("--offload-space", "here: the chain that is asked for moves nothing out");
    return;
  }
  if (options.passes.offload_space && !has_budget)
    idle("--offload-space", "without --memory: where nothing limits the device, nothing leaves it");
  if (!options.passes.offload_space && options.passes.budgets[ir::Space::Host])
    idle("--host-memory", "without --offload-space: --chain auto then offloads nothing");
}

void warn_of_other_machine(const std::string& path, const base::Measurements& measured) {
  const bool is_of_gpus = measured.machine.device == base::DeviceKind::Cuda;
  if (measured.origin == base::ProfileOrigin::Synthetic || is_of_gpus) return;
  const std::string &then = measured.machine.cpu, now = runtime::measure::cpu_name();
  if (then == now) return;
  std::fprintf(stderr, "warning: other-machine: profile %s was measured on %s, this is %s\n",
               path.c_str(), then.c_str(), now.c_str());
}

void say_notes(const std::vector<const driver::CompileResult*>& compiled) {
  std::set<std::string> said;
  const auto say = [&](const char* kind, const std::vector<std::string>& lines) {
    for (const std::string& line : lines)
      if (said.insert(line).second) std::fprintf(stderr, "%s: %s\n", kind, line.c_str());
  };
  for (const driver::CompileResult* one : compiled) say("warning", one->warnings);
  for (const driver::CompileResult* one : compiled) say("note", one->plan.notes);
}

}  // namespace dc::cli
