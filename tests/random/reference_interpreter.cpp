#include "tests/random/reference_interpreter.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "src/base/shape.h"
#include "tests/random/elementwise_ops.h"

namespace dc::test {
namespace {

using base::DType;
using runtime::plan::Arg;
using runtime::plan::ArgKind;
using Kind = ElementwiseArgument::Kind;

// A floating-point format: bits of the mantissa with its leading one, exponent of the smallest
// normal number and of the largest.
struct Format {
  int digits, least, most;
};
constexpr Format kF16{11, -14, 15}, kBf16{8, -126, 127};

bool is_short(DType dtype) { return dtype == DType::F16 || dtype == DType::BF16; }
Format format_of(DType dtype) { return dtype == DType::F16 ? kF16 : kBf16; }

// To the nearest number of the format, to even of two.
double rounded(double x, const Format& format) {
  if (x == 0 || !std::isfinite(x)) return x;
  const int exponent = std::max(std::ilogb(x), format.least);
  const int unit = exponent - format.digits + 1;
  const double result = std::ldexp(std::nearbyint(std::ldexp(x, -unit)), unit);
  const double largest = std::ldexp(2 - std::ldexp(1.0, 1 - format.digits), format.most);
  return std::abs(result) > largest ? std::copysign(HUGE_VAL, x) : result;
}

uint64_t short_bits(double x, const Format& format) {
  const int mantissa_bits = format.digits - 1, exponent_bits = 16 - format.digits;
  const uint64_t sign = std::signbit(x) ? 0x8000 : 0;
  const uint64_t all_ones = ((uint64_t{1} << exponent_bits) - 1) << mantissa_bits;
  if (std::isnan(x)) return all_ones | uint64_t{1} << (mantissa_bits - 1);
  if (std::isinf(x)) return sign | all_ones;
  // Counted in the unit of subnormal numbers, neighbours of one binade differ by a power of two.
  const double size = std::abs(x);
  if (size < std::ldexp(1.0, format.least))
    return sign | static_cast<uint64_t>(std::ldexp(size, mantissa_bits - format.least));
  const int exponent = std::ilogb(size);
  const auto mantissa = static_cast<uint64_t>(std::ldexp(size, mantissa_bits - exponent));
  const uint64_t biased = static_cast<uint64_t>(exponent - format.least) + 1;
  return sign | biased << mantissa_bits | (mantissa & ((uint64_t{1} << mantissa_bits) - 1));
}

double short_value(uint64_t bits, const Format& format) {
  const int mantissa_bits = format.digits - 1;
  const auto mantissa = static_cast<double>(bits & ((uint64_t{1} << mantissa_bits) - 1));
  const int biased = static_cast<int>((bits & 0x7fff) >> mantissa_bits);
  double size = std::ldexp(mantissa, format.least - mantissa_bits);
  if (biased == format.most - format.least + 2)
    size = mantissa == 0 ? HUGE_VAL : std::numeric_limits<double>::quiet_NaN();
  else if (biased > 0)
    size = std::ldexp(1 + std::ldexp(mantissa, -mantissa_bits), biased + format.least - 1);
  return (bits & 0x8000) != 0 ? -size : size;
}

int64_t integer_value(uint64_t bits, DType dtype) {
  switch (dtype) {
    case DType::I8:
      return static_cast<int8_t>(bits);
    case DType::I16:
      return static_cast<int16_t>(bits);
    case DType::I32:
      return static_cast<int32_t>(bits);
    default:
      return static_cast<int64_t>(bits);
  }
}
double floating_value(uint64_t bits, DType dtype) {
  if (dtype == DType::F32)
    return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  if (dtype == DType::F64) return std::bit_cast<double>(bits);
  return short_value(bits, format_of(dtype));
}

// The bounds of an integer type.
std::pair<int64_t, int64_t> bounds(DType dtype) {
  if (dtype == DType::U8) return {0, 255};
  const int64_t most = INT64_MAX >> (64 - 8 * base::byte_size(dtype));
  return {-most - 1, most};
}

uint64_t low_bits(int64_t value, DType dtype) {
  const int64_t width = 8 * base::byte_size(dtype);
  const auto bits = static_cast<uint64_t>(value);
  return width == 64 ? bits : bits & ((uint64_t{1} << width) - 1);
}

// What a number of the type that is computed in becomes as an element.
template <typename T>
uint64_t element_of(T x, DType dtype) {
  if (dtype == DType::Bool) return x != T{} ? 1 : 0;
  if (is_short(dtype)) {
    const double near = static_cast<double>(static_cast<float>(x));
    return short_bits(rounded(near, format_of(dtype)), format_of(dtype));
  }
  if (dtype == DType::F32) return std::bit_cast<uint32_t>(static_cast<float>(x));
  if (dtype == DType::F64) return std::bit_cast<uint64_t>(static_cast<double>(x));
  if constexpr (std::is_integral_v<T>) {
    return low_bits(x, dtype);
  } else {
    const auto [least, most] = bounds(dtype);
    if (std::isnan(x)) return 0;
    const auto wide = static_cast<double>(x);
    if (wide <= static_cast<double>(least)) return low_bits(least, dtype);
    if (wide >= static_cast<double>(most)) return low_bits(most, dtype);
    return low_bits(static_cast<int64_t>(x), dtype);
  }
}

// An element in the type that is computed in.
template <typename T>
T number_of(uint64_t bits, DType dtype) {
  return base::is_floating(dtype) ? static_cast<T>(floating_value(bits, dtype))
                                  : static_cast<T>(integer_value(bits, dtype));
}

// Arguments of one instruction.
class Arguments {
 public:
  Arguments(const ElementwiseOp& op, const runtime::plan::Instruction& instruction,
            const std::vector<Elements>& operands)
      : op_(op), instruction_(instruction), operands_(operands) {}

