#include "src/cost/fused_network.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include "src/base/archive/safetensors.h"
#include "src/base/file.h"
#include "src/base/sha256.h"

namespace dc::cost {
namespace {

using base::ErrorKind;
using base::Result;
using base::Status;

constexpr size_t kAttentionLayers = 6, kDenseLayers = 3, kSizeFeatures = 3;
constexpr double kLeak = 0.2;    // slope below zero
constexpr double kMostLog = 34;  // of a time in ns: half a week
constexpr const char* kFormat = "dcc-fused-estimator";

// By plain arithmetic, so that plans are equal on every host: the C library's exp and log differ in
// the last bit from one CPU to another. Errors are below 1e-7 of the result, for |x| up to 40.
double exponential(double x) {
  constexpr int kHalvings = 12;
  double part = x;
  for (int i = 0; i < kHalvings; ++i) part /= 2;
  double power = 1 + part * (1 + part / 2 * (1 + part / 3 * (1 + part / 4)));
  for (int i = 0; i < kHalvings; ++i) power *= power;
  return power;
}

// Of what is at least 1.
double logarithm(double x) {
  int exponent = 0;
  const double part = std::frexp(x, &exponent);  // in [1/2, 1)
  const double z = (part - 1) / (part + 1), square = z * z;
  double sum = 0;
  for (int i = 21; i >= 1; i -= 2) sum = sum * square + 1.0 / i;
  return 2 * z * sum + exponent * 0.69314718055994531;
}

double leaky(double x) { return x < 0 ? kLeak * x : x; }
double scaled(double size) { return logarithm(1 + std::max(size, 0.0)) / 10; }

std::vector<double> multiplied(const std::vector<float>& weight, size_t rows,
                               const std::vector<double>& vector) {
  std::vector<double> product(rows);
  const size_t columns = vector.size();
  for (size_t i = 0; i < rows; ++i) {
    double sum = 0;
    for (size_t j = 0; j < columns; ++j)
      sum += static_cast<double>(weight[i * columns + j]) * vector[j];
    product[i] = sum;
  }
  return product;
}

std::string primitives_text() {
  std::string text;
  for (const std::string_view name : fused_primitives())
    text += (text.empty() ? "" : ",") + std::string(name);
  return text;
}

// SHA-256 of the weights by name: safetensors itself has no checksum.
std::string checksum(const base::archive::SafetensorsFile& file) {
  std::map<std::string_view, const base::archive::SafeTensor*> by_name;
  for (const base::archive::SafeTensor& tensor : file.tensors()) by_name[tensor.name] = &tensor;
  base::Sha256 sum;
  for (const auto& [name, tensor] : by_name) sum.update(file.bytes(*tensor));
  return sum.hex();
}

// Each operation with itself, those it reads from and those that read from it.
std::vector<std::vector<size_t>> neighbours(const FusedKernel& kernel) {
  std::vector<std::vector<size_t>> near(kernel.operations.size());
  for (size_t i = 0; i < near.size(); ++i) {
    near[i].push_back(i);
    for (const size_t read : kernel.operations[i].reads) {
      near[i].push_back(read);
      near[read].push_back(i);
    }
  }
  for (std::vector<size_t>& list : near) {
    std::ranges::sort(list);
    list.erase(std::unique(list.begin(), list.end()), list.end());
  }
  return near;
}

}  // namespace

// Takes weights out of a file by name, and keeps the first thing that is wrong.
class FusedNetwork::Reader {
 public:
  explicit Reader(const base::archive::SafetensorsFile& file) : file_(file) {}

  // 0 columns: a vector. Sizes of 0 are as the file has them.
  Matrix take(const std::string& name, size_t rows, size_t columns) {
    Matrix made;
    const base::archive::SafeTensor* tensor = file_.find(name);
    if (tensor == nullptr) return fail("'" + name + "' is missing");
    const std::vector<int64_t>& shape = tensor->shape;
    const auto fits = [](int64_t size, size_t wanted) {
      return size > 0 && (wanted == 0 || static_cast<size_t>(size) == wanted);
    };
    if (tensor->dtype != base::DType::F32 || shape.size() != 2 || !fits(shape[0], rows) ||
        !fits(shape[1], columns))
      return fail("'" + name + "' has another shape or element type");
    made.rows = static_cast<size_t>(shape[0]);
    made.columns = static_cast<size_t>(shape[1]);
    made.values.resize(made.rows * made.columns);
    std::memcpy(made.values.data(), file_.bytes(*tensor).data(),
                made.values.size() * sizeof(float));
    if (!std::ranges::all_of(made.values, [](float value) { return std::isfinite(value); }))
      return fail("'" + name + "' has weights that are no finite numbers");
    return made;
  }
  Dense dense(const std::string& name, size_t rows, size_t columns) {
    Dense made;
    made.weight = take(name + ".weight", rows, columns);
    made.bias = take(name + ".bias", 1, made.weight.rows);
    return made;
  }
  const std::string& wrong() const { return wrong_; }

 private:
  Matrix fail(std::string what) {
    if (wrong_.empty()) wrong_ = std::move(what);
    return {1, 1, {0}};
  }

