#include "runtime/train/gradients.h"

#include <algorithm>

#include "runtime/checkpoint/state_memory.h"
#include "runtime/kernel/elements.h"
#include "runtime/kernel/host_transfer.h"
#include "runtime/plan/mesh.h"
#include "runtime/plan/state_entries.h"
#include "src/base/step_scalars.h"

namespace dc::runtime::train {

using base::Result;
using base::Status;

Result<std::unique_ptr<GradientDump>> GradientDump::create(const std::string& folder,
                                                           const plan::Plan& plan,
                                                           comm::Communicator& control) {
  std::vector<checkpoint::FileTensor> tensors;
  std::vector<Entry> entries;
  const plan::ParameterStates states(plan);
  const int32_t rank = control.rank().v;
  for (size_t i = 0; i < plan.parameters.size(); ++i) {
    const plan::Parameter& parameter = plan.parameters[i];
    if (parameter.gradient < 0) continue;
    // Ranks with the same shard have the same gradient: the first writes it.
    const uint32_t axes = states.shard_axes(plan, i);
    const bool is_first = plan::ranks_of_group(plan, ~axes, rank).front() == rank;
    const int32_t place = is_first ? plan::index_in_group(plan, axes, rank) : -1;
    checkpoint::FileTensor tensor{parameter.fqn, base::DType::F32, parameter.sizes};
    entries.push_back({parameter.fqn, parameter.gradient, parameter.gradient_ready, tensor.numel(),
                       parameter.shard, place, false});
    tensors.push_back(std::move(tensor));
  }
  DC_ASSIGN_OR_RETURN(
      auto file, checkpoint::TensorFile::create(folder + "/gradients.safetensors",
                                                std::move(tensors), {{"format", "pt"}}, control));
  const int32_t program = plan.step.empty() ? -1 : plan.step.back().program;
  std::unique_ptr<GradientDump> dump(
      new GradientDump(std::move(file), program, plan.hyperparameters));
  dump->entries_ = std::move(entries);
  return dump;
}

Status GradientDump::after_instruction(const exec::Executor& executor, int32_t program,
                                       int32_t index) {
  if (program != program_) return base::ok_status();
  for (Entry& entry : entries_) {
    if (entry.written || index < entry.ready) continue;
    entry.written = true;
    const kernel::BoundTensor gradient = executor.tensor(entry.tensor);
    const plan::ElementRange range =
        entry.place < 0 ? plan::ElementRange{}
                        : plan::own_range(entry.elements, entry.shard, entry.place);
    // A whole gradient and a shard of the same size can only meet where one rank owns everything.
    const bool is_shard = entry.shard > 0 && gradient.numel() == entry.shard;
    if (range.count == 0) continue;
    DC_RETURN_IF_ERROR(write(executor, entry, is_shard ? 0 : range.first, range));
  }
  return base::ok_status();
}

Status GradientDump::write(const exec::Executor& executor, const Entry& entry, int64_t from,
                           plan::ElementRange range) {
  const kernel::BoundTensor gradient = executor.tensor(entry.tensor);
  const int64_t bytes = base::byte_size(gradient.dtype);
  constexpr int64_t kChunk = checkpoint::StateMemory::kChunkElements;
  kernel::HostCopy hyperparameters(executor.device(), executor.tensor(hyperparameters_));
  DC_RETURN_IF_ERROR(hyperparameters.download());
  const auto scale = static_cast<float>(hyperparameters.as<double>()[base::kHyperGradScale]);
  std::vector<std::byte> chunk(static_cast<size_t>(std::min(range.count, kChunk) * bytes));
  std::vector<float> rounded(static_cast<size_t>(std::min(range.count, kChunk)));
  for (int64_t done = 0; done < range.count; done += kChunk) {
    const int64_t count = std::min(kChunk, range.count - done);
    DC_RETURN_IF_ERROR(
        kernel::download_elements(executor.device(), gradient, from + done, count, chunk.data()));
    kernel::convert(gradient.dtype, chunk.data(), base::DType::F32, base::DType::F32,
                    rounded.data(), count);
    for (float& element : std::span(rounded.data(), static_cast<size_t>(count))) element *= scale;
    DC_RETURN_IF_ERROR(
        file_.write_bytes(entry.name, range.first + done,
                          std::as_bytes(std::span(rounded.data(), static_cast<size_t>(count)))));
  }
  return base::ok_status();
}

Status GradientDump::finish() {
  for (const Entry& entry : entries_) {
    if (entry.written) continue;
    return file_.finish(Status(base::ErrorKind::Internal, "DC6521",
                               "a gradient was never ready in the step; please report this"));
  }
  return file_.finish(Status());
}

}  // namespace dc::runtime::train
