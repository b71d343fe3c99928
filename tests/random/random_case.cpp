#include "tests/random/random_case.h"

#include <cstdio>
#include <random>
#include <sstream>

#include "src/passes/pass_manager.h"

namespace dc::test {
namespace {

using passes::Recompute;
using passes::ReductionOrder;

constexpr const char* kReferenceChain =
    "normalize-graph,shard-parameters=3,insert-collectives,add-update,schedule,layout-arenas";

// Equal on every host: the standard's distributions are not.
class Draw {
 public:
  explicit Draw(uint64_t seed) : engine_(seed) {}
  int below(int count) { return static_cast<int>(engine_() % static_cast<uint64_t>(count)); }
  bool one_in(int count) { return below(count) == 0; }

 private:
  std::mt19937_64 engine_;
};

// A size from 1 B to 64 MiB, each power of two as likely as the next.
int64_t size(Draw& draw) { return (int64_t{1} << draw.below(27)) + draw.below(3); }

// Two hosts of two ranks: sums in another order than without, so the reference has it too.
constexpr const char* kByHost = "split-by-host=2,";

std::string movable_passes(Draw& draw, const std::optional<ir::Space>& space) {
  const int density = 2 + draw.below(4);  // one pass in so many
  std::string text;
  for (const passes::Pass& pass : passes::all_passes()) {
    if (pass.needs != ir::Stage::Scheduled || pass.gives != ir::Stage::Scheduled) continue;
    const bool offload = pass.name.starts_with("offload-");
    if (offload && !space) continue;
    if (pass.name == "offload-update" && space != ir::Space::Host) continue;
    if (!draw.one_in(offload ? 2 : density)) continue;
    std::string next = text + "," + std::string(pass.name);
    if (!pass.argument.empty() && draw.one_in(3)) next += "=" + std::to_string(size(draw));
    // What contradicts the passes before it is left out.
    if (passes::parse_passes(next.substr(1)).ok()) text = next;
  }
  return text;
}

std::string own_chain(Draw& draw, const std::optional<ir::Space>& space) {
  std::string text = "normalize-graph,shard-parameters=" + std::to_string(draw.below(4));
  if (draw.one_in(3)) text += ",replicate-state";
  return text + ",insert-collectives,add-update,schedule" + movable_passes(draw, space) +
         ",layout-arenas";
}

const char* name(Recompute recompute) {
  switch (recompute) {
    case Recompute::Auto:
      return "auto";
    case Recompute::Off:
      return "off";
    case Recompute::Full:
      return "full";
  }
  return "";
}

}  // namespace

RandomCase draw_case(uint64_t seed, const std::string& model) {
  Draw draw(seed);
  RandomCase one;
  one.model = model;
  one.world = 1 + draw.below(4);
  one.accumulation = 1 + draw.below(4);
  one.order = draw.one_in(2) ? ReductionOrder::PerStep : ReductionOrder::PerMicroBatch;
  one.sgd = draw.one_in(3);
  one.clip = draw.one_in(2);
  one.bf16_reductions = draw.one_in(6);
  if (draw.one_in(2)) one.link_bytes = int64_t{1000} << draw.below(22);
  if (!draw.one_in(3)) one.memory_fraction = 0.4 + draw.below(120) / 100.0;
  if (one.memory_fraction > 0 && draw.one_in(2))
    one.offload = draw.one_in(3) ? ir::Space::Disk : ir::Space::Host;
  const bool searches = draw.one_in(5);
  one.chain = searches ? "auto" : own_chain(draw, one.offload);
  if (searches && draw.one_in(2)) one.effort = 1 + draw.below(30);
  const bool recomputes = searches || one.chain.find(",recompute") != std::string::npos;
  if (recomputes && draw.one_in(4))
    one.recompute = draw.one_in(2) ? Recompute::Full : Recompute::Off;
  if (!searches && one.world == 4 && draw.one_in(3)) one.chain = kByHost + one.chain;
  return one;
}

RandomCase RandomCase::reference() const {
  RandomCase plain = *this;
  plain.link_bytes = 0;
  plain.memory_fraction = 0;
  plain.recompute = Recompute::Auto;
  plain.offload.reset();
  plain.effort = 48;
  plain.chain = (chain.starts_with(kByHost) ? kByHost : "") + std::string(kReferenceChain);
  return plain;
}

driver::CompileOptions RandomCase::options(int64_t reference_bytes) const {
  driver::CompileOptions options;
  options.world = world;
  options.accumulation = accumulation;
  options.passes.reduction_order = order;
  options.passes.recompute = recompute;
  options.passes.offload_space = offload;
  if (bf16_reductions) options.reduce_dtype = ir::DType::BF16;
  if (memory_fraction > 0) {
    options.passes.budgets[ir::Space::Device] =
        base::Bytes{static_cast<int64_t>(static_cast<double>(reference_bytes) * memory_fraction)};
  }
  options.search_effort = effort;
  if (chain != "auto") options.own_passes = chain;
  return options;
}

std::string print(const RandomCase& one) {
  char fraction[32];
  std::snprintf(fraction, sizeof fraction, "%.2f", one.memory_fraction);
  const char* offload = !one.offload ? "no" : *one.offload == ir::Space::Disk ? "disk" : "host";
  return "model=" + one.model + " world=" + std::to_string(one.world) +
         " accumulation=" + std::to_string(one.accumulation) +
         " order=" + (one.order == ReductionOrder::PerStep ? "per-step" : "per-micro-batch") +
         " optimizer=" + (one.sgd ? "sgd" : "adamw") + " clip=" + (one.clip ? "yes" : "no") +
         " reduce=" + (one.bf16_reductions ? "bfloat16" : "own") +
         " link=" + std::to_string(one.link_bytes) + " memory=" + fraction +
         " recompute=" + name(one.recompute) + " offload=" + offload +
         " effort=" + std::to_string(one.effort) + " chain=" + one.chain;
}

base::Result<RandomCase> read_case(std::string_view line) {
  RandomCase one;
  std::istringstream words{std::string(line)};
  std::string word;
  while (words >> word) {
    const size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (key == "model") one.model = value;
    if (key == "world") one.world = std::stoi(value);
    if (key == "accumulation") one.accumulation = std::stoi(value);
    if (key == "order" && value == "per-step") one.order = ReductionOrder::PerStep;
    if (key == "optimizer") one.sgd = value == "sgd";
    if (key == "clip") one.clip = value == "yes";
    if (key == "reduce") one.bf16_reductions = value == "bfloat16";
    if (key == "link") one.link_bytes = std::stoll(value);
    if (key == "memory") one.memory_fraction = std::stod(value);
    if (key == "recompute" && value != "auto")
      one.recompute = value == "full" ? Recompute::Full : Recompute::Off;
    if (key == "offload" && value != "no")
      one.offload = value == "disk" ? ir::Space::Disk : ir::Space::Host;
    if (key == "effort") one.effort = std::stoi(value);
    if (key == "chain") one.chain = value;
  }
  if (print(one) == line) return one;
  return base::Status(
      base::ErrorKind::BadInput, "DC0001",
      "'" + std::string(line) + "' is no case; the nearest is '" + print(one) + "'");
}

}  // namespace dc::test
