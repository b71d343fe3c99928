#include "tests/fuzz/kernel_instructions.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>

#include "src/base/checked.h"

namespace dc::fuzz {
namespace {

using runtime::plan::Arg;
using runtime::plan::ArgKind;

[[noreturn]] void reject(std::string_view text) {
  std::fprintf(stderr, "this is no part of an instruction: %.*s\n", static_cast<int>(text.size()),
               text.data());
  std::abort();
}

// The parts between `separator`s; none of an empty text.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

std::vector<int64_t> integers(std::string_view text) {
  std::vector<int64_t> numbers;
  for (const std::string_view part : split(text, ',')) {
    int64_t number = 0;
    if (std::from_chars(part.data(), part.data() + part.size(), number).ec != std::errc())
      reject(text);
    numbers.push_back(number);
  }
  return numbers;
}

// "f32[4,8]"; nothing if it is no tensor.
bool read_tensor(std::string_view text, KernelTensor& tensor) {
  const size_t open = text.find('[');
  if (open == std::string_view::npos || text.back() != ']') return false;
  const auto dtype = base::dtype_from_name(text.substr(0, open));
  if (!dtype) return false;
  tensor.dtype = *dtype;
  tensor.sizes = integers(text.substr(open + 1, text.size() - open - 2));
  lay_out(tensor);
  return true;
}

int32_t add_tensor(KernelInstruction& instruction, std::string_view text) {
  if (text == "-") return -1;
  if (text == "@0") return 0;
  KernelTensor tensor;
  if (!read_tensor(text, tensor)) reject(text);
  instruction.tensors.push_back(tensor);
  return static_cast<int32_t>(instruction.tensors.size()) - 1;
}

void read_number(Arg& arg, std::string_view text) {
  const bool fraction = text.find('.') != std::string_view::npos;
  arg.kind = fraction ? ArgKind::Float : ArgKind::Int;
  const char* end = text.data() + text.size();
  const auto read = fraction ? std::from_chars(text.data(), end, arg.f)
                             : std::from_chars(text.data(), end, arg.i);
  if (read.ec != std::errc() || read.ptr != end) reject(text);
}

Arg read_arg(KernelInstruction& instruction, std::string_view part) {
  const size_t equal = part.find('=');
  if (equal == std::string_view::npos) reject(part);
  Arg arg;
  arg.name = part.substr(0, equal);
  const std::string_view text = part.substr(equal + 1);
  KernelTensor tensor;
  if (text.front() == '{') {
    arg.kind = ArgKind::Tensors;
    for (const std::string_view each : split(text.substr(1, text.size() - 2), ';'))
      arg.ints.push_back(add_tensor(instruction, each));
  } else if (text.front() == '[') {
    arg.kind = ArgKind::Ints;
    arg.ints = integers(text.substr(1, text.size() - 2));
  } else if (text.front() == '\'') {
    arg.kind = ArgKind::String;
    arg.s = text.substr(1, text.size() - 2);
  } else if (text == "true" || text == "false") {
    arg.kind = ArgKind::Bool;
    arg.i = text == "true" ? 1 : 0;
  } else if (read_tensor(text, tensor)) {
    arg.kind = ArgKind::Tensor;
    arg.i = add_tensor(instruction, text);
  } else {
    read_number(arg, text);
  }
  return arg;
}

std::string list(const std::vector<int64_t>& numbers) {
  std::string text;
  for (const int64_t number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return text;
}

std::string describe(const KernelInstruction& instruction, int64_t tensor) {
  if (tensor < 0 || tensor >= static_cast<int64_t>(instruction.tensors.size())) return "-";
  const KernelTensor& entry = instruction.tensors[static_cast<size_t>(tensor)];
  return std::string(base::name(entry.dtype)) + "[" + list(entry.sizes) + ":" +
         list(entry.strides) + "]";
}

std::string describe(const KernelInstruction& instruction, const Arg& arg) {
  switch (arg.kind) {
    case ArgKind::Tensor:
      return describe(instruction, arg.i);
    case ArgKind::Tensors: {
      std::string text;
      for (const int64_t tensor : arg.ints)
        text += (text.empty() ? "" : ";") + describe(instruction, tensor);
      return "{" + text + "}";
    }
    case ArgKind::Ints:
      return "[" + list(arg.ints) + "]";
    case ArgKind::Float:
      return std::to_string(arg.f);
    case ArgKind::String:
      return "'" + arg.s + "'";
    case ArgKind::None:
      return "none";
    default:
      return std::to_string(arg.i);
  }
}

}  // namespace

void lay_out(KernelTensor& tensor) {
  tensor.strides.resize(tensor.sizes.size());
  int64_t stride = 1;
  for (size_t dim = tensor.sizes.size(); dim-- > 0;) {
    tensor.strides[dim] = stride;
    stride = base::checked_mul(stride, std::max<int64_t>(tensor.sizes[dim], 1)).value_or(INT64_MAX);
  }
}

KernelInstruction parse(const KernelRow& row) {
  KernelInstruction instruction;
  instruction.op = row.op;
  bool is_result = false;
  for (const std::string_view part : split(row.text, ' ')) {
    if (part == "->") {
      is_result = true;
    } else if (is_result) {
      instruction.outputs.push_back(add_tensor(instruction, part));
    } else {
      instruction.args.push_back(read_arg(instruction, part));
    }
  }
  return instruction;
}

std::string describe(const KernelInstruction& instruction) {
  std::string text = instruction.op;
  for (const Arg& arg : instruction.args) text += " " + arg.name + "=" + describe(instruction, arg);
  text += " ->";
  for (const int32_t output : instruction.outputs) text += " " + describe(instruction, output);
  return text;
}

}  // namespace dc::fuzz
