// Expressions whose kernels are generated: drawn at random, and of every operator.
#pragma once

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "runtime/kernel/cuda/fused_source.h"
#include "runtime/kernel/native/registry.h"
#include "tests/runtime/kernel/random_expression.h"
#include "tests/source_dir.h"

namespace dc::runtime::test {

// An instruction with an expression, on a bench with operands.
struct ExpressionCase {
  std::unique_ptr<KernelBench> bench = std::make_unique<KernelBench>();
  Expression expression;
  std::vector<int32_t> operands, results;

  plan::Instruction instruction() const { return fused(expression.text(), operands, results); }
  // For memory that begins at `base`.
  base::Result<kernel::cuda::KernelSource> source(std::byte* base,
                                                  std::vector<const void*>* addresses) const {
    const plan::Instruction made = instruction();
    const kernel::AddressMap map(bench->plan(), base, 0);
    kernel::native::Call call(made, map, nullptr);
    std::vector<std::string> names;
    for (size_t i = 0; i < operands.size(); ++i) names.push_back("a" + std::to_string(i));
    const auto tensors = kernel::native::expression_tensors(call, expression, names);
    if (!call.ok()) return call.made(nullptr).status();
    for (const kernel::BoundTensor& tensor : tensors.results) addresses->push_back(tensor.data);
    for (const kernel::BoundTensor& tensor : tensors.operands) addresses->push_back(tensor.data);
    DC_ASSIGN_OR_RETURN(kernel::cuda::FusedSource source,
                        kernel::cuda::fused_source(expression, tensors));
    return source.kernel;
  }
};

// Nothing where it has too many tensors.
inline std::unique_ptr<ExpressionCase> random_case(uint32_t seed, Ends ends = Ends::Elementwise,
                                                   Ranges ranges = Ranges::None) {
  RandomExpression draw(seed, ends, ranges);
  if (draw.expression.tensors() > Expression::kMostTensors) return nullptr;
  auto made = std::make_unique<ExpressionCase>();
  made->expression = draw.expression;
  for (const RandomOperand& operand : draw.operands) {
    made->operands.push_back(made->bench->tensor(operand.dtype, operand.sizes, operand.strides));
    fill(*made->bench, made->operands.back(), operand.dtype, draw);
  }
  for (size_t i = 0; i < draw.expression.results.size(); ++i)
    made->results.push_back(
        made->bench->tensor(draw.expression.operations[draw.expression.results[i]].dtype,
                            draw.result_sizes[i], draw.result_strides[i]));
  return made;
}

// The operators that expressions may have, as overloads.
inline std::vector<std::string> overloads() {
  std::vector<std::string> all = {"_to_copy.default", "clone.default"};
  for (const auto rows : {kernel::native::activation_kernels(),
                          kernel::native::arithmetic_kernels(), kernel::native::choice_kernels()})
    for (const kernel::native::Row& row : rows) all.emplace_back(row.op.substr(5));
  return all;
}

// Operations of an overload on a0, a1 and a2 of an element type and a3, a mask: every argument that
// any operator has, tensors as numbers where the overload takes these.
inline std::vector<ExpressionOperation> operations_of(const std::string& overload, DType dtype) {
  const auto ends = [&](std::string_view end) { return std::string_view(overload).ends_with(end); };
  std::vector<ExpressionArgument> arguments;
  const auto add = [&](const char* name, bool is_number, size_t operand) {
    arguments.push_back(is_number ? number(name, 0.75) : tensor(name, false, operand));
  };
  add("self", ends(".ScalarSelf") || overload == "pow.Scalar" || overload == "where.Scalar", 0);
  add("other", ends(".Scalar") || ends(".ScalarOther") || ends(".Scalar_mode"), 1);
  add("grad_output", false, 1);
  add("output", false, 0);
  add("buffer", false, 2);
  add("tensor1", false, 1);
  add("tensor2", false, 2);
  add("condition", false, 3);
  add("mask", false, 3);
  add("value", true, 0);
  for (const auto& [name, value] :
       std::initializer_list<std::pair<const char*, double>>{{"alpha", 1.5},
                                                             {"beta", 1.25},
                                                             {"threshold", 0.5},
                                                             {"negative_slope", 0.125},
                                                             {"min_val", -0.75},
                                                             {"max_val", 0.5},
                                                             {"min", -0.5},
                                                             {"max", 0.25},
                                                             {"scale", 1.25}})
    arguments.push_back(number(name, value));
  std::vector<ExpressionOperation> all;
  const auto with = [&](ExpressionArgument last) {
    all.push_back({dtype, overload, arguments});
    all.back().arguments.push_back(std::move(last));
  };
  if (overload == "pow.Tensor_Scalar") {
    for (const double exponent : {-2.0, -1.0, -0.5, 0.5, 1.0, 2.0, 2.5, 3.0})
      with(number("exponent", exponent));
  } else if (overload.starts_with("pow.")) {
    with(tensor("exponent", false, 1));
  } else if (overload.starts_with("gelu")) {
    for (const char* form : {"none", "tanh"})
      if (std::string_view(form) != "none") with(word("approximate", form));
    all.push_back({dtype, overload, arguments});
  } else if (ends("_mode")) {
    for (const char* mode : {"floor", "trunc"}) with(word("rounding_mode", mode));
  } else {
    all.push_back({dtype, overload, arguments});
  }
  return all;
}

inline std::unique_ptr<ExpressionCase> case_of(Expression expression, DType dtype) {
  const KernelBench::Sizes sizes = {5, 33};
  auto made = std::make_unique<ExpressionCase>();
  made->expression = std::move(expression);
  made->operands = {made->bench->tensor(dtype, sizes), made->bench->tensor(dtype, {33}),
                    made->bench->tensor(dtype, sizes, {1, 5}),
                    made->bench->tensor(DType::Bool, {5, 1})};
  RandomExpression draw(1);
  for (size_t i = 0; i < made->operands.size(); ++i)
    fill(*made->bench, made->operands[i], i == 3 ? DType::Bool : dtype, draw);
  for (size_t i = 0; i < made->expression.results.size(); ++i)
    made->results.push_back(made->bench->tensor(dtype, sizes));
  return made;
}

inline bool takes(const ExpressionOperation& operation, DType dtype) {
  std::vector<const void*> addresses;
  return case_of({{operation}, {0}}, dtype)->source(nullptr, &addresses).ok();
}

// Every operator on an element type, some in each expression; those that refuse the type are left
// out.
inline std::vector<std::unique_ptr<ExpressionCase>> every_operator(DType dtype) {
  constexpr size_t kEach = 10;
  std::vector<Expression> expressions;
  for (const std::string& overload : overloads()) {
    for (const ExpressionOperation& operation : operations_of(overload, dtype)) {
      if (!takes(operation, dtype)) continue;
      if (expressions.empty() || expressions.back().operations.size() == kEach)
        expressions.emplace_back();
      Expression& expression = expressions.back();
      expression.results.push_back(expression.operations.size());
      expression.operations.push_back(operation);
    }
  }
  std::vector<std::unique_ptr<ExpressionCase>> cases;
  cases.reserve(expressions.size());
  for (Expression& expression : expressions) cases.push_back(case_of(std::move(expression), dtype));
  return cases;
}

// The expressions of tests/data/fused_expressions.txt, which are those of plans of real models, on
// operands of an element type; what chooses is a mask. With `broadcasts` every second operand is
// one row for all. $DCC_EXPRESSIONS names the file where the tests run without their checkout.
inline std::vector<std::unique_ptr<ExpressionCase>> expressions_of_models(
    DType dtype, const KernelBench::Sizes& sizes = {5, 33}, bool broadcasts = false) {
  std::vector<std::unique_ptr<ExpressionCase>> cases;
  const char* const elsewhere = std::getenv("DCC_EXPRESSIONS");
  std::ifstream file(elsewhere != nullptr
                         ? elsewhere
                         : std::string(kSourceDir) + "/tests/data/fused_expressions.txt");
  EXPECT_TRUE(file.good());
  RandomExpression draw(2);
  for (std::string line; std::getline(file, line);) {
    const auto expression = Expression::parse(line);
    EXPECT_TRUE(expression.ok()) << expression.status().to_string();
    auto made = std::make_unique<ExpressionCase>();
    made->expression = *expression;
    const auto is_mask = [&](size_t index) {
      for (const ExpressionOperation& operation : expression->operations)
        for (const ExpressionArgument& argument : operation.arguments)
          if ((argument.name == "condition" || argument.name == "mask") &&
              argument.kind == ExpressionArgumentKind::Operand &&
              argument.integer == static_cast<int64_t>(index))
            return true;
      return false;
    };
    for (size_t i = 0; i < expression->operands(); ++i) {
      const DType own = is_mask(i) ? DType::Bool : dtype;
      const bool is_row = broadcasts && i % 2 == 1;
      made->operands.push_back(
          made->bench->tensor(own, is_row ? KernelBench::Sizes{sizes.back()} : sizes));
      fill(*made->bench, made->operands.back(), own, draw);
    }
    for (const size_t result : expression->results)
      made->results.push_back(made->bench->tensor(expression->operations[result].dtype, sizes));
    cases.push_back(std::move(made));
  }
  return cases;
}

}  // namespace dc::runtime::test
