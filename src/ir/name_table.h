// NameTable: which names the rows of a table have (the values of a graph, the state entries of a
// step), and which suffix comes next for each. Keeps numbers of rows in the place of text. Copies
// share what they keep until one of them changes.
//
// Every entry is of a row that exists and has that name; the table asks `name_of` (a row's number
// to its name) for it. Open addressing, linear probing (Knuth, The Art of Computer Programming
// 3, 6.4).
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "src/ir/shared.h"

namespace dc::ir {

class NameTable {
 public:
  struct Entry {
    int32_t row = kEmpty;
    int32_t next_suffix = 0;
    uint32_t hash = 0;
  };

  // Null if no row has the name. The entry stays where it is until the next change.
  template <typename NameOf>
  const Entry* find(std::string_view name, const NameOf& name_of) const {
    const Slots& slots = *slots_;
    if (slots.empty()) return nullptr;
    const uint32_t hash = hash_of(name);
    for (size_t i = hash & (slots.size() - 1);; i = (i + 1) & (slots.size() - 1)) {
      const Entry& entry = slots[i];
      if (entry.row == kEmpty) return nullptr;
      if (entry.row >= 0 && entry.hash == hash && name_of(entry.row) == name) return &entry;
    }
  }

  // The name must not be in the table.
  void insert(std::string_view name, int32_t row, int32_t next_suffix) {
    if (4 * (used_ + 1) > 3 * slots_.size()) grow();
    used_ += add({row, next_suffix, hash_of(name)}, slots_.edit());
    ++live_;
  }

  // `entry`: that find() gave.
  void set_next_suffix(const Entry& entry, int32_t next_suffix) {
    const auto at = static_cast<size_t>(&entry - slots_->data());
    slots_.edit()[at].next_suffix = next_suffix;
  }

  template <typename NameOf>
  void erase(std::string_view name, const NameOf& name_of) {
    const Entry* entry = find(name, name_of);
    if (entry == nullptr) return;
    const auto at = static_cast<size_t>(entry - slots_->data());
    slots_.edit()[at].row = kErased;
    --live_;
  }

 private:
  static constexpr int32_t kEmpty = -1, kErased = -2;
  using Slots = std::vector<Entry>;

  static uint32_t hash_of(std::string_view name) {
    const size_t hash = std::hash<std::string_view>()(name);
    return static_cast<uint32_t>(hash ^ hash >> 32);
  }

  // Into the first free slot. Returns 1 if it was empty, 0 if it was erased.
  static size_t add(Entry added, Slots& slots) {
    size_t i = added.hash & (slots.size() - 1);
    while (slots[i].row >= 0) i = (i + 1) & (slots.size() - 1);
    const bool was_empty = slots[i].row == kEmpty;
    slots[i] = added;
    return was_empty ? 1 : 0;
  }

  void grow() {
    size_t size = 16;
    while (size < 2 * (live_ + 1)) size *= 2;
    Slots larger(size);
    used_ = 0;
    for (const Entry& entry : slots_) {
      if (entry.row >= 0) used_ += add(entry, larger);
    }
    slots_ = std::move(larger);
  }

  Shared<Slots> slots_;         // a power of two of them, at most three quarters in use
  size_t used_ = 0, live_ = 0;  // slots that are not empty; those not erased
};

}  // namespace dc::ir
