// Pieces of the textual form that tables and nodes share.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "src/ir/graph.h"
#include "src/ir/types.h"

namespace dc::ir {

bool is_bare_name(std::string_view name);              // needs no quotes after % or @
bool is_identifier(std::string_view name);             // needs no quotes elsewhere
std::string identifier(std::string_view name);         // name or "odd name"
std::string quoted(std::string_view text);             // "..." with escapes
std::string named(char sigil, std::string_view name);  // %name or %"odd name"
std::string format_double(
    double value);  // shortest text that reads back equal; never looks like an integer
std::string format_ints(std::span<const int64_t> values, char open, char close);  // "[1,2]"
std::string format_type(const TensorType& type,
                        const Mesh& mesh);  // f32[2,3] strides=(1,2) offset=4 varying<dp>
std::string format_location(const Location& location);  // device:128+4096, host before layout
bool is_default(const Location& location);

}  // namespace dc::ir
