#include "src/base/kernel_signature.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "src/base/enum_names.h"
#include "src/base/kernel_items.h"
#include "src/base/shape.h"
#include "src/base/status.h"

namespace dc::base {
namespace {

constexpr auto kProviders = enum_names<Provider>({"aten", "native", "fused"});
constexpr std::string_view kOwn = "dc.";  // begins the names of the project's own operators
constexpr size_t kWord = sizeof(int64_t), kUsualWords = 64;
constexpr int kFirst = 8, kSecond = 32;  // bits of a head at which its two sizes begin

size_t words_of(size_t bytes) { return (bytes + kWord - 1) / kWord; }
size_t first_of(int64_t head) {
  return static_cast<size_t>(static_cast<uint64_t>(head) >> kFirst & 0xFFFFFF);
}
size_t second_of(int64_t head) {
  return static_cast<size_t>(static_cast<uint64_t>(head) >> kSecond);
}

std::string_view bytes_at(const int64_t* words, size_t size) {
  return {reinterpret_cast<const char*>(words), size};
}

// The integer that a double is.
std::optional<int64_t> whole(double value) {
  constexpr double kEnd = 0x1p63;
  if (!(value >= -kEnd && value < kEnd) || std::trunc(value) != value) return std::nullopt;
  return static_cast<int64_t>(value);
}

int64_t bits_of(double value) {
  return std::bit_cast<int64_t>(std::isnan(value) ? std::numeric_limits<double>::quiet_NaN()
                                                  : value);
}

uint8_t number(KernelItemKind kind) { return static_cast<uint8_t>(kind); }

}  // namespace

std::string_view name(Provider provider) { return enum_name(kProviders, provider); }

std::optional<Provider> provider_from_name(std::string_view name) {
  return enum_value<Provider>(kProviders, name);
}

int64_t TensorMeta::numel() const { return base::numel(shape); }

int64_t TensorMeta::bytes() const { return numel() * byte_size(dtype); }

bool TensorMeta::is_contiguous() const { return base::is_contiguous(shape, strides); }

KernelSignature::KernelSignature(std::string_view op, Provider provider, Space space) {
  words_.reserve(kUsualWords);
  add_head(static_cast<uint8_t>(provider), static_cast<size_t>(space), op.size());
  add_bytes(op);
}

// FxHash, of Firefox and rustc: rotate, xor, multiply.
void KernelSignature::add(int64_t word) {
  hash_ = (std::rotl(hash_, 5) ^ static_cast<uint64_t>(word)) * 0x9E3779B97F4A7C15u;
  words_.push_back(word);
}

void KernelSignature::add_bytes(std::string_view bytes) {
  for (size_t at = 0; at < bytes.size(); at += kWord) {
    int64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min(kWord, bytes.size() - at));
    add(word);
  }
}

void KernelSignature::add_head(uint8_t kind, size_t first, size_t second) {
  add(static_cast<int64_t>(uint64_t{kind} | uint64_t{first} << kFirst |
                           uint64_t{second} << kSecond));
}

void KernelSignature::add_named(uint8_t kind, std::string_view name, size_t size) {
  add_head(kind, name.size(), size);
  add_bytes(name);
}

void KernelSignature::add_tensor(DType dtype, std::span<const int64_t> shape,
                                 std::span<const int64_t> strides) {
  DC_CHECK(shape.size() == strides.size());
  add_head(number(KernelItemKind::Tensor), static_cast<size_t>(dtype), shape.size());
  for (const int64_t size : shape) add(size);
  for (const int64_t stride : strides) add(stride);
}

void KernelSignature::add_none() { add_head(number(KernelItemKind::NoTensor), 0, 0); }
void KernelSignature::begin_results() { add_head(number(KernelItemKind::Results), 0, 0); }

void KernelSignature::add_attribute(std::string_view name) {
  if (has_attributes()) add_named(number(KernelItemKind::None), name, 0);
}

void KernelSignature::add_attribute(std::string_view name, int64_t value) {
  if (!has_attributes()) return;
  add_named(number(KernelItemKind::Int), name, 1);
  add(value);
}

