#include "runtime/checkpoint/tensor_file.h"

#include <algorithm>
#include <optional>

#include "runtime/comm/agreement.h"
#include "src/base/archive/safetensors.h"
#include "src/base/shape.h"

namespace dc::runtime::checkpoint {
namespace {

using base::Result;
using base::Status;

std::span<const uint8_t> as_bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

int64_t FileTensor::numel() const { return base::numel(sizes); }

Result<TensorFile> TensorFile::create(const std::string& path, std::vector<FileTensor> tensors,
                                      const Metadata& metadata, comm::Communicator& control) {
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
  DC_RETURN_IF_ERROR(comm::agree(control, std::move(status), "creating " + path));
  DC_ASSIGN_OR_RETURN(const std::string temporary,
                      comm::broadcast_text(control, first ? file->temporary_path() : ""));
  status = Status();
  if (!first) take(base::OutputFile::join(temporary));
  DC_RETURN_IF_ERROR(comm::agree(control, std::move(status), "opening " + temporary));
  TensorFile result(std::move(*file), control);
  result.tensors_ = std::move(tensors);
  for (size_t i = 0; i < result.tensors_.size(); ++i) {
    result.by_name_.emplace(result.tensors_[i].name, i);
  }
  for (const auto& entry : layout.tensors) result.offsets_.push_back(entry.offset);
  return result;
}

Status TensorFile::write_bytes(const std::string& name, int64_t first,
                               std::span<const std::byte> bytes) {
  const size_t tensor = by_name_.at(name);
  return file_.write_at(offsets_[tensor] + first * base::byte_size(tensors_[tensor].dtype),
                        {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}

Status TensorFile::finish(Status mine) {
  if (mine.ok()) mine = file_.flush();
  DC_RETURN_IF_ERROR(comm::agree(*control_, std::move(mine), "writing tensors"));
  mine = control_->rank().v == 0 ? file_.commit() : Status();
  return comm::agree(*control_, std::move(mine), "moving the file to its place");
}

}  // namespace dc::runtime::checkpoint
