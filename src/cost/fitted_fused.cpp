#include "src/cost/fitted_fused.h"

#include <algorithm>

namespace dc::cost {
namespace {

using base::DType;

// What is counted: first these, then tensors, then operations by kind.
enum Counted : size_t {
  kStart,
  kBlocks,
  kSteps,    // operations on blocks
  kRows,     // of tensors that do not lie as the results do
  kReads,    // elements of tensors that operations read
  kRounded,  // elements of values of 16 bits
  kReloads,  // and of those that are results and read by other operations
  kTensors,
};
constexpr size_t kClasses = 4;  // of element types

size_t class_of(DType dtype) {
  if (base::is_floating(dtype)) return base::byte_size(dtype) == 8 ? 1 : 0;
  return dtype == DType::Bool ? 3 : 2;
}
// By how they become lanes.
size_t memory_class(DType dtype) {
  if (dtype == DType::F32) return 0;
  if (base::is_floating(dtype) && base::byte_size(dtype) == 2) return 1;
  return base::byte_size(dtype) == 8 ? 2 : 3;
}

constexpr size_t kOperations = kTensors + 2 * kAccesses * kClasses;
size_t tensor_kind(const FusedTensor& tensor, bool is_result) {
  const size_t access = static_cast<size_t>(tensor.access) + (is_result ? kAccesses : 0);
  return kTensors + access * kClasses + memory_class(tensor.dtype);
}
size_t operation_kind(const FusedOperation& operation) {
  return kOperations + operation.primitive * kClasses + class_of(operation.computes);
}
size_t kinds() { return kOperations + fused_primitives().size() * kClasses; }

// Prices that are not negative, for which prices * counts is nearest to 1 in the mean square over
// rows: coordinate descent on the normal equations.
std::vector<double> fit_prices(const std::vector<std::vector<double>>& gram,
                               const std::vector<double>& target) {
  constexpr int kSweeps = 2000;
  constexpr double kRidge = 1e-6;
  std::vector<double> prices(target.size()), rest = target;  // rest: target - gram * prices
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (size_t j = 0; j < prices.size(); ++j) {
      const double own = gram[j][j] * (1 + kRidge);
      if (own <= 0) continue;
      const double next =
          std::max(0.0, prices[j] + (rest[j] - gram[j][j] * kRidge * prices[j]) / own);
      const double change = next - prices[j];
      if (change == 0) continue;
      prices[j] = next;
      for (size_t k = 0; k < rest.size(); ++k) rest[k] -= gram[k][j] * change;
    }
  }
  return prices;
}

}  // namespace

std::vector<FittedFused::Part> FittedFused::parts_of(const FusedKernel& kernel) {
  const auto operations = static_cast<double>(kernel.operations.size());
  std::vector<Part> parts = {
      {kStart, 1}, {kBlocks, kernel.blocks}, {kSteps, kernel.blocks * operations}};
  const auto add = [&parts](size_t what, double count) {
    const auto known = std::ranges::find(parts, what, &Part::what);
    if (known == parts.end()) {
      parts.push_back({what, count});
    } else {
      known->count += count;
    }
  };
  const auto add_tensors = [&](const std::vector<FusedTensor>& tensors, bool are_results) {
    for (const FusedTensor& tensor : tensors) {
      const bool repeats = tensor.access == FusedTensor::Access::Repeated;
      add(tensor_kind(tensor, are_results), repeats ? kernel.rows : kernel.elements);
      if (tensor.access != FusedTensor::Access::Dense) add(kRows, kernel.rows);
    }
  };
  add_tensors(kernel.operands, false);
  add_tensors(kernel.results, true);
  std::vector<bool> is_read(kernel.operations.size());
  for (const FusedOperation& operation : kernel.operations) {
    for (const size_t read : operation.reads) is_read[read] = true;
  }
  for (const FusedOperation& operation : kernel.operations) {
    add(operation_kind(operation), kernel.elements);
    add(kReads, kernel.elements * static_cast<double>(operation.tensors));
    if (base::byte_size(operation.dtype) != 2) continue;
    add(kRounded, kernel.elements);
    if (operation.is_result && is_read[static_cast<size_t>(&operation - kernel.operations.data())])
      add(kReloads, kernel.elements);
  }
  return parts;
}

double FittedFused::sum(const std::vector<Part>& parts) const {
  double sum = 0;
  for (const Part& part : parts) sum += prices_[part.what] * part.count;
  return std::max(sum, 1.0);
}

void FittedFused::fill_prices(const std::vector<bool>& is_priced) {
  double all = 0, count = 0;
  for (size_t i = kOperations; i < prices_.size(); ++i) {
    all += is_priced[i] ? prices_[i] : 0;
    count += is_priced[i] ? 1 : 0;
  }
  for (size_t i = kOperations; i < prices_.size(); ++i) {
    if (!is_priced[i] && count > 0) prices_[i] = all / count;
  }
  // A tensor that lies in another way than any sample's does is read or written as a dense one.
  for (size_t i = kTensors; i < kOperations; ++i) {
    const size_t dense = i - (i - kTensors) % (kAccesses * kClasses);
    if (!is_priced[i]) prices_[i] = prices_[dense];
  }
}

// A kernel that takes twice as long as what is like it, or half as long, met something that is not
// in its description, as numbers that are slow to compute with.
constexpr double kMostOff = 2;

