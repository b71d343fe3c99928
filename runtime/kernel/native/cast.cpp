// cast: the same elements in another type.
#include "runtime/kernel/native/cast.h"

#include "runtime/kernel/native/convert.h"
#include "runtime/kernel/native/registry.h"
#include "runtime/kernel/native/vector_clones.h"

namespace dc::runtime::kernel::native {
namespace {

using base::DType;

template <typename To, typename From>
void convert(void* to, const void* from, int64_t count) {
  auto* target = static_cast<To*>(to);
  const auto* source = static_cast<const From*>(from);
  for (int64_t i = 0; i < count; ++i) target[i] = store<To>(load(source[i]));
}

// The conversions of mixed precision, per vector width. The others are rare and take the plain loop
// above.
#define DC_FAST_CONVERT(name, To, From)                                         \
  DC_VECTOR_CLONES void name(void* to, const void* from, int64_t count) {       \
    auto* __restrict target = static_cast<To*>(to);                             \
    const auto* __restrict source = static_cast<const From*>(from);             \
    for (int64_t i = 0; i < count; ++i) target[i] = store<To>(load(source[i])); \
  }
DC_FAST_CONVERT(bf16_from_f32, BF16, float)
DC_FAST_CONVERT(f16_from_f32, F16, float)
DC_FAST_CONVERT(f32_from_bf16, float, BF16)
DC_FAST_CONVERT(f32_from_f16, float, F16)
DC_FAST_CONVERT(f32_from_f64, float, double)
DC_FAST_CONVERT(f64_from_f32, double, float)
#undef DC_FAST_CONVERT

Convert fast_converter(DType to, DType from) {
  if (to == DType::BF16 && from == DType::F32) return bf16_from_f32;
  if (to == DType::F16 && from == DType::F32) return f16_from_f32;
  if (to == DType::F32 && from == DType::BF16) return f32_from_bf16;
  if (to == DType::F32 && from == DType::F16) return f32_from_f16;
  if (to == DType::F32 && from == DType::F64) return f32_from_f64;
  if (to == DType::F64 && from == DType::F32) return f64_from_f32;
  return nullptr;
}

template <typename To>
Convert converter_to(DType from) {
  switch (from) {
    case DType::U8:
      return convert<To, uint8_t>;
    case DType::I8:
      return convert<To, int8_t>;
    case DType::I16:
      return convert<To, int16_t>;
    case DType::I32:
      return convert<To, int32_t>;
    case DType::I64:
      return convert<To, int64_t>;
    case DType::F16:
      return convert<To, F16>;
    case DType::F32:
      return convert<To, float>;
    case DType::F64:
      return convert<To, double>;
    case DType::Bool:
      return convert<To, Bool>;
    case DType::BF16:
      return convert<To, BF16>;
  }
  return nullptr;
}

}  // namespace

Convert converter(DType to, DType from) {
  if (Convert fast = fast_converter(to, from); fast != nullptr) return fast;
  switch (to) {
    case DType::U8:
      return converter_to<uint8_t>(from);
    case DType::I8:
      return converter_to<int8_t>(from);
    case DType::I16:
      return converter_to<int16_t>(from);
    case DType::I32:
      return converter_to<int32_t>(from);
    case DType::I64:
      return converter_to<int64_t>(from);
    case DType::F16:
      return converter_to<F16>(from);
    case DType::F32:
      return converter_to<float>(from);
    case DType::F64:
      return converter_to<double>(from);
    case DType::Bool:
      return converter_to<Bool>(from);
    case DType::BF16:
      return converter_to<BF16>(from);
  }
  return nullptr;
}

namespace {

class Cast final : public Kernel {
 public:
  Cast(Dense to, Dense from) : to_(to), from_(from), convert_(converter(to.dtype, from.dtype)) {}
  base::Status launch(device::Stream& stream) override {
    if (to_.dtype != from_.dtype) {
      convert_(to_.on<void>(stream), from_.on<const void>(stream), to_.count);
    } else if (to_.data != from_.data) {
      stream.copy(to_.address(), from_.address(), to_.bytes());
    }
    return {};
  }

 private:
  Dense to_, from_;
  Convert convert_;
};

Made make_cast(Call& call) {
  const Dense from = call.operand(0), to = call.result(0);
  call.require(to.count == from.count, "operand and result differ in element count");
  return call.finish<Cast>(to, from);
}

constexpr Row kRows[] = {
    {"dc.cast", make_cast},
};

}  // namespace

std::span<const Row> cast_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
