#include <cmath>

#include "runtime/kernel/elements.h"
#include "runtime/train/data.h"

namespace dc::runtime::train {
namespace {

using base::Result;
using base::Status;

// Numbers drawn by sample and element: equal however a global batch is spread.
class SyntheticData final : public DataSource {
 public:
  SyntheticData(uint64_t seed, const DataRequest& request) : request_(request) {
    for (const plan::Input& input : request_.inputs) {
      // Tokens and labels draw the same window, next labels one token further; everything else is
      // drawn by its name.
      const bool window =
          input.role == plan::InputRole::Tokens || input.role == plan::InputRole::Labels;
      keys_.push_back(derive_key(seed, window ? 0 : hash_text(input.name)));
    }
  }

  int64_t steps_per_epoch() const override { return 0; }
  int64_t epoch(int64_t) const override { return 0; }  // never repeats
  checkpoint::DataPosition position(int64_t steps) const override {
    checkpoint::DataPosition position = request_.start.position;
    position.samples += (steps - request_.start.step) * request_.shape.per_step();
    position.in_epoch = position.samples;
    return position;
  }
  Status check(int64_t) override { return base::ok_status(); }

  Status fill(int64_t step, int64_t micro_batch,
              std::span<const kernel::BoundTensor> inputs) override {
    for (size_t i = 0; i < request_.inputs.size(); ++i) {
      switch (request_.inputs[i].role) {
        case plan::InputRole::Mask:
          fill_ones(inputs[i]);
          break;
        case plan::InputRole::Positions:
          fill_positions(inputs[i]);
          break;
        case plan::InputRole::Tokens:
        case plan::InputRole::Labels:
        case plan::InputRole::Class:
        case plan::InputRole::Float:
          draw(step, micro_batch, i, inputs[i]);
          break;
        case plan::InputRole::LossScale:
          break;  // not part of a request
      }
    }
    return base::ok_status();
  }

 private:
  void draw(int64_t step, int64_t micro_batch, size_t which,
            const kernel::BoundTensor& tensor) const {
    const plan::Input& input = request_.inputs[which];
    const kernel::ElementWalk walk(tensor.sizes, tensor.strides);
    BatchShape shape = request_.shape;
    shape.rows = rows_of(input, request_.tensors[which]);
    // An input without a batch dim counts one sample where others count their rows.
    const int64_t before = request_.start.position.samples / request_.shape.rows * shape.rows;
    const int64_t length = walk.numel() / std::max<int64_t>(shape.rows, 1);
    auto* data = static_cast<std::byte*>(tensor.data);
    for (int64_t row = 0; row < shape.rows; ++row) {
      const int64_t sample = before + shape.index(step - request_.start.step, micro_batch, row);
      const uint64_t key = derive_key(keys_[which], static_cast<uint64_t>(sample));
      for (int64_t i = 0; i < length; ++i) {
        const double u = draw_uniform(key, static_cast<uint64_t>(i + (input.next ? 1 : 0)));
        std::byte* element = data + walk.offset(row * length + i) * base::byte_size(tensor.dtype);
        const double value = input.low + u * (input.high - input.low);
        if (base::is_floating(tensor.dtype)) {
          kernel::store_real(tensor.dtype, element, value);
        } else {
          kernel::store_integer(tensor.dtype, element, static_cast<int64_t>(std::floor(value)));
        }
      }
    }
  }

  DataRequest request_;
  std::vector<uint64_t> keys_;
};

}  // namespace

Result<std::unique_ptr<DataSource>> make_synthetic_data(uint64_t seed, const DataRequest& request) {
  return std::unique_ptr<DataSource>(std::make_unique<SyntheticData>(seed, request));
}

}  // namespace dc::runtime::train
