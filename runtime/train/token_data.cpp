#include <algorithm>
#include <array>
#include <limits>

#include "runtime/kernel/elements.h"
#include "runtime/train/sampled_data.h"
#include "runtime/train/token_file.h"
#include "runtime/train/token_scan.h"

namespace dc::runtime::train {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;

bool holds_tokens(const plan::Input& input) {
  return input.role == plan::InputRole::Tokens || input.role == plan::InputRole::Labels;
}

// Windows of several files, counted in the given order: sample k of one file is its tokens
// [k * length, (k + 1) * length). Next labels want one token behind the window too. What is left at
// the end of a file is not used; no window crosses from one file into another.
struct Windows {
  int64_t length = 0, behind = 0;
  std::vector<int64_t> first;  // sample of each file, and the number of all samples at the end

  void count(const std::vector<TokenFile>& files) {
    first = {0};
    for (const TokenFile& file : files) {
      first.push_back(first.back() + std::max<int64_t>(file.tokens() - behind, 0) / length);
    }
  }
  size_t file_of(int64_t sample) const {
    return static_cast<size_t>(std::upper_bound(first.begin(), first.end(), sample) -
                               first.begin()) -
           1;
  }
};

class TokenData final : public SampledData {
 public:
  TokenData(std::vector<TokenFile> files, Windows windows, const DataRequest& request)
      : SampledData(windows.first.back(), request),
        files_(std::move(files)),
        windows_(std::move(windows)),
        shape_(request.shape),
        inputs_(request.inputs),
        tensors_(request.tensors),
        raw_(static_cast<size_t>(window_tokens()) * sizeof(int64_t)) {
    for (Batch& batch : batches_) {
      batch.tokens.resize(static_cast<size_t>(shape_.accumulation * shape_.rows * window_tokens()));
    }
    for (const plan::Input& input : inputs_) {
      if (holds_tokens(input) && !input.guessed) {
        vocabulary_ = std::min(vocabulary_, static_cast<int64_t>(input.high));
      }
    }
  }

  Status start_scan() {
    DC_ASSIGN_OR_RETURN(scan_, TokenScan::start(files_, vocabulary_, shape_.rank, shape_.world));
    return base::ok_status();
  }

  Status check(int64_t step) override {
    DC_RETURN_IF_ERROR(scan_->problem());
    return load(step);
  }

  Status fill(int64_t step, int64_t micro_batch,
              std::span<const kernel::BoundTensor> inputs) override {
    DC_RETURN_IF_ERROR(load(step));
    for (size_t i = 0; i < inputs_.size(); ++i) {
      switch (inputs_[i].role) {
        case plan::InputRole::Tokens:
        case plan::InputRole::Labels:
          fill_windows(step, micro_batch, i, inputs[i]);
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
          break;  // refused when the files were opened
      }
    }
    return base::ok_status();
  }

 private:
  // This rank's windows of one step, each with the tokens behind it. The next step's windows are
  // read and checked while the present step still uses its own.
  struct Batch {
    int64_t step = -1;
    std::vector<int64_t> tokens;
  };

  int64_t window_tokens() const { return windows_.length + windows_.behind; }
  size_t window_start(int64_t micro_batch, int64_t row) const {
    return static_cast<size_t>((micro_batch * shape_.rows + row) * window_tokens());
  }

  Status load(int64_t step) {
    Batch& batch = batches_[static_cast<size_t>(step % 2)];
    if (batch.step == step) return base::ok_status();
    batch.step = -1;
    for (int64_t micro_batch = 0; micro_batch < shape_.accumulation; ++micro_batch) {
      for (int64_t row = 0; row < shape_.rows; ++row) {
        DC_RETURN_IF_ERROR(read(
            sampler_.sample(step, micro_batch, row),
            std::span(batch.tokens)
                .subspan(window_start(micro_batch, row), static_cast<size_t>(window_tokens()))));
      }
    }
    batch.step = step;
    return base::ok_status();
  }

  Status read(int64_t sample, std::span<int64_t> out) {
    const size_t which = windows_.file_of(sample);
    const TokenFile& file = files_[which];
    const int64_t start = (sample - windows_.first[which]) * windows_.length;
    DC_RETURN_IF_ERROR(file.read(start, out, raw_));
    for (size_t i = 0; i < out.size(); ++i) {
      if (out[i] >= 0 && out[i] < vocabulary_) continue;
      return check_token(file, start + static_cast<int64_t>(i), out[i], vocabulary_);
    }
    return base::ok_status();
  }

