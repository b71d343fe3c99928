#include "runtime/train/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "runtime/memory/outside_memory.h"
#include "runtime/plan/state_entries.h"
#include "src/base/json_writer.h"

namespace dc::runtime {
namespace {

using base::ErrorKind;
using base::Status;

using Part = CheckpointPart;

Part parameter_part(const plan::Plan& plan, const plan::StateEntry& entry, int rank) {
  const plan::Parameter& parameter = plan.parameters[static_cast<size_t>(entry.parameter)];
  Part part;
  part.file = {parameter.fqn, parameter.dtype, parameter.sizes};
  part.tensor = entry.tensor;
  if (plan::flat_shard(entry) > 0) {
    const plan::ElementRange held = held_elements(plan, entry, part.file.numel(), rank);
    part.range = {held.first, held.count};
  } else {  // all ranks have it; each writes a part
    part.range = own_range(part.file.numel(), parameter.shard, rank);
    part.source_first = part.range.first;
  }
  return part;
}

}  // namespace

std::vector<Part> checkpoint_parts(const plan::Plan& plan, int rank) {
  std::vector<Part> parts;
  const plan::ParameterStates states(plan);
  for (size_t i = 0; i < plan.parameters.size(); ++i) {
    const auto entry = static_cast<size_t>(states.authoritative(i));
    parts.push_back(parameter_part(plan, plan.state[entry], rank));
  }
  for (const plan::StateEntry& entry : plan.state) {
    if (entry.source != plan::StateSource::Buffer || entry.buffer < 0) continue;
    const plan::Buffer& buffer = plan.buffers[static_cast<size_t>(entry.buffer)];
    if (!buffer.persistent) continue;
    Part part;
    part.file = {buffer.fqn, buffer.dtype, buffer.sizes};
    part.tensor = entry.tensor;
    part.is_buffer = true;
    part.range = own_range(part.file.numel(), 0, rank);
    parts.push_back(std::move(part));
  }
  // Readers want every tensor aligned to its element: wide elements first, then by name.
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
    const int64_t wide_a = base::byte_size(a.file.dtype), wide_b = base::byte_size(b.file.dtype);
    return wide_a != wide_b ? wide_a > wide_b : a.file.name < b.file.name;
  });
  return parts;
}

namespace {

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

// What lies on disk passes through memory a chunk at a time.
Status write_from_disk(TensorFile& file, size_t index, const Part& part, const plan::Plan& plan,
                       DiskSpace& disk) {
  constexpr int64_t kChunkElements = 1 << 16;
  const base::DType dtype = plan.tensors[static_cast<size_t>(part.tensor)].dtype;
  const int64_t bytes = base::byte_size(dtype);
  std::vector<std::byte> chunk(static_cast<size_t>(kChunkElements * bytes));
  for (int64_t done = 0; done < part.range.count; done += kChunkElements) {
    const int64_t count = std::min(kChunkElements, part.range.count - done);
    const int64_t stride = 1;
    DC_RETURN_IF_ERROR(disk.read_part(part.tensor, (part.source_first + done) * bytes,
                                      {chunk.data(), static_cast<size_t>(count * bytes)}));
    DC_RETURN_IF_ERROR(file.write(index, part.range.first + done, count,
                                  {chunk.data(), dtype, {&count, 1}, {&stride, 1}}, 0));
  }
  return base::ok_status();
}

}  // namespace

OwnRange own_range(int64_t elements, int64_t shard, int rank) {
  if (shard <= 0) return rank == 0 ? OwnRange{0, elements} : OwnRange{};
  const int64_t first = std::min(elements, rank * shard);
  return {first, std::min(elements, first + shard) - first};
}

Status save_checkpoint(const std::string& folder, const plan::Plan& plan, const TensorBinder& bind,
                       const CheckpointFacts& facts, Communicator& control, DiskSpace* disk) {
  const std::vector<Part> parts = checkpoint_parts(plan, control.rank().v);
  std::vector<FileTensor> tensors;
  for (const Part& part : parts) tensors.push_back(part.file);
  TensorFile::Metadata metadata = {
      {"format", "pt"}, {"plan", facts.plan_digest}, {"step", std::to_string(facts.step)}};
  const std::string aliases = alias_map(plan);
  if (aliases != "{}") metadata.emplace("aliases", aliases);
  if (!facts.updated_parameters.empty()) {
    metadata.emplace("partly_applied_step", std::to_string(facts.step + 1));
    metadata.emplace("updated_parameters", json_list(facts.updated_parameters));
  }
  DC_ASSIGN_OR_RETURN(auto file, TensorFile::create(folder + "/model.safetensors",
                                                    std::move(tensors), metadata, control));
  Status status;
  for (size_t i = 0; i < parts.size() && status.ok(); ++i) {
    const Part& part = parts[i];
    if (part.range.count == 0) continue;
    const bool on_disk = space_of(plan, part.tensor) == plan::Space::Disk;
    status = on_disk ? write_from_disk(file, i, part, plan, *disk)
                     : file.write(i, part.range.first, part.range.count, bind(part.tensor),
                                  part.source_first);
  }
  return file.finish(std::move(status));
}

Status prepare_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!std::filesystem::is_directory(folder)) {
    return Status(ErrorKind::CannotWrite, "DC6311",
                  folder + ": this folder cannot be made" +
                      (error ? " (" + error.message() + ")" : std::string()) +
                      "; choose one you may write to");
  }
  return prepare_file(folder + "/model.safetensors");
}

Status check_shared(const std::string& folder, Communicator& control) {
  Status status = TensorFile::create(folder + "/model.safetensors", {}, {}, control).status();
  return std::move(status).add_context("all ranks write into " + folder +
                                       ", so give a folder that their hosts share");
}

Status prepare_file(const std::string& path) {
  if (std::filesystem::is_directory(path)) {
    return Status(ErrorKind::CannotWrite, "DC6312", path + " is a folder; give a file name");
  }
  if (std::filesystem::exists(path) && !std::filesystem::is_regular_file(path)) {
    if (access(path.c_str(), W_OK) == 0) return base::ok_status();  // a pipe or a device
    return Status(ErrorKind::CannotWrite, "DC6313", path + " cannot be written to");
  }
  return base::check_writable(path);
}

}  // namespace dc::runtime
