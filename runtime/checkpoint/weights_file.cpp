#include "runtime/checkpoint/weights_file.h"

#include <algorithm>

#include "src/base/json_writer.h"

namespace dc::runtime::checkpoint {
namespace {

using base::Status;

std::string json_list(const std::vector<std::string>& names) {
  base::JsonWriter json;
  json.begin_array();
  for (const std::string& name : names) json.string(name);
  return json.end_array().take();
}

std::string alias_map(const plan::Plan& plan) {
  base::JsonWriter json;
  json.begin_object();
  for (const plan::Parameter& parameter : plan.parameters) {
    for (const std::string& alias : parameter.aliases) json.field(alias, parameter.fqn);
  }
  return json.end_object().take();
}

Status write_part(TensorFile& file, const StatePart& part, const StateMemory& memory) {
  const int64_t bytes = base::byte_size(part.piece.dtype);
  std::vector<std::byte> chunk(static_cast<size_t>(StateMemory::kChunkElements * bytes));
  for (int64_t done = 0; done < part.piece.count; done += StateMemory::kChunkElements) {
    const int64_t count = std::min(StateMemory::kChunkElements, part.piece.count - done);
    DC_RETURN_IF_ERROR(memory.read(part.tensor, part.tensor_first + done, count, chunk.data()));
    DC_RETURN_IF_ERROR(file.write_bytes(part.piece.value.fqn, part.piece.first + done,
                                        {chunk.data(), static_cast<size_t>(count * bytes)}));
  }
  return base::ok_status();
}

}  // namespace

std::vector<FileTensor> weight_tensors(const std::vector<StatePart>& parts) {
  std::vector<FileTensor> tensors;
  for (const StatePart& part : parts) {
    const ValueKind kind = part.piece.value.kind;
    const bool stored =
        kind == ValueKind::Parameter || (kind == ValueKind::Buffer && part.is_persistent);
    if (stored) tensors.push_back({part.piece.value.fqn, part.piece.dtype, part.piece.sizes});
  }
  std::sort(tensors.begin(), tensors.end(), [](const FileTensor& a, const FileTensor& b) {
    const int64_t wide_a = base::byte_size(a.dtype), wide_b = base::byte_size(b.dtype);
    return wide_a != wide_b ? wide_a > wide_b : a.name < b.name;
  });
  return tensors;
}

bool is_weight(const StatePart& part, int rank) {
  const ValueKind kind = part.piece.value.kind;
  return kind == ValueKind::Parameter ||
         (kind == ValueKind::Buffer && part.is_persistent && rank == 0);
}

TensorFile::Metadata weight_metadata(const plan::Plan& plan, const WeightFacts& facts) {
  TensorFile::Metadata metadata = {
      {"format", "pt"}, {"plan", facts.plan_digest}, {"step", std::to_string(facts.step)}};
  const std::string aliases = alias_map(plan);
  if (aliases != "{}") metadata.emplace("aliases", aliases);
  if (!facts.updated_parameters.empty()) {
    metadata.emplace("partly_applied_step", std::to_string(facts.step + 1));
    metadata.emplace("updated_parameters", json_list(facts.updated_parameters));
  }
  return metadata;
}

Status save_weights(const std::string& path, const plan::Plan& plan,
                    const std::vector<StatePart>& parts, const StateMemory& memory,
                    const WeightFacts& facts, comm::Communicator& control) {
  DC_ASSIGN_OR_RETURN(auto file, TensorFile::create(path, weight_tensors(parts),
                                                    weight_metadata(plan, facts), control));
  Status status;
  for (const StatePart& part : parts) {
    if (status.ok() && is_weight(part, control.rank().v)) {
      status = write_part(file, part, memory);
    }
  }
  return file.finish(std::move(status));
}

}  // namespace dc::runtime::checkpoint