  void fill_windows(int64_t step, int64_t micro_batch, size_t input,
                    const kernel::BoundTensor& tensor) const {
    const kernel::ElementWalk walk(tensor.sizes, tensor.strides);
    const int64_t bytes = base::byte_size(tensor.dtype);
    auto* data = static_cast<std::byte*>(tensor.data);
    const int64_t rows = rows_of(inputs_[input], tensors_[input]);
    const std::vector<int64_t>& tokens = batches_[static_cast<size_t>(step % 2)].tokens;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t* window =
          tokens.data() + window_start(micro_batch, row) + (inputs_[input].next ? 1 : 0);
      for (int64_t i = 0; i < windows_.length; ++i) {
        kernel::store_integer(tensor.dtype, data + walk.offset(row * windows_.length + i) * bytes,
                              window[i]);
      }
    }
  }

  std::vector<TokenFile> files_;
  Windows windows_;
  BatchShape shape_;
  std::vector<plan::Input> inputs_;
  std::vector<plan::Tensor> tensors_;
  std::array<Batch, 2> batches_;
  std::vector<uint8_t> raw_;
  int64_t vocabulary_ = std::numeric_limits<int64_t>::max();  // the smallest of all inputs
  std::unique_ptr<TokenScan> scan_;                           // ends before the files do
};

// The length of a sample, which all token and label inputs must share.
Result<Windows> windows_of(const std::string& path, const DataRequest& request) {
  Windows windows;
  windows.length = -1;
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const plan::Input& input = request.inputs[i];
    const plan::Tensor& tensor = request.tensors[i];
    if (input.role == plan::InputRole::Class || input.role == plan::InputRole::Float) {
      return Status(ErrorKind::BadInput, "DC6212",
                    path + ": input '" + input.name +
                        "' holds no tokens, so a token file cannot fill it; give a .safetensors "
                        "file with a tensor of that name, or synthetic");
    }
    if (!holds_tokens(input)) continue;
    int64_t length = 1;
    for (size_t d = has_batch(input, tensor) ? 1 : 0; d < tensor.sizes.size(); ++d) {
      length *= tensor.sizes[d];
    }
    if (windows.length >= 0 && length != windows.length) {
      return Status(ErrorKind::BadInput, "DC6213",
                    path + ": the model's token inputs differ in length (" +
                        std::to_string(windows.length) + " and " + std::to_string(length) +
                        "), so one token file cannot fill them; give a .safetensors file");
    }
    windows.length = length;
    if (input.next) windows.behind = 1;
  }
  if (windows.length <= 0) {
    return Status(ErrorKind::BadInput, "DC6214",
                  path + ": the model has no token input; give a .safetensors file or synthetic");
  }
  return windows;
}

Status too_few(const std::string& paths, const std::vector<TokenFile>& files,
               const Windows& windows, int64_t needed) {
  int64_t tokens = 0;
  for (const TokenFile& file : files) tokens += file.tokens();
  return Status(ErrorKind::BadInput, "DC6216",
                paths + ": " + std::to_string(tokens) + " tokens are " +
                    std::to_string(windows.first.back()) + " samples of " +
                    std::to_string(windows.length) + ", but one step reads " +
                    std::to_string(needed) +
                    "; give a longer file or compile for fewer ranks or micro-batches");
}

}  // namespace

Result<std::unique_ptr<DataSource>> open_token_data(const std::vector<std::string>& texts,
                                                    const DataRequest& request) {
  std::vector<TokenFile> files;
  std::string paths;
  for (const std::string& text : texts) {
    DC_ASSIGN_OR_RETURN(files.emplace_back(), TokenFile::open(text));
    paths += (paths.empty() ? "" : ", ") + files.back().path();
  }
  DC_ASSIGN_OR_RETURN(Windows windows, windows_of(paths, request));
  DC_RETURN_IF_ERROR(check_equal_rows(request));
  windows.count(files);
  const int64_t needed = request.shape.per_step();
  if (windows.first.back() < needed) return too_few(paths, files, windows, needed);
  auto data = std::make_unique<TokenData>(std::move(files), std::move(windows), request);
  DC_RETURN_IF_ERROR(data->start_scan());
  return std::unique_ptr<DataSource>(std::move(data));
}

}  // namespace dc::runtime::train
