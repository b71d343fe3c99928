#include "runtime/kernel/native/pointwise/pointwise.h"

#include <algorithm>

namespace dc::runtime::kernel::native {

Lane common_lane(Call& call, std::span<const std::string_view> names, int mask) {
  // Numbers do not raise the type of tensors, but to floating point, which the result then has.
  Lane lane = Lane::I64;
  const auto raise = [&lane](base::DType dtype) {
    const Lane of = lane_of(dtype);
    if (of == Lane::F64 || (of == Lane::F32 && lane != Lane::F64)) lane = of;
  };
  for (size_t i = 0; i < names.size(); ++i) {
    if (static_cast<int>(i) == mask) continue;
    if (call.is_tensor(names[i])) raise(call.tensor(names[i]).dtype);
    if (call.is_fraction(names[i]) && lane == Lane::I64) raise(base::DType::F32);
  }
  const base::DType result = call.output(0).dtype;
  if (base::is_floating(result) && lane == Lane::I64) raise(result);
  return lane;
}

PointwiseOperand pointwise_operand(Call& call, std::string_view name, Lane lane) {
  PointwiseOperand operand;
  operand.lane = lane;
  if (call.is_tensor(name)) {
    operand.tensor = call.tensor(name);
    return operand;
  }
  call.require(call.has_value(name), "argument '" + std::string(name) + "' is missing");
  const auto put = [&operand](auto value) {
    std::memcpy(operand.number.data(), &value, sizeof(value));
  };
  if (lane == Lane::F32) put(call.scalar<float>(name));
  if (lane == Lane::F64) put(call.scalar<double>(name));
  if (lane == Lane::I64) put(call.scalar<int64_t>(name));
  if (lane == Lane::Bool) put(static_cast<uint8_t>(call.scalar<double>(name) != 0));
  return operand;
}

void Pointwise::bind(Call& call, const BoundTensor& result, Lane lane,
                     std::span<const PointwiseOperand> operands) {
  std::vector<std::vector<int64_t>> strides;
  strides.emplace_back(result.strides.begin(), result.strides.end());
  for (const PointwiseOperand& operand : operands) {
    strides.emplace_back(result.sizes.size(), 0);
    if (operand.tensor) strides.back() = broadcast_strides(*operand.tensor, result.sizes);
    call.require(strides.back().size() == result.sizes.size(),
                 "an operand cannot be broadcast to the shape of the result");
  }
  call.require(strides.size() <= kMaxTensors, "it has too many operands");
  if (!call.ok()) return;
  iteration_ = Iteration(result.sizes, strides);
  call.require(iteration_.fits(), "its tensors have too many dims");
  result_ = result.data;
  result_element_ = base::byte_size(result.dtype);
  result_direct_ = result.dtype == dtype_of(lane) && iteration_.inner_stride(0) <= 1;
  store_ = storer(lane, result.dtype);
  all_direct_ = result_direct_;
  for (size_t i = 0; i < operands.size(); ++i) {
    const PointwiseOperand& operand = operands[i];
    Bound bound;
    bound.is_number = !operand.tensor;
    bound.number = operand.number;
    bound.data = operand.tensor ? operand.tensor->data : nullptr;
    const base::DType dtype = operand.tensor ? operand.tensor->dtype : dtype_of(operand.lane);
    bound.reader = LaneReader(operand.lane, dtype, iteration_.inner_stride(i + 1));
    const bool one = bound.reader.stride == 0 && dtype == dtype_of(operand.lane);
    const bool fits = bound.reader.direct || (one && ones_ == 0);
    if (one && ones_ == 0) ones_ = 1 << i;
    all_direct_ = all_direct_ && fits;
    operands_.push_back(bound);
  }
}

void Pointwise::row(std::byte* out, const Addresses& in) const {
  alignas(64) std::byte buffers[kMaxTensors][kBlock * 8];
  alignas(64) std::byte results[kBlock * 8];
  const int64_t n = iteration_.inner();
  const int64_t out_stride = std::max<int64_t>(iteration_.inner_stride(0), 1) * result_element_;
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t count = std::min(kBlock, n - first);
    Addresses lanes{};
    for (size_t i = 0; i < operands_.size(); ++i) {
      const LaneReader& reader = operands_[i].reader;
      // What is one element for the whole row is spread once, the first block being the longest.
      lanes[i] = buffers[i];
      if (reader.stride == 0 && first > 0) continue;
      lanes[i] = static_cast<const std::byte*>(reader.read(buffers[i], in[i], first, count));
    }
    std::byte* to = out + first * out_stride;
    plane(Plane{1, count, {}}, 0, result_direct_ ? to : results, lanes.data());
    if (!result_direct_) store_(to, iteration_.inner_stride(0), results, count);
  }
}

base::Status Pointwise::launch(device::Stream& stream) {
  Addresses bases{};
  for (size_t i = 0; i < operands_.size(); ++i) {
    const Bound& operand = operands_[i];
    bases[i] = operand.is_number ? operand.number.data()
                                 : static_cast<const std::byte*>(stream.resolve(operand.data));
  }
  auto* result = static_cast<std::byte*>(stream.resolve(result_));
  const auto addresses = [&](const Offsets& offsets) {
    Addresses in{};
    for (size_t i = 0; i < operands_.size(); ++i)
      in[i] = bases[i] + offsets[i + 1] * operands_[i].reader.element;
    return in;
  };
  if (all_direct_) {
    iteration_.for_each_plane([&](const Offsets& offsets, int64_t rows, const Offsets& steps) {
      plane(Plane{rows, iteration_.inner(), steps}, ones_, result + offsets[0] * result_element_,
            addresses(offsets).data());
    });
  } else {
    iteration_.for_each_row([&](const Offsets& offsets) {
      row(result + offsets[0] * result_element_, addresses(offsets));
    });
  }
  return {};
}

}  // namespace dc::runtime::kernel::native
