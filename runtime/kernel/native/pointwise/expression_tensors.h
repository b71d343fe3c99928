// The tensors of instructions that do what an Expression says.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/kernel/native/call.h"
#include "runtime/kernel/native/iteration.h"
#include "src/base/expression_shape.h"

namespace dc::runtime::kernel::native {

// Whether an expression may have operations of this name, "aten.silu.default".
bool is_operation(std::string_view op);

// The expression of a dc.fused instruction. An error says to compile the plan again.
base::Result<base::Expression> read_expression(Call& call);
// The names of its arguments that are the expression's operands: a0, a1, ...
std::vector<std::string> fused_operands(const base::Expression& expression);

// The tensors of an instruction that does what an expression says: results of one shape, and
// operands that are broadcast to it. Iterations are over the results, then the operands, then, if
// the expression has ranges of indices, a tensor whose offset is the index along their dim.
struct ExpressionTensors {
  std::vector<BoundTensor> results, operands;
  base::ExpressionShape shape;
  Iteration iteration;      // without reductions
  Iteration across, along;  // with reductions: over dims of rows and of columns, in their order

  size_t index_tensor() const { return results.size() + operands.size(); }
};
// `operands`: the names of the arguments that the expression's operands are. The call refuses
// tensors that do not belong together; what is returned is of use only if it did not.
ExpressionTensors expression_tensors(Call& call, const base::Expression& expression,
                                     std::span<const std::string> operands);

}  // namespace dc::runtime::kernel::native
