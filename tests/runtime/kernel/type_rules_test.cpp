// What the frontend says that operators return, against what PyTorch returned for every sample of
// them.
#include <set>

#include "src/frontend/reshape.h"
#include "src/frontend/result_types.h"
#include "tests/runtime/kernel/aten_cases.h"

namespace dc::runtime {
namespace {

ir::TensorType type_of(KernelBench& bench, int64_t id) {
  const plan::Tensor& tensor = bench.plan().tensors[static_cast<size_t>(id)];
  ir::TensorType type;
  type.dtype = tensor.dtype;
  type.shape = tensor.sizes;
  type.strides = tensor.strides;
  return type;
}

// The arguments of an instruction as a graph holds them; tensors are added to `types`.
class Arguments {
 public:
  explicit Arguments(KernelBench& bench) : bench_(bench) {}

  ir::Arg convert(const plan::Arg& arg) {
    switch (arg.kind) {
      case plan::ArgKind::Tensor:
        return {arg.name, ir::OperandRef{operand(arg.i)}};
      case plan::ArgKind::Tensors: {
        ir::OperandList list;
        for (const int64_t id : arg.ints) list.indices.push_back(operand(id));
        return {arg.name, list};
      }
      case plan::ArgKind::Int:
        return {arg.name, arg.i};
      case plan::ArgKind::Bool:
        return {arg.name, arg.i != 0};
      case plan::ArgKind::Float:
        return {arg.name, arg.f};
      case plan::ArgKind::Ints:
        return {arg.name, arg.ints};
      case plan::ArgKind::DType:
        return {arg.name, *base::dtype_from_export(arg.i)};
      case plan::ArgKind::MemoryFormat:
        return {arg.name, ir::MemoryFormatArg{arg.i}};
      default:
        return {arg.name, std::monostate{}};  // read by no rule
    }
  }

  std::vector<ir::TensorType> types;

 private:
  int operand(int64_t id) {
    if (id < 0) return -1;
    types.push_back(type_of(bench_, id));
    return static_cast<int>(types.size()) - 1;
  }

  KernelBench& bench_;
};

struct Checked {
  std::vector<frontend::ResultType> results;
  std::vector<ir::TensorType> expected;
};

Checked check(const AtenCase& sample) {
  KernelBench bench;
  const plan::Instruction step = place(bench, sample);
  Arguments arguments(bench);
  std::vector<ir::Arg> args;
  for (const plan::Arg& arg : step.args) args.push_back(arguments.convert(arg));
  std::vector<frontend::Operand> operands;
  for (const ir::TensorType& type : arguments.types) operands.push_back({type, {}});
  std::vector<frontend::Recorded> recorded;
  Checked checked;
  for (const int32_t output : step.outputs) {
    checked.expected.push_back(output < 0 ? ir::TensorType{} : type_of(bench, output));
    recorded.emplace_back();
    if (output >= 0) recorded.back() = {"result", checked.expected.back()};
  }
  const auto types = frontend::result_types(sample.op, operands, args, recorded);
  EXPECT_TRUE(types.ok()) << types.status().to_string();
  if (types.ok()) checked.results = *types;
  return checked;
}

TEST(TypeRules, AreThoseOfPyTorch) {
  std::set<std::string> ruled;
  for (const AtenCase& sample : read_cases(DC_ATEN_SAMPLES)) {
    const testing::ScopedTrace trace(__FILE__, __LINE__, sample.op + " " + sample.name);
    const Checked checked = check(sample);
    for (size_t i = 0; i < checked.results.size(); ++i) {
      const auto& [type, placement] = checked.results[i];
      if (!sample.results[i].is_tensor || !placement.is_certain) continue;
      ruled.insert(sample.op);
      EXPECT_TRUE(frontend::same_places(type, checked.expected[i])) << "result " << i;
    }
  }
  EXPECT_GT(ruled.size(), 150u);
}

}  // namespace
}  // namespace dc::runtime
