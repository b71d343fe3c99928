// Where a step's inputs come from: token files, safetensors files, or drawn numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/kernel/kernel.h"
#include "runtime/plan/plan.h"
#include "runtime/train/sampling.h"
#include "src/base/status.h"

namespace dc::runtime::train {

// What a data source must know: the inputs with their roles and shapes, and how a step is divided.
// The loss scale is not an input of the data.
struct DataRequest {
  std::vector<plan::Input> inputs;
  std::vector<plan::Tensor> tensors;  // of the inputs, same order
  BatchShape shape;                   // rows are those of the inputs that have a batch dim
  std::optional<uint64_t> shuffle;
  DataStart start;

  static DataRequest of(const plan::Plan& plan, int rank, std::optional<uint64_t> shuffle);
  // For other inputs than the training's.
  static DataRequest of(const plan::Plan& plan, const std::vector<plan::Input>& inputs, int rank,
                        std::optional<uint64_t> shuffle);
};

class DataSource {
 public:
  virtual ~DataSource() = default;
  // `texts`: one of "synthetic[:SEED]" and "FILE.safetensors", or any number of
  // "FILE[:uint16|uint32|int64]", whose samples follow each other in the given order.
  static base::Result<std::unique_ptr<DataSource>> open(const std::vector<std::string>& texts,
                                                        const DataRequest& request);
  virtual int64_t steps_per_epoch() const = 0;  // 0: the data never ends
  virtual int64_t epoch(int64_t step) const = 0;
  // How far the run has come after `steps` steps, those before its start included.
  virtual checkpoint::DataPosition position(int64_t steps) const = 0;
  // Whether this rank's rows of a step can be read, and whatever else was found wrong meanwhile.
  // Asked one step ahead, so that a run can end in order, its work saved; token files are read
  // then, so that what fill() gives is what was looked at.
  virtual base::Status check(int64_t step) = 0;
  // Fills this rank's rows; `inputs` are bound in the order of the request. Step and micro-batch
  // count from 0.
  virtual base::Status fill(int64_t step, int64_t micro_batch,
                            std::span<const kernel::BoundTensor> inputs) = 0;
};

// The kinds behind open().
base::Result<std::unique_ptr<DataSource>> open_token_data(const std::vector<std::string>& texts,
                                                          const DataRequest& request);
base::Result<std::unique_ptr<DataSource>> open_tensor_data(const std::string& path,
                                                           const DataRequest& request);
base::Result<std::unique_ptr<DataSource>> make_synthetic_data(uint64_t seed,
                                                              const DataRequest& request);

// Shared by the sources.
bool has_batch(const plan::Input& input, const plan::Tensor& tensor);   // dim 0 counts samples
int64_t rows_of(const plan::Input& input, const plan::Tensor& tensor);  // 1 without a batch dim
base::Status check_equal_rows(
    const DataRequest& request);                         // BadInput naming two inputs that differ
void fill_positions(const kernel::BoundTensor& tensor);  // 0, 1, ... along the last dim
void fill_ones(const kernel::BoundTensor& tensor);

}  // namespace dc::runtime::train
