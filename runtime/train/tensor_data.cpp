#include <algorithm>

#include "runtime/kernel/elements.h"
#include "runtime/train/sampled_data.h"
#include "src/base/archive/safetensors.h"
#include "src/base/shape.h"

namespace dc::runtime::train {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;
using base::archive::SafeTensor;
using base::archive::SafetensorsFile;

// One tensor [samples, ...] per input name; positions may be absent.
class TensorData final : public SampledData {
 public:
  TensorData(SafetensorsFile file, const DataRequest& request)
      : SampledData(0, request), file_(std::move(file)), request_(request) {}

  Status bind() {
    int64_t samples = -1;
    for (size_t i = 0; i < request_.inputs.size(); ++i) {
      DC_ASSIGN_OR_RETURN(const SafeTensor* stored, match(i));
      stored_.push_back(stored);
      if (!stored) continue;
      if (samples >= 0 && stored->shape[0] != samples) {
        return bad("its tensors hold different numbers of samples (" + std::to_string(samples) +
                   " and " + std::to_string(stored->shape[0]) + ")");
      }
      samples = stored->shape[0];
    }
    if (samples < request_.shape.per_step()) {
      return bad(std::to_string(std::max<int64_t>(samples, 0)) + " samples, but one step reads " +
                 std::to_string(request_.shape.per_step()));
    }
    sampler_ = Sampler(samples, request_.shape, request_.shuffle, request_.start);
    return base::ok_status();
  }

  Status check(int64_t step) override {
    for (size_t i = 0; i < stored_.size(); ++i) {
      if (!stored_[i]) continue;
      const plan::Tensor& tensor = request_.tensors[i];
      int64_t length = 1;
      for (size_t d = rows_lead(i) ? 1 : 0; d < tensor.sizes.size(); ++d) length *= tensor.sizes[d];
      for (int64_t mb = 0; mb < request_.shape.accumulation; ++mb) {
        for (int64_t row = 0; row < request_.shape.rows; ++row) {
          const int64_t sample = sampler_.sample(step, mb, row);
          DC_RETURN_IF_ERROR(check_range(i, sample, row_bytes(i, sample, length), length));
        }
      }
    }
    return base::ok_status();
  }

  Status fill(int64_t step, int64_t micro_batch,
              std::span<const kernel::BoundTensor> inputs) override {
    for (size_t i = 0; i < request_.inputs.size(); ++i) {
      if (!stored_[i]) {
        fill_positions(inputs[i]);
        continue;
      }
      DC_RETURN_IF_ERROR(fill_rows(step, micro_batch, i, inputs[i]));
    }
    return base::ok_status();
  }

 private:
  Status bad(const std::string& sentence) const {
    return Status(ErrorKind::BadInput, "DC6221", file_.path() + ": " + sentence);
  }

  bool rows_lead(size_t i) const {
    const auto& sizes = request_.tensors[i].sizes;
    return !sizes.empty() && sizes[0] == request_.shape.rows;
  }

  // The file's tensor for input `i`; null if the input needs none.
  Result<const SafeTensor*> match(size_t i) const {
    const plan::Input& input = request_.inputs[i];
    const plan::Tensor& tensor = request_.tensors[i];
    const SafeTensor* stored = file_.find(input.name);
    if (!stored && input.role == plan::InputRole::Positions) return stored;
    if (!stored) {
      return bad("no tensor '" + input.name + "'; the file must hold one [samples, ...] per input");
    }
    std::vector<int64_t> row = tensor.sizes;
    if (rows_lead(i)) row.erase(row.begin());
    const bool fits = stored->shape.size() == row.size() + 1 &&
                      std::equal(row.begin(), row.end(), stored->shape.begin() + 1);
    if (!fits || stored->dtype != tensor.dtype) {
      std::string wanted = base::shape_text(row).substr(1);
      wanted = "[samples" + std::string(row.empty() ? "" : ", ") + wanted;
      return bad("tensor '" + input.name + "' is " + std::string(base::name(stored->dtype)) +
                 base::shape_text(stored->shape) + " where the plan wants " +
                 std::string(base::name(tensor.dtype)) + wanted);
    }
    if (!rows_lead(i) && request_.shape.rows != 1) {
      return bad("input '" + input.name + "' has no batch dim, so samples cannot be counted");
    }
    return stored;
  }

  const uint8_t* row_bytes(size_t i, int64_t sample, int64_t length) const {
    return file_.bytes(*stored_[i]).data() +
           sample * length * base::byte_size(request_.tensors[i].dtype);
  }

  Status fill_rows(int64_t step, int64_t micro_batch, size_t i,
                   const kernel::BoundTensor& tensor) const {
    const kernel::ElementWalk walk(tensor.sizes, tensor.strides);
    const int64_t rows = request_.shape.rows;
    const int64_t length = walk.numel() / rows, bytes = base::byte_size(tensor.dtype);
    auto* data = static_cast<std::byte*>(tensor.data);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t sample = sampler_.sample(step, micro_batch, row);
      const uint8_t* from = row_bytes(i, sample, length);
      DC_RETURN_IF_ERROR(check_range(i, sample, from, length));
      if (walk.contiguous()) {
        kernel::convert(tensor.dtype, from, tensor.dtype, tensor.dtype, data + row * length * bytes,
                        length);
        continue;
      }
      for (int64_t e = 0; e < length; ++e) {
        kernel::convert(tensor.dtype, from + e * bytes, tensor.dtype, tensor.dtype,
                        data + walk.offset(row * length + e) * bytes, 1);
      }
    }
    return base::ok_status();
  }

  Status check_range(size_t i, int64_t sample, const uint8_t* from, int64_t length) const {
    const plan::Input& input = request_.inputs[i];
    const base::DType dtype = request_.tensors[i].dtype;
    const bool index = input.role == plan::InputRole::Tokens ||
                       input.role == plan::InputRole::Labels ||
                       input.role == plan::InputRole::Class;
    if (!index || input.guessed || base::is_floating(dtype)) return base::ok_status();
    const bool may_ignore = input.role != plan::InputRole::Tokens;
    for (int64_t e = 0; e < length; ++e) {
      const int64_t value = kernel::load_integer(dtype, from + e * base::byte_size(dtype));
      const auto real = static_cast<double>(value);
      if ((real >= input.low && real < input.high) || (may_ignore && value == input.ignored)) {
        continue;
      }
      return bad("value " + std::to_string(value) + " of '" + input.name + "' in sample " +
                 std::to_string(sample) + " is outside [" +
                 std::to_string(static_cast<int64_t>(input.low)) + ", " +
                 std::to_string(static_cast<int64_t>(input.high)) +
                 "); give a file with values of the model's range");
    }
    return base::ok_status();
  }

  SafetensorsFile file_;
  DataRequest request_;
  std::vector<const SafeTensor*> stored_;  // by input; null: positions by formula
};

}  // namespace

Result<std::unique_ptr<DataSource>> open_tensor_data(const std::string& path,
                                                     const DataRequest& request) {
  DC_RETURN_IF_ERROR(check_equal_rows(request));
  DC_ASSIGN_OR_RETURN(auto file, SafetensorsFile::open(path));
  auto data = std::make_unique<TensorData>(std::move(file), request);
  DC_RETURN_IF_ERROR(data->bind());
  return std::unique_ptr<DataSource>(std::move(data));
}

}  // namespace dc::runtime::train
