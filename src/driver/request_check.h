// Whether what a request asks for can be had together.
#pragma once

#include "src/base/status.h"
#include "src/driver/compile.h"

namespace dc::driver {

// Usage (64) as check() says; BadConfig (78): DC7034 where the profile does not know what it costs
// to copy to the space that is asked for, DC7035 where a budget is of a space that nothing goes to,
// DC7036 where the ranks do not stand equally many on each host. What a profile or a plan knows by
// itself is not looked at: only what was asked.
base::Status check_request(const CompileRequest& request);
// Of these DC7034 and DC7035.
base::Status check_spaces(const CompileRequest& request);

}  // namespace dc::driver
