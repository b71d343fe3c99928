// Types of a node's results: computed where PyTorch's rule is known, and compared with the archive.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/ir/graph.h"

namespace dc::frontend {

// Where the elements of a value lie in its storage.
struct Placement {
  int64_t before = 0;       // elements of the traced storage that come before ours
  bool is_certain = true;   // strides are the kernel's, not only what the archive says
  bool is_recorded = true;  // strides are those of the archive
};

struct Operand {
  const ir::TensorType& type;
  Placement placement;
};

// What an archive records about a result; without type: None, or nothing asks for it.
struct Recorded {
  std::string name;
  std::optional<ir::TensorType> type;
};

struct ResultType {
  ir::TensorType type;
  Placement placement;
};

// One entry per result. A record that contradicts a rule is refused (DC2049, 65), with four
// exceptions that cannot change a number and are corrected: strides of results that own their
// storage, their offset, strides of dims with one element, and strides and offsets of views where
// those of the viewed tensor were corrected. Reading by strides (as_strided) a tensor whose own
// ones are not certain is refused (DC2050, 81).
base::Result<std::vector<ResultType>> result_types(std::string_view overload,
                                                   const std::vector<Operand>& operands,
                                                   const std::vector<ir::Arg>& args,
                                                   const std::vector<Recorded>& recorded);

}  // namespace dc::frontend
