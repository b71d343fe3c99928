#include "src/cost/cost_model.h"

#include <mutex>
#include <vector>

#include "src/ir/kernel_signature.h"

namespace dc::cost {

Group group_on(const ir::Mesh& mesh, ir::AxisMask axes) {
  const int ranks = mesh.size(axes);
  if (mesh.is_world(axes) || mesh.axes.size() < 2) return {ranks};
  const ir::AxisMask inner = mesh.shard_axes();
  if ((axes & ~inner & mesh.wide()) == 0) return {ranks, Level::Inside};
  return {ranks, (axes & inner & mesh.wide()) == 0 ? Level::Across : Level::World};
}

using base::KernelId;
using base::KernelSignature;

// What was worked out, by kernel. Threads may share a model.
class CostModel::KnownKernels {
 public:
  struct Figures {
    Estimate time;
    Scratch scratch;
  };

  Figures of(const CostModel& model, KernelId kernel) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (figures_.size() <= kernel.index()) figures_.resize(kernel.index() + 1);
    std::optional<Figures>& figures = figures_[kernel.index()];
    if (!figures) {
      const KernelSignature& signature = base::signature_of(kernel);
      figures = Figures{model.kernel_time(signature), model.kernel_scratch(signature)};
    }
    return *figures;
  }

 private:
  std::mutex mutex_;
  std::vector<std::optional<Figures>> figures_;
};

CostModel::CostModel() : known_(std::make_unique<KnownKernels>()) {}
CostModel::~CostModel() = default;
CostModel::CostModel(CostModel&&) noexcept = default;
CostModel& CostModel::operator=(CostModel&&) noexcept = default;

Estimate CostModel::compute(const KernelSignature& kernel) const {
  return known_->of(*this, base::intern(kernel)).time;
}

Estimate CostModel::compute(const ir::Graph& graph, const ir::Node& node) const {
  if (!ir::has_provider(node)) return {};
  return known_->of(*this, ir::kernel_of(graph, node)).time;
}

Scratch CostModel::scratch(const KernelSignature& kernel) const {
  return known_->of(*this, base::intern(kernel)).scratch;
}

Scratch CostModel::scratch(const ir::Graph& graph, const ir::Node& node) const {
  if (!ir::has_provider(node)) return {};
  return known_->of(*this, ir::kernel_of(graph, node)).scratch;
}

}  // namespace dc::cost
