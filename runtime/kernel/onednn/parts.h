// What kernels on oneDNN are made of: tensors as primitives see them, and the parts of an
// instruction's scratch.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include <string>
#include <string_view>

#include "runtime/kernel/kernel.h"
#include "src/base/units.h"

namespace dc::runtime::kernel::onednn {

inline const dnnl::engine& cpu() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

// Of f32 and bf16, the only element types that come here.
inline dnnl::memory::data_type type_of(base::DType dtype) {
  return dtype == base::DType::BF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

// Whether the CPU multiplies bf16. With AVX-512 alone oneDNN imitates it, which takes twice the
// time of products in f32 and of widening their operands; with less it has no such product.
inline bool multiplies_bf16() {
  const auto has = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto needs = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);  // a set of bits
  return (has & needs) == needs;
}

// oneDNN has no primitive for `what`.
inline base::Status lacks(std::string_view what, const dnnl::error& error) {
  return base::Status(base::ErrorKind::Unsupported, "DC6136",
                      "oneDNN has no such " + std::string(what) + " on this CPU (" + error.what() +
                          "); compile the plan with --providers aten, which takes libtorch's");
}
// A primitive that was made did not run.
inline base::Status failed_to_run(std::string_view what) {
  return base::Status(base::ErrorKind::Internal, "DC6139",
                      "oneDNN could not run a " + std::string(what) + "; please report this");
}

// A tensor as the primitive sees it.
struct Port {
  int argument = 0;
  std::byte* data = nullptr;  // its address on the device
  dnnl::memory::desc desc;
};

// Scratch memory as parts that lie one behind the other; its address is known when all are.
class Parts {
 public:
  int64_t add(int64_t bytes) {
    const int64_t offset = bytes_;
    bytes_ += base::round_up(bytes, base::kAlignment);
    return offset;
  }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
};

}  // namespace dc::runtime::kernel::onednn
