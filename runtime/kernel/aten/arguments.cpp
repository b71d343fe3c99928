#include "runtime/kernel/aten/arguments.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/List.h>
#include <ATen/core/jit_type.h>

namespace dc::runtime::kernel::aten {
namespace {

using c10::IValue;
using c10::TypeKind;
using plan::Arg;
using plan::ArgKind;

// Conversion of one argument; no value means that it does not fit the schema's type.
using Converted = std::optional<IValue>;

// A Python number where the schema wants a tensor: it must not take part in type promotion.
at::Tensor wrapped_number(const c10::Scalar& value) {
  at::Tensor tensor = c10::scalar_to_tensor(value);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

Converted convert_number(const c10::Scalar& value, const c10::TypePtr& type, int32_t repeat) {
  const bool integral = !value.isFloatingPoint();
  switch (type->kind()) {
    case TypeKind::NumberType:
      return IValue(value);
    case TypeKind::FloatType:
      return IValue(value.toDouble());
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      return integral ? Converted(IValue(value.toLong())) : std::nullopt;
    case TypeKind::BoolType:
      return integral ? Converted(IValue(value.toBool())) : std::nullopt;
    case TypeKind::TensorType:
      return IValue(wrapped_number(value));
    case TypeKind::ListType: {
      const TypeKind element = type->castRaw<c10::ListType>()->getElementType()->kind();
      if (element == TypeKind::FloatType)
        return IValue(c10::List<double>(std::vector<double>(repeat, value.toDouble())));
      if (!integral || (element != TypeKind::IntType && element != TypeKind::SymIntType))
        return std::nullopt;
      return IValue(c10::List<int64_t>(std::vector<int64_t>(repeat, value.toLong())));
    }
    default:
      return std::nullopt;
  }
}

Converted convert_ints(const std::vector<int64_t>& values, const c10::TypePtr& type) {
  if (type->kind() != TypeKind::ListType) return std::nullopt;
  switch (type->castRaw<c10::ListType>()->getElementType()->kind()) {
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      return IValue(c10::List<int64_t>(values));
    case TypeKind::FloatType:
      return IValue(c10::List<double>(std::vector<double>(values.begin(), values.end())));
    case TypeKind::BoolType: {
      c10::List<bool> list;
      for (int64_t value : values) list.push_back(value != 0);
      return IValue(list);
    }
    default:
      return std::nullopt;
  }
}

Converted convert_floats(const std::vector<double>& values, const c10::TypePtr& type) {
  if (type->kind() != TypeKind::ListType) return std::nullopt;
  if (type->castRaw<c10::ListType>()->getElementType()->kind() != TypeKind::FloatType)
    return std::nullopt;
  return IValue(c10::List<double>(values));
}

Converted convert_tensors(const std::vector<int64_t>& ids, const c10::TypePtr& type,
                          const TensorSource& tensors) {
  if (type->kind() != TypeKind::ListType) return std::nullopt;
  if (type->castRaw<c10::ListType>()->getElementType()->kind() == TypeKind::OptionalType) {
    c10::List<std::optional<at::Tensor>> list;
    for (int64_t id : ids)
      list.push_back(id < 0 ? std::nullopt : std::optional<at::Tensor>(tensors(id)));
    return IValue(list);
  }
  c10::List<at::Tensor> list;
  for (int64_t id : ids) {
    if (id < 0) return std::nullopt;
    list.push_back(tensors(id));
  }
  return IValue(list);
}

Converted convert_dtype(int64_t number) {
  const auto dtype = base::dtype_from_export(number);
  if (!dtype) return std::nullopt;
  return IValue(static_cast<int64_t>(scalar_type(*dtype)));
}

// The export schema's numbering: 7 is strided, the only layout there is here.
Converted convert_layout(int64_t number) {
  if (number != 7) return std::nullopt;
  return IValue(static_cast<int64_t>(c10::Layout::Strided));
}

Converted convert_memory_format(int64_t number) {
  switch (number) {
    case 1:
      return IValue(static_cast<int64_t>(c10::MemoryFormat::Contiguous));
    case 2:
      return IValue(static_cast<int64_t>(c10::MemoryFormat::ChannelsLast));
    case 3:
      return IValue(static_cast<int64_t>(c10::MemoryFormat::ChannelsLast3d));
    case 4:
      return IValue(static_cast<int64_t>(c10::MemoryFormat::Preserve));
    default:
      return std::nullopt;
  }
}

c10::TypePtr without_optional(const c10::TypePtr& type) {
  return type->kind() == TypeKind::OptionalType
             ? type->castRaw<c10::OptionalType>()->getElementType()
             : type;
}

Converted convert(const Arg& arg, const c10::Argument& formal, const TensorSource& tensors) {
  const c10::TypePtr type = without_optional(formal.real_type());
  if (arg.kind == ArgKind::None) return IValue();
  // The plan's devices and generators are those of the export, not of this machine.
  if (type->kind() == TypeKind::DeviceObjType) return IValue(c10::Device(c10::DeviceType::CPU));
  if (type->kind() == TypeKind::GeneratorType || formal.name() == "pin_memory") return IValue();
  if (type->kind() == TypeKind::ScalarTypeType) return convert_dtype(arg.i);
  if (type->kind() == TypeKind::LayoutType) return convert_layout(arg.i);
  if (type->kind() == TypeKind::MemoryFormatType) return convert_memory_format(arg.i);
  switch (arg.kind) {
    case ArgKind::None:
      return IValue();
    case ArgKind::Tensor: {
      if (type->kind() == TypeKind::TensorType) return IValue(tensors(arg.i));
      return convert_tensors({arg.i}, type, tensors);
    }
    case ArgKind::Tensors:
      return convert_tensors(arg.ints, type, tensors);
    case ArgKind::Int:
      return convert_number(c10::Scalar(arg.i), type, formal.N().value_or(1));
    case ArgKind::Bool:
      return convert_number(c10::Scalar(arg.i != 0), type, formal.N().value_or(1));
    case ArgKind::Float:
      return convert_number(c10::Scalar(arg.f), type, formal.N().value_or(1));
    case ArgKind::Ints:
    case ArgKind::Bools:
      return convert_ints(arg.ints, type);
    case ArgKind::Floats:
      return convert_floats(arg.floats, type);
    case ArgKind::String:
      return type->kind() == TypeKind::StringType ? Converted(IValue(arg.s)) : std::nullopt;
    case ArgKind::DType:
      return convert_dtype(arg.i);
    case ArgKind::Device:
      return IValue(c10::Device(c10::DeviceType::CPU));
    case ArgKind::Layout:
      return convert_layout(arg.i);
    case ArgKind::MemoryFormat:
      return convert_memory_format(arg.i);
  }
  return std::nullopt;
}

base::Status refused(const plan::Instruction& instruction, const std::string& problem) {
  return base::Status(base::ErrorKind::Unsupported, "DC6119",
                      "'" + instruction.op + "' cannot be run: " + problem);
}

}  // namespace

c10::ScalarType scalar_type(base::DType dtype) {
  switch (dtype) {
    case base::DType::U8:
      return c10::ScalarType::Byte;
    case base::DType::I8:
      return c10::ScalarType::Char;
    case base::DType::I16:
      return c10::ScalarType::Short;
    case base::DType::I32:
      return c10::ScalarType::Int;
    case base::DType::I64:
      return c10::ScalarType::Long;
    case base::DType::F16:
      return c10::ScalarType::Half;
    case base::DType::F32:
      return c10::ScalarType::Float;
    case base::DType::F64:
      return c10::ScalarType::Double;
    case base::DType::Bool:
      return c10::ScalarType::Bool;
    case base::DType::BF16:
      return c10::ScalarType::BFloat16;
  }
  return c10::ScalarType::Undefined;
}

namespace {

void resolve(const at::Tensor& tensor, const device::Stream& stream) {
  if (!tensor.defined()) return;
  const c10::Storage& storage = tensor.storage();
  void* there = storage.mutable_data();
  void* here = stream.resolve(there);
  if (here == there) return;
  storage.set_data_ptr_noswap(c10::DataPtr(here, c10::Device(c10::DeviceType::CPU)));
}

}  // namespace

void resolve(torch::jit::Stack& stack, const device::Stream& stream) {
  for (const IValue& value : stack) {
    if (value.isTensor()) resolve(value.toTensor(), stream);
    if (!value.isList()) continue;
    for (const IValue& element : value.toListRef()) {
      if (element.isTensor()) resolve(element.toTensor(), stream);
    }
  }
}

base::Result<torch::jit::Stack> build_stack(const c10::FunctionSchema& schema,
                                            const plan::Instruction& instruction,
                                            const TensorSource& tensors) {
  torch::jit::Stack stack;
  stack.reserve(std::max(schema.arguments().size(), schema.returns().size()));
  size_t used = 0;
  for (const c10::Argument& formal : schema.arguments()) {
    const Arg* actual = nullptr;
    for (const Arg& arg : instruction.args) {
      if (arg.name == formal.name()) actual = &arg;
    }
    if (actual == nullptr) {
      if (!formal.default_value())
        return refused(instruction, "its argument '" + formal.name() + "' is missing");
      stack.push_back(*formal.default_value());
      continue;
    }
    ++used;
    Converted value = convert(*actual, formal, tensors);
    if (!value) {
      return refused(instruction, "its argument '" + formal.name() + "' does not fit the type " +
                                      formal.real_type()->str());
    }
    stack.push_back(*std::move(value));
  }
  if (used != instruction.args.size()) {
    return refused(instruction, "the plan gives " + std::to_string(instruction.args.size()) +
                                    " arguments, but only " + std::to_string(used) +
                                    " of them are in libtorch's schema");
  }
  return stack;
}

}  // namespace dc::runtime::kernel::aten
