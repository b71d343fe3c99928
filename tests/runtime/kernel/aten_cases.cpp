#include "tests/runtime/kernel/aten_cases.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "runtime/kernel/native/convert.h"

namespace dc::runtime {
namespace {

using base::DType;

std::vector<int64_t> numbers(const std::string& text) {
  std::vector<int64_t> values;
  if (text == "-") return values;
  std::stringstream stream(text);
  for (std::string item; std::getline(stream, item, ',');) values.push_back(std::stoll(item));
  return values;
}

ExpectedTensor read_tensor(std::istream& stream) {
  std::string dtype, sizes, strides, hex;
  stream >> dtype >> sizes >> strides >> hex;
  ExpectedTensor tensor{true, *base::dtype_from_name(dtype), numbers(sizes), numbers(strides), {}};
  if (hex == "-") return tensor;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    tensor.bytes.push_back(static_cast<uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return tensor;
}

int32_t place_tensor(KernelBench& bench, std::istream& stream) {
  const ExpectedTensor tensor = read_tensor(stream);
  const int32_t id = bench.tensor(tensor.dtype, tensor.sizes, tensor.strides);
  if (!tensor.bytes.empty()) {
    std::memcpy(bench.data<uint8_t>(id), tensor.bytes.data(), tensor.bytes.size());
  }
  return id;
}

plan::Arg read_argument(KernelBench& bench, const std::string& kind, std::istream& stream) {
  plan::Arg arg;
  stream >> arg.name;
  std::string value;
  if (kind == "tensor") return tensor_arg(place_tensor(bench, stream), arg.name);
  if (kind != "none" && kind != "device") stream >> value;
  if (kind == "device") arg.kind = plan::ArgKind::Device;
  if (kind == "int") arg.kind = plan::ArgKind::Int;
  if (kind == "bool") arg.kind = plan::ArgKind::Bool;
  if (kind == "dtype") arg.kind = plan::ArgKind::DType;
  if (kind == "format") arg.kind = plan::ArgKind::MemoryFormat;
  if (kind == "layout") arg.kind = plan::ArgKind::Layout;
  if (kind == "string") arg.kind = plan::ArgKind::String;
  if (kind == "string") arg.s = value;
  if (kind == "format" || kind == "layout") arg.i = std::stoll(value);
  if (kind == "int" || kind == "bool" || kind == "dtype") arg.i = std::stoll(value);
  if (kind == "ints") arg.kind = plan::ArgKind::Ints;
  if (kind == "bools") arg.kind = plan::ArgKind::Bools;
  if (kind == "ints" || kind == "bools") arg.ints = numbers(value);
  if (kind == "float") {
    arg.kind = plan::ArgKind::Float;
    arg.f = std::strtod(value.c_str(), nullptr);
  }
  return arg;
}

}  // namespace

double element(const uint8_t* bytes, DType dtype, int64_t index) {
  const uint8_t* at = bytes + index * base::byte_size(dtype);
  const auto read = [at]<typename T>(T value) {
    std::memcpy(&value, at, sizeof(T));
    return value;
  };
  switch (dtype) {
    case DType::F32:
      return read(float{});
    case DType::F64:
      return read(double{});
    case DType::BF16:
      return kernel::native::widen(read(kernel::native::BF16{}));
    case DType::F16:
      return kernel::native::widen(read(kernel::native::F16{}));
    case DType::I64:
      return static_cast<double>(read(int64_t{}));
    case DType::Bool:
      return read(uint8_t{});
    default:
      return 0;
  }
}

std::vector<AtenCase> read_cases(const char* path, const std::set<std::string>& ops) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::vector<AtenCase> cases;
  bool is_wanted = true;
  for (std::string line; std::getline(file, line);) {
    if (!is_wanted && !line.starts_with("case ")) continue;
    std::istringstream stream(line);
    std::string word;
    stream >> word;
    if (word == "case") {
      AtenCase begun;
      stream >> begun.name >> begun.op;
      is_wanted = ops.empty() || ops.contains(begun.op);
      if (is_wanted) cases.push_back(std::move(begun));
    } else if (word == "out") {
      const bool none = line == "out none";
      cases.back().results.push_back(none ? ExpectedTensor{} : read_tensor(stream));
    } else if (word == "exact") {
      cases.back().exact.push_back(read_tensor(stream));
    } else if (!cases.empty() && word != "end" && word != "types" && word != "gpu" &&
               word != "fault") {
      cases.back().arguments.push_back(line);
    }
  }
  return cases;
}

void add_cuda_attention(std::vector<AtenCase>& cases) {
  constexpr std::string_view kCpu = "_for_cpu";
  const size_t count = cases.size();
  for (size_t i = 0; i < count; ++i) {
    AtenCase added = cases[i];
    const size_t at = added.op.find(kCpu);
    const bool has_mask = std::ranges::any_of(added.arguments, [](const std::string& line) {
      return line.starts_with("tensor attn_mask");
    });
    if (at == std::string::npos || has_mask) continue;
    added.op.erase(at, kCpu.size());
    cases.push_back(std::move(added));
  }
}

const std::vector<AtenCase>& aten_cases() {
  static const std::vector<AtenCase> cases = read_cases(DC_ATEN_CASES);
  return cases;
}

const AtenCase& aten_case(const std::string& name) {
  for (const AtenCase& test : aten_cases()) {
    if (test.name == name) return test;
  }
  ADD_FAILURE() << "no case " << name;
  return aten_cases().front();
}

plan::Instruction place(KernelBench& bench, const AtenCase& test) {
  plan::Instruction result = instruction(test.op, {});
  for (size_t i = 0; i < test.arguments.size(); ++i) {
    std::istringstream stream(test.arguments[i]);
    std::string kind;
    stream >> kind;
    if (kind != "tensors") {
      result.args.push_back(read_argument(bench, kind, stream));
      continue;
    }
    plan::Arg list;
    list.kind = plan::ArgKind::Tensors;
    int count = 0;
    stream >> list.name >> count;
    for (int item = 0; item < count; ++item) {
      std::istringstream line(test.arguments[++i]);
      line >> kind;
      const plan::Arg one = read_argument(bench, kind, line);
      list.ints.push_back(one.kind == plan::ArgKind::None ? -1 : one.i);
    }
    result.args.push_back(list);
  }
  for (const ExpectedTensor& tensor : test.results) {
    result.outputs.push_back(
        tensor.is_tensor ? bench.tensor(tensor.dtype, tensor.sizes, tensor.strides) : -1);
  }
  return result;
}

double difference(KernelBench& bench, int32_t output, const ExpectedTensor& expected) {
  const uint8_t* actual = bench.data<uint8_t>(output);
  if (expected.bytes.empty() ||
      std::memcmp(actual, expected.bytes.data(), expected.bytes.size()) == 0) {
    return 0;
  }
  if (!base::is_floating(expected.dtype)) return INFINITY;
  double worst = 0, largest = 0;
  const int64_t count =
      static_cast<int64_t>(expected.bytes.size()) / base::byte_size(expected.dtype);
  for (int64_t i = 0; i < count; ++i) {
    const double want = element(expected.bytes.data(), expected.dtype, i);
    const double got = element(actual, expected.dtype, i);
    if (std::isnan(got) != std::isnan(want)) return INFINITY;
    if (std::isnan(want)) continue;
    worst = std::max(worst, std::fabs(got - want));
    largest = std::max(largest, std::fabs(want));
  }
  return worst / std::max(largest, 1e-30);
}

double native_bound(DType dtype) {
  switch (dtype) {
    case DType::F64:
      return 1e-12;
    case DType::F32:
      return 3e-6;
    case DType::F16:
      return 0x1p-9;
    case DType::BF16:
      return 0x1p-6;
    default:
      return 0;
  }
}

int64_t beyond_last_bit(KernelBench& bench, int32_t output, const ExpectedTensor& expected) {
  const bool is_bf16 = expected.dtype == DType::BF16;
  const int digits = is_bf16 ? 8 : 11, least = is_bf16 ? -126 : -14;
  const uint8_t* actual = bench.data<uint8_t>(output);
  const int64_t count = static_cast<int64_t>(expected.bytes.size()) / 2;
  double largest = 0;
  const auto want = [&](int64_t i) { return element(expected.bytes.data(), expected.dtype, i); };
  for (int64_t i = 0; i < count; ++i) {
    if (std::isfinite(want(i))) largest = std::max(largest, std::fabs(want(i)));
  }
  int64_t beyond = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double a = element(actual, expected.dtype, i), b = want(i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const double size = std::max(std::fabs(a), std::fabs(b));
    if (!std::isfinite(size)) {
      ++beyond;
      continue;
    }
    const double last_bit = std::ldexp(1.0, std::max(std::ilogb(size), least) - digits + 1);
    beyond += std::fabs(a - b) > last_bit + 0x1p-20 * largest;
  }
  return beyond;
}

bool has_values(const AtenCase& test) { return test.op.find("empty") == std::string::npos; }

}  // namespace dc::runtime
