// Element types that PyTorch's CPU kernels give where its shape propagation, and so an archive,
// says another.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "src/base/dtype.h"

namespace dc::frontend {

// The element type of a node's tensor argument by its name in the schema; none if it is not given.
using OperandType = std::function<std::optional<base::DType>(std::string_view name)>;

// The element type that the kernel of `overload` gives result `index`, whatever the archive says
// about it; none where no rule is known: the archive is right there. The rules were read off the
// kernels of PyTorch 2.11, and a test compares all of them with it.
std::optional<base::DType> kernel_dtype(std::string_view overload, size_t index,
                                        const OperandType& operand);

// Whether a node of `overload` is the backward that takes these results as the kernel gives them.
bool takes_kernel_types(std::string_view overload);

}  // namespace dc::frontend
