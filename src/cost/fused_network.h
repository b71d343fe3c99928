// FusedNetwork: the graph network by which DisCo estimates the time of a fused operator (arXiv
// 2209.12769, section 4.3): nodes are operators with their time apart, bytes read and written, and
// kind; six layers of attention over neighbours, a sum over nodes, three dense layers, the
// logarithm of the time. scripts/train_estimator.py trains it and writes the weights.
#pragma once

#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/cost/fused_kernel.h"

namespace dc::cost {

class FusedNetwork final : public FusedEstimator {
 public:
  static constexpr int kVersion = 2;

  // Weights as safetensors, with a checksum among the metadata. Errors: SafetensorsFile::open()'s;
  // BadInput (65), DC7022, other weights than the network has or than were written; Mismatch (76),
  // DC7021, of other primitives or another version.
  static base::Result<FusedNetwork> read(const std::string& path);

  base::Nanos time(const FusedKernel& kernel) const override;
  const std::string& digest() const { return digest_; }  // SHA-256 of the file

 private:
  // Row-major, rows x columns; a vector has one row.
  struct Matrix {
    size_t rows = 0, columns = 0;
    std::vector<float> values;
  };
  struct Attention {
    Matrix weight;          // outputs of all heads x inputs
    Matrix source, target;  // heads x outputs of a head
  };
  struct Dense {
    Matrix weight, bias;
  };
  using Rows = std::vector<std::vector<double>>;

  class Reader;
  static Rows nodes_of(const FusedKernel& kernel);
  static Rows attend(const Attention& layer, const Rows& nodes,
                     const std::vector<std::vector<size_t>>& near);

  std::vector<Attention> attention_;
  Dense pool_;
  std::vector<Dense> dense_;
  std::string digest_;
};

}  // namespace dc::cost
