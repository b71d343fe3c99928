#include "runtime/checkpoint/reader.h"

#include <algorithm>
#include <cstring>

#include "src/base/sha256.h"

namespace dc::runtime::checkpoint {

using base::ErrorKind;
using base::Result;
using base::Status;
using base::archive::SafeTensor;
using base::archive::SafetensorsFile;

Result<std::unique_ptr<CheckpointReader>> CheckpointReader::open(const std::string& path) {
  std::unique_ptr<CheckpointReader> reader(new CheckpointReader(path));
  const std::string index_path = path + "/" + std::string(kIndexName);
  DC_ASSIGN_OR_RETURN(const std::string text, base::read_file(index_path));
  DC_ASSIGN_OR_RETURN(reader->index_, read_index(text, index_path));
  for (const CheckpointIndex::Manifest& manifest : reader->index_.manifests) {
    const std::string file = path + "/" + manifest.file;
    DC_ASSIGN_OR_RETURN(const std::string content, base::read_file(file));
    if (base::sha256_hex(content) != manifest.sha256) {
      return reader->damaged(manifest.file, "it is not the file that the index names");
    }
    DC_ASSIGN_OR_RETURN(const RankManifest parsed, read_manifest(content, file));
    DC_RETURN_IF_ERROR(reader->add(parsed, manifest.file));
  }
  DC_RETURN_IF_ERROR(reader->check_coverage());
  return reader;
}

Status CheckpointReader::damaged(const std::string& file, const std::string& what) const {
  return Status(ErrorKind::BadInput, "DC6831",
                path_ + "/" + file + " is damaged: " + what + "; resume from another checkpoint");
}

Status CheckpointReader::add(const RankManifest& manifest, const std::string& file) {
  for (const RankManifest::File& wanted : manifest.files) files_[wanted.name].wanted = wanted;
  for (const Piece& piece : manifest.pieces) {
    const auto [at, is_new] = entries_.try_emplace(piece.value);
    Entry& entry = at->second;
    if (is_new) entry.value = {piece.dtype, piece.sizes};
    if (entry.value.dtype != piece.dtype || entry.value.sizes != piece.sizes) {
      return damaged(file, describe(piece.value) + " differs from what other ranks wrote of it");
    }
    entry.pieces.push_back({piece, false});
  }
  return base::ok_status();
}

Status CheckpointReader::check_coverage() {
  for (auto& [id, entry] : entries_) {
    std::sort(entry.pieces.begin(), entry.pieces.end(),
              [](const Stored& a, const Stored& b) { return a.piece.first < b.piece.first; });
    int64_t next = 0;
    for (const Stored& stored : entry.pieces) {
      if (stored.piece.first != next) break;
      next += stored.piece.count;
    }
    if (next != entry.pieces.front().piece.numel()) {
      return damaged(
          std::string(kIndexName),
          "of " + describe(id) + " element " + std::to_string(next) + " is missing or there twice");
    }
    if (!files_.contains(entry.pieces.front().piece.file)) {
      return damaged(std::string(kIndexName), "it does not know the file of " + describe(id));
    }
  }
  return base::ok_status();
}

const CheckpointReader::Value* CheckpointReader::find(const ValueId& id) const {
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : &found->second.value;
}

std::vector<ValueId> CheckpointReader::values() const {
  std::vector<ValueId> ids;
  for (const auto& [id, entry] : entries_) ids.push_back(id);
  return ids;
}

Result<const SafetensorsFile*> CheckpointReader::data(const std::string& file) {
  const auto found = files_.find(file);
  if (found == files_.end()) return damaged(file, "no rank says that it made it");
  Data& data = found->second;
  if (data.file.empty()) {
    const std::string path = path_ + "/" + file;
    DC_ASSIGN_OR_RETURN(const base::MappedFile mapped, base::MappedFile::open(path));
    const auto bytes = std::as_bytes(mapped.bytes());
    const auto header = static_cast<size_t>(data.wanted.header_bytes);
    if (static_cast<int64_t>(bytes.size()) != data.wanted.bytes || header > bytes.size()) {
      return damaged(file, "it has " + std::to_string(bytes.size()) + " bytes instead of " +
                               std::to_string(data.wanted.bytes));
    }
    if (!data.wanted.header_checksum.matches(bytes.first(header))) {
      return damaged(file, "its header does not match its checksum");
    }
    DC_ASSIGN_OR_RETURN(SafetensorsFile opened, SafetensorsFile::open(path));
    data.file.push_back(std::move(opened));
  }
  return &data.file.front();
}

Result<const std::byte*> CheckpointReader::checked(Stored& stored) {
  const Piece& piece = stored.piece;
  DC_ASSIGN_OR_RETURN(const SafetensorsFile* file, data(piece.file));
  const SafeTensor* tensor = file->find(piece.tensor);
  const int64_t size = base::byte_size(piece.dtype);
  if (tensor == nullptr || tensor->dtype != piece.dtype || piece.at > tensor->bytes / size ||
      piece.count > tensor->bytes / size - piece.at) {
    return damaged(piece.file, "tensor '" + piece.tensor + "' is not as its writer says");
  }
  const auto bytes =
      std::as_bytes(file->bytes(*tensor))
          .subspan(static_cast<size_t>(piece.at * size), static_cast<size_t>(piece.bytes()));
  if (!stored.is_checked && !piece.checksum.matches(bytes)) {
    return damaged(piece.file, "tensor '" + piece.tensor + "', elements " +
                                   std::to_string(piece.first) + " to " +
                                   std::to_string(piece.first + piece.count) + " of " +
                                   describe(piece.value) + ", does not match its checksum");
  }
  stored.is_checked = true;
  return bytes.data();
}

Status CheckpointReader::read(const ValueId& id, int64_t first, int64_t count, std::byte* out) {
  const auto found = entries_.find(id);
  DC_CHECK(found != entries_.end());
  for (Stored& stored : found->second.pieces) {
    const Piece& piece = stored.piece;
    const int64_t from = std::max(first, piece.first);
    const int64_t to = std::min(first + count, piece.first + piece.count);
    if (from >= to) continue;
    DC_ASSIGN_OR_RETURN(const std::byte* bytes, checked(stored));
    const int64_t size = base::byte_size(piece.dtype);
    std::memcpy(out + (from - first) * size, bytes + (from - piece.first) * size,
                static_cast<size_t>((to - from) * size));
  }
  return base::ok_status();
}

Status CheckpointReader::verify() {
  for (auto& [id, entry] : entries_) {
    for (Stored& stored : entry.pieces) {
      if (stored.piece.count > 0) DC_RETURN_IF_ERROR(checked(stored).status());
    }
  }
  return base::ok_status();
}

}  // namespace dc::runtime::checkpoint
