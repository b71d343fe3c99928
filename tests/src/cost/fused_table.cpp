// What estimators of fused kernels see and say: fused_table PROFILE [BY [NETWORK]]. One line of
// JSON for each fused kernel that the profile has measured alone (an old profile: in a step), with
// its estimates by the other kernels of profile BY, by the default's fit to those of BY and by a
// network of train_estimator.py. fused_table --primitives: the operators that fused kernels can
// have. Not a test; scripts/train_estimator.py and scripts/benchmark/fused_time.py read it.
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "src/base/json_writer.h"
#include "src/cost/analytic.h"
#include "src/cost/fused_kernel.h"
#include "src/cost/fused_network.h"
#include "src/cost/profiled.h"
#include "src/profile/profile_file.h"

namespace dc::cost {
namespace {

void write_tensors(base::JsonWriter& json, std::string_view key,
                   const std::vector<FusedTensor>& tensors) {
  json.key(key).begin_array();
  for (const FusedTensor& tensor : tensors) {
    json.begin_object().field("dtype", base::name(tensor.dtype));
    json.field("access", static_cast<int64_t>(tensor.access));
    json.field("bytes", static_cast<int64_t>(tensor.bytes)).end_object();
  }
  json.end_array();
}

// A profile whose kernels' times, but for those of fused ones, make closed forms, and with them
// estimators.
class Estimates {
 public:
  base::Status read(const char* by, const char* network) {
    DC_ASSIGN_OR_RETURN(profile::Profile profile, profile::read_profile(by));
    table_.emplace(profile.measurements.machine.threads);
    if (network != nullptr) {
      DC_ASSIGN_OR_RETURN(FusedNetwork weights, FusedNetwork::read(network));
      network_.emplace(profile, table(), std::make_shared<const FusedNetwork>(std::move(weights)));
    }
    fitted_.emplace(profile, table());
    profile.measurements.alone.clear();
    std::erase_if(profile.measurements.kernels, [](const base::KernelMeasurement& row) {
      return row.signature.provider() == base::Provider::Fused;
    });
    apart_.emplace(profile, table());
    return {};
  }
  const CostModel& apart() const { return *apart_; }
  void write(base::JsonWriter& json, const base::KernelSignature& kernel) const {
    const base::Nanos closed = apart_->compute(kernel).time;
    json.field("closed_ns", closed.v);
    json.field("fitted_ns", fitted_->alone(kernel).value_or(closed).v);
    if (network_) json.field("network_ns", network_->alone(kernel).value_or(closed).v);
  }

 private:
  const CostModel& table() const { return *table_; }
  std::optional<AnalyticCost> table_;
  std::optional<ProfiledCost> apart_, fitted_, network_;
};

void write(const base::KernelSignature& signature, const base::Timing& timing,
           const FusedKernel& kernel, const Estimates& estimates) {
  base::JsonWriter json;
  json.begin_object().field("key", signature.text());
  json.field("median_ns", timing.median_ns).field("fastest_ns", timing.fastest_ns);
  json.field("deviation_ns", timing.deviation_ns).field("samples", timing.samples);
  json.field("elements", static_cast<int64_t>(kernel.elements));
  json.field("rows", static_cast<int64_t>(kernel.rows));
  json.field("blocks", static_cast<int64_t>(kernel.blocks));
  json.key("operations").begin_array();
  for (const FusedOperation& operation : kernel.operations) {
    json.begin_object();
    json.field("primitive", fused_primitives()[operation.primitive]);
    json.field("computes", base::name(operation.computes));
    json.field("dtype", base::name(operation.dtype));
    json.field("result", operation.is_result).field("apart_ns", operation.apart.time.v);
    json.field("measured", operation.apart.source == Source::Measured);
    json.field("read_bytes", static_cast<int64_t>(operation.read_bytes));
    json.field("written_bytes", static_cast<int64_t>(operation.written_bytes));
    json.key("reads").begin_array();
    for (const size_t read : operation.reads) json.integer(static_cast<int64_t>(read));
    json.end_array().end_object();
  }
  json.end_array();
  write_tensors(json, "operands", kernel.operands);
  write_tensors(json, "results", kernel.results);
  estimates.write(json, signature);
  std::printf("%s\n", json.end_object().take().c_str());
}

base::Status run(const char* path, const char* by, const char* network) {
  DC_ASSIGN_OR_RETURN(const profile::Profile profile, profile::read_profile(path));
  Estimates estimates;
  DC_RETURN_IF_ERROR(estimates.read(by, network));
  const auto write_row = [&](const base::KernelSignature& signature, const base::Timing& timing) {
    const auto kernel = describe_fused(signature, [&](const base::KernelSignature& apart) {
      return estimates.apart().compute(apart);
    });
    if (kernel && kernel->reductions == 0)  // others are not estimated
      write(signature, timing, *kernel, estimates);
  };
  const base::Measurements& measured = profile.measurements;
  for (const base::AloneMeasurement& row : measured.alone) write_row(row.signature, row.warm);
  if (!measured.alone.empty()) return {};
  for (const base::KernelMeasurement& row : measured.kernels) write_row(row.signature, row.timing);
  return {};
}

}  // namespace
}  // namespace dc::cost

int main(int argc, char** argv) {
  if (argc < 2 || argc > 4)
    return std::fprintf(stderr, "fused_table PROFILE [BY [NETWORK]] | --primitives\n"), 64;
  if (argv[1] == std::string_view("--primitives")) {
    for (const std::string_view name : dc::cost::fused_primitives())
      std::printf("%s\n", std::string(name).c_str());
    return 0;
  }
  const dc::base::Status status =
      dc::cost::run(argv[1], argc > 2 ? argv[2] : argv[1], argc > 3 ? argv[3] : nullptr);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return dc::base::exit_code(status.kind());
}
