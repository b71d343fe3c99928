#include "src/base/archive/zip_directory.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>

namespace dc::base::archive {
namespace {

constexpr uint32_t kLocalMagic = 0x04034b50;
constexpr uint32_t kCentralMagic = 0x02014b50;
constexpr uint32_t kEndMagic = 0x06054b50;
constexpr uint32_t kEnd64Magic = 0x06064b50;
constexpr uint32_t kLocator64Magic = 0x07064b50;
constexpr uint64_t kLocalBytes = 30;
constexpr uint64_t kCentralBytes = 46;
constexpr uint64_t kEndBytes = 22;
constexpr uint64_t kEnd64Bytes = 56;
constexpr uint64_t kLocator64Bytes = 20;
constexpr uint32_t kFull32 = 0xffffffff;
constexpr uint16_t kFull16 = 0xffff;
constexpr uint16_t kExtra64 = 1;
constexpr uint16_t kEncrypted = 1 | (1 << 6) | (1 << 13);
constexpr uint16_t kSizesFollow = 1 << 3;  // sizes stand behind the data, not in the local header

using Bytes = std::span<const uint8_t>;

// Little-endian number of `n` bytes; the caller has checked the bounds.
uint64_t number(Bytes bytes, uint64_t offset, int n) {
  uint64_t value = 0;
  for (int i = n - 1; i >= 0; --i) value = value << 8 | bytes[offset + static_cast<uint64_t>(i)];
  return value;
}
uint16_t u16(Bytes b, uint64_t at) { return static_cast<uint16_t>(number(b, at, 2)); }
uint32_t u32(Bytes b, uint64_t at) { return static_cast<uint32_t>(number(b, at, 4)); }
uint64_t u64(Bytes b, uint64_t at) { return number(b, at, 8); }

bool fits(Bytes file, uint64_t offset, uint64_t length) {
  return offset <= file.size() && length <= file.size() - offset;
}

// Sizes and offset of an entry as a header gives them, completed from its ZIP64 extra field.
struct Sizes {
  uint64_t size = 0, packed = 0, offset = 0;
};

// Replaces saturated fields by the extra field's values, in the format's fixed order.
bool complete_from_extra(Bytes extra, Sizes& sizes, bool has_offset) {
  const bool want_size = sizes.size == kFull32;
  const bool want_packed = sizes.packed == kFull32;
  const bool want_offset = has_offset && sizes.offset == kFull32;
  uint64_t at = 0;
  while (at + 4 <= extra.size()) {
    const uint16_t id = u16(extra, at);
    const uint64_t length = u16(extra, at + 2);
    at += 4;
    if (length > extra.size() - at) return false;
    if (id == kExtra64) {
      uint64_t inner = at;
      const uint64_t end = at + length;
      for (auto [want, field] : {std::pair{want_size, &sizes.size},
                                 {want_packed, &sizes.packed},
                                 {want_offset, &sizes.offset}}) {
        if (!want) continue;
        if (end - inner < 8) return false;
        *field = u64(extra, inner);
        inner += 8;
      }
      return true;
    }
    at += length;
  }
  return !want_size && !want_packed && !want_offset;
}

bool is_safe_name(std::string_view name) {
  if (name.empty() || name.front() == '/') return false;
  for (const char c : name) {
    if (static_cast<unsigned char>(c) < 32 || c == '\\' || c == 127) return false;
  }
  size_t start = 0;
  while (start <= name.size()) {
    const size_t slash = std::min(name.find('/', start), name.size());
    const std::string_view part = name.substr(start, slash - start);
    if (part == "." || part == ".." || (part.empty() && slash != name.size())) return false;
    start = slash + 1;
  }
  return name.size() < 2 || name[1] != ':';
}

struct Directory {
  uint64_t entries = 0, offset = 0, bytes = 0;
  uint64_t limit = 0;  // where the end records begin
};

class DirectoryReader {
 public:
  DirectoryReader(Bytes file, const std::string& path, const ZipLimits& limits)
      : file_(file), path_(path), limits_(limits) {}

  Result<std::vector<ZipEntry>> read() {
    DC_ASSIGN_OR_RETURN(const Directory directory, find_directory());
    if (directory.entries > limits_.max_entries) {
      return bad("it has " + std::to_string(directory.entries) + " entries, more than allowed");
    }
    if (directory.entries > directory.bytes / kCentralBytes)
      return bad("its directory is too short");
    std::vector<ZipEntry> entries;
    uint64_t at = directory.offset;
    const uint64_t end = directory.offset + directory.bytes;
    for (uint64_t i = 0; i < directory.entries; ++i) {
      DC_RETURN_IF_ERROR(read_entry(at, end, directory.offset, entries));
    }
    if (at != end) return bad("its directory has bytes that belong to no entry");
    DC_RETURN_IF_ERROR(check_overlap());
    return entries;
  }