  const Arg* find(std::string_view name) const {
    const auto found = std::ranges::find(instruction_.args, name, &Arg::name);
    return found == instruction_.args.end() ? nullptr : &*found;
  }
  // The tensor argument with this name.
  const Elements& tensor(std::string_view name) const {
    size_t number = 0;
    for (const Arg& arg : instruction_.args) {
      if (arg.name == name) break;
      number += arg.kind == ArgKind::Tensor ? 1 : 0;
    }
    return operands_[number];
  }
  // A factor that is not given is 1.
  template <typename T>
  T number(std::string_view name) const {
    const Arg* arg = find(name);
    if (arg == nullptr) return T{1};
    return arg->kind == ArgKind::Float ? static_cast<T>(arg->f) : static_cast<T>(arg->i);
  }

  DType common() const {
    std::vector<WeightedType> types;
    for (const ElementwiseArgument& argument : op_.arguments) {
      if (argument.kind == Kind::Tensor) {
        const Elements& elements = tensor(argument.name);
        types.push_back({elements.dtype, elements.sizes.empty() ? 1 : 0});
      } else if (argument.kind == Kind::Scalar) {
        types.push_back({find(argument.name)->kind == ArgKind::Float ? DType::F32 : DType::I64, 2});
      }
    }
    return common_type(types);
  }

 private:
  const ElementwiseOp& op_;
  const runtime::plan::Instruction& instruction_;
  const std::vector<Elements>& operands_;
};

// The place in an operand's elements of what the result's element at `at` reads.
size_t place_in(const Elements& operand, const std::vector<int64_t>& at) {
  size_t place = 0;
  const size_t before = at.size() - operand.sizes.size();
  for (size_t dim = 0; dim < operand.sizes.size(); ++dim) {
    const int64_t size = operand.sizes[dim];
    place =
        place * static_cast<size_t>(size) + static_cast<size_t>(size == 1 ? 0 : at[before + dim]);
  }
  return place;
}

bool next(std::vector<int64_t>& at, const std::vector<int64_t>& sizes) {
  for (size_t dim = at.size(); dim-- > 0;) {
    if (++at[dim] < sizes[dim]) return true;
    at[dim] = 0;
  }
  return false;
}

// A mask of the operands that an operator of 16-bit elements rounds to their common type before it
// computes: of comparisons, powers, sums and differences both, of products and quotients the first.
unsigned rounded_operands(const ElementwiseOp& op) {
  const auto is_one_of = [&op](std::initializer_list<std::string_view> stems) {
    return std::ranges::any_of(stems, [&op](auto stem) { return op.overload.starts_with(stem); });
  };
  const size_t values = op.count(Kind::Tensor) + op.count(Kind::Scalar);
  if (op.gives == ElementwiseOp::Gives::Truth) return values == 2 ? 3 : 0;
  if (is_one_of({"aten.pow.", "aten.add.", "aten.sub.", "aten.rsub."})) return 3;
  return is_one_of({"aten.mul.", "aten.div.", "aten.floor_divide."}) ? 1 : 0;
}

template <typename T>
class Evaluation {
 public:
  Evaluation(const ElementwiseOp& op, T (*compute)(const Operands<T>&), DType common,
             const Arguments& arguments)
      : op_(op),
        compute_(compute),
        common_(common),
        rounded_(is_short(common) ? rounded_operands(op) : 0),
        arguments_(arguments) {
    fixed_.of_bools = common == DType::Bool;
    T* numbers[] = {&fixed_.a, &fixed_.b};
    size_t number = 0;
    for (const ElementwiseArgument& argument : op.arguments) {
      if (argument.kind == Kind::Number) {
        const T value = arguments.template number<T>(argument.name);
        *numbers[number++] = argument.name == "alpha" ? shortened(value, 1) : value;
      }
      if (argument.kind == Kind::Word && arguments.find(argument.name) != nullptr)
        fixed_.has_word = arguments.find(argument.name)->s == second_word(argument.name);
    }
  }

