#include "src/driver/byte_prices.h"

#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "src/analysis/liveness.h"
#include "src/analysis/storage.h"
#include "src/base/remark_codes.h"
#include "src/base/text.h"
#include "src/bound/program_view.h"
#include "src/plan/program_emitter.h"

namespace dc::driver {
namespace {

constexpr double kBytesOfGiB = 1 << 30;

// Where the plan has each node of a program.
class InstructionPlaces {
 public:
  InstructionPlaces(const ir::Step& step, const ir::Program& program)
      : graph_(program.graph),
        live_(analysis::liveness(step, graph_, analysis::StorageMap(step, graph_))),
        spans_(plan::instruction_spans(graph_, live_)) {}

  // Of a kernel of the model; empty if it is none.
  std::optional<int32_t> instruction(ir::NodeId id) const {
    if (!graph_.contains(id) || !bound::ProgramView::is_model_kernel(graph_.node(id))) return {};
    return spans_[static_cast<size_t>(live_.position[id.index()])].last;
  }

 private:
  const ir::Graph& graph_;
  analysis::Liveness live_;
  std::vector<plan::Span> spans_;
};

int64_t millionths(double value) { return std::llround(value * 1e6); }

std::string percent_text(double share) { return std::to_string(std::llround(100 * share)) + " %"; }

base::Remark weights_of(const bound::LowerBound& bound, size_t instants, double ns_per_byte) {
  using enum bound::Resource;
  const bound::Work& w = bound.weights;
  const double compute = w[Compute], link = w[Queue] + w[Ranks] + w[Inside] + w[HostQueue],
               copies = w[ToHost] + w[FromHost];
  base::Remark remark{"bound",
                      std::string(base::kTimeWeights),
                      {},
                      {{"compute", millionths(compute)},
                       {"link", millionths(link)},
                       {"copies", millionths(copies)},
                       {"instants", static_cast<int64_t>(instants)},
                       {"ns_per_gib", std::llround(ns_per_byte * kBytesOfGiB)}}};
  if (instants == 0) return remark;
  remark.text = "a GiB more is worth " +
                base::format_duration(std::llround(ns_per_byte * kBytesOfGiB)) +
                " of the step, at " + base::count_of(static_cast<int64_t>(instants), "instant") +
                "; time of compute counts " + percent_text(compute) + ", of collectives " +
                percent_text(link) + (copies > 0 ? ", of copies " + percent_text(copies) : "");
  return remark;
}

}  // namespace

void add_byte_prices(const ir::Step& step, const bound::LowerBound& bound,
                     std::vector<base::Remark>& remarks) {
  std::vector<base::Remark> prices;
  double sum = 0;
  for (size_t p = 0; p < step.programs.size(); ++p) {
    const InstructionPlaces places(step, step.programs[p]);
    int32_t before = -1;
    for (const bound::PricedInstant& priced : bound.instants) {
      if (priced.program != static_cast<int32_t>(p)) continue;
      const std::optional<int32_t> instruction = places.instruction(priced.node);
      if (!instruction || *instruction <= before) return;
      before = *instruction;
      const int64_t ns_per_gib = std::llround(priced.ns_per_byte * kBytesOfGiB);
      if (ns_per_gib == 0) continue;
      sum += priced.ns_per_byte * step.programs[p].repeat;
      prices.push_back({"bound",
                        std::string(base::kBytePrice),
                        {},
                        {{"program", static_cast<int64_t>(p)},
                         {"instruction", *instruction},
                         {"ns_per_gib", ns_per_gib}}});
    }
  }
  remarks.push_back(weights_of(bound, prices.size(), sum));
  for (base::Remark& price : prices) remarks.push_back(std::move(price));
}

}  // namespace dc::driver
