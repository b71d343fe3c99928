#include "src/frontend/ties.h"

#include <set>
#include <tuple>

#include "src/frontend/arguments.h"

namespace dc::frontend {

using base::Result;

Result<std::map<std::string, std::string>> find_ties(const RawModel& model,
                                                     const Description& description,
                                                     const Weights& weights) {
  std::map<std::string, std::string> ties;
  std::set<std::string> known;
  for (const RawInput& input : model.inputs) known.insert(model.names.text(input.target));
  for (const auto& [alias, first] : description.aliases) {
    std::string canonical = first;
    for (size_t hops = 0; description.aliases.contains(canonical); ++hops) {
      if (hops > description.aliases.size())
        return malformed("'aliases' of " + alias + " turn in a circle");
      canonical = description.aliases.at(canonical);
    }
    if (!known.contains(canonical)) {
      return malformed("'aliases' names " + canonical + ", which the signature does not have");
    }
    ties[alias] = canonical;
  }
  // The same bytes seen in the same way are the same tensor. Records without bytes say nothing.
  std::map<std::tuple<std::string, base::DType, ir::Shape, ir::Strides, int64_t>, std::string>
      first;
  for (const RawInput& input : model.inputs) {
    const std::string& fqn = model.names.text(input.target);
    if (input.kind != RawInputKind::Parameter || ties.contains(fqn)) continue;
    const ir::ArchiveRecord record = weights.find(fqn);
    if (record.entry.empty()) continue;
    const auto [same, fresh] = first.emplace(
        std::tuple(record.entry, record.dtype, record.shape, record.strides, record.offset), fqn);
    if (!fresh) ties[fqn] = same->second;
  }
  return ties;
}

}  // namespace dc::frontend
