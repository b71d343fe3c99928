// Builds ZIP files byte by byte for tests, well-formed or broken in one chosen way.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <string>
#include <vector>

namespace dc::tests {

struct ZipItem {
  std::string name;
  std::string data{};
  bool deflate = false;
  bool zip64 = false;         // sizes in ZIP64 extra fields
  bool sizes_follow = false;  // bit 3: zero sizes in the local header, a descriptor behind the data
  int padding = 0;            // bytes of an "FB" extra field in the local header
  std::string local_name{};   // set: differs from the directory's
  int64_t claimed_size = -1;  // set: another uncompressed size in both headers
};

class ZipBuilder {
 public:
  ZipBuilder& add(ZipItem item) {
    Placed placed{item, pack(item), static_cast<uint32_t>(file_.size()), 0};
    placed.crc = static_cast<uint32_t>(::crc32(0, reinterpret_cast<const Bytef*>(item.data.data()),
                                               static_cast<uInt>(item.data.size())));
    const std::string name = item.local_name.empty() ? item.name : item.local_name;
    const bool later = item.sizes_follow;
    std::string extra;
    if (item.zip64) {
      extra += number(1, 2) + number(16, 2) + number(later ? 0 : size_of(item), 8) +
               number(later ? 0 : placed.packed.size(), 8);
    }
    if (item.padding > 0) {
      extra += "FB" + number(static_cast<uint64_t>(item.padding), 2) +
               std::string(static_cast<size_t>(item.padding), 'Z');
    }
    file_ += number(0x04034b50, 4) + number(45, 2) + number(later ? 8 : 0, 2) +
             number(item.deflate ? 8 : 0, 2) + number(0, 4) + number(later ? 0 : placed.crc, 4) +
             number(item.zip64 ? 0xffffffff : (later ? 0 : placed.packed.size()), 4) +
             number(item.zip64 ? 0xffffffff : (later ? 0 : size_of(item)), 4) +
             number(name.size(), 2) + number(extra.size(), 2) + name + extra + placed.packed;
    if (later) {
      file_ += number(0x08074b50, 4) + number(placed.crc, 4) +
               number(placed.packed.size(), item.zip64 ? 8 : 4) +
               number(size_of(item), item.zip64 ? 8 : 4);
    }
    placed_.push_back(placed);
    return *this;
  }
  ZipBuilder& add(const std::string& name, const std::string& data) {
    return add(ZipItem{.name = name, .data = data});
  }
  // Makes entry `i` of the directory point at the data of entry `j`.
  ZipBuilder& alias(size_t i, size_t j) {
    placed_[i].offset = placed_[j].offset;
    return *this;
  }

  std::string build(bool zip64_end = false) const {
    std::string directory;
    for (const Placed& p : placed_) directory += central(p);
    std::string end;
    const uint64_t at = file_.size();
    if (zip64_end) {
      end += number(0x06064b50, 4) + number(44, 8) + number(45, 2) + number(45, 2) + number(0, 8) +
             number(placed_.size(), 8) + number(placed_.size(), 8) + number(directory.size(), 8) +
             number(at, 8);
      end += number(0x07064b50, 4) + number(0, 4) + number(at + directory.size(), 8) + number(1, 4);
    }
    end += number(0x06054b50, 4) + number(0, 4) + number(zip64_end ? 0xffff : placed_.size(), 2) +
           number(zip64_end ? 0xffff : placed_.size(), 2) +
           number(zip64_end ? 0xffffffff : directory.size(), 4) +
           number(zip64_end ? 0xffffffff : at, 4) + number(0, 2);
    return file_ + directory + end;
  }

 private:
  struct Placed {
    ZipItem item;
    std::string packed;
    uint32_t offset;
    uint32_t crc;
  };

  static std::string number(uint64_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 255);
    return text;
  }
  static uint64_t size_of(const ZipItem& item) {
    return item.claimed_size >= 0 ? static_cast<uint64_t>(item.claimed_size) : item.data.size();
  }
  static std::string central(const Placed& p) {
    const ZipItem& item = p.item;
    std::string extra;
    if (item.zip64) {
      extra = number(1, 2) + number(16, 2) + number(size_of(item), 8) + number(p.packed.size(), 8);
    }
    return number(0x02014b50, 4) + number(45, 2) + number(45, 2) +
           number(item.sizes_follow ? 8 : 0, 2) + number(item.deflate ? 8 : 0, 2) + number(0, 4) +
           number(p.crc, 4) + number(item.zip64 ? 0xffffffff : p.packed.size(), 4) +
           number(item.zip64 ? 0xffffffff : size_of(item), 4) + number(item.name.size(), 2) +
           number(extra.size(), 2) + number(0, 2) + number(0, 2) + number(0, 2) + number(0, 4) +
           number(p.offset, 4) + item.name + extra;
  }
  static std::string pack(const ZipItem& item) {
    if (!item.deflate) return item.data;
    std::string packed(item.data.size() + 1024, '\0');
    z_stream stream{};
    ::deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(item.data.data()));
    stream.avail_in = static_cast<uInt>(item.data.size());
    stream.next_out = reinterpret_cast<Bytef*>(packed.data());
    stream.avail_out = static_cast<uInt>(packed.size());
    ::deflate(&stream, Z_FINISH);
    packed.resize(stream.total_out);
    ::deflateEnd(&stream);
    return packed;
  }

  std::string file_;
  std::vector<Placed> placed_;
};

}  // namespace dc::tests
