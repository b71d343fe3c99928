// Overload: which ATen overload a node calls, as its name and its row of the table of ATen ops.
//
// The row is looked up where the name is given, once, because every pass asks every node for it.
// Names are as in the table: "aten.mm.default". Of a name in the table no text is kept, so a copy
// allocates nothing.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

#include "src/ir/ops.h"
#include "src/ir/shared.h"

namespace dc::ir {

class Overload {
 public:
  Overload() = default;                                       // of ops of our own: an empty name
  Overload(std::string_view name) : info_(aten_info(name)) {  // NOLINT: names are overloads
    if (info_ == nullptr) unknown_ = std::string(name);
  }
  Overload(const std::string& name) : Overload(std::string_view(name)) {}  // NOLINT
  Overload(const char* name) : Overload(std::string_view(name)) {}         // NOLINT

  // Lives as long as this one does, and while it is not assigned to.
  std::string_view name() const {
    return info_ != nullptr ? info_->overload : std::string_view(*unknown_);
  }
  std::string text() const { return std::string(name()); }
  const AtenInfo* info() const { return info_; }  // null for a name that is not in the table

  bool operator==(const Overload& other) const {
    return info_ == other.info_ && unknown_ == other.unknown_;
  }
  template <std::convertible_to<std::string_view> Name>
  bool operator==(const Name& other) const {
    return name() == std::string_view(other);
  }

 private:
  const AtenInfo* info_ = nullptr;
  Shared<std::string> unknown_;  // the name, if it is not in the table
};

}  // namespace dc::ir
