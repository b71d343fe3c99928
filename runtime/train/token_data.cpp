#include <cstring>

#include "runtime/train/data.h"
#include "runtime/train/elements.h"
#include "src/base/file.h"

namespace dc::runtime {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;

// A flat file of token numbers. Sample k is tokens [k * window, (k + 1) * window).
class TokenData final : public DataSource {
 public:
  TokenData(base::MappedFile file, int64_t element_bytes, int64_t window, Sampler sampler,
            const DataRequest& request)
      : file_(std::move(file)),
        element_bytes_(element_bytes),
        window_(window),
        sampler_(sampler),
        inputs_(request.inputs),
        tensors_(request.tensors) {}

  int64_t epoch(int64_t step) const override { return sampler_.epoch(step); }

  Status fill(int64_t step, int64_t micro_batch, std::span<const BoundTensor> inputs) override {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      switch (inputs_[i].role) {
        case plan::InputRole::Tokens:
        case plan::InputRole::Labels:
          DC_RETURN_IF_ERROR(fill_windows(step, micro_batch, i, inputs[i]));
          break;
        case plan::InputRole::Mask:
          fill_ones(inputs[i]);
          break;
        case plan::InputRole::Positions:
          fill_positions(inputs[i]);
          break;
        case plan::InputRole::Class:
        case plan::InputRole::Float:
        case plan::InputRole::LossScale:
          break;  // refused when the file was opened
      }
    }
    return base::ok_status();
  }

 private:
  int64_t token(int64_t position) const {
    const uint8_t* element = file_.bytes().data() + position * element_bytes_;
    uint64_t value = 0;
    std::memcpy(&value, element, static_cast<size_t>(element_bytes_));
    return static_cast<int64_t>(value);
  }

  Status fill_windows(int64_t step, int64_t micro_batch, size_t input, const BoundTensor& tensor) {
    const ElementWalk walk(tensor.sizes, tensor.strides);
    auto* data = static_cast<std::byte*>(tensor.data);
    const auto bound = static_cast<int64_t>(inputs_[input].high);
    const int64_t rows = rows_of(inputs_[input], tensors_[input]);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t start = sampler_.sample(step, micro_batch, row) * window_;
      for (int64_t i = 0; i < window_; ++i) {
        const int64_t value = token(start + i);
        if (value < 0 || value >= bound) return outside(value, start + i, input, bound);
        store_integer(tensor.dtype,
                      data + walk.offset(row * window_ + i) * base::byte_size(tensor.dtype), value);
      }
    }
    return base::ok_status();
  }

  Status outside(int64_t value, int64_t position, size_t input, int64_t bound) const {
    return Status(ErrorKind::BadInput, "DC6211",
                  file_.path() + ": token " + std::to_string(value) + " at byte " +
                      std::to_string(position * element_bytes_) + " is outside the vocabulary of " +
                      std::to_string(bound) + " of input '" + inputs_[input].name +
                      "'; was the file made with another tokenizer, or is its element type wrong?");
  }

  base::MappedFile file_;
  int64_t element_bytes_, window_;
  Sampler sampler_;
  std::vector<plan::Input> inputs_;
  std::vector<plan::Tensor> tensors_;
};

// The length of a sample, which all token and label inputs must share.
Result<int64_t> window_of(const std::string& path, const DataRequest& request) {
  int64_t window = -1;
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const plan::Input& input = request.inputs[i];
    const plan::Tensor& tensor = request.tensors[i];
    if (input.role == plan::InputRole::Class || input.role == plan::InputRole::Float) {
      return Status(ErrorKind::BadInput, "DC6212",
                    path + ": input '" + input.name +
                        "' holds no tokens, so a token file cannot fill it; give a .safetensors "
                        "file with a tensor of that name, or synthetic");
    }
    if (input.role != plan::InputRole::Tokens && input.role != plan::InputRole::Labels) continue;
    int64_t length = 1;
    for (size_t d = has_batch(input, tensor) ? 1 : 0; d < tensor.sizes.size(); ++d) {
      length *= tensor.sizes[d];
    }
    if (window >= 0 && length != window) {
      return Status(ErrorKind::BadInput, "DC6213",
                    path + ": the model's token inputs differ in length (" +
                        std::to_string(window) + " and " + std::to_string(length) +
                        "), so one token file cannot fill them; give a .safetensors file");
    }
    window = length;
  }
  if (window <= 0) {
    return Status(ErrorKind::BadInput, "DC6214",
                  path + ": the model has no token input; give a .safetensors file or synthetic");
  }
  return window;
}

// The types of which the file could hold a whole number.
std::string other_types(const std::string& path, int64_t size) {
  if (size % 2 != 0)
    return ", nor of any other type; make it again: it is cut off, or holds no tokens";
  std::string text = "; name the right type: " + path + ":uint16";
  if (size % 4 == 0) text += " or " + path + ":uint32";
  return text + ", or make it again if it is cut off";
}

}  // namespace

Result<std::unique_ptr<DataSource>> open_token_data(const std::string& path,
                                                    const std::string& element,
                                                    const DataRequest& request) {
  const int64_t bytes = element == "int64" ? 8 : element == "uint32" ? 4 : 2;
  DC_ASSIGN_OR_RETURN(auto file, base::MappedFile::open(path));
  const auto size = static_cast<int64_t>(file.bytes().size());
  if (size % bytes != 0) {
    return Status(ErrorKind::BadInput, "DC6215",
                  path + ": " + std::to_string(size) + " bytes are no whole number of " + element +
                      " tokens" + other_types(path, size));
  }
  DC_ASSIGN_OR_RETURN(const int64_t window, window_of(path, request));
  DC_RETURN_IF_ERROR(check_equal_rows(request));
  const int64_t samples = size / bytes / window;
  const int64_t needed = request.shape.per_step();
  if (samples < needed) {
    return Status(ErrorKind::BadInput, "DC6216",
                  path + ": " + std::to_string(size / bytes) + " tokens are " +
                      std::to_string(samples) + " samples of " + std::to_string(window) +
                      ", but one step reads " + std::to_string(needed) +
                      "; give a longer file or compile for fewer ranks or micro-batches");
  }
  return std::unique_ptr<DataSource>(std::make_unique<TokenData>(
      std::move(file), bytes, window, Sampler(samples, request.shape, request.shuffle), request));
}

}  // namespace dc::runtime
