// split-by-host: hierarchical ZeRO, HSDP in PyTorch's words. The ranks, in order, stand on hosts of
// equally many; the mesh says so with two axes, "host" and "dp". What comes after shards along the
// last axis, inside a host, and replicates across hosts: parameters are gathered inside a host
// only, and a shard of a gradient, summed there, meets its replicas once a step.
#include "src/passes/pass.h"

namespace dc::passes {

using base::ErrorKind;
using base::Status;

base::Result<Change> split_by_host(ir::Step& step, const PassContext& context) {
  if (step.mesh.axes.size() != 1) return Change::No;  // split already, or nothing to split
  const ir::MeshAxis ranks = step.mesh.axes[0];
  const int64_t each = context.argument.value_or(context.options.ranks_per_host.value_or(0));
  if (each < 1) {
    return Status(
        ErrorKind::Usage, "DC2612",
        "split-by-host does not know how many ranks share a host; say --ranks-per-host N, "
        "or compile with a profile that was measured on several hosts");
  }
  if (ranks.size % each != 0) {
    return Status(ErrorKind::Usage, "DC2612",
                  "split-by-host needs hosts of equally many ranks: " + std::to_string(ranks.size) +
                      " ranks do not stand " + std::to_string(each) + " on each host");
  }
  if (each == ranks.size) return Change::No;  // one host: there is nothing to replicate across
  if (each == 1) {
    return Status(ErrorKind::Usage, "DC2612",
                  "split-by-host has nothing to shard inside a host of one rank; use --chain zero0 "
                  "to replicate, or --chain zero3 to shard over all ranks");
  }
  step.mesh.axes = {{"host", static_cast<int>(ranks.size / each)},
                    {ranks.name, static_cast<int>(each)}};
  return Change::Yes;
}

}  // namespace dc::passes
