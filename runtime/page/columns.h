// Compact tables for the page: columns of integers as base64 text, strings by number.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace dc::runtime::page {

// Integers in 7-bit groups, lowest first (LEB128); signed ones zigzag. Read by timeline_data.js.
class Column {
 public:
  void add(uint64_t value);
  void add_signed(int64_t value) {
    add((static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63));
  }
  std::string base64() const;

 private:
  std::string bytes_;
};

// Gives each string a number, in the order of first appearance; "" is 0.
class StringTable {
 public:
  StringTable() { number(""); }
  uint64_t number(std::string_view text);
  const std::vector<std::string>& strings() const { return strings_; }

 private:
  std::vector<std::string> strings_;
  std::unordered_map<std::string, uint64_t> numbers_;
};

}  // namespace dc::runtime::page