void KernelSignature::add_attribute(std::string_view name, double value) {
  if (const auto integer = whole(value)) return add_attribute(name, *integer);
  if (!has_attributes()) return;
  add_named(number(KernelItemKind::Double), name, 1);
  add(bits_of(value));
}

void KernelSignature::add_attribute(std::string_view name, std::string_view value) {
  if (value == "none") return add_attribute(name);
  if (!has_attributes()) return;
  add_named(number(KernelItemKind::String), name, value.size());
  add_bytes(value);
}

void KernelSignature::add_attribute(std::string_view name, std::span<const int64_t> values) {
  if (!has_attributes()) return;
  add_named(number(KernelItemKind::Ints), name, values.size());
  for (const int64_t value : values) add(value);
}

void KernelSignature::add_attribute(std::string_view name, std::span<const double> values) {
  if (!has_attributes()) return;
  const bool integers =
      std::all_of(values.begin(), values.end(), [](double value) { return whole(value); });
  add_named(number(integers ? KernelItemKind::Ints : KernelItemKind::Doubles), name, values.size());
  for (const double value : values) add(integers ? *whole(value) : bits_of(value));
}

std::string_view KernelSignature::op() const {
  return words_.empty() ? std::string_view() : bytes_at(words_.data() + 1, second_of(words_[0]));
}

Provider KernelSignature::provider() const {
  return words_.empty() ? Provider::Aten : static_cast<Provider>(words_[0] & 0xFF);
}

Space KernelSignature::space() const {
  return words_.empty() ? Space::Device : static_cast<Space>(first_of(words_[0]));
}

KernelSignature KernelSignature::in(Space space) const {
  KernelSignature other(op(), provider(), space);
  for (size_t i = other.words_.size(); i < words_.size(); ++i) other.add(words_[i]);
  return other;
}

bool KernelSignature::has_attributes() const {
  return provider() == Provider::Fused || !op().starts_with(kOwn);
}

KernelTensors KernelSignature::tensors() const {
  KernelTensors all;
  KernelItems items(*this);
  bool results = false;
  while (const auto item = items.next()) {
    results = results || item->kind == KernelItemKind::Results;
    if (item->kind == KernelItemKind::Tensor && !results) all.inputs.push_back(item->tensor);
    if (item->kind == KernelItemKind::Tensor && results) all.results.emplace_back(item->tensor);
    if (item->kind == KernelItemKind::NoTensor && results) all.results.emplace_back();
  }
  return all;
}

KernelItems::KernelItems(const KernelSignature& signature) : rest_(signature.words_) {
  if (!rest_.empty()) rest_ = rest_.subspan(1 + words_of(second_of(rest_[0])));
}

std::span<const int64_t> KernelItems::take(size_t words) {
  const auto taken = rest_.first(words);
  rest_ = rest_.subspan(words);
  return taken;
}

std::string_view KernelItems::take_bytes(size_t size) {
  return bytes_at(take(words_of(size)).data(), size);
}

std::optional<KernelItem> KernelItems::next() {
  if (rest_.empty()) return std::nullopt;
  const int64_t head = take(1)[0];
  const size_t first = first_of(head), second = second_of(head);
  KernelItem item;
  item.kind = static_cast<KernelItemKind>(head & 0xFF);
  switch (item.kind) {
    case KernelItemKind::Tensor:
      item.tensor.dtype = static_cast<DType>(first);
      item.tensor.shape = take(second);
      item.tensor.strides = take(second);
      break;
    case KernelItemKind::NoTensor:
    case KernelItemKind::Results:
      break;
    case KernelItemKind::None:
    case KernelItemKind::Int:
    case KernelItemKind::Double:
    case KernelItemKind::Ints:
    case KernelItemKind::Doubles:
      item.name = take_bytes(first);
      item.values = take(second);
      break;
    case KernelItemKind::String:
      item.name = take_bytes(first);
      item.text = take_bytes(second);
      break;
  }
  return item;
}

}  // namespace dc::base
