#include "runtime/checkpoint/rank_files.h"

#include <unordered_map>

#include "src/base/json_writer.h"
#include "src/base/sha256.h"

namespace dc::runtime::checkpoint {
namespace {

using base::Result;
using base::Status;
using base::archive::SafeTensor;

std::span<const uint8_t> as_bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}
std::span<const uint8_t> as_bytes(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

// What a reader of the shard alone must know of a tensor.
std::string about(const Piece& piece) {
  base::JsonWriter json;
  json.begin_object().field("kind", name(piece.value.kind)).field("of", piece.value.fqn);
  json.field("first", piece.first).key("shape").begin_array();
  for (const int64_t size : piece.sizes) json.integer(size);
  return json.end_array().end_object().take();
}

}  // namespace

Result<RankFiles> RankFiles::create(const std::string& folder, const std::vector<StatePart>& parts,
                                    const TensorFile::Metadata& metadata, int rank, int world) {
  RankFiles files(folder, rank, world);
  for (const StatePart& part : parts) {
    Target& target = files.targets_.emplace_back();
    target.piece = part.piece;
    target.is_shared = is_weight(part, rank);
  }
  DC_ASSIGN_OR_RETURN(const Layout shared, files.place_shared(metadata, weight_tensors(parts)));
  if (rank == 0) {
    DC_ASSIGN_OR_RETURN(base::OutputFile made, files.make(std::string(kWeightsName), shared));
    files.shared_.push_back(std::move(made));
  }
  DC_ASSIGN_OR_RETURN(const Layout own, files.place_own());
  if (own.tensors.empty()) return files;
  DC_ASSIGN_OR_RETURN(base::OutputFile made, files.make(shard_name(rank, world), own));
  files.own_.push_back(std::move(made));
  return files;
}

Status RankFiles::open() {
  if (!shared_.empty()) return base::ok_status();
  DC_ASSIGN_OR_RETURN(base::OutputFile file,
                      base::OutputFile::join(folder_ + "/" + std::string(kWeightsName)));
  shared_.push_back(std::move(file));
  return base::ok_status();
}

Result<RankFiles::Layout> RankFiles::place_shared(const TensorFile::Metadata& metadata,
                                                  const std::vector<FileTensor>& tensors) {
  std::vector<SafeTensor> entries;
  std::unordered_map<std::string, size_t> by_name;  // lookups only
  for (const FileTensor& tensor : tensors) {
    by_name.emplace(tensor.name, entries.size());
    entries.push_back({tensor.name, tensor.dtype, tensor.sizes, 0, 0});
  }
  DC_ASSIGN_OR_RETURN(Layout layout,
                      base::archive::layout_safetensors(std::move(entries), metadata));
  for (Target& target : targets_) {
    if (!target.is_shared) continue;
    Piece& piece = target.piece;
    piece.file = kWeightsName;
    piece.tensor = piece.value.fqn;
    piece.at = piece.first;
    target.offset =
        layout.tensors[by_name.at(piece.tensor)].offset + piece.at * base::byte_size(piece.dtype);
  }
  return layout;
}

Result<RankFiles::Layout> RankFiles::place_own() {
  std::vector<SafeTensor> entries;
  TensorFile::Metadata metadata;
  for (Target& target : targets_) {
    Piece& piece = target.piece;
    if (target.is_shared || piece.count == 0) continue;
    piece.file = shard_name(rank_, world_);
    piece.tensor = std::string(name(piece.value.kind)) + "/" + piece.value.fqn;
    metadata.emplace(piece.tensor, about(piece));
    entries.push_back({piece.tensor, piece.dtype, {piece.count}, 0, 0});
  }
  DC_ASSIGN_OR_RETURN(Layout layout,
                      base::archive::layout_safetensors(std::move(entries), metadata));
  size_t next = 0;
  for (Target& target : targets_) {
    if (target.is_shared || target.piece.count == 0) continue;
    target.offset = layout.tensors[next++].offset;
  }
  return layout;
}

Result<base::OutputFile> RankFiles::make(const std::string& name, const Layout& layout) {
  DC_ASSIGN_OR_RETURN(base::OutputFile file,
                      base::OutputFile::create_new(folder_ + "/" + name, layout.file_bytes));
  DC_RETURN_IF_ERROR(file.write_at(0, as_bytes(layout.header)));
  made_.push_back({name, layout.file_bytes, static_cast<int64_t>(layout.header.size()),
                   Checksum(base::xxh64(std::as_bytes(std::span(layout.header))))});
  return file;
}

Status RankFiles::append(size_t part, std::span<const std::byte> bytes) {
  Target& target = targets_[part];
  base::OutputFile& file = target.is_shared ? shared_[0] : own_[0];
  DC_RETURN_IF_ERROR(file.write_at(target.offset + target.written, as_bytes(bytes)));
  target.checksum.update(bytes);
  target.written += static_cast<int64_t>(bytes.size());
  return base::ok_status();
}

Result<std::string> RankFiles::finish() {
  RankManifest manifest;
  manifest.files = made_;
  for (Target& target : targets_) {
    DC_CHECK(target.written == target.piece.bytes());
    target.piece.checksum = Checksum(target.checksum.value());
    if (target.piece.count > 0) manifest.pieces.push_back(target.piece);
  }
  for (auto* files : {&shared_, &own_}) {
    for (base::OutputFile& file : *files) DC_RETURN_IF_ERROR(file.flush());
    files->clear();
  }
  const std::string text = write_manifest(manifest);
  DC_ASSIGN_OR_RETURN(base::OutputFile file,
                      base::OutputFile::create_new(folder_ + "/" + manifest_name(rank_, world_),
                                                   static_cast<int64_t>(text.size())));
  DC_RETURN_IF_ERROR(file.write_at(0, as_bytes(text)));
  DC_RETURN_IF_ERROR(file.flush());
  return base::sha256_hex(text);
}

}  // namespace dc::runtime::checkpoint
