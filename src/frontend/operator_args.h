// Arguments of an operator by the names of its schema, as the type rules read them.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "src/ir/graph.h"

namespace dc::frontend {

class OperatorArgs {
 public:
  explicit OperatorArgs(const std::vector<ir::Arg>& args) : args_(args) {}

  // Null if it is absent or None.
  const ir::Arg* find(std::string_view name) const;
  // Whether all names are among those of `known`, separated by commas.
  bool are_among(std::string_view known) const;
  // None unless it is given as this kind. A number stands for a list of one where a list is asked.
  std::optional<int64_t> integer(std::string_view name) const;
  // `otherwise` if it is absent or None; none if it is of another kind.
  std::optional<int64_t> integer(std::string_view name, int64_t otherwise) const;
  std::optional<bool> flag(std::string_view name) const;
  std::optional<std::vector<int64_t>> integers(std::string_view name) const;
  std::optional<base::DType> dtype(std::string_view name) const;

 private:
  const std::vector<ir::Arg>& args_;
};

// A dim that may count from the end, as one of 0 to rank - 1; none if it is out of range. A tensor
// of rank 0 counts as one of rank 1, as in PyTorch.
std::optional<size_t> wrapped_dim(int64_t dim, size_t rank);

}  // namespace dc::frontend
