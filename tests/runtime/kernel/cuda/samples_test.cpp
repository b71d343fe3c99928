// The kernels by hand of the model's operators on PyTorch's samples (tests/runtime/kernel), an
// operator per test: on a GPU, or on the double of one, from which nothing about GPUs follows.
// Every operator gets some samples in f32 and in bf16; with DCC_SLOW_TESTS=1 all samples of all
// element types.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>
#include <sstream>

#include "runtime/kernel/cuda/model_kernels.h"
#include "runtime/kernel/cuda/products.h"
#include "src/ir/native_ops.h"
#include "tests/runtime/kernel/aten_cases.h"
#include "tests/runtime/kernel/cuda/gpu_bench.h"
#include "tests/runtime/kernel/cuda/kernel_cache.h"  // IWYU pragma: keep

namespace dc::runtime {
namespace {

using base::DType;

constexpr size_t kSamples = 10;  // of an operator and an element type

bool takes_all() {
  const char* const slow = std::getenv("DCC_SLOW_TESTS");
  return slow != nullptr && std::string_view(slow) == "1";
}

// Those with kernels by hand. The others are element-wise, and made from expressions.
std::vector<std::string> operators() {
  std::vector<std::string> all;
  for (const ir::NativeOp& op : ir::native_ops()) {
    const std::string name(op.overload);
    if (kernel::cuda::find_model_kernel(name) != nullptr || kernel::cuda::is_product(name))
      all.push_back(name);
  }
  return all;
}

// Where the samples are; on another machine the environment says so.
std::string path_of(const char* variable, const char* otherwise) {
  const char* const given = std::getenv(variable);
  return given != nullptr ? given : otherwise;
}

// By operator; both files are read once.
const std::vector<AtenCase>& samples_of(const std::string& op) {
  static const auto* const all = [] {
    const std::vector<std::string> names = operators();
    const std::set<std::string> wanted(names.begin(), names.end());
    auto* const samples = new std::map<std::string, std::vector<AtenCase>>();
    for (const std::string& path : {path_of("DCC_ATEN_SAMPLES", DC_ATEN_SAMPLES),
                                    path_of("DCC_NATIVE_SAMPLES", DC_NATIVE_SAMPLES)}) {
      std::vector<AtenCase> read = read_cases(path.c_str(), wanted);
      add_cuda_attention(read);
      for (AtenCase& sample : read) (*samples)[sample.op].push_back(std::move(sample));
    }
    return samples;
  }();
  return (*all).at(op);
}

// Of the first operand that is a tensor, else of the result.
DType type_of(const AtenCase& sample) {
  for (const std::string& line : sample.arguments) {
    std::istringstream words(line);
    std::string kind, name, dtype;
    if (words >> kind >> name >> dtype && kind == "tensor") return *base::dtype_from_name(dtype);
  }
  return sample.results[0].dtype;
}

// As many of each element type, spread evenly over their order in the files.
std::vector<const AtenCase*> chosen_samples(const std::string& op) {
  std::map<DType, std::vector<const AtenCase*>> by_type;
  for (const AtenCase& sample : samples_of(op)) by_type[type_of(sample)].push_back(&sample);
  const bool is_of_numbers = by_type.contains(DType::F32);
  std::vector<const AtenCase*> chosen;
  for (const auto& [dtype, samples] : by_type) {
    const bool is_usual = dtype == DType::F32 || dtype == DType::BF16 || !is_of_numbers;
    const size_t most = takes_all() ? samples.size() : is_usual ? kSamples : 0;
    const size_t count = std::min(most, samples.size());
    for (size_t i = 0; i < count; ++i)
      chosen.push_back(samples[i * (samples.size() - 1) / std::max<size_t>(count - 1, 1)]);
  }
  return chosen;
}

double largest_of(const ExpectedTensor& tensor) {
  double largest = 0;
  for (int64_t i = 0; i < std::ssize(tensor.bytes) / base::byte_size(tensor.dtype); ++i)
    largest = std::max(largest, std::fabs(element(tensor.bytes.data(), tensor.dtype, i)));
  return largest;
}
double bound_of(const AtenCase& sample, size_t result) {
  const double bound = native_bound(sample.results[result].dtype);
  // Where old and new running statistics of 16 bits nearly cancel each other, PyTorch's are up to
  // 0.02 of the largest away from those in f64.
  if (sample.op == "aten._native_batch_norm_legit_functional.default" && result >= 3)
    return 2 * bound;
  // PyTorch rounds its sums over rows, and those of a batch norm's bias, to the operands' type.
  if (sample.op == "aten.native_layer_norm_backward.default" ||
      (result == 2 && sample.op.ends_with("batch_norm_backward.default")))
    return std::max(bound, native_bound(sample.results[0].dtype));
  // Rows of equal elements give 0, or what PyTorch's roundings leave; others numbers around 1.
  if (sample.op == "aten.native_layer_norm.default" && result == 0)
    return bound / std::clamp(largest_of(sample.results[0]), 1e-30, 1.0);
  return bound;
}

// False if there is no kernel of this sample.
bool run_sample(const AtenCase& sample) {
  KernelBench bench;
  const plan::Instruction step = place(bench, sample);
  const auto memory = try_on_gpu(bench, step, 2);
  if (!memory.ok()) {
    EXPECT_EQ(base::exit_code(memory.status().kind()), 81) << memory.status().to_string();
    return false;
  }
  std::ranges::copy(*memory, bench.used().begin());
  for (size_t i = 0; i < step.outputs.size(); ++i) {
    if (step.outputs[i] < 0 || !has_values(sample)) continue;
    EXPECT_LE(difference(bench, step.outputs[i], sample.results[i]), bound_of(sample, i))
        << "result " << i;
  }
  return true;
}

class CudaSamples : public ::testing::TestWithParam<std::string> {};

TEST_P(CudaSamples, GivePyTorchsNumbers) {
  int taken = 0, refused = 0;
  for (const AtenCase* const sample : chosen_samples(GetParam())) {
    const testing::ScopedTrace trace(__FILE__, __LINE__, sample->op + " " + sample->name);
    ++(run_sample(*sample) ? taken : refused);
  }
  EXPECT_GT(taken, 0) << "no sample runs";
  RecordProperty("taken", taken);
  RecordProperty("refused", refused);
}

INSTANTIATE_TEST_SUITE_P(Operators, CudaSamples, ::testing::ValuesIn(operators()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '.', '_');
                           return name;
                         });

}  // namespace
}  // namespace dc::runtime