  T at(const std::vector<int64_t>& place) const {
    Operands<T> operands = fixed_;
    T* values[] = {&operands.x, &operands.y, &operands.z};
    size_t value = 0;
    for (const ElementwiseArgument& argument : op_.arguments) {
      if (argument.kind == Kind::Scalar) {
        *values[value] = shortened(arguments_.template number<T>(argument.name), value);
        ++value;
      }
      if (argument.kind != Kind::Tensor && argument.kind != Kind::Mask) continue;
      const Elements& tensor = arguments_.tensor(argument.name);
      const T element = number_of<T>(tensor.bits[place_in(tensor, place)], tensor.dtype);
      if (argument.kind == Kind::Mask) operands.mask = element != T{};
      if (argument.kind == Kind::Tensor) {
        *values[value] = shortened(element, value);
        ++value;
      }
    }
    return compute_(operands);
  }

 private:
  // Of operand number `operand`.
  T shortened(T x, size_t operand) const {
    const bool rounds = (rounded_ >> operand & 1) != 0;
    return rounds ? static_cast<T>(rounded(static_cast<double>(x), format_of(common_))) : x;
  }

  const ElementwiseOp& op_;
  T (*compute_)(const Operands<T>&);
  const DType common_;
  const unsigned rounded_;
  const Arguments& arguments_;
  Operands<T> fixed_;
};

template <typename T>
void evaluate(const ElementwiseOp& op, T (*compute)(const Operands<T>&), DType common,
              const Arguments& arguments, Elements& result) {
  const Evaluation<T> evaluation(op, compute, common, arguments);
  std::vector<int64_t> at(result.sizes.size());
  for (uint64_t& bits : result.bits) {
    bits = element_of(evaluation.at(at), result.dtype);
    next(at, result.sizes);
  }
}

bool is_nan(uint64_t bits, DType dtype) {
  return base::is_floating(dtype) && std::isnan(floating_value(bits, dtype));
}

// A few units in the last place of a number as large as 1.
double precision(DType dtype) {
  switch (dtype) {
    case DType::F64:
      return 1e-13;
    case DType::F16:
      return 4e-3;
    case DType::BF16:
      return 3e-2;
    default:
      return 4e-6;
  }
}

constexpr double kMostKnown = 1e6;

bool are_close(double found, double expected, double scale, DType dtype) {
  if (std::isinf(found) || std::isinf(expected)) {
    // One of them may have been rounded to the largest number.
    const double largest = dtype == DType::F16 ? 65504
                           : dtype == DType::F64
                               ? std::numeric_limits<double>::max()
                               : static_cast<double>(std::numeric_limits<float>::max());
    return std::signbit(found) == std::signbit(expected) &&
           std::min(std::abs(found), std::abs(expected)) >= 0.99 * largest;
  }
  return std::abs(found - expected) <= precision(dtype) * (std::abs(expected) + scale) + 1e-7;
}

// Of bools, integers and floating-point numbers.
int rank_of(DType dtype) { return base::is_floating(dtype) ? 2 : dtype != DType::Bool ? 1 : 0; }

DType wider(DType a, DType b) {
  if (a == b) return a;
  if (rank_of(a) != rank_of(b)) return rank_of(a) > rank_of(b) ? a : b;
  if (rank_of(a) < 2) return DType::I64;  // in which all are computed
  return a == DType::F64 || b == DType::F64 ? DType::F64 : DType::F32;
}

}  // namespace

DType common_type(std::span<const WeightedType> types) {
  std::optional<DType> common;
  for (int weight = 0; weight < 3; ++weight) {
    std::optional<DType> of_weight;
    for (const WeightedType& type : types) {
      if (type.weight == weight) of_weight = of_weight ? wider(*of_weight, type.dtype) : type.dtype;
    }
    if (of_weight && (!common || rank_of(*of_weight) > rank_of(*common))) common = of_weight;
  }
  return *common;
}

template <typename T>
T value_of(uint64_t bits, DType dtype) {
  return number_of<T>(bits, dtype);
}
template <typename T>
uint64_t bits_of(T value, DType dtype) {
  return element_of<T>(value, dtype);
}
template float value_of(uint64_t bits, DType dtype);
template double value_of(uint64_t bits, DType dtype);
template int64_t value_of(uint64_t bits, DType dtype);
template uint64_t bits_of(float value, DType dtype);
template uint64_t bits_of(double value, DType dtype);
template uint64_t bits_of(int64_t value, DType dtype);

Elements read_elements(const runtime::kernel::BoundTensor& tensor) {
  Elements elements{tensor.dtype, {tensor.sizes.begin(), tensor.sizes.end()}, {}};
  elements.bits.resize(static_cast<size_t>(base::numel(elements.sizes)));
  const auto width = static_cast<size_t>(base::byte_size(tensor.dtype));
  std::vector<int64_t> at(elements.sizes.size());
  for (uint64_t& bits : elements.bits) {
    int64_t place = 0;
    for (size_t dim = 0; dim < at.size(); ++dim) place += at[dim] * tensor.strides[dim];
    std::memcpy(&bits, static_cast<const char*>(tensor.data) + place * static_cast<int64_t>(width),
                width);
    next(at, elements.sizes);
  }
  return elements;
}

Elements interpret(const runtime::plan::Instruction& instruction,
                   const std::vector<Elements>& operands, DType dtype,
                   const std::vector<int64_t>& sizes) {
  const ElementwiseOp& op = *find_elementwise(instruction.op);
  const Arguments arguments(op, instruction, operands);
  DType common = arguments.common();
  if (!base::is_floating(common) && base::is_floating(dtype)) common = dtype;
  Elements result{dtype, sizes, std::vector<uint64_t>(static_cast<size_t>(base::numel(sizes)))};
  if (common == DType::F64)
    evaluate(op, op.in_f64, common, arguments, result);
  else if (base::is_floating(common))
    evaluate(op, op.in_f32, common, arguments, result);
  else
    evaluate(op, op.in_i64, common, arguments, result);
  return result;
}

std::string difference(const Elements& found, const Elements& expected, bool is_close,
                       const std::vector<Elements>& operands) {
  if (found.dtype != expected.dtype || found.sizes != expected.sizes) return "types";
  std::vector<int64_t> at(found.sizes.size());
  for (size_t i = 0; i < found.bits.size(); ++i, next(at, found.sizes)) {
    const uint64_t a = found.bits[i], b = expected.bits[i];
    if (a == b || (is_nan(a, found.dtype) && is_nan(b, found.dtype))) continue;
    if (is_close && base::is_floating(found.dtype)) {
      double scale = 0;
      for (const Elements& operand : operands) {
        const double value = number_of<double>(operand.bits[place_in(operand, at)], operand.dtype);
        scale = std::max(scale, std::isnan(value) ? HUGE_VAL : std::abs(value));
      }
      if (scale > kMostKnown) continue;
      if (are_close(floating_value(a, found.dtype), floating_value(b, found.dtype), scale,
                    found.dtype))
        continue;
    }
    char text[96];
    std::snprintf(text, sizeof(text), "element %zu: 0x%lx, not 0x%lx", i, a, b);
    return text;
  }
  return "";
}

}  // namespace dc::test
