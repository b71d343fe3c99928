// KernelSignature: the identity of a kernel, everything that its time and its scratch memory depend
// on: operator, provider, the space it works on, attributes, and element type, shape and strides of
// each tensor that it reads and writes. The compiler makes it from a node of its graph, the runtime
// from an instruction of a plan; both give the same one.
//
// Compared and hashed by value. Text is for prof.json and for people:
//   "aten.mm.default f32[64,32](32,1) f32[32,8](1,32) -> f32[64,8](8,1)"
// Attributes stand among the operands as `name=value`. A number is its value, whatever its type: 1,
// 1.0 and true are one attribute, as are None and the word none. The project's own operators
// ("dc.adamw") have no attributes in it, since they are indices of parameters and groups, but for
// the expression of a fused kernel.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/dtype.h"
#include "src/base/step_enums.h"

namespace dc::base {

// Who supplies a kernel.
enum class Provider : uint8_t { Aten = 0, Native = 1, Fused = 2 };
std::string_view name(Provider provider);  // "aten"
std::optional<Provider> provider_from_name(std::string_view name);

// A tensor as a kernel sees it. The lists belong to the signature.
struct TensorMeta {
  DType dtype = DType::F32;
  std::span<const int64_t> shape, strides;  // elements
  int64_t numel() const;
  int64_t bytes() const;  // numel() * element size
  bool is_contiguous() const;
};
struct KernelTensors {
  std::vector<TensorMeta> inputs;                  // in order of arguments
  std::vector<std::optional<TensorMeta>> results;  // empty: None, or not wanted
};

class KernelSignature {
 public:
  KernelSignature() = default;  // of no kernel
  KernelSignature(std::string_view op, Provider provider, Space space = Space::Device);

  // Arguments in the order of the operator's schema, then results.
  void add_tensor(DType dtype, std::span<const int64_t> shape, std::span<const int64_t> strides);
  void add_none();  // no tensor where there may be one
  void begin_results();
  void add_attribute(std::string_view name);  // None
  void add_attribute(std::string_view name, int64_t value);
  void add_attribute(std::string_view name, double value);
  void add_attribute(std::string_view name, std::string_view value);
  void add_attribute(std::string_view name, std::span<const int64_t> values);
  void add_attribute(std::string_view name, std::span<const double> values);

  std::string_view op() const;  // "aten.mm.default", "dc.cast"
  Provider provider() const;
  Space space() const;
  KernelSignature in(Space space) const;  // the same kernel on another space
  KernelTensors tensors() const;
  bool has_attributes() const;  // whether the operator's attributes count

  uint64_t hash() const { return hash_ ^ hash_ >> 32; }
  bool operator==(const KernelSignature& other) const {
    return hash_ == other.hash_ && words_ == other.words_;
  }
  // Some total order, the same in every process.
  std::strong_ordering operator<=>(const KernelSignature& other) const {
    return words_ <=> other.words_;
  }

  std::string text() const;  // without the provider and the space
  // What text() gave; nothing if it cannot have given it.
  static std::optional<KernelSignature> parse(std::string_view text, Provider provider,
                                              Space space = Space::Device);

 private:
  friend class KernelItems;
  void add(int64_t word);
  void add_bytes(std::string_view bytes);
  // The head of an item: what it is, and two sizes.
  void add_head(uint8_t kind, size_t first, size_t second);
  void add_named(uint8_t kind, std::string_view name, size_t size);

  // Provider, space and operator, then items: a head, the attribute's name, and what the head
  // announces.
  std::vector<int64_t> words_;
  uint64_t hash_ = 0;
};

struct KernelSignatureHash {
  size_t operator()(const KernelSignature& signature) const noexcept {
    return static_cast<size_t>(signature.hash());
  }
};

}  // namespace dc::base
