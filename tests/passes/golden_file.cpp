#include "tests/passes/golden_file.h"

#include <algorithm>
#include <charconv>

namespace dc::passes {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;

constexpr std::string_view kSeparator = "// ----\n";

Status malformed(const std::string& what) { return Status(ErrorKind::BadInput, "DC2690", what); }

// Splits "a=b c=d(e, f) g=h" at the spaces outside parentheses.
std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words(1);
  int depth = 0;
  for (char c : text) {
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (c != ' ' || depth > 0) {
      words.back() += c;
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

Result<base::Bytes> parse_memory(const std::string& text) {
  int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  const std::string_view unit(rest, static_cast<size_t>(end - rest));
  const int64_t factor = unit == "B" ? 1 : unit == "KiB" ? 1 << 10 : unit == "MiB" ? 1 << 20 : 0;
  if (error != std::errc() || factor == 0)
    return malformed("memory must be a number with B, KiB or MiB, not " + text);
  return base::Bytes{number * factor};
}

Status read_run(std::string_view text, GoldenFile& file) {
  for (const std::string& word : split_words(text)) {
    const size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (key == "passes") {
      file.passes = value;
    } else if (key == "state" && value == "hidden") {
      file.shows_state = false;
    } else if (key == "cost") {
      file.cost = value;
    } else if (key == "reduction-order" && (value == "per-step" || value == "per-micro-batch")) {
      file.options.reduction_order =
          value == "per-step" ? ReductionOrder::PerStep : ReductionOrder::PerMicroBatch;
    } else if (key == "recompute" && (value == "full" || value == "off")) {
      file.options.recompute = value == "full" ? Recompute::Full : Recompute::Off;
    } else if (key == "providers" && value == "native") {
      file.options.providers = Providers::Native;
    } else if (key == "device" && value == "cuda") {
      file.options.device = base::DeviceKind::Cuda;
    } else if (key == "memory") {
      DC_ASSIGN_OR_RETURN(file.options.budgets[ir::Space::Device], parse_memory(value));
    } else if (key == "host-memory") {
      DC_ASSIGN_OR_RETURN(file.options.budgets[ir::Space::Host], parse_memory(value));
    } else if (key == "offload-space" && (value == "host" || value == "disk")) {
      file.options.offload_space = value == "host" ? ir::Space::Host : ir::Space::Disk;
    } else {
      return malformed("RUN does not understand '" + word + "'");
    }
  }
  return file.passes.empty() ? malformed("RUN names no passes") : Status();
}

Status read_expectation(std::string_view text, GoldenFile& file) {
  if (text == "changed") {
    file.expectation = Expectation::Changed;
  } else if (text == "unchanged") {
    file.expectation = Expectation::Unchanged;
  } else if (text.starts_with("error DC")) {
    file.expectation = Expectation::Error;
    file.error_code = text.substr(6);
  } else {
    return malformed("EXPECT must be changed, unchanged or error DCnnnn, not '" +
                     std::string(text) + "'");
  }
  return {};
}

bool take(std::string_view line, std::string_view key, std::string_view& rest) {
  if (!line.starts_with(key)) return false;
  rest = line.substr(key.size());
  return true;
}

}  // namespace

Result<GoldenFile> parse_golden(std::string_view text) {
  GoldenFile file;
  bool runs = false, expects = false;
  while (text.starts_with("//")) {
    const size_t end = std::min(text.find('\n'), text.size() - 1);
    const std::string_view line = text.substr(0, end);
    std::string_view rest;
    if (take(line, "// EXPECT: ", rest)) {
      DC_RETURN_IF_ERROR(read_expectation(rest, file));
      expects = true;
    } else if (take(line, "// REMARK: ", rest)) {
      file.remarks.emplace_back(rest);
    } else {
      if (take(line, "// RUN: ", rest)) {
        DC_RETURN_IF_ERROR(read_run(rest, file));
        runs = true;
      }
      file.head += std::string(line) + "\n";
    }
    text.remove_prefix(end + 1);
  }
  if (!runs || !expects)
    return malformed("a golden file starts with a RUN line, a comment and an EXPECT line");
  const size_t separator = text.find(kSeparator);
  file.input = text.substr(0, separator);
  if (separator != std::string_view::npos) file.output = text.substr(separator + kSeparator.size());
  return file;
}

std::string print_golden(const GoldenFile& file) {
  std::string out = file.head + "// EXPECT: ";
  switch (file.expectation) {
    case Expectation::Changed:
      out += "changed\n";
      break;
    case Expectation::Unchanged:
      out += "unchanged\n";
      break;
    case Expectation::Error:
      out += "error " + file.error_code + "\n";
      break;
  }
  for (const std::string& remark : file.remarks) out += "// REMARK: " + remark + "\n";
  out += file.input;
  return file.output.empty() ? out : out + std::string(kSeparator) + file.output;
}

std::string without_state(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t size = std::min(text.find('\n'), text.size() - 1) + 1;
    const std::string_view line = text.substr(0, size);
    const bool is_read =
        line.starts_with("    %") && line.find(" = state(") != std::string_view::npos;
    if (!line.starts_with("  state ") && !is_read) out += line;
    text.remove_prefix(size);
  }
  return out;
}

std::vector<std::filesystem::path> golden_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".dcir") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace dc::passes
