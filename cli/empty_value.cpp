#include "cli/empty_value.h"

#include <CLI/CLI.hpp>
#include <algorithm>

namespace dc::cli {

std::string empty_value(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (std::ranges::none_of(option->results(), &std::string::empty)) continue;
    return option->get_name() + ": the value is empty; give one" +
           (option->get_positional() ? "" : ", or leave the option out");
  }
  for (const CLI::App* command : app.get_subcommands()) {
    if (std::string text = empty_value(*command); !text.empty()) return text;
  }
  return "";
}

}  // namespace dc::cli
