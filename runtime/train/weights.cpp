#include "runtime/train/weights.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "runtime/kernel/elements.h"
#include "runtime/memory/outside_memory.h"
#include "runtime/plan/saved_state.h"

namespace dc::runtime {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;

constexpr int64_t kChunkElements = 1 << 16;

// Logical elements [first, first + count) of the source into the same elements of `target`, which
// may be strided.
Status read_into(const ElementSource& source, int64_t first, int64_t count, base::DType through,
                 const BoundTensor& target, int64_t target_first) {
  const ElementWalk walk(target.sizes, target.strides);
  const int64_t bytes = base::byte_size(target.dtype);
  auto* data = static_cast<std::byte*>(target.data);
  if (walk.contiguous()) {
    return source.read(first, count, through, target.dtype, data + target_first * bytes);
  }
  std::vector<std::byte> chunk(static_cast<size_t>(std::min(count, kChunkElements) * bytes));
  for (int64_t done = 0; done < count; done += kChunkElements) {
    const int64_t part = std::min(kChunkElements, count - done);
    DC_RETURN_IF_ERROR(source.read(first + done, part, through, target.dtype, chunk.data()));
    for (int64_t i = 0; i < part; ++i) {
      std::memcpy(data + walk.offset(target_first + done + i) * bytes, chunk.data() + i * bytes,
                  static_cast<size_t>(bytes));
    }
  }
  return base::ok_status();
}

Status fill_parameter(const plan::Parameter& parameter, const ElementSource& source, bool whole,
                      int rank, const BoundTensor& target) {
  int64_t elements = 1;
  for (const int64_t size : parameter.sizes) elements *= size;
  if (whole) return read_into(source, 0, elements, parameter.dtype, target, 0);
  const plan::ElementRange range = plan::own_range(elements, parameter.shard, rank);
  DC_RETURN_IF_ERROR(read_into(source, range.first, range.count, parameter.dtype, target, 0));
  const int64_t bytes = base::byte_size(target.dtype);
  std::memset(static_cast<std::byte*>(target.data) + range.count * bytes, 0,
              static_cast<size_t>((target.numel() - range.count) * bytes));
  return base::ok_status();
}

// The same into contiguous state on disk, which is zero so far.
Status read_to_disk(const ElementSource& source, plan::ElementRange range, base::DType through,
                    const plan::Plan& plan, int32_t target, DiskSpace& disk) {
  const base::DType dtype = plan.tensors[static_cast<size_t>(target)].dtype;
  const int64_t bytes = base::byte_size(dtype);
  std::vector<std::byte> chunk(static_cast<size_t>(kChunkElements * bytes));
  for (int64_t done = 0; done < range.count; done += kChunkElements) {
    const int64_t part = std::min(kChunkElements, range.count - done);
    DC_RETURN_IF_ERROR(source.read(range.first + done, part, through, dtype, chunk.data()));
    DC_RETURN_IF_ERROR(
        disk.write_part(target, done * bytes, {chunk.data(), static_cast<size_t>(part * bytes)}));
  }
  return base::ok_status();
}

Status fill_data(const plan::StateEntry& entry, const BoundTensor& target) {
  const ElementWalk walk(target.sizes, target.strides);
  const int64_t bytes = base::byte_size(target.dtype);
  if (static_cast<int64_t>(entry.data.size()) != walk.numel() * bytes) {
    return Status(ErrorKind::BadInput, "DC6401",
                  "constant '" + entry.name + "' of the plan has the wrong size; compile it again");
  }
  auto* data = static_cast<std::byte*>(target.data);
  for (int64_t i = 0; i < walk.numel(); ++i) {
    std::memcpy(data + walk.offset(i) * bytes, entry.data.data() + i * bytes,
                static_cast<size_t>(bytes));
  }
  return base::ok_status();
}

Status fill_entry(const plan::Plan& plan, const plan::StateEntry& entry, const WeightSet& weights,
                  int rank, const BoundTensor& target) {
  const auto parameter = static_cast<size_t>(entry.parameter);
  const auto buffer = static_cast<size_t>(entry.buffer);
  switch (entry.source) {
    case plan::StateSource::ParameterWhole:
    case plan::StateSource::ParameterShard:
      return fill_parameter(plan.parameters[parameter], *weights.parameters[parameter],
                            entry.source == plan::StateSource::ParameterWhole, rank, target);
    case plan::StateSource::Buffer:
      return read_into(*weights.buffers[buffer], 0, target.numel(), plan.buffers[buffer].dtype,
                       target, 0);
    case plan::StateSource::Data:
      return fill_data(entry, target);
    case plan::StateSource::Zeros:
    case plan::StateSource::Runtime:
      return base::ok_status();
  }
  return base::ok_status();
}

Status fill_entry_on_disk(const plan::Plan& plan, const plan::StateEntry& entry,
                          const WeightSet& weights, int rank, DiskSpace& disk) {
  const auto numel = [](const std::vector<int64_t>& sizes) {
    int64_t count = 1;
    for (const int64_t size : sizes) count *= size;
    return count;
  };
  switch (entry.source) {
    case plan::StateSource::ParameterWhole:
    case plan::StateSource::ParameterShard: {
      const plan::Parameter& parameter = plan.parameters[static_cast<size_t>(entry.parameter)];
      const bool whole = entry.source == plan::StateSource::ParameterWhole;
      const int64_t elements = numel(parameter.sizes);
      const plan::ElementRange range = whole ? plan::ElementRange{0, elements}
                                             : plan::own_range(elements, parameter.shard, rank);
      return read_to_disk(*weights.parameters[static_cast<size_t>(entry.parameter)], range,
                          parameter.dtype, plan, entry.tensor, disk);
    }
    case plan::StateSource::Buffer: {
      const plan::Buffer& buffer = plan.buffers[static_cast<size_t>(entry.buffer)];
      return read_to_disk(*weights.buffers[static_cast<size_t>(entry.buffer)],
                          {0, numel(buffer.sizes)}, buffer.dtype, plan, entry.tensor, disk);
    }
    case plan::StateSource::Data:
      return disk.write_part(entry.tensor, 0, std::as_bytes(std::span(entry.data)));
    case plan::StateSource::Zeros:
    case plan::StateSource::Runtime:
      return base::ok_status();
  }
  return base::ok_status();
}

}  // namespace

