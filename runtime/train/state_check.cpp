#include "runtime/train/state_check.h"

#include <algorithm>
#include <cmath>

#include "runtime/memory/outside_memory.h"
#include "runtime/train/elements.h"

namespace dc::runtime {
namespace {

using base::DType;
using base::Result;
using base::Status;

constexpr int64_t kChunkElements = 1 << 14;

// Whether one of `count` elements at `data` may not be saved.
class Judge {
 public:
  explicit Judge(const CheckpointPart& part) : part_(part), values_(kChunkElements) {}

  bool refuses(DType dtype, const std::byte* data, int64_t count) {
    convert(dtype, data, part_.file.dtype, DType::F64, values_.data(), count);
    return std::any_of(values_.begin(), values_.begin() + count, [this](double value) {
      return std::isnan(value) || (!part_.is_buffer && std::isinf(value));
    });
  }

 private:
  const CheckpointPart& part_;
  std::vector<double> values_;
};

bool refused_in_memory(const CheckpointPart& part, const BoundTensor& source) {
  Judge judge(part);
  const ElementWalk walk(source.sizes, source.strides);
  const int64_t bytes = base::byte_size(source.dtype);
  const auto* data = static_cast<const std::byte*>(source.data);
  const int64_t at_once = walk.contiguous() ? kChunkElements : 1;
  for (int64_t done = 0; done < part.range.count; done += at_once) {
    const int64_t from = part.source_first + done;
    const int64_t offset = walk.contiguous() ? from : walk.offset(from);
    if (judge.refuses(source.dtype, data + offset * bytes,
                      std::min(at_once, part.range.count - done))) {
      return true;
    }
  }
  return false;
}

Result<bool> refused_on_disk(const CheckpointPart& part, DType dtype, DiskSpace& disk) {
  Judge judge(part);
  const int64_t bytes = base::byte_size(dtype);
  std::vector<std::byte> chunk(static_cast<size_t>(kChunkElements * bytes));
  for (int64_t done = 0; done < part.range.count; done += kChunkElements) {
    const int64_t count = std::min(kChunkElements, part.range.count - done);
    DC_RETURN_IF_ERROR(disk.read_part(part.tensor, (part.source_first + done) * bytes,
                                      {chunk.data(), static_cast<size_t>(count * bytes)}));
    if (judge.refuses(dtype, chunk.data(), count)) return true;
  }
  return false;
}

}  // namespace

Result<std::string> find_non_finite(const plan::Plan& plan, const TensorBinder& bind, int rank,
                                    DiskSpace* disk) {
  for (const CheckpointPart& part : checkpoint_parts(plan, rank)) {
    if (part.range.count == 0 || !base::is_floating(part.file.dtype)) continue;
    bool refused = false;
    if (space_of(plan, part.tensor) == plan::Space::Disk) {
      const DType dtype = plan.tensors[static_cast<size_t>(part.tensor)].dtype;
      DC_ASSIGN_OR_RETURN(refused, refused_on_disk(part, dtype, *disk));
    } else {
      refused = refused_in_memory(part, bind(part.tensor));
    }
    if (refused) return part.file.name;
  }
  return std::string();
}

}  // namespace dc::runtime
