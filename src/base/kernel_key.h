// The name under which a kernel's time is kept in a profile: the operator with everything its speed
// depends on. Built from a plan instruction by the runtime and from an IR node by the compiler;
// equal instructions give equal text.
//
// "aten.mm.default f32[64,32](32,1) f32[32,8](1,32) -> f32[64,8](8,1)"; native ops leave out their
// attributes (indices of parameters and groups).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "src/base/dtype.h"

namespace dc::base {

class KernelKey {
 public:
  explicit KernelKey(std::string_view op);
  void tensor(DType dtype, std::span<const int64_t> sizes, std::span<const int64_t> strides);
  void none();
  void begin_results();  // tensors added from here on are results
  void attribute(std::string_view name, std::string_view value);
  void attribute(std::string_view name, int64_t value);
  void attribute(std::string_view name, double value);
  void attribute(std::string_view name, std::span<const int64_t> values);
  void attribute(std::string_view name, std::span<const double> values);
  bool wants_attributes() const { return attributes_; }  // false for native ops
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  bool attributes_;
};

}  // namespace dc::base
