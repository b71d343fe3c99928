#include "runtime/train/data.h"

#include <algorithm>
#include <charconv>

#include "runtime/kernel/elements.h"

namespace dc::runtime::train {

using base::ErrorKind;
using base::Result;
using base::Status;

bool has_batch(const plan::Input& input, const plan::Tensor& tensor) {
  switch (input.role) {
    case plan::InputRole::Tokens:
    case plan::InputRole::Labels:
      return tensor.sizes.size() >= 2;
    case plan::InputRole::Class:
    case plan::InputRole::Float:
      return !tensor.sizes.empty();
    case plan::InputRole::Mask:
    case plan::InputRole::Positions:
    case plan::InputRole::LossScale:
      return false;
  }
  return false;
}

int64_t rows_of(const plan::Input& input, const plan::Tensor& tensor) {
  return has_batch(input, tensor) ? tensor.sizes[0] : 1;
}

DataRequest DataRequest::of(const plan::Plan& plan, int rank, std::optional<uint64_t> shuffle) {
  return of(plan, plan.inputs, rank, shuffle);
}

DataRequest DataRequest::of(const plan::Plan& plan, const std::vector<plan::Input>& inputs,
                            int rank, std::optional<uint64_t> shuffle) {
  DataRequest request;
  request.shuffle = shuffle;
  request.shape.accumulation = plan.accumulation;
  request.shape.world = plan.world();
  request.shape.rank = rank;
  for (const plan::Input& input : inputs) {
    if (input.role == plan::InputRole::LossScale) continue;
    const plan::Tensor& tensor = plan.tensors[static_cast<size_t>(input.tensor)];
    request.shape.rows = std::max(request.shape.rows, rows_of(input, tensor));
    request.inputs.push_back(input);
    request.tensors.push_back(tensor);
  }
  return request;
}

Status check_equal_rows(const DataRequest& request) {
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const bool batched = has_batch(request.inputs[i], request.tensors[i]);
    if (!batched || rows_of(request.inputs[i], request.tensors[i]) == request.shape.rows) continue;
    return Status(ErrorKind::BadInput, "DC6201",
                  "input '" + request.inputs[i].name + "' has " +
                      std::to_string(request.tensors[i].sizes[0]) + " rows where another has " +
                      std::to_string(request.shape.rows) +
                      ", so samples cannot be counted; make what is the same for all samples a "
                      "buffer of the module (register_buffer) and export again, or use --data "
                      "synthetic");
  }
  return base::ok_status();
}

void fill_positions(const kernel::BoundTensor& tensor) {
  const kernel::ElementWalk walk(tensor.sizes, tensor.strides);
  const int64_t length = tensor.sizes.empty() ? 1 : tensor.sizes.back();
  auto* data = static_cast<std::byte*>(tensor.data);
  for (int64_t i = 0; i < walk.numel(); ++i) {
    kernel::store_integer(tensor.dtype, data + walk.offset(i) * base::byte_size(tensor.dtype),
                          i % length);
  }
}

void fill_ones(const kernel::BoundTensor& tensor) {
  const kernel::ElementWalk walk(tensor.sizes, tensor.strides);
  auto* data = static_cast<std::byte*>(tensor.data);
  for (int64_t i = 0; i < walk.numel(); ++i) {
    kernel::store_integer(tensor.dtype, data + walk.offset(i) * base::byte_size(tensor.dtype), 1);
  }
}

namespace {

Result<std::unique_ptr<DataSource>> open_synthetic(const std::string& text,
                                                   const DataRequest& request) {
  uint64_t seed = 0;
  if (text.size() > 9) {
    const char* first = text.data() + 10;
    const char* last = text.data() + text.size();
    const auto [end, error] = std::from_chars(first, last, seed);
    if (text[9] != ':' || error != std::errc() || end != last) {
      return Status(ErrorKind::Usage, "DC6202",
                    "--data " + text + ": the seed must be a number, as in synthetic:7");
    }
  }
  return make_synthetic_data(seed, request);
}

bool is_token_file(const std::string& text) {
  return text != "synthetic" && !text.starts_with("synthetic:") && !text.ends_with(".safetensors");
}

}  // namespace

Result<std::unique_ptr<DataSource>> DataSource::open(const std::vector<std::string>& texts,
                                                     const DataRequest& request) {
  if (std::all_of(texts.begin(), texts.end(), is_token_file)) {
    return open_token_data(texts, request);
  }
  if (texts.size() > 1) {
    return Status(ErrorKind::Usage, "DC6204",
                  "--data was given " + std::to_string(texts.size()) +
                      " times; only token files can follow each other: give one .safetensors file "
                      "or synthetic alone");
  }
  if (texts[0].ends_with(".safetensors")) return open_tensor_data(texts[0], request);
  return open_synthetic(texts[0], request);
}

}  // namespace dc::runtime::train
