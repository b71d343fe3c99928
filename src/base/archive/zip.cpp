#include "src/base/archive/zip.h"

#include <zlib.h>

#include <algorithm>

#include "src/base/archive/zip_directory.h"

namespace dc::base::archive {
namespace {

constexpr size_t kPiece = size_t{1} << 30;  // zlib counts in 32 bits

uint32_t crc_of(std::span<const uint8_t> bytes) {
  return static_cast<uint32_t>(::crc32_z(0, bytes.data(), bytes.size()));
}

// Inflates raw deflate data; true if it filled `output` exactly and used all of `input`.
bool inflate_exactly(std::span<const uint8_t> input, std::span<uint8_t> output) {
  z_stream stream{};
  if (::inflateInit2(&stream, -MAX_WBITS) != Z_OK) return false;
  uint8_t nothing = 0;  // zlib wants a place even for zero bytes
  int result = Z_OK;
  while (result == Z_OK) {
    const size_t in = std::min(input.size(), kPiece);
    const size_t out = std::min(output.size(), kPiece);
    stream.next_in = const_cast<uint8_t*>(input.data());
    stream.avail_in = static_cast<uInt>(in);
    stream.next_out = output.empty() ? &nothing : output.data();
    stream.avail_out = static_cast<uInt>(out);
    result = ::inflate(&stream, Z_NO_FLUSH);
    input = input.subspan(in - stream.avail_in);
    output = output.subspan(out - stream.avail_out);
  }
  ::inflateEnd(&stream);
  return result == Z_STREAM_END && input.empty() && output.empty();
}

}  // namespace

Result<ZipArchive> ZipArchive::open(const std::string& path, const ZipLimits& limits) {
  ZipArchive archive;
  DC_ASSIGN_OR_RETURN(archive.file_, MappedFile::open(path));
  DC_ASSIGN_OR_RETURN(archive.entries_, read_zip_directory(archive.file_.bytes(), path, limits));
  for (size_t i = 0; i < archive.entries_.size(); ++i) {
    archive.by_name_.emplace(archive.entries_[i].name, i);
  }
  if (!archive.entries_.empty()) {
    const std::string& first = archive.entries_[0].name;
    const size_t slash = first.find('/');
    if (slash != std::string::npos) archive.root_ = first.substr(0, slash);
  }
  return archive;
}

const ZipEntry* ZipArchive::find(std::string_view name) const {
  std::string whole = root_.empty() ? std::string() : root_ + "/";
  whole += name;
  const auto found = by_name_.find(whole);
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

std::string_view ZipArchive::below_root(const ZipEntry& entry) const {
  const std::string_view name = entry.name;
  if (root_.empty()) return name;
  if (name.size() <= root_.size() + 1 || !name.starts_with(root_) || name[root_.size()] != '/') {
    return {};
  }
  return name.substr(root_.size() + 1);
}

std::span<const uint8_t> ZipArchive::packed(const ZipEntry& entry) const {
  return file_.bytes().subspan(entry.data_offset, entry.packed_size);
}

Result<std::span<const uint8_t>> ZipArchive::stored(const ZipEntry& entry) const {
  if (entry.deflated) {
    return Status(ErrorKind::BadInput, "DC1302",
                  path() + ": entry " + entry.name +
                      " is deflated and cannot be used in place; repack the archive uncompressed");
  }
  return packed(entry);
}

Status ZipArchive::check_crc(const ZipEntry& entry, std::span<const uint8_t> contents) const {
  if (crc_of(contents) == entry.crc) return ok_status();
  return Status(ErrorKind::BadInput, "DC1303",
                path() + ": entry " + entry.name +
                    " is damaged (its checksum does not match); export or copy it again");
}

Result<std::vector<uint8_t>> ZipArchive::read(const ZipEntry& entry) const {
  const std::span<const uint8_t> bytes = packed(entry);
  if (!entry.deflated) {
    DC_RETURN_IF_ERROR(check_crc(entry, bytes));
    return std::vector<uint8_t>(bytes.begin(), bytes.end());
  }
  std::vector<uint8_t> contents(entry.size);
  if (!inflate_exactly(bytes, contents)) {
    return Status(ErrorKind::BadInput, "DC1304",
                  path() + ": entry " + entry.name + " cannot be inflated; the file is damaged");
  }
  DC_RETURN_IF_ERROR(check_crc(entry, contents));
  return contents;
}

Status ZipArchive::verify_crc(const ZipEntry& entry) const {
  if (!entry.deflated) return check_crc(entry, packed(entry));
  return read(entry).status();
}

}  // namespace dc::base::archive
