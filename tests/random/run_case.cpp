#include "tests/random/run_case.h"

#include <filesystem>
#include <thread>

#include "runtime/comm/rendezvous.h"
#include "runtime/train/train.h"
#include "runtime/verify/verify.h"
#include "src/base/archive/safetensors.h"
#include "src/cost/costs.h"
#include "src/frontend/import.h"
#include "src/profile/profile_file.h"
#include "tests/runtime/train/scratch_folder.h"

namespace dc::test {
namespace {

using base::Result;
using base::Status;
using runtime::test::ScratchFolder;

constexpr int kSteps = 3;

base::TrainConfig config_of(const RandomCase& one) {
  base::TrainConfig config;
  config.kind = one.sgd ? base::OptimizerKind::Sgd : base::OptimizerKind::AdamW;
  config.defaults.lr = 1e-2;
  if (one.sgd) config.defaults.momentum = 0.9;
  config.clip_norm = one.clip ? 0.5 : 0;
  return config;
}

std::optional<profile::Profile> profile_of(const RandomCase& one) {
  if (one.link_bytes == 0) return std::nullopt;
  base::Measurements measured;
  measured.origin = base::ProfileOrigin::Synthetic;
  measured.machine.ranks = one.world;
  measured.machine.threads = 1;
  base::MachineRates rates;
  rates.f64_flops = 40'000'000'000;
  rates.f32_flops = 80'000'000'000;
  rates.half_flops = 160'000'000'000;
  rates.memory_bytes = 8'000'000'000;
  rates.kernel_launch_ns = 2000;
  rates.link_bytes = one.link_bytes;
  rates.collective_latency_ns = 20000;
  rates.to_host_bytes = rates.from_host_bytes = 4'000'000'000;
  rates.disk_bytes = 1'000'000'000;
  measured.rates = rates;
  return profile::Profile{measured, ""};
}

std::vector<std::string> metric_rows(const std::string& path) {
  std::vector<std::string> rows;
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);  // the header
  while (std::getline(file, line)) {
    const size_t begin = line.find("\"loss\"");
    rows.push_back(line.substr(begin, line.find(",\"lr\"") - begin));
  }
  return rows;
}

}  // namespace

std::string difference(const Numbers& a, const Numbers& b) {
  for (size_t i = 0; i < a.steps.size() && i < b.steps.size(); ++i) {
    if (a.steps[i] != b.steps[i])
      return "step " + std::to_string(i + 1) + ": " + a.steps[i] + " against " + b.steps[i];
  }
  if (a.steps.size() != b.steps.size()) return "number of steps";
  for (const auto& [name, bytes] : a.tensors) {
    const auto other = b.tensors.find(name);
    if (other == b.tensors.end() || other->second != bytes) return "tensor " + name;
  }
  return a.tensors.size() == b.tensors.size() ? "" : "names of tensors";
}

Result<runtime::plan::Loaded> compile_case(const RandomCase& one, const std::string& folder,
                                           int64_t reference_bytes) {
  frontend::ImportOptions import;
  import.config = config_of(one);
  DC_ASSIGN_OR_RETURN(ir::Step step, frontend::import_archive(folder + "/" + one.model, import));
  const cost::Costs costs(profile_of(one), 1);
  DC_ASSIGN_OR_RETURN(
      const runtime::plan::Plan plan,
      driver::compile_step(std::move(step), one.options(reference_bytes), costs.model()));
  const std::string bytes = runtime::plan::encode(plan);
  DC_ASSIGN_OR_RETURN(
      runtime::plan::Plan decoded,
      runtime::plan::decode({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}));
  DC_RETURN_IF_ERROR(runtime::verify::verify_meaning(decoded));
  return runtime::plan::Loaded{std::move(decoded), "random"};
}

Result<Numbers> train_case(const RandomCase& one, const runtime::plan::Loaded& loaded,
                           const std::string& folder) {
  const ScratchFolder scratch;
  runtime::train::TrainOptions options;
  options.weights = folder + "/" + one.model;
  const std::filesystem::path model(options.weights);
  const std::string data = std::filesystem::path(model).replace_extension(".safetensors");
  options.data = {std::filesystem::exists(data) ? data : "synthetic:1"};
  options.steps = kSteps;
  options.metrics = scratch / "metrics.jsonl";
  options.save = scratch / "saved/model.safetensors";
  options.offload_dir = scratch / "";
  options.poison = true;
  options.settings.optimizer = loaded.plan.optimizer;
  auto jobs = runtime::comm::connect_threads(one.world, {});
  std::vector<Status> statuses(jobs.size());
  std::vector<std::thread> ranks;
  for (size_t rank = 0; rank < jobs.size(); ++rank) {
    ranks.emplace_back([&, rank] {
      const auto job = std::move(jobs[rank]);
      const int r = static_cast<int>(rank);
      const runtime::comm::LaunchInfo launch{
          runtime::comm::Launcher::Single, r, one.world, r, one.world, "random", {}};
      const auto outcome = runtime::train::train(loaded, *job, launch, options);
      if (outcome.ok()) return;
      statuses[rank] = outcome.status();
      job->leave(outcome.status());
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const Status& status : statuses) DC_RETURN_IF_ERROR(status);
  Numbers numbers{metric_rows(options.metrics), {}};
  DC_ASSIGN_OR_RETURN(const auto saved, base::archive::SafetensorsFile::open(options.save));
  for (const base::archive::SafeTensor& tensor : saved.tensors()) {
    const auto bytes = saved.bytes(tensor);
    numbers.tensors[tensor.name].assign(bytes.begin(), bytes.end());
  }
  return numbers;
}

}  // namespace dc::test
