// NameTable: which names the values of a graph have, and which suffix comes next for each. Keeps
// ids in the place of text, so a copy of it is a copy of numbers.
//
// Every entry is of a value that exists and has that name; the table asks `name_of` (a value's id
// to its name) for it. Open addressing, linear probing (Knuth, The Art of Computer Programming
// 3, 6.4).
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace dc::ir {

class NameTable {
 public:
  struct Entry {
    int32_t value = kEmpty;
    int32_t next_suffix = 0;
    uint32_t hash = 0;
  };

  // Null if no value has the name. The entry stays where it is until the next insert().
  template <typename NameOf>
  Entry* find(std::string_view name, const NameOf& name_of) {
    if (slots_.empty()) return nullptr;
    const uint32_t hash = hash_of(name);
    for (size_t i = hash & mask();; i = (i + 1) & mask()) {
      Entry& entry = slots_[i];
      if (entry.value == kEmpty) return nullptr;
      if (entry.value >= 0 && entry.hash == hash && name_of(entry.value) == name) return &entry;
    }
  }

  // The name must not be in the table.
  void insert(std::string_view name, int32_t value, int32_t next_suffix) {
    if (2 * (used_ + 1) > slots_.size()) grow();
    used_ += add({value, next_suffix, hash_of(name)});
    ++live_;
  }

  template <typename NameOf>
  void erase(std::string_view name, const NameOf& name_of) {
    Entry* entry = find(name, name_of);
    if (entry == nullptr) return;
    entry->value = kErased;
    --live_;
  }

 private:
  static constexpr int32_t kEmpty = -1, kErased = -2;

  static uint32_t hash_of(std::string_view name) {
    const size_t hash = std::hash<std::string_view>()(name);
    return static_cast<uint32_t>(hash ^ hash >> 32);
  }
  size_t mask() const { return slots_.size() - 1; }

  // Into the first free slot. Returns 1 if it was empty, 0 if it was erased.
  size_t add(Entry added) {
    size_t i = added.hash & mask();
    while (slots_[i].value >= 0) i = (i + 1) & mask();
    const bool was_empty = slots_[i].value == kEmpty;
    slots_[i] = added;
    return was_empty ? 1 : 0;
  }

  void grow() {
    size_t size = 16;
    while (size < 4 * (live_ + 1)) size *= 2;
    std::vector<Entry> old(size);
    old.swap(slots_);
    used_ = 0;
    for (const Entry& entry : old) {
      if (entry.value >= 0) used_ += add(entry);
    }
  }

  std::vector<Entry> slots_;    // a power of two of them, at most half in use
  size_t used_ = 0, live_ = 0;  // slots that are not empty; those not erased
};

}  // namespace dc::ir
