#pragma once

namespace dc {

/// The checkout that the tests were built from, an absolute path without a slash at its end. One
/// small file holds it, so that a compiler cache serves every other file of the tests in another
/// folder too.
extern const char* const kSourceDir;

}  // namespace dc
