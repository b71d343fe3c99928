// A golden file: how to run passes on a step, and what must come out. The format is in README.md of
// this folder.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/passes/pass_manager.h"

namespace dc::passes {

enum class Expectation : uint8_t { Changed, Unchanged, Error };

struct GoldenFile {
  std::string passes;       // comma-separated, as parse_passes reads it
  bool shows_state = true;  // whether the output has the state table and the nodes that read it
  std::string cost = "fixed()";
  Options options;
  Expectation expectation = Expectation::Changed;
  std::string error_code;            // of an expected error
  std::vector<std::string> remarks;  // expected, in order, without the pass's name
  std::string head;                  // lines before the step other than EXPECT and REMARK
  std::string input;                 // text of the step
  std::string output;                // expected text; empty unless the step changes
};

base::Result<GoldenFile> parse_golden(std::string_view text);
std::string print_golden(
    const GoldenFile& file);  // what the update writes; equal to a file that is up to date

// `text` of a step without the lines of its state table and of the nodes that read state.
std::string without_state(std::string_view text);

std::vector<std::filesystem::path> golden_files(const std::filesystem::path& folder);  // sorted

}  // namespace dc::passes