Status fill_state(const plan::Plan& plan, const WeightSet& weights, int rank,
                  const TensorBinder& bind, DiskSpace* disk) {
  for (const plan::StateEntry& entry : plan.state) {
    const bool on_disk = space_of(plan, entry.tensor) == plan::Space::Disk;
    Status status = on_disk ? fill_entry_on_disk(plan, entry, weights, rank, *disk)
                            : fill_entry(plan, entry, weights, rank, bind(entry.tensor));
    if (!status.ok()) return std::move(status).add_context("while filling '" + entry.name + "'");
  }
  return base::ok_status();
}

Status fill_constants(const plan::Plan& plan, const TensorBinder& bind, DiskSpace* disk) {
  for (const plan::StateEntry& entry : plan.state) {
    if (entry.source != plan::StateSource::Data) continue;
    const bool on_disk = space_of(plan, entry.tensor) == plan::Space::Disk;
    DC_RETURN_IF_ERROR(on_disk
                           ? disk->write_part(entry.tensor, 0, std::as_bytes(std::span(entry.data)))
                           : fill_data(entry, bind(entry.tensor)));
  }
  return base::ok_status();
}

Result<WeightSet> open_weights(const std::string& text, const plan::Plan& plan,
                               const WeightRequest& request) {
  if (text.starts_with("init:")) {
    uint64_t seed = 0;
    const char* last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data() + 5, last, seed);
    if (error != std::errc() || end != last) {
      return Status(ErrorKind::Usage, "DC6402",
                    "--weights " + text + ": the seed must be a number, as in init:0");
    }
    return draw_weights(seed, plan);
  }
  if (text.ends_with(".pt2")) return open_archive_weights(text, plan, request);
  std::error_code none;
  if (text.ends_with(".safetensors") || text.ends_with(".index.json") ||
      std::filesystem::is_directory(text, none)) {
    return open_tensor_weights(text, plan, request);
  }
  return Status(ErrorKind::Usage, "DC6403",
                "--weights " + text +
                    ": give FILE.pt2, FILE.safetensors, the folder or "
                    "model.safetensors.index.json of a checkpoint in several files, or init:SEED");
}

}  // namespace dc::runtime
