#include "src/cost/profiled.h"

#include <algorithm>
#include <cstdlib>

#include "src/base/dtype.h"
#include "src/cost/output_layer.h"

namespace dc::cost {
namespace {

using base::Bytes;
using base::KernelSignature;
using base::Nanos;
using base::Provider;

constexpr int64_t kAllLatency = 64 << 10;  // bytes of a collective

// Profiles come from files: whatever they claim, an estimate is a number of this size.
int64_t bounded(double value) { return static_cast<int64_t>(std::clamp(value, 0.0, 1e15)); }

// The size for which each of `measured` ranks sends as many bytes as each of `ranks` ranks does
// for `bytes`. A rank sends everything but its own range.
int64_t equally_sent(int64_t bytes, int ranks, int measured) {
  const double part = (1.0 - 1.0 / ranks) / (1.0 - 1.0 / measured);
  return bounded(static_cast<double>(bytes) * part);
}

std::optional<base::Space> space_named(const std::string& name) {
  return base::enum_value<base::Space>(base::kSpaceNames, name);
}

// Of all tensors, results too.
int64_t bytes_of(const KernelSignature& kernel) {
  const auto bytes = [](const base::TensorMeta& tensor) {
    double elements = 1;
    for (const int64_t size : tensor.shape) elements *= static_cast<double>(size);
    return elements * static_cast<double>(base::byte_size(tensor.dtype));
  };
  double total = 0;
  const base::KernelTensors tensors = kernel.tensors();
  for (const base::TensorMeta& input : tensors.inputs) total += bytes(input);
  for (const auto& result : tensors.results) total += result ? bytes(*result) : 0;
  return bounded(total);
}

// An operator of the project that moves bytes, so between two sizes its time is known. A product or
// a softmax of another shape is not.
bool is_own(const KernelSignature& kernel) {
  return kernel.provider() == Provider::Native && !kernel.has_attributes() &&
         !output_layer_of(kernel);
}

}  // namespace

ProfiledCost::ProfiledCost(const profile::Profile& profile, const CostModel& fallback,
                           std::shared_ptr<const FusedEstimator> fused)
    : is_of_gpu_(profile.measurements.machine.device == base::DeviceKind::Cuda),
      device_is_host_(!is_of_gpu_ && !profile.measurements.rates),
      fallback_(fallback),
      origin_("profile " + profile.digest) {
  const base::Measurements& measured = profile.measurements;
  for (const base::KernelMeasurement& row : measured.kernels) {
    kernels_[row.signature] = {row.timing.median_ns, row.scratch_bytes};
    if (is_own(row.signature)) {
      native_[{row.signature.space(), std::string(row.signature.op())}].push_back(
          {bytes_of(row.signature), row.timing.median_ns});
    }
  }
  for (const base::CollectiveMeasurement& row : measured.collectives) {
    if (const auto key = key_of(row.kind, row.level, row.ranks))
      collectives_[*key].push_back({row.bytes, row.timing.median_ns});
  }
  for (const base::CopyMeasurement& row : measured.copies) {
    const auto from = space_named(row.from), to = space_named(row.to);
    if (from && to) copies_[{*from, *to}].push_back({row.bytes, row.timing.median_ns});
  }
  const auto by_bytes = [](const Point& a, const Point& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.time_ns < b.time_ns;
  };
  for (auto& [key, curve] : native_) std::sort(curve.begin(), curve.end(), by_bytes);
  for (auto& [key, curve] : collectives_) std::sort(curve.begin(), curve.end(), by_bytes);
  for (auto& [key, curve] : copies_) std::sort(curve.begin(), curve.end(), by_bytes);
  for (const base::DuringComputeMeasurement& row : measured.during_compute) add_during_compute(row);
  for (const base::TogetherMeasurement& row : measured.together) add_together(row);
  const auto sort_by_bytes = [](auto& rows) {
    for (auto& [key, list] : rows) {
      std::stable_sort(list.begin(), list.end(),
                       [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
    }
  };
  sort_by_bytes(during_);
  sort_by_bytes(together_);
  fused_.emplace(
      measured, [this](const KernelSignature& apart) { return kernel_time(apart); },
      std::move(fused));
}

size_t fused_rows(const profile::Profile& profile) {
  const base::Measurements& measured = profile.measurements;
  const auto is_fused = [](const KernelSignature& kernel, const base::Timing& timing) {
    const auto found = describe_fused(kernel, [](const KernelSignature&) { return Estimate(); });
    return timing.median_ns > 0 && found && found->reductions == 0;
  };
  const auto in_step = std::ranges::count_if(
      measured.kernels, [&](const auto& row) { return is_fused(row.signature, row.timing); });
  const auto alone = std::ranges::count_if(
      measured.alone, [&](const auto& row) { return is_fused(row.signature, row.warm); });
  return static_cast<size_t>(measured.alone.empty() ? in_step : alone);
}

std::optional<FusedKernel> ProfiledCost::described(const KernelSignature& kernel) const {
  return describe_fused(kernel,
                        [this](const KernelSignature& apart) { return kernel_time(apart); });
}

std::optional<Estimate> ProfiledCost::fused(const KernelSignature& kernel) const {
  if (const auto row = kernels_.find(kernel); row != kernels_.end())
    return Estimate{{row->second.time_ns}, Source::Measured};
  if (const std::optional<Nanos> time = fused_->measured(kernel))
    return Estimate{*time, Source::Measured};
  const std::optional<FusedKernel> taken_apart = described(kernel);
  if (!taken_apart) return std::nullopt;
  if (fused_->knows_any() && taken_apart->reductions == 0)
    return Estimate{fused_->in_step(*taken_apart), Source::Learned};
  return closed_form(*taken_apart);
}

std::optional<Nanos> ProfiledCost::alone(const KernelSignature& kernel) const {
  const std::optional<FusedKernel> taken_apart = described(kernel);
  if (!taken_apart || taken_apart->reductions > 0 || !fused_->knows_any()) return std::nullopt;
  return fused_->alone(*taken_apart);
}

ProfiledCost::Moving ProfiledCost::copying() const {
  constexpr int64_t kBytes = 1 << 30;
  const Nanos start = copy({0}, base::Space::Device, base::Space::Device).time;
  const Nanos moving = copy({kBytes}, base::Space::Device, base::Space::Device).time - start;
  return {start, static_cast<double>(kBytes) / static_cast<double>(std::max<int64_t>(moving.v, 1))};
}

ProfiledCost::Moving ProfiledCost::fastest_kernels() const {
  std::optional<Moving> found;
  for (const auto& [name, curve] : native_) {
    if (name.first != base::Space::Device) continue;
    for (const Point& point : curve) {
      if (!found) found = Moving{{point.time_ns}, 0};
      found->start.v = std::min(found->start.v, point.time_ns);
      constexpr int64_t kLarge = int64_t{32} << 20;  // more than a cache keeps
      if (point.bytes < kLarge) continue;
      found->bytes_per_ns = std::max(found->bytes_per_ns,
                                     static_cast<double>(point.bytes) /
                                         static_cast<double>(std::max<int64_t>(point.time_ns, 1)));
    }
  }
  return found && found->bytes_per_ns > 0 ? *found : copying();
}

std::optional<Estimate> ProfiledCost::closed_form(const FusedKernel& kernel) const {
  const bool is_known = std::ranges::any_of(kernel.operations, [](const FusedOperation& one) {
    return one.apart.source == Source::Measured;
  });
  if (!is_known && !is_of_gpu_) return std::nullopt;
  if (is_of_gpu_) {  // computes while it moves
    const Moving moving = fastest_kernels();
    const auto bytes_ns = static_cast<int64_t>(kernel.bytes() / moving.bytes_per_ns);
    return Estimate{moving.start + Nanos{bytes_ns}, Source::ClosedForm};
  }
  const Moving moving = copying();
  return Estimate{closed_form_time(kernel, moving.start, moving.bytes_per_ns), Source::ClosedForm};
}

void ProfiledCost::add_during_compute(const base::DuringComputeMeasurement& row) {
  const auto key = key_of(row.kind, row.level, row.ranks);
  const auto alone = key ? collectives_.find(*key) : collectives_.end();
  if (alone == collectives_.end()) return;
  const int64_t time = std::max<int64_t>(read(alone->second, row.bytes).time.v, 1);
  const auto permille = [](double value) {
    return static_cast<int32_t>(std::clamp(value, 1000.0, 100'000.0));
  };
  const double longer =
      1000.0 * static_cast<double>(row.timing.median_ns) / static_cast<double>(time);
  during_[*key].push_back(
      {row.bytes, {permille(longer), permille(static_cast<double>(row.compute_permille))}});
}

// The wire part next to another collective, by what even sharing of the link makes of it. A size
// whose time is latency more than wire says nothing of that. Where both together are done sooner
// than one after the other, even sharing stays: the bounds (src/sim, src/bound) count on a link
// that carries no more than the fastest collective alone.
void ProfiledCost::add_together(const base::TogetherMeasurement& row) {
  const auto key = key_of(row.kind, row.level, row.ranks);
  const auto alone = key ? collectives_.find(*key) : collectives_.end();
  if (alone == collectives_.end()) return;
  int64_t latency = alone->second.front().time_ns;
  for (const Point& point : alone->second) latency = std::min(latency, point.time_ns);
  const int64_t wire = read(alone->second, row.bytes).time.v - latency;
  if (wire <= 0 || wire < latency) return;
  const double permille = 1000.0 * static_cast<double>(row.timing.median_ns - latency) /
                          (2.0 * static_cast<double>(wire));
  together_[*key].push_back(
      {row.bytes, static_cast<int32_t>(std::clamp(permille, 1000.0, 100'000.0))});
}

// Of the nearest size from below, of the smallest for what is smaller; of several kinds at that
// size the worst.
int32_t ProfiledCost::shared(Collective kind, Bytes bytes, Group group) const {
  const Group measured = measured_group(kind, group);
  const auto found = together_.find(key_of(kind, measured));
  if (found == together_.end()) return 1000;
  if (measured.size != group.size) bytes = {equally_sent(bytes.v, group.size, measured.size)};
  int64_t nearest = found->second.front().bytes;
  for (const Sharing& row : found->second) {
    if (row.bytes <= bytes.v) nearest = row.bytes;
  }
  int32_t worst = 1000;
  for (const Sharing& row : found->second) {
    if (row.bytes == nearest) worst = std::max(worst, row.permille);
  }
  return worst;
}

Contention ProfiledCost::contention(Collective kind, Bytes bytes, Group group) const {
  Contention result = next_to_compute(kind, bytes, group);
  if (!together_.empty()) result.shared = shared(kind, bytes, group);
  return result;
}

// Between two sizes linearly, outside what the nearest says.
Contention ProfiledCost::next_to_compute(Collective kind, Bytes bytes, Group group) const {
  const Group measured = measured_group(kind, group);
  const int ranks = measured.size;
  const auto found = during_.find(key_of(kind, measured));
  if (found == during_.end()) return fallback_.contention(kind, bytes, group);
  const std::vector<DuringCompute>& list = found->second;
  if (ranks != group.size) bytes = {equally_sent(bytes.v, group.size, ranks)};
  const auto above = std::find_if(list.begin(), list.end(),
                                  [&](const DuringCompute& row) { return row.bytes >= bytes.v; });
  if (above == list.end()) return list.back().contention;
  if (above == list.begin() || above->bytes == bytes.v) return above->contention;
  const DuringCompute &high = *above, &low = *(above - 1);
  const double share =
      static_cast<double>(bytes.v - low.bytes) / static_cast<double>(high.bytes - low.bytes);
  const auto between = [&](int32_t a, int32_t b) {
    return a + static_cast<int32_t>(share * static_cast<double>(b - a));
  };
  return {between(low.contention.collective, high.contention.collective),
          between(low.contention.compute, high.contention.compute)};
}

Estimate ProfiledCost::read(const Curve& curve, int64_t bytes) {
  const Point& last = curve.back();
  if (bytes > last.bytes) {
    const double scale =
        static_cast<double>(bytes) / static_cast<double>(std::max<int64_t>(last.bytes, 1));
    return {{bounded(static_cast<double>(last.time_ns) * scale)}, Source::Extrapolated};
  }
  const auto at =
      std::lower_bound(curve.begin(), curve.end(), bytes,
                       [](const Point& point, int64_t value) { return point.bytes < value; });
  const Point& high = *at;
  if (high.bytes == bytes) return {{high.time_ns}, Source::Measured};
  if (at == curve.begin()) return {{high.time_ns}, Source::Interpolated};
  const Point& low = *(at - 1);
  const double share =
      static_cast<double>(bytes - low.bytes) / static_cast<double>(high.bytes - low.bytes);
  const auto rise = static_cast<int64_t>(share * static_cast<double>(high.time_ns - low.time_ns));
  return {{low.time_ns + rise}, Source::Interpolated};
}

Estimate ProfiledCost::kernel_time(const KernelSignature& kernel) const {
  if (const auto row = kernels_.find(kernel); row != kernels_.end())
    return {Nanos{row->second.time_ns}, Source::Measured};
  if (kernel.provider() == Provider::Fused && kernel.space() == base::Space::Device) {
    if (const std::optional<Estimate> estimate = fused(kernel)) return *estimate;
  }
  const auto curve =
      is_own(kernel) ? native_.find({kernel.space(), std::string(kernel.op())}) : native_.end();
  if (curve == native_.end()) {
    const bool as_on_device = kernel.space() == base::Space::Host && device_is_host_;
    return as_on_device ? kernel_time(kernel.in(base::Space::Device)) : fallback_.compute(kernel);
  }
  Estimate estimate = read(curve->second, bytes_of(kernel));
  // The very kernel was not measured, whatever its size.
  if (estimate.source == Source::Measured) estimate.source = Source::Interpolated;
  return estimate;
}

Scratch ProfiledCost::kernel_scratch(const KernelSignature& kernel) const {
  const auto row = kernels_.find(kernel);
  if (row == kernels_.end()) return fallback_.scratch(kernel);
  return {Bytes{row->second.scratch_bytes}, Source::Measured};
}

int ProfiledCost::measured_ranks(Collective kind, Group group) const {
  int nearest = 0;
  for (const auto& [key, curve] : collectives_) {
    const auto& [of, level, ranks] = key;
    if (of != kind || level != group.level || ranks < 2) continue;
    if (nearest == 0 || std::abs(ranks - group.size) <= std::abs(nearest - group.size))
      nearest = ranks;
  }
  return group.size < 2 ? 0 : nearest;
}

Group ProfiledCost::measured_group(Collective kind, Group group) const {
  const int ranks = measured_ranks(kind, group);
  if (ranks > 0 || group.level == Level::World) return {ranks, group.level};
  return {measured_ranks(kind, group.size)};
}

std::optional<ProfiledCost::CollectiveKey> ProfiledCost::key_of(const std::string& kind,
                                                                Level level, int ranks) {
  const auto known = base::enum_value<Collective>(base::kCollectiveKindNames, kind);
  return known ? std::optional<CollectiveKey>({*known, level, ranks}) : std::nullopt;
}

// A number of ranks that was not measured is estimated from one that was: with the size at which
// each rank sends as many bytes. The ranks send to all peers at once, and the link of one rank
// bounds the time.
Estimate ProfiledCost::collective(Collective kind, Bytes bytes, Group group) const {
  const Group measured = measured_group(kind, group);
  const int ranks = measured.size;
  if (ranks == 0) return fallback_.collective(kind, bytes, group);
  const Curve& curve = collectives_.at(key_of(kind, measured));
  if (measured == group) return read(curve, bytes.v);
  return {read(curve, equally_sent(bytes.v, group.size, ranks)).time, Source::Extrapolated};
}

// What the fastest collective of the curve took: the smallest ones are all latency. Where none is
// small, as in a profile of one plan, the line through the two smallest says what nothing takes;
// of one size that is not known, and it takes no more than the fallback says.
Nanos ProfiledCost::latency(Collective kind, Group group) const {
  const Group measured = measured_group(kind, group);
  if (measured.size == 0) return fallback_.latency(kind, group);
  const Curve& curve = collectives_.at(key_of(kind, measured));
  int64_t least = curve.front().time_ns;
  for (const Point& point : curve) least = std::min(least, point.time_ns);
  if (curve.front().bytes <= kAllLatency) return {least};
  if (curve.size() == 1) return std::min(Nanos{least}, fallback_.latency(kind, group));
  const Point &low = curve[0], &high = curve[1];
  if (high.bytes == low.bytes) return {least};
  const double per_byte =
      static_cast<double>(high.time_ns - low.time_ns) / static_cast<double>(high.bytes - low.bytes);
  const double wire = per_byte * static_cast<double>(low.bytes);
  return {std::clamp<int64_t>(low.time_ns - static_cast<int64_t>(wire), 0, least)};
}

// The measured sizes, as sizes of this group: the two whole numbers around each.
std::vector<Bytes> ProfiledCost::bends(Collective kind, Group group) const {
  const Group measured = measured_group(kind, group);
  if (measured.size == 0) return fallback_.bends(kind, group);
  std::vector<Bytes> sizes;
  const auto add = [&](int64_t bytes) {
    if (measured.size == group.size) return sizes.push_back({bytes});
    const int64_t near = equally_sent(bytes, measured.size, group.size);
    for (const int64_t size : {near - 1, near, near + 1, near + 2}) sizes.push_back({size});
  };
  for (const Point& point : collectives_.at(key_of(kind, measured))) add(point.bytes);
  if (const auto rows = during_.find(key_of(kind, measured)); rows != during_.end()) {
    for (const DuringCompute& row : rows->second) add(row.bytes);
  }
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

Estimate ProfiledCost::copy(Bytes bytes, ir::Space from, ir::Space to) const {
  const auto curve = copies_.find({from, to});
  if (curve == copies_.end()) return fallback_.copy(bytes, from, to);
  return read(curve->second, bytes.v);
}

}  // namespace dc::cost