FittedFused::FittedFused(std::span<const FusedSample> samples) {
  std::vector<Counts> rows;
  for (const FusedSample& sample : samples) {
    rows.push_back({parts_of(sample.kernel), static_cast<double>(sample.time.v)});
  }
  fit(rows);
  std::vector<Counts> near;
  for (const Counts& row : rows) {
    const double ratio = sum(row.parts) / row.time;
    if (ratio < kMostOff && ratio > 1 / kMostOff) near.push_back(row);
  }
  if (!near.empty()) fit(near);

  std::vector<BoostedTrees::Features> features;
  std::vector<double> estimates;
  for (size_t i = 0; i < samples.size(); ++i) {
    const double estimate = sum(rows[i].parts), ratio = estimate / rows[i].time;
    if (!near.empty() && (ratio >= kMostOff || ratio <= 1 / kMostOff)) continue;
    features.push_back(features_of(samples[i].kernel, estimate));
    estimates.push_back(ratio);
  }
  correction_.emplace(features, estimates);
}

// Only what some row counts gets a column.
void FittedFused::fit(std::span<const Counts> rows) {
  std::vector<bool> is_priced(kinds());
  for (const Counts& row : rows) {
    for (const Part& part : row.parts) is_priced[part.what] = true;
  }
  std::vector<size_t> column(kinds()), what;
  for (size_t i = 0; i < kinds(); ++i) {
    if (!is_priced[i]) continue;
    column[i] = what.size();
    what.push_back(i);
  }
  std::vector<std::vector<double>> gram(what.size(), std::vector<double>(what.size()));
  std::vector<double> target(what.size());
  for (const Counts& row : rows) {
    for (const Part& a : row.parts) {
      target[column[a.what]] += a.count / row.time;
      for (const Part& b : row.parts)
        gram[column[a.what]][column[b.what]] += a.count / row.time * (b.count / row.time);
    }
  }
  const std::vector<double> fitted = fit_prices(gram, target);
  prices_.assign(kinds(), 0);
  for (size_t i = 0; i < what.size(); ++i) prices_[what[i]] = fitted[i];
  fill_prices(is_priced);
}

// How operations read: from memory as well as a core can only if it waits for few operands at once,
// from registers soon if the value was just made.
struct FittedFused::Reading {
  double of_one = 0;        // operations on a single tensor
  double of_streams = 0;    // on two or more operands of the results' size
  double of_values = 0;     // on two or more values
  double chained = 0;       // on the value of the operation before
  double values = 0;        // read by operations, each time counted
  double operands = 0;      // likewise
  double unstored = 0;      // values that are no results
  double read_results = 0;  // results that operations read
  double narrow = 0;        // values of 16 bits
};
FittedFused::Reading FittedFused::reading(const FusedKernel& kernel) {
  Reading counts;
  std::vector<bool> is_read(kernel.operations.size());
  for (size_t i = 0; i < kernel.operations.size(); ++i) {
    const FusedOperation& operation = kernel.operations[i];
    const size_t values = operation.reads.size();
    for (const size_t read : operation.reads) is_read[read] = true;
    counts.of_one += operation.tensors == 1 ? 1 : 0;
    counts.of_streams += operation.streams > 1 ? 1 : 0;
    counts.of_values += values > 1 ? 1 : 0;
    counts.chained += i > 0 && std::ranges::count(operation.reads, i - 1) > 0 ? 1 : 0;
    counts.values += static_cast<double>(values);
    counts.operands += static_cast<double>(operation.tensors - values);
    counts.unstored += operation.is_result ? 0 : 1;
    counts.narrow += base::byte_size(operation.dtype) == 2 ? 1 : 0;
  }
  for (size_t i = 0; i < kernel.operations.size(); ++i)
    counts.read_results += kernel.operations[i].is_result && is_read[i] ? 1 : 0;
  return counts;
}

BoostedTrees::Features FittedFused::features_of(const FusedKernel& kernel, double sum) const {
  double computing = 0;
  for (const FusedOperation& operation : kernel.operations)
    computing += prices_[operation_kind(operation)] * kernel.elements;
  double scattered = 0, repeated = 0, read = 0, streams = 0;
  for (const FusedTensor& operand : kernel.operands) {
    read += operand.bytes;
    scattered += operand.access == FusedTensor::Access::Dense ? 0 : 1;
    repeated += operand.access == FusedTensor::Access::Repeated ? 1 : 0;
    streams += kernel.is_stream(operand) ? 1 : 0;
  }
  for (const FusedTensor& result : kernel.results)
    scattered += result.access == FusedTensor::Access::Dense ? 0 : 1;
  const double bytes = kernel.bytes();
  const Reading counts = reading(kernel);
  return {sum,
          sum / kernel.elements,
          kernel.elements,
          kernel.elements / std::max(kernel.rows, 1.0),
          bytes,
          read / std::max(bytes, 1.0),
          bytes / sum,
          computing / sum,
          static_cast<double>(kernel.operations.size()),
          static_cast<double>(kernel.operands.size()),
          static_cast<double>(kernel.results.size()),
          streams,
          scattered,
          repeated,
          counts.of_one,
          counts.of_streams,
          counts.of_values,
          counts.chained,
          counts.values,
          counts.operands,
          counts.unstored,
          counts.read_results,
          counts.narrow};
}

base::Nanos FittedFused::time(const FusedKernel& kernel) const {
  const double estimate = sum(parts_of(kernel));
  const double time = estimate * correction_->factor(features_of(kernel, estimate));
  return {static_cast<int64_t>(std::clamp(time, 1.0, 1e15))};
}

}  // namespace dc::cost