 private:
  Status bad(const std::string& what) const {
    return Status(ErrorKind::BadInput, "DC1301",
                  path_ + " is not a valid archive: " + what +
                      "; it is damaged or of another kind; export or copy it again");
  }
  Status bad_entry(std::string_view name, const std::string& what) const {
    std::string shown(name.substr(0, 200));
    for (char& c : shown) {
      if (static_cast<unsigned char>(c) < 32) c = '?';
    }
    return bad("entry '" + shown + "' " + what);
  }

  // The end record is the last thing in the file but for a comment of at most 64 KiB.
  Result<Directory> find_directory() const {
    if (file_.empty()) return bad("it is empty");
    if (file_.size() < kEndBytes)
      return bad("it is only " + std::to_string(file_.size()) + " bytes");
    const uint64_t last = file_.size() - kEndBytes;
    const uint64_t first = last > kFull16 ? last - kFull16 : 0;
    for (uint64_t at = last + 1; at-- > first;) {
      if (u32(file_, at) == kEndMagic && at + kEndBytes + u16(file_, at + 20) == file_.size()) {
        return read_end(at);
      }
    }
    return bad("it has no end record (truncated, or not a ZIP file)");
  }

  Result<Directory> read_end(uint64_t at) const {
    Directory directory;
    directory.entries = u16(file_, at + 10);
    directory.bytes = u32(file_, at + 12);
    directory.offset = u32(file_, at + 16);
    directory.limit = at;
    if (u16(file_, at + 4) != 0 && u16(file_, at + 4) != kFull16)
      return bad("it is one of several parts");
    if (u16(file_, at + 8) != directory.entries) return bad("it is one of several parts");
    const bool saturated =
        directory.entries == kFull16 || directory.bytes == kFull32 || directory.offset == kFull32;
    if (at >= kLocator64Bytes && u32(file_, at - kLocator64Bytes) == kLocator64Magic) {
      DC_RETURN_IF_ERROR(read_end64(at - kLocator64Bytes, directory));
    } else if (saturated) {
      return bad("its ZIP64 end record is missing");
    }
    if (directory.offset > directory.limit ||
        directory.bytes != directory.limit - directory.offset) {
      return bad("its directory does not lie before its end record");
    }
    return directory;
  }

  Status read_end64(uint64_t locator, Directory& directory) const {
    const uint64_t at = u64(file_, locator + 8);
    if (at > locator || locator - at < kEnd64Bytes || u32(file_, at) != kEnd64Magic ||
        u64(file_, at + 4) != locator - at - 12) {
      return bad("its ZIP64 end record is damaged");
    }
    const uint64_t entries = u64(file_, at + 32);
    const uint64_t bytes = u64(file_, at + 40);
    const uint64_t offset = u64(file_, at + 48);
    const bool agrees = (directory.entries == kFull16 || directory.entries == entries) &&
                        (directory.bytes == kFull32 || directory.bytes == bytes) &&
                        (directory.offset == kFull32 || directory.offset == offset);
    if (!agrees || u64(file_, at + 24) != entries) return bad("its two end records disagree");
    directory = {entries, offset, bytes, at};
    return ok_status();
  }

  Status read_entry(uint64_t& at, uint64_t end, uint64_t data_end, std::vector<ZipEntry>& entries) {
    if (end - at < kCentralBytes || u32(file_, at) != kCentralMagic) {
      return bad("its directory is damaged");
    }
    const uint64_t name_bytes = u16(file_, at + 28);
    const uint64_t extra_bytes = u16(file_, at + 30);
    const uint64_t total = kCentralBytes + name_bytes + extra_bytes + u16(file_, at + 32);
    if (end - at < total) return bad("its directory is damaged");
    const std::string_view name(reinterpret_cast<const char*>(file_.data()) + at + kCentralBytes,
                                name_bytes);
    if (name_bytes > limits_.max_name_bytes || !is_safe_name(name)) {
      return bad_entry(name, "has a name that is not allowed");
    }
    if (!names_.insert(name).second) return bad_entry(name, "appears twice");
    Sizes sizes{u32(file_, at + 24), u32(file_, at + 20), u32(file_, at + 42)};
    if (!complete_from_extra(file_.subspan(at + kCentralBytes + name_bytes, extra_bytes), sizes,
                             true)) {
      return bad_entry(name, "has a damaged extra field");
    }
    ZipEntry entry;
    entry.name = name;
    entry.size = sizes.size;
    entry.packed_size = sizes.packed;
    entry.crc = u32(file_, at + 16);
    const uint16_t method = u16(file_, at + 10);
    if (u16(file_, at + 8) & kEncrypted) return bad_entry(name, "is encrypted");
    if (method != 0 && method != 8) {
      return bad_entry(name, "is packed by method " + std::to_string(method) +
                                 " (stored and deflated are read)");
    }
    entry.deflated = method == 8;
    DC_RETURN_IF_ERROR(check_sizes(entry));
    DC_RETURN_IF_ERROR(read_local(entry, sizes.offset, data_end, at));
    at += total;
    if (name.back() != '/') entries.push_back(std::move(entry));
    return ok_status();
  }

