// An option or argument that was given without a value, as `--save "$OUT"` of an unset variable is:
// taken for "not given" it would be left out without a word.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace dc::cli {

// The error text of the first such option of `app` and of the commands chosen in it; empty if there
// is none.
std::string empty_value(const CLI::App& app);

}  // namespace dc::cli
