// The native kernels by name. Each file of this folder holds one idea and offers its factories
// here.
#pragma once

#include <memory>

#include "runtime/kernel/native/call.h"

namespace dc::runtime::native {

using Made = base::Result<std::unique_ptr<Kernel>>;
using Factory = Made (*)(Call& call);

// elementwise.cpp
Made make_copy(Call& call);
Made make_zero(Call& call);
Made make_accumulate(Call& call);
Made make_scale(Call& call);
// cast.cpp
Made make_cast(Call& call);
// reduce.cpp
Made make_add_loss(Call& call);
Made make_square_sum(Call& call);
Made make_permit(Call& call);
Made make_finalize(Call& call);
// update.cpp
Made make_adamw(Call& call);
Made make_sgd(Call& call);
// dropout.cpp
Made make_dropout(Call& call);

}  // namespace dc::runtime::native
