// What kernels as C++ include of the standard library, precompiled: parsing it is most of the time
// that one of them takes to compile.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>