  Status check_sizes(const ZipEntry& entry) {
    if (!entry.deflated) {
      if (entry.size != entry.packed_size) return bad_entry(entry.name, "has two sizes");
      return ok_status();
    }
    if (entry.size > limits_.max_inflated_bytes) return bad_entry(entry.name, "is too large");
    total_inflated_ += entry.size;
    if (total_inflated_ > limits_.max_total_inflated_bytes)
      return bad("its contents are too large");
    if (entry.size > limits_.free_ratio_bytes &&
        entry.size / limits_.max_ratio > entry.packed_size) {
      return bad_entry(entry.name, "is packed implausibly tightly");
    }
    return ok_status();
  }

  // The local header must agree with the directory; the data offset is known only here.
  Status read_local(ZipEntry& entry, uint64_t offset, uint64_t data_end, uint64_t central) {
    if (!fits(file_, offset, kLocalBytes) || u32(file_, offset) != kLocalMagic) {
      return bad_entry(entry.name, "has no header where the directory says");
    }
    const uint64_t name_bytes = u16(file_, offset + 26);
    const uint64_t extra_bytes = u16(file_, offset + 28);
    const uint64_t header = kLocalBytes + name_bytes + extra_bytes;
    if (!fits(file_, offset, header)) return bad_entry(entry.name, "is truncated");
    const std::string_view name(reinterpret_cast<const char*>(file_.data()) + offset + kLocalBytes,
                                name_bytes);
    const uint16_t flags = u16(file_, offset + 6);
    Sizes sizes{u32(file_, offset + 22), u32(file_, offset + 18), 0};
    const Bytes extra = file_.subspan(offset + kLocalBytes + name_bytes, extra_bytes);
    if (!complete_from_extra(extra, sizes, false)) {
      return bad_entry(entry.name, "has a damaged extra field");
    }
    const bool later = (flags & kSizesFollow) != 0;
    const auto equal = [later](uint64_t local, uint64_t directory) {
      return local == directory || (later && local == 0);
    };
    if (name != entry.name || u16(file_, offset + 8) != u16(file_, central + 10) ||
        (flags & ~kSizesFollow) != (u16(file_, central + 8) & ~kSizesFollow) ||
        !equal(u32(file_, offset + 14), entry.crc) || !equal(sizes.size, entry.size) ||
        !equal(sizes.packed, entry.packed_size)) {
      return bad_entry(entry.name, "is described differently in its header and in the directory");
    }
    entry.data_offset = offset + header;
    if (entry.data_offset > data_end || entry.packed_size > data_end - entry.data_offset) {
      return bad_entry(entry.name, "is truncated");
    }
    extents_.push_back({offset, entry.data_offset + entry.packed_size});
    return ok_status();
  }

  Status check_overlap() {
    std::sort(extents_.begin(), extents_.end());
    for (size_t i = 1; i < extents_.size(); ++i) {
      if (extents_[i].first < extents_[i - 1].second) return bad("two of its entries overlap");
    }
    return ok_status();
  }

  Bytes file_;
  const std::string& path_;
  const ZipLimits& limits_;
  std::unordered_set<std::string_view> names_;
  std::vector<std::pair<uint64_t, uint64_t>> extents_;
  uint64_t total_inflated_ = 0;
};

}  // namespace

Result<std::vector<ZipEntry>> read_zip_directory(std::span<const uint8_t> file,
                                                 const std::string& path, const ZipLimits& limits) {
  return DirectoryReader(file, path, limits).read();
}

}  // namespace dc::base::archive