  const base::archive::SafetensorsFile& file_;
  std::string wrong_;
};

Result<FusedNetwork> FusedNetwork::read(const std::string& path) {
  DC_ASSIGN_OR_RETURN(const auto file, base::archive::SafetensorsFile::open(path));
  const auto said = [&](const std::string& key) {
    const auto found = file.metadata().find(key);
    return found == file.metadata().end() ? std::string() : found->second;
  };
  const auto again = [&](ErrorKind kind, const char* code, const std::string& what) {
    return Status(kind, code, path + ": " + what + "; train it again: scripts/train_estimator.py");
  };
  if (said("format") != kFormat)
    return again(ErrorKind::BadInput, "DC7022", "not an estimator of fused kernels");
  if (said("version") != std::to_string(kVersion))
    return again(ErrorKind::Mismatch, "DC7021",
                 "an estimator of version " + said("version") + ", this dcc reads version " +
                     std::to_string(kVersion));
  if (said("primitives") != primitives_text())
    return again(ErrorKind::Mismatch, "DC7021",
                 "the estimator was trained for fused kernels of other operators than those of "
                 "this dcc");
  if (said("sha256") != checksum(file))
    return again(ErrorKind::BadInput, "DC7022", "the weights are not those that were written");
  FusedNetwork network;
  Reader reader(file);
  size_t width = kSizeFeatures + fused_primitives().size();
  for (size_t i = 0; i < kAttentionLayers; ++i) {
    const std::string name = "attention." + std::to_string(i);
    Attention layer;
    layer.weight = reader.take(name + ".weight", 0, width);
    layer.source = reader.take(name + ".source", 0, 0);
    layer.target = reader.take(name + ".target", layer.source.rows, layer.source.columns);
    width = layer.source.rows * layer.source.columns;
    if (layer.weight.rows != width && reader.wrong().empty())
      return again(ErrorKind::BadInput, "DC7022", "'" + name + "' has heads of another size");
    network.attention_.push_back(std::move(layer));
  }
  network.pool_ = reader.dense("pool", 0, width);
  width = network.pool_.weight.rows;
  for (size_t i = 0; i < kDenseLayers; ++i) {
    const bool is_last = i + 1 == kDenseLayers;
    network.dense_.push_back(reader.dense("dense." + std::to_string(i), is_last ? 1 : 0, width));
    width = network.dense_.back().weight.rows;
  }
  if (!reader.wrong().empty()) return again(ErrorKind::BadInput, "DC7022", reader.wrong());
  DC_ASSIGN_OR_RETURN(const std::string bytes, base::read_file(path));
  network.digest_ = base::sha256_hex(bytes);
  return network;
}

FusedNetwork::Rows FusedNetwork::nodes_of(const FusedKernel& kernel) {
  Rows nodes;
  for (const FusedOperation& operation : kernel.operations) {
    std::vector<double> node(kSizeFeatures + fused_primitives().size());
    node[0] = scaled(static_cast<double>(operation.apart.time.v));
    node[1] = scaled(operation.read_bytes);
    node[2] = scaled(operation.written_bytes);
    node[kSizeFeatures + operation.primitive] = 1;
    nodes.push_back(std::move(node));
  }
  return nodes;
}

FusedNetwork::Rows FusedNetwork::attend(const Attention& layer, const Rows& nodes,
                                        const std::vector<std::vector<size_t>>& near) {
  const size_t heads = layer.source.rows, each = layer.source.columns;
  Rows made;
  for (const std::vector<double>& node : nodes)
    made.push_back(multiplied(layer.weight.values, heads * each, node));
  const auto score = [&](const Matrix& by, size_t node, size_t head) {
    double sum = 0;
    for (size_t i = 0; i < each; ++i)
      sum += static_cast<double>(by.values[head * each + i]) * made[node][head * each + i];
    return sum;
  };
  Rows next(nodes.size(), std::vector<double>(heads * each));
  for (size_t head = 0; head < heads; ++head) {
    for (size_t i = 0; i < nodes.size(); ++i) {
      std::vector<double> weights;
      double largest = -std::numeric_limits<double>::infinity(), sum = 0;
      for (const size_t j : near[i]) {
        weights.push_back(leaky(score(layer.target, i, head) + score(layer.source, j, head)));
        largest = std::max(largest, weights.back());
      }
      for (double& weight : weights) {
        weight = weight < largest - kMostLog ? 0 : exponential(weight - largest);
        sum += weight;
      }
      for (size_t j = 0; j < weights.size(); ++j) {
        for (size_t k = 0; k < each; ++k)
          next[i][head * each + k] += weights[j] / sum * made[near[i][j]][head * each + k];
      }
    }
  }
  for (std::vector<double>& node : next) std::ranges::transform(node, node.begin(), leaky);
  return next;
}

base::Nanos FusedNetwork::time(const FusedKernel& kernel) const {
  const std::vector<std::vector<size_t>> near = neighbours(kernel);
  Rows nodes = nodes_of(kernel);
  for (const Attention& layer : attention_) nodes = attend(layer, nodes, near);
  std::vector<double> value(pool_.weight.rows);
  const auto add_bias = [](std::vector<double>& to, const Dense& layer) {
    for (size_t i = 0; i < to.size(); ++i) to[i] += static_cast<double>(layer.bias.values[i]);
  };
  for (const std::vector<double>& node : nodes) {
    const std::vector<double> part = multiplied(pool_.weight.values, value.size(), node);
    for (size_t i = 0; i < part.size(); ++i) value[i] += part[i];
  }
  add_bias(value, pool_);
  for (const Dense& layer : dense_) {
    std::ranges::transform(value, value.begin(), leaky);
    value = multiplied(layer.weight.values, layer.weight.rows, value);
    add_bias(value, layer);
  }
  const double log_time = value[0] > 0 ? std::min(value[0], kMostLog) : 0;
  return {static_cast<int64_t>(exponential(log_time))};
}

}  // namespace dc::cost
