#include "src/schedule/bucket_policy.h"

#include "src/cost/transfer.h"

namespace dc::schedule {

BucketPolicy amortizes_latency(const ir::Step& step, const ir::Graph& graph,
                               const cost::CostModel& cost, std::optional<int64_t> most_bytes) {
  return
      [&step, &graph, &cost, most_bytes](const ir::Node&, const ir::Node& next, base::Bytes bytes) {
        const auto transfer = cost::transfer_of(graph, next);
        const auto time = [&](base::Bytes of) {
          const int64_t each = transfer->element_bytes;
          const base::Bytes wire{base::wire_bytes(transfer->kind, of.v / each, each)};
          return cost.collective(transfer->kind, wire, cost::group_of(step, next)).time.v;
        };
        const base::Bytes together{bytes.v + transfer->bytes().v};
        const int64_t saved = time(bytes) + time(transfer->bytes()) - time(together);
        if (most_bytes) return together.v <= *most_bytes && saved >= 0;
        return saved > 0 && time(bytes) < 50 * saved;
      };
}

}  // namespace dc::schedule
