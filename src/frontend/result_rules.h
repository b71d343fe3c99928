// What operators that are no views return, where PyTorch's rule is simple enough to be certain.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "src/frontend/operator_args.h"
#include "src/ir/types.h"

namespace dc::frontend {

// A call of an operator: operands as they are in the graph, by the numbers in `args`.
struct Call {
  std::string_view overload;
  const std::vector<const ir::TensorType*>& operands;
  const OperatorArgs& args;

  // The tensor argument of this name; null if it is not given.
  const ir::TensorType* tensor(std::string_view name) const;
};

// What is known of a result; the rest is not.
struct KnownResult {
  std::optional<ir::Shape> shape;
  std::optional<base::DType> dtype;
};

// False where operands are of sizes that no element-wise operator and no product of matrices takes
// together; what no rule covers fits.
bool operands_fit(const Call& call);

// Result `index` of a call. Rules were read off PyTorch 2.11 and are compared with it by a test;
// an overload without a rule gives nothing.
KnownResult known_result(const Call& call, size_t index);

// The strides that PyTorch's CPU kernel gives result `index`, which has sizes `shape`; none where
// that is not certain.
std::optional<ir::Strides> known_strides(const Call& call, size_t index, const ir::Shape& shape);

}  // namespace dc::frontend
