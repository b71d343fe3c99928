#include "runtime/train/weights.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "runtime/plan/state_entries.h"

namespace dc::runtime::train {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;

int64_t numel(const std::vector<int64_t>& sizes) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return count;
}

// One state tensor, filled from the host a few hundred KiB at a time.
class Filling {
 public:
  Filling(const plan::Plan& plan, const WeightSet& weights, int rank,
          const checkpoint::StateMemory& memory)
      : plan_(plan), weights_(weights), rank_(rank), memory_(memory) {}

  Status fill(const plan::StateEntry& entry) const {
    switch (entry.source) {
      case plan::StateSource::ParameterWhole:
      case plan::StateSource::ParameterShard:
        return fill_parameter(entry);
      case plan::StateSource::Buffer: {
        const auto buffer = static_cast<size_t>(entry.buffer);
        return fill_range(*weights_.buffers[buffer], {0, numel(plan_.buffers[buffer].sizes)},
                          plan_.buffers[buffer].dtype, entry.tensor);
      }
      case plan::StateSource::Data:
        return fill_data(entry);
      case plan::StateSource::Zeros:
      case plan::StateSource::Runtime:
        return base::ok_status();
    }
    return base::ok_status();
  }

  Status fill_data(const plan::StateEntry& entry) const {
    const plan::Tensor& tensor = plan_.tensors[static_cast<size_t>(entry.tensor)];
    const int64_t count = numel(tensor.sizes);
    if (static_cast<int64_t>(entry.data.size()) != count * base::byte_size(tensor.dtype)) {
      return Status(
          ErrorKind::BadInput, "DC6401",
          "constant '" + entry.name + "' of the plan has the wrong size; compile it again");
    }
    return memory_.write(entry.tensor, 0, count,
                         reinterpret_cast<const std::byte*>(entry.data.data()));
  }

 private:
  // What lies behind the last element of a shard is zero.
  Status fill_parameter(const plan::StateEntry& entry) const {
    const auto index = static_cast<size_t>(entry.parameter);
    const plan::Parameter& parameter = plan_.parameters[index];
    const int64_t elements = numel(parameter.sizes);
    const bool whole = entry.source == plan::StateSource::ParameterWhole;
    const plan::ElementRange range = whole ? plan::ElementRange{0, elements}
                                           : plan::held_elements(plan_, entry, elements, rank_);
    DC_RETURN_IF_ERROR(
        fill_range(*weights_.parameters[index], range, parameter.dtype, entry.tensor));
    const plan::Tensor& target = plan_.tensors[static_cast<size_t>(entry.tensor)];
    const int64_t tail = whole ? 0 : numel(target.sizes) - range.count;
    if (tail <= 0) return base::ok_status();
    const std::vector<std::byte> zeros(static_cast<size_t>(tail * base::byte_size(target.dtype)));
    return memory_.write(entry.tensor, range.count, tail, zeros.data());
  }

  // Elements of the source into the first ones of `target`.
  Status fill_range(const ElementSource& source, plan::ElementRange range, base::DType through,
                    int32_t target) const {
    const base::DType dtype = plan_.tensors[static_cast<size_t>(target)].dtype;
    constexpr int64_t kChunk = checkpoint::StateMemory::kChunkElements;
    const int64_t most = std::min(range.count, kChunk);
    std::vector<std::byte> chunk(static_cast<size_t>(most * base::byte_size(dtype)));
    for (int64_t done = 0; done < range.count; done += kChunk) {
      const int64_t part = std::min(kChunk, range.count - done);
      DC_RETURN_IF_ERROR(source.read(range.first + done, part, through, dtype, chunk.data()));
      DC_RETURN_IF_ERROR(memory_.write(target, done, part, chunk.data()));
    }
    return base::ok_status();
  }

  const plan::Plan& plan_;
  const WeightSet& weights_;
  int rank_;
  const checkpoint::StateMemory& memory_;
};

}  // namespace

Status fill_state(const plan::Plan& plan, const WeightSet& weights, int rank,
                  const checkpoint::StateMemory& memory) {
  const Filling filling(plan, weights, rank, memory);
  for (const plan::StateEntry& entry : plan.state) {
    Status status = filling.fill(entry);
    if (!status.ok()) return std::move(status).add_context("while filling '" + entry.name + "'");
  }
  return base::ok_status();
}

Status fill_constants(const plan::Plan& plan, const checkpoint::StateMemory& memory) {
  const WeightSet none;
  const Filling filling(plan, none, 0, memory);
  for (const plan::StateEntry& entry : plan.state) {
    if (entry.source == plan::StateSource::Data) DC_RETURN_IF_ERROR(filling.fill_data(entry));
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

}  // namespace dc::runtime::train
