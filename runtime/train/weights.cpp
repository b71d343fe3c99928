#include "runtime/train/weights.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "runtime/kernel/elements.h"
#include "runtime/plan/state_entries.h"
#include "src/base/on_all_cores.h"

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

// What is drawn goes to the device's memory as kernels draw it, or is drawn by all cores of the
// host in parts; all else comes from the host a few hundred KiB at a time.
class Filling {
 public:
  Filling(const plan::Plan& plan, const WeightSet& weights, int rank,
          const checkpoint::StateMemory& memory)
      : plan_(plan),
        weights_(weights),
        rank_(rank),
        memory_(memory),
        drawer_(kernel::make_drawer(memory.device())) {}

  // What is drawn is there after finish() alone.
  Status fill(const plan::StateEntry& entry) {
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

  Status finish() const {
    DC_RETURN_IF_ERROR(base::on_all_cores(
        static_cast<int64_t>(parts_.size()),
        [this](int64_t part) { return write(parts_[static_cast<size_t>(part)]); }));
    return drawer_ != nullptr ? drawer_->finish() : base::ok_status();
  }

 private:
  // What lies behind the last element of a shard is zero.
  Status fill_parameter(const plan::StateEntry& entry) {
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
                    int32_t target) {
    const std::optional<kernel::Drawing> drawing = source.drawing(through);
    if (drawing) {
      DC_ASSIGN_OR_RETURN(const bool drawn, draw_there(*drawing, range, through, target));
      if (drawn) return base::ok_status();
    }
    for (int64_t done = 0; done < range.count; done += kChunk) {
      const Part part{
          &source, range.first + done, std::min(kChunk, range.count - done), through, target, done};
      if (drawing && !memory_.is_on_disk(target)) {
        parts_.push_back(part);
      } else {
        DC_RETURN_IF_ERROR(write(part));
      }
    }
    return base::ok_status();
  }

  // Whether kernels of the device draw it.
  Result<bool> draw_there(const kernel::Drawing& what, plan::ElementRange range,
                          base::DType through, int32_t target) {
    if (drawer_ == nullptr) return false;
    const std::optional<kernel::BoundTensor> there = memory_.on_device(target);
    const auto has_kernel = [](base::DType dtype) {
      return base::is_floating(dtype) && base::byte_size(dtype) <= 4;
    };
    if (!there || !has_kernel(through) || !has_kernel(there->dtype) ||
        !kernel::ElementWalk(there->sizes, there->strides).contiguous())
      return false;
    DC_RETURN_IF_ERROR(
        drawer_->draw(what, range.first, range.count, through, there->dtype, there->data));
    return true;
  }

  // Elements of a source that are written at once, from element `at` of a tensor on.
  struct Part {
    const ElementSource* source;
    int64_t first, count;
    base::DType through;
    int32_t target;
    int64_t at;
  };
  Status write(const Part& part) const {
    const base::DType dtype = plan_.tensors[static_cast<size_t>(part.target)].dtype;
    std::vector<std::byte> chunk(static_cast<size_t>(part.count * base::byte_size(dtype)));
    DC_RETURN_IF_ERROR(
        part.source->read(part.first, part.count, part.through, dtype, chunk.data()));
    return memory_.write(part.target, part.at, part.count, chunk.data());
  }

  static constexpr int64_t kChunk = checkpoint::StateMemory::kChunkElements;

  const plan::Plan& plan_;
  const WeightSet& weights_;
  int rank_;
  const checkpoint::StateMemory& memory_;
  std::unique_ptr<kernel::Drawer> drawer_;  // where kernels of the device draw
  std::vector<Part> parts_;                 // that the host's cores draw
};

}  // namespace

Status fill_state(const plan::Plan& plan, const WeightSet& weights, int rank,
                  const checkpoint::StateMemory& memory) {
  Filling filling(plan, weights, rank, memory);
  for (const plan::StateEntry& entry : plan.state) {
    Status status = filling.fill(entry);
    if (!status.ok()) return std::move(status).add_context("while filling '" + entry.name + "'");
  }
  return filling.finish().add_context("while drawing weights");
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
