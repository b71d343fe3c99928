// Every ATen overload that a plan may hold, on planned addresses full of NaN, against PyTorch: in
// all its element types, from operands in several layouts, into results of the type a graph would
// have.
#include <array>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "src/frontend/kernel_types.h"
#include "tests/runtime/kernel/aten_cases.h"

namespace dc::runtime {
namespace {

using base::DType;

// Lines of the file that start with this word, without it.
std::vector<std::string> lines_of(const std::string& word) {
  std::ifstream file(DC_ATEN_SAMPLES);
  EXPECT_TRUE(file.good()) << DC_ATEN_SAMPLES;
  std::vector<std::string> found;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(word + " ")) found.push_back(line.substr(word.size() + 1));
  }
  return found;
}

const std::vector<AtenCase>& samples() {
  static const std::vector<AtenCase> cases = read_cases(DC_ATEN_SAMPLES);
  return cases;
}

// PyTorch computes it with oneDNN, the provider without; see runtime/kernel/README.md.
double bound_of(const AtenCase& sample) {
  const bool gelu = sample.op.find("gelu") != std::string::npos;
  return gelu && sample.name.find("_f32_") != std::string::npos ? 2e-6 : 0;
}

// PyTorch makes the result elsewhere, whatever it is given for it: it is copied.
bool is_made_elsewhere(const std::string& op) {
  return op == "aten.linalg_lu_solve.default" || op == "aten.linalg_matrix_exp.default" ||
         op == "aten.masked_scatter_backward.default";
}

void expect_results(KernelBench& bench, const plan::Instruction& step, const AtenCase& sample) {
  for (size_t i = 0; i < step.outputs.size(); ++i) {
    if (step.outputs[i] < 0 || !has_values(sample)) continue;
    EXPECT_LE(difference(bench, step.outputs[i], sample.results[i]), bound_of(sample))
        << "result " << i;
  }
}

void run_sample(kernel::KernelProvider& provider, const AtenCase& sample) {
  KernelBench bench;
  plan::Instruction step = place(bench, sample);
  const auto bytes = provider.measure_scratch(step, bench.addresses());
  ASSERT_TRUE(bytes.ok()) << bytes.status().to_string();
  if (*bytes > 0) step.scratch = bench.slice(*bytes);
  auto kernel = provider.prepare(step, bench.addresses());
  ASSERT_TRUE(kernel.ok()) << kernel.status().to_string();
  for (int repeat = 0; repeat < 2; ++repeat) {
    const auto status = (*kernel)->launch(*device::cpu_device().make_stream());
    ASSERT_TRUE(status.ok()) << status.to_string();
    expect_results(bench, step, sample);
  }
}

TEST(AtenSamples, GivePyTorchsNumbersWithoutRepairs) {
  auto provider = kernel::open_aten_provider(1);
  ASSERT_TRUE(provider.ok()) << provider.status().to_string();
  for (const AtenCase& sample : samples()) {
    const testing::ScopedTrace trace(__FILE__, __LINE__, sample.op + " " + sample.name);
    const int64_t repairs = (*provider)->repairs();
    run_sample(**provider, sample);
    if (!is_made_elsewhere(sample.op)) {
      EXPECT_EQ((*provider)->repairs(), repairs);
    }
  }
}

TEST(AtenSamples, TheTableAndTheSamplesHaveNoFault) {
  EXPECT_EQ(lines_of("fault"), std::vector<std::string>());
}

TEST(AtenSamples, EveryRowThatAKernelRunsIsRun) {
  std::set<std::string> run;
  for (const AtenCase& sample : samples()) run.insert(sample.op);
  for (const std::string& gpu : lines_of("gpu")) run.insert(gpu);
  size_t rows = 0;
#define DC_ATEN(name, cls, alias, trait, operands, results, work) {name, #cls, #alias, #trait},
  for (const auto& [name, cls, alias, trait] : std::initializer_list<std::array<std::string, 4>>{
#include "src/ir/aten_ops.def"
       }) {
#undef DC_ATEN
    // Others are refused before anything runs, or have no kernel.
    if (trait != "Plain" || alias != "Fresh" || cls == "Identity") continue;
    ++rows;
    EXPECT_TRUE(run.contains("aten." + name))
        << name << " needs a sample in tests/runtime/kernel/aten_samples.py";
  }
  EXPECT_GT(rows, 200u);
}

TEST(AtenSamples, ElementTypesThatShapePropagationGetsWrongAreKnown) {
  const std::vector<std::string> lines = lines_of("types");
  EXPECT_GE(lines.size(), 20u);
  for (const std::string& line : lines) {
    std::istringstream stream(line);
    std::string op, word;
    size_t index = 0;
    stream >> op >> index;
    std::map<std::string, DType, std::less<>> operands;
    std::vector<std::string> types;
    while (stream >> word) {
      const size_t at = word.find('=');
      if (at == std::string::npos) types.push_back(word);
      if (at != std::string::npos)
        operands[word.substr(0, at)] = *base::dtype_from_name(word.substr(at + 1));
    }
    const auto given = frontend::kernel_dtype(op, index, [&](std::string_view name) {
      const auto found = operands.find(name);
      return found == operands.end() ? std::nullopt : std::optional<DType>(found->second);
    });
    EXPECT_EQ(given, base::dtype_from_name(types.back())) << line;
  }
}

}  // namespace
}  // namespace dc::runtime
