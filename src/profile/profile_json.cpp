#include <algorithm>
#include <utility>

#include "src/base/json.h"
#include "src/profile/profile_file.h"
#include "src/profile/profile_names.h"

namespace dc::profile {
namespace {

using base::JsonValue;
using base::Measurements;

void set_timing(JsonValue& row, const base::Timing& timing) {
  row.set("median_ns", JsonValue(timing.median_ns));
  row.set("fastest_ns", JsonValue(timing.fastest_ns));
  row.set("deviation_ns", JsonValue(timing.deviation_ns));
  row.set("samples", JsonValue(static_cast<int64_t>(timing.samples)));
}

void set_kernel(JsonValue& row, const std::string& key, const base::KernelSignature& signature) {
  row.set("key", JsonValue(key));
  row.set("provider", JsonValue(std::string(base::name(signature.provider()))));
  if (signature.space() != base::Space::Device)
    row.set("space", JsonValue(std::string(base::name(signature.space()))));
}

// Rows without a level are of all ranks.
JsonValue collective_json(const base::CollectiveMeasurement& collective) {
  JsonValue row = JsonValue::object();
  row.set("kind", JsonValue(collective.kind));
  row.set("ranks", JsonValue(static_cast<int64_t>(collective.ranks)));
  row.set("bytes", JsonValue(collective.bytes));
  set_timing(row, collective.timing);
  if (collective.level != base::CollectiveLevel::World)
    row.set("level", JsonValue(std::string(base::name(collective.level))));
  return row;
}

JsonValue gpu_json(const base::GpuIdentity& gpu) {
  JsonValue row = JsonValue::object();
  row.set("name", JsonValue(gpu.name));
  row.set("compute_capability", JsonValue(gpu.compute_capability));
  row.set("driver", JsonValue(gpu.driver));
  row.set("multiprocessors", JsonValue(static_cast<int64_t>(gpu.multiprocessors)));
  row.set("memory_bytes", JsonValue(gpu.memory_bytes));
  if (gpu.clock_khz > 0) row.set("clock_khz", JsonValue(gpu.clock_khz));
  if (gpu.memory_clock_khz > 0) row.set("memory_clock_khz", JsonValue(gpu.memory_clock_khz));
  if (gpu.library_bytes > 0) row.set("library_bytes", JsonValue(gpu.library_bytes));
  return row;
}

JsonValue machine_json(const base::MachineIdentity& machine) {
  JsonValue row = JsonValue::object();
  row.set("cpu", JsonValue(machine.cpu));
  row.set("cores", JsonValue(static_cast<int64_t>(machine.cores)));
  row.set("software", JsonValue(machine.software));
  row.set("communicator", JsonValue(machine.communicator));
  row.set("launcher", JsonValue(machine.launcher));
  row.set("ranks", JsonValue(static_cast<int64_t>(machine.ranks)));
  row.set("threads", JsonValue(static_cast<int64_t>(machine.threads)));
  row.set("device", JsonValue(std::string(base::name(machine.device))));
  if (machine.ranks_per_host > 0)
    row.set("ranks_per_host", JsonValue(static_cast<int64_t>(machine.ranks_per_host)));
  if (machine.gpu) row.set("gpu", gpu_json(*machine.gpu));
  return row;
}

// Equal keys by provider, then by space.
template <typename Measurement>
std::vector<std::pair<std::string, const Measurement*>> by_key(
    const std::vector<Measurement>& kernels) {
  using Keyed = std::pair<std::string, const Measurement*>;
  std::vector<Keyed> rows;
  rows.reserve(kernels.size());
  for (const Measurement& kernel : kernels) rows.emplace_back(kernel.signature.text(), &kernel);
  std::stable_sort(rows.begin(), rows.end(), [](const Keyed& a, const Keyed& b) {
    const auto place = [](const Keyed& row) {
      const base::KernelSignature& signature = row.second->signature;
      return std::pair(signature.provider(), signature.space());
    };
    return a.first != b.first ? a.first < b.first : place(a) < place(b);
  });
  return rows;
}

}  // namespace

std::string to_json(const Measurements& measurements) {
  JsonValue document = JsonValue::object();
  document.set("format", JsonValue(kFormat));
  document.set("version", JsonValue(static_cast<int64_t>(kProfileVersion)));
  document.set("origin",
               JsonValue(std::string(kOrigins[static_cast<size_t>(measurements.origin)])));
  document.set("machine", machine_json(measurements.machine));
  document.set("model_digest", JsonValue(measurements.model_digest));
  JsonValue& kernels = document.set("kernels", JsonValue::array());
  for (const auto& [key, kernel] : by_key(measurements.kernels)) {
    JsonValue& row = kernels.push(JsonValue::object());
    set_kernel(row, key, kernel->signature);
    set_timing(row, kernel->timing);
    row.set("scratch_bytes", JsonValue(kernel->scratch_bytes));
  }
  if (!measurements.alone.empty()) {
    JsonValue& alone = document.set("alone", JsonValue::array());
    for (const auto& [key, kernel] : by_key(measurements.alone)) {
      JsonValue& row = alone.push(JsonValue::object());
      set_kernel(row, key, kernel->signature);
      set_timing(row.set("warm", JsonValue::object()), kernel->warm);
      set_timing(row.set("cold", JsonValue::object()), kernel->cold);
    }
  }
  JsonValue& collectives = document.set("collectives", JsonValue::array());
  for (const base::CollectiveMeasurement& collective : measurements.collectives)
    collectives.push(collective_json(collective));
  JsonValue& rows = document.set("during_compute", JsonValue::array());
  for (const base::DuringComputeMeasurement& collective : measurements.during_compute) {
    JsonValue& row = rows.push(collective_json(collective));
    row.set("compute_permille", JsonValue(collective.compute_permille));
  }
  if (!measurements.together.empty()) {
    JsonValue& together = document.set("together", JsonValue::array());
    for (const base::TogetherMeasurement& collective : measurements.together) {
      JsonValue& row = together.push(collective_json(collective));
      row.set("other", JsonValue(collective.other));
    }
  }
  JsonValue& copies = document.set("copies", JsonValue::array());
  for (const base::CopyMeasurement& copy : measurements.copies) {
    JsonValue& row = copies.push(JsonValue::object());
    row.set("from", JsonValue(copy.from));
    row.set("to", JsonValue(copy.to));
    row.set("bytes", JsonValue(copy.bytes));
    set_timing(row, copy.timing);
  }
  JsonValue& complete = document.set("complete", JsonValue::object());
  for (const PartName& part : kParts)
    complete.set(part.key, JsonValue(measurements.complete.*part.member));
  if (measurements.rates) {
    JsonValue& rates = document.set("rates", JsonValue::object());
    for (const RateName& rate : kRates) {
      const int64_t value = (*measurements.rates).*rate.member;
      if (rate.is_needed || value != 0) rates.set(rate.key, JsonValue(value));
    }
  }
  if (measurements.step) {
    JsonValue& step = document.set("step", JsonValue::object());
    step.set("plan_digest", JsonValue(measurements.step->plan_digest));
    set_timing(step.set("whole", JsonValue::object()), measurements.step->whole);
    set_timing(step.set("compute", JsonValue::object()), measurements.step->compute);
  }
  return document.dump(JsonValue::Order::Insertion, 1) + "\n";
}

}  // namespace dc::profile
