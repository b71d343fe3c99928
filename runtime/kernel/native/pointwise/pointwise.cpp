#include "runtime/kernel/native/pointwise/pointwise.h"

#include <algorithm>

#include "runtime/kernel/native/copy_rows.h"

namespace dc::runtime::kernel::native {

namespace {

using base::DType;

// Of two tensors, or two numbers; integers are all computed in int64.
DType promoted(DType a, DType b) {
  if (a == b) return a;
  if (!base::is_floating(a) && !base::is_floating(b)) return DType::I64;
  if (!base::is_floating(a)) return b;
  if (!base::is_floating(b)) return a;
  return a == DType::F64 || b == DType::F64 ? DType::F64 : DType::F32;
}

// What the operands of one kind have in common: tensors with dims, tensors without, numbers.
using CommonType = std::optional<DType>;
void join(CommonType& common, DType dtype) { common = common ? promoted(*common, dtype) : dtype; }

// The kind that counts more decides, unless the other is floating-point and it is not.
CommonType combined(CommonType higher, CommonType lower) {
  if (!higher || !lower) return higher ? higher : lower;
  const bool raises = base::is_floating(*lower) || *higher == DType::Bool;
  return !base::is_floating(*higher) && raises ? promoted(*higher, *lower) : higher;
}

}  // namespace

DType common_type(Call& call, std::span<const std::string_view> names, int mask) {
  CommonType with_dims, without_dims, numbers;
  for (size_t i = 0; i < names.size(); ++i) {
    if (static_cast<int>(i) == mask) continue;
    if (call.is_tensor(names[i])) {
      const BoundTensor tensor = call.tensor(names[i]);
      join(tensor.sizes.empty() ? without_dims : with_dims, tensor.dtype);
    } else {
      join(numbers, call.is_fraction(names[i]) ? DType::F32 : DType::I64);
    }
  }
  const DType result = call.output(0).dtype;
  const CommonType common = combined(with_dims, combined(without_dims, numbers));
  return common && (base::is_floating(*common) || !base::is_floating(result)) ? *common : result;
}

PointwiseOperand pointwise_operand(Call& call, std::string_view name, Lane lane,
                                   std::optional<DType> rounded_to) {
  PointwiseOperand operand;
  operand.name = name;
  operand.lane = lane;
  if (call.is_tensor(name)) {
    operand.tensor = call.tensor(name);
    if (operand.tensor->dtype != rounded_to) operand.rounded_to = rounded_to;
    return operand;
  }
  call.require(call.has_value(name), "argument '" + std::string(name) + "' is missing");
  const auto put = [&operand](auto value) {
    std::memcpy(operand.number.data(), &value, sizeof(value));
  };
  if (lane == Lane::F32) put(rounded(call.scalar<float>(name), rounded_to.value_or(DType::F32)));
  if (lane == Lane::F64) put(call.scalar<double>(name));
  if (lane == Lane::I64) put(call.scalar<int64_t>(name));
  if (lane == Lane::Bool) put(static_cast<uint8_t>(call.scalar<double>(name) != 0));
  return operand;
}

void Pointwise::bind(Call& call, const BoundTensor& result, Lane lane,
                     std::span<const PointwiseOperand> operands, bool takes_bf16) {
  std::vector<std::vector<int64_t>> strides;
  strides.emplace_back(result.strides.begin(), result.strides.end());
  for (const PointwiseOperand& operand : operands) {
    strides.emplace_back(result.sizes.size(), 0);
    if (!operand.tensor) continue;
    auto own = broadcast_strides(*operand.tensor, result.sizes);
    call.require(own.has_value(), "an operand cannot be broadcast to the shape of the result");
    if (own) strides.back() = *std::move(own);
  }
  call.require(operands.size() <= kMostOperands, "it has too many operands");
  if (!call.ok()) return;
  described_.assign(operands.begin(), operands.end());
  iteration_ = Iteration(result.sizes, strides);
  call.require(iteration_.fits(), "its tensors have too many dims");
  result_ = result.data;
  result_element_ = base::byte_size(result.dtype);
  result_direct_ = result.dtype == dtype_of(lane) && iteration_.inner_stride(0) <= 1;
  store_ = storer(lane, result.dtype);
  result_lane_bytes_ = base::byte_size(dtype_of(lane));
  all_direct_ = result_direct_;
  const auto is_dense_bf16 = [this](const BoundTensor& tensor, size_t number) {
    return tensor.dtype == DType::BF16 && iteration_.inner_stride(number) == 1;
  };
  all_bf16_ = takes_bf16 && is_dense_bf16(result, 0);
  for (size_t i = 0; i < operands.size(); ++i) {
    const PointwiseOperand& operand = operands[i];
    Bound bound;
    bound.is_number = !operand.tensor;
    bound.number = operand.number;
    bound.data = operand.tensor ? operand.tensor->data : nullptr;
    const base::DType dtype = operand.tensor ? operand.tensor->dtype : dtype_of(operand.lane);
    bound.lane_bytes = base::byte_size(dtype_of(operand.lane));
    bound.reader = LaneReader(operand.lane, dtype, iteration_.inner_stride(i + 1));
    if (operand.rounded_to) {
      bound.narrow = storer(operand.lane, *operand.rounded_to);
      bound.widen = loader(operand.lane, *operand.rounded_to);
      bound.reader.direct = false;
    }
    const bool as_it_is = dtype == dtype_of(operand.lane) && !operand.rounded_to;
    const bool one = bound.reader.stride == 0 && as_it_is;
    const bool fits = bound.reader.direct || (one && ones_ == 0);
    if (one && ones_ == 0) ones_ = 1 << i;
    all_direct_ = all_direct_ && fits;
    all_bf16_ = all_bf16_ && operand.tensor && is_dense_bf16(*operand.tensor, i + 1);
    operands_.push_back(bound);
  }
}

void Pointwise::block(std::byte* out, const Addresses& in, const Plane& rows, Buffers& buffers,
                      bool is_first) const {
  const int64_t n = rows.length, all = rows.rows * n;
  // Rows that lie one behind the other are one.
  const auto is_one_row = [&](int64_t stride, int64_t step) {
    return rows.rows == 1 || (stride == 1 && step == n);
  };
  Addresses lanes{};
  for (size_t i = 0; i < operands_.size(); ++i) {
    const Bound& operand = operands_[i];
    const LaneReader& reader = operand.reader;
    const int64_t step = rows.steps[i + 1];
    std::byte* buffer = buffers.operands[i];
    lanes[i] = buffer;
    if (reader.stride == 0 && step == 0) {
      // What is one element for all rows is spread once, the first block being the longest.
      if (!is_first) continue;
      reader.load(buffer, in[i], 0, all);
    } else if (is_one_row(reader.stride, step)) {
      lanes[i] = static_cast<const std::byte*>(reader.read(buffer, in[i], 0, all));
    } else {
      for (int64_t row = 0; row < rows.rows; ++row)
        reader.load(buffer + row * n * operand.lane_bytes, in[i] + row * step * reader.element,
                    reader.stride, n);
    }
    if (operand.narrow == nullptr) continue;
    operand.narrow(buffers.result, 1, buffer, all);
    operand.widen(buffer, buffers.result, 1, all);
  }
  const int64_t stride = iteration_.inner_stride(0);
  const bool is_row = is_one_row(stride, rows.steps[0]), in_place = result_direct_ && is_row;
  plane(Plane{1, all, {}}, 0, in_place ? out : buffers.result, lanes.data());
  if (in_place) return;
  if (is_row) return store_(out, stride, buffers.result, all);
  for (int64_t row = 0; row < rows.rows; ++row)
    store_(out + row * rows.steps[0] * result_element_, stride,
           buffers.result + row * n * result_lane_bytes_, n);
}

void Pointwise::short_rows_of_bf16(std::byte* out, const Addresses& in, const Plane& rows) const {
  constexpr int64_t kSize = sizeof(BF16);
  const int64_t row = rows.length * kSize;
  const int64_t at_once = kBlock / rows.length;
  alignas(64) std::byte packed[kMostOperands][kBlock * kSize], results[kBlock * kSize];
  for (int64_t first = 0; first < rows.rows; first += at_once) {
    const int64_t count = std::min(at_once, rows.rows - first);
    Addresses lanes{};
    for (size_t i = 0; i < operands_.size(); ++i) {
      const int64_t step = rows.steps[i + 1] * kSize;
      lanes[i] = in[i] + first * step;
      if (step == row) continue;
      copy_rows(packed[i], row, lanes[i], step, count, row);
      lanes[i] = packed[i];
    }
    const int64_t step = rows.steps[0] * kSize;
    std::byte* to = out + first * step;
    plane_of_bf16(Plane{1, count * rows.length, {}}, step == row ? to : results, lanes.data());
    if (step != row) copy_rows(to, step, results, row, count, row);
  }
}

void Pointwise::long_row(std::byte* out, const Addresses& in) const {
  Buffers buffers;
  const int64_t n = iteration_.inner();
  const int64_t out_stride = std::max<int64_t>(iteration_.inner_stride(0), 1) * result_element_;
  for (int64_t first = 0; first < n; first += kBlock) {
    Addresses at = in;
    for (size_t i = 0; i < operands_.size(); ++i)
      at[i] += first * operands_[i].reader.stride * operands_[i].reader.element;
    block(out + first * out_stride, at, Plane{1, std::min(kBlock, n - first), {}}, buffers,
          first == 0);
  }
}

base::Status Pointwise::launch(device::Stream& stream) {
  constexpr int64_t kLeastBf16 = 32;  // elements of a row that fill the widest vector
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
  if (all_direct_ || all_bf16_) {
    iteration_.for_each_plane([&](const Offsets& offsets, int64_t rows, const Offsets& steps) {
      const Plane rows_of_plane{rows, iteration_.inner(), steps};
      std::byte* out = result + offsets[0] * result_element_;
      const Addresses in = addresses(offsets);
      if (!all_bf16_) {
        plane(rows_of_plane, ones_, out, in.data());
      } else if (rows > 1 && iteration_.inner() < kLeastBf16) {
        short_rows_of_bf16(out, in, rows_of_plane);
      } else {
        plane_of_bf16(rows_of_plane, out, in.data());
      }
    });
  } else if (const int64_t at_once = kBlock / std::max<int64_t>(1, iteration_.inner());
             at_once > 1) {
    iteration_.for_each_plane([&](const Offsets& offsets, int64_t rows, const Offsets& steps) {
      Buffers buffers;
      Offsets at = offsets;
      for (int64_t row = 0; row < rows; row += at_once) {
        block(result + at[0] * result_element_, addresses(at),
              Plane{std::min(at_once, rows - row), iteration_.inner(), steps}, buffers, row == 0);
        for (size_t i = 0; i <= operands_.size(); ++i) at[i] += at_once * steps[i];
      }
    });
  } else {
    iteration_.for_each_row([&](const Offsets& offsets) {
      long_row(result + offsets[0] * result_element_, addresses(offsets));
    });
  }
  return {};
}

}  // namespace dc::runtime::kernel::native
