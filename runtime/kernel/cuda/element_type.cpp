#include "runtime/kernel/cuda/element_type.h"

namespace dc::runtime::kernel::cuda {

using base::DType;

const char* element_type(DType dtype) {
  switch (dtype) {
    case DType::U8:
      return "scalar::uint8_t";
    case DType::I8:
      return "scalar::int8_t";
    case DType::I16:
      return "scalar::int16_t";
    case DType::I32:
      return "scalar::int32_t";
    case DType::I64:
      return "scalar::int64_t";
    case DType::F16:
      return "scalar::F16";
    case DType::F32:
      return "float";
    case DType::F64:
      return "double";
    case DType::Bool:
      return "scalar::Bool";
    case DType::BF16:
      return "scalar::BF16";
  }
  return "float";
}

}  // namespace dc::runtime::kernel::cuda
