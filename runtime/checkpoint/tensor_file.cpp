#include "runtime/checkpoint/tensor_file.h"

#include <algorithm>
#include <optional>

#include "runtime/comm/agreement.h"
#include "runtime/kernel/elements.h"
#include "src/base/archive/safetensors.h"

namespace dc::runtime {
namespace {

using base::Result;
using base::Status;

constexpr int64_t kChunkElements = 1 << 16;

std::span<const uint8_t> as_bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

int64_t FileTensor::numel() const {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return count;
}

Result<TensorFile> TensorFile::create(const std::string& path, std::vector<FileTensor> tensors,
                                      const Metadata& metadata, Communicator& control) {
  std::vector<base::archive::SafeTensor> entries;
  entries.reserve(tensors.size());
  for (const FileTensor& tensor : tensors) {
    entries.push_back({tensor.name, tensor.dtype, tensor.sizes, 0, 0});
  }
  DC_ASSIGN_OR_RETURN(const auto layout,
                      base::archive::layout_safetensors(std::move(entries), metadata));
  const bool first = control.rank().v == 0;
  Status status;
  std::optional<base::OutputFile> file;
  const auto take = [&](Result<base::OutputFile> opened) {
    if (opened.ok()) {
      file.emplace(std::move(opened).value());
    } else {
      status = std::move(opened).status();
    }
  };
  if (first) take(base::OutputFile::create(path, layout.file_bytes));
  if (first && file) status = file->write_at(0, as_bytes(layout.header));
  DC_RETURN_IF_ERROR(agree(control, std::move(status), "creating " + path));
  DC_ASSIGN_OR_RETURN(const std::string temporary,
                      broadcast_text(control, first ? file->temporary_path() : ""));
  status = Status();
  if (!first) take(base::OutputFile::join(temporary));
  DC_RETURN_IF_ERROR(agree(control, std::move(status), "opening " + temporary));
  TensorFile result(std::move(*file), control);
  result.tensors_ = std::move(tensors);
  for (size_t i = 0; i < result.tensors_.size(); ++i) {
    result.by_name_.emplace(result.tensors_[i].name, i);
  }
  for (const auto& entry : layout.tensors) result.offsets_.push_back(entry.offset);
  result.chunk_.resize(kChunkElements * sizeof(double));
  return result;
}

Status TensorFile::write(size_t tensor, int64_t first, int64_t count, const BoundTensor& source,
                         int64_t source_first) {
  const ElementWalk walk(source.sizes, source.strides);
  const FileTensor& target = tensors_[tensor];
  const int64_t in_bytes = base::byte_size(source.dtype), out_bytes = base::byte_size(target.dtype);
  const auto* data = static_cast<const std::byte*>(source.data);
  for (int64_t done = 0; done < count; done += kChunkElements) {
    const int64_t part = std::min(kChunkElements, count - done);
    const int64_t from = source_first + done;
    if (walk.contiguous()) {
      convert(source.dtype, data + from * in_bytes, target.dtype, target.dtype, chunk_.data(),
              part);
    } else {
      for (int64_t i = 0; i < part; ++i) {
        convert(source.dtype, data + walk.offset(from + i) * in_bytes, target.dtype, target.dtype,
                chunk_.data() + i * out_bytes, 1);
      }
    }
    DC_RETURN_IF_ERROR(file_.write_at(
        offsets_[tensor] + (first + done) * out_bytes,
        {reinterpret_cast<const uint8_t*>(chunk_.data()), static_cast<size_t>(part * out_bytes)}));
  }
  return base::ok_status();
}

Status TensorFile::write_bytes(const std::string& name, int64_t first,
                               std::span<const std::byte> bytes) {
  const size_t tensor = by_name_.at(name);
  return file_.write_at(offsets_[tensor] + first * base::byte_size(tensors_[tensor].dtype),
                        {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}

Status TensorFile::finish(Status mine) {
  if (mine.ok()) mine = file_.flush();
  DC_RETURN_IF_ERROR(agree(*control_, std::move(mine), "writing tensors"));
  mine = control_->rank().v == 0 ? file_.commit() : Status();
  return agree(*control_, std::move(mine), "moving the file to its place");
}

}  // namespace dc::runtime
