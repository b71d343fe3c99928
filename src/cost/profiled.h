// Costs from a profile: measured where the profile has the very kernel, interpolated over sizes
// where it has the same kind, analytic otherwise.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "src/cost/cost_model.h"
#include "src/cost/fused_kernel.h"
#include "src/cost/fused_times.h"
#include "src/profile/profile_file.h"

namespace dc::cost {

// Fused kernels that the profile has and that can be fitted to (fused_times.h).
size_t fused_rows(const profile::Profile& profile);

class ProfiledCost final : public CostModel {
 public:
  // `fallback` answers what the profile cannot; it must outlive this object. `fused`: what stands
  // for fused kernels that were not measured; null: what is fitted to those that were, if the
  // profile has enough (fused_times.h).
  ProfiledCost(const profile::Profile& profile, const CostModel& fallback,
               std::shared_ptr<const FusedEstimator> fused = nullptr);

  Estimate collective(Collective kind, base::Bytes bytes, Group group) const override;
  base::Nanos latency(Collective kind, Group group) const override;
  Contention contention(Collective kind, base::Bytes bytes, Group group) const override;
  std::vector<base::Bytes> bends(Collective kind, Group group) const override;
  Estimate copy(base::Bytes bytes, ir::Space from, ir::Space to) const override;
  bool knows_fused_kernels() const override { return fused_->knows_any(); }
  std::optional<Estimate> fused(const base::KernelSignature& kernel) const override;
  // Of a fused kernel by itself with its operands in a cache, as estimated; nothing if none can be.
  std::optional<base::Nanos> alone(const base::KernelSignature& kernel) const;
  std::string table() const override { return fallback_.table(); }
  std::string origin() const override { return origin_; }

 private:
  Estimate kernel_time(const base::KernelSignature& kernel) const override;
  Scratch kernel_scratch(const base::KernelSignature& kernel) const override;

  // Of its operations apart; nothing if none of them was measured.
  std::optional<Estimate> closed_form(const FusedKernel& kernel) const;
  // How fast kernels start and move bytes: as copies; on GPUs as the fastest kernel that was
  // measured.
  struct Moving {
    base::Nanos start;
    double bytes_per_ns = 0;
  };
  Moving copying() const;
  Moving fastest_kernels() const;
  std::optional<FusedKernel> described(const base::KernelSignature& kernel) const;

  struct Row {
    int64_t time_ns = 0, scratch_bytes = 0;
  };
  struct Point {
    int64_t bytes = 0, time_ns = 0;
  };
  using Curve = std::vector<Point>;  // by bytes
  // Interpolates linearly between two points. Below the first point: its time. Above the last
  // point: its time scaled by the bytes. The source is Measured at the points only.
  static Estimate read(const Curve& curve, int64_t bytes);
  void add_during_compute(const base::DuringComputeMeasurement& row);
  void add_together(const base::TogetherMeasurement& row);
  Contention next_to_compute(Collective kind, base::Bytes bytes, Group group) const;
  int32_t shared(Collective kind, base::Bytes bytes, Group group) const;
  // Whose figures of `kind` answer for `group`: one of its level; what was not measured inside or
  // across hosts is answered by the world.
  Group measured_group(Collective kind, Group group) const;
  // How many ranks that group has: as many, else the nearest that were measured on its level, of
  // two equally near the larger. 0: none.
  int measured_ranks(Collective kind, Group group) const;

  // What a collective and compute cost each other, by size.
  struct DuringCompute {
    int64_t bytes = 0;
    Contention contention;
  };

  // What sharing the link costs a collective, by size: Contention::shared.
  struct Sharing {
    int64_t bytes = 0;
    int32_t permille = 1000;
  };

  std::unordered_map<base::KernelSignature, Row, base::KernelSignatureHash> kernels_;
  std::map<std::pair<base::Space, std::string>, Curve> native_;  // of this provider
  using CollectiveKey = std::tuple<Collective, Level, int>;      // kind, level, ranks
  static CollectiveKey key_of(Collective kind, Group group) {
    return {kind, group.level, group.size};
  }
  // Of a measured row; nothing for a kind that no op has.
  static std::optional<CollectiveKey> key_of(const std::string& kind, Level level, int ranks);
  std::map<CollectiveKey, Curve> collectives_;
  std::map<CollectiveKey, std::vector<DuringCompute>> during_;
  std::map<CollectiveKey, std::vector<Sharing>> together_;
  std::map<std::pair<base::Space, base::Space>, Curve> copies_;
  bool is_of_gpu_;
  bool device_is_host_;              // what was measured is a CPU
  std::optional<FusedTimes> fused_;  // from the end of the constructor on
  const CostModel& fallback_;
  std::string origin_;
};

}  // namespace dc::cost
