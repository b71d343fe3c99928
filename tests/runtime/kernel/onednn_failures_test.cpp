// What a primitive that oneDNN lacks, or that fails, becomes. This program's own functions stand in
// for three of oneDNN's, which the plug-in finds first here.
#include <dlfcn.h>

#include "tests/runtime/kernel/kernel_bench.h"

namespace {

enum class Fault { None, Lacks, IsNotMade, Fails };
Fault fault = Fault::None;
constexpr int kOutOfMemory = 1, kUnimplemented = 3, kRuntimeError = 5;  // dnnl_status_t

template <typename F>
F* own_function_of_onednn(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

// The declarations of dnnl.h, whose types are pointers here.
extern "C" int dnnl_primitive_desc_iterator_create(void** iterator, const void* desc,
                                                   const void* attributes, void* engine,
                                                   const void* hint) {
  if (fault == Fault::Lacks) return kUnimplemented;
  return own_function_of_onednn<decltype(dnnl_primitive_desc_iterator_create)>(
      "dnnl_primitive_desc_iterator_create")(iterator, desc, attributes, engine, hint);
}
extern "C" int dnnl_primitive_create(void** primitive, const void* desc) {
  if (fault == Fault::IsNotMade) return kOutOfMemory;
  return own_function_of_onednn<decltype(dnnl_primitive_create)>("dnnl_primitive_create")(primitive,
                                                                                          desc);
}
extern "C" int dnnl_primitive_execute(const void* primitive, void* stream, int count,
                                      const void* arguments) {
  if (fault == Fault::Fails) return kRuntimeError;
  return own_function_of_onednn<decltype(dnnl_primitive_execute)>("dnnl_primitive_execute")(
      primitive, stream, count, arguments);
}

namespace dc::runtime {
namespace {

using base::DType;

plan::Arg ints_arg(std::string name, std::vector<int64_t> values) {
  plan::Arg arg;
  arg.name = std::move(name);
  arg.kind = plan::ArgKind::Ints;
  arg.ints = std::move(values);
  return arg;
}

plan::Instruction product(KernelBench& bench) {
  return instruction("aten.mm.default",
                     {tensor_arg(bench.tensor(DType::F32, {4, 5}), "self"),
                      tensor_arg(bench.tensor(DType::F32, {5, 3}), "mat2")},
                     {bench.tensor(DType::F32, {4, 3})});
}
plan::Instruction convolution(KernelBench& bench) {
  return instruction(
      "aten.convolution.default",
      {tensor_arg(bench.tensor(DType::F32, {1, 2, 5, 5}), "input"),
       tensor_arg(bench.tensor(DType::F32, {3, 2, 3, 3}), "weight"), ints_arg("stride", {1, 1}),
       ints_arg("padding", {0, 0}), ints_arg("dilation", {1, 1}), int_arg("groups", 1)},
      {bench.tensor(DType::F32, {1, 3, 3, 3})});
}

class OneDnnFailures : public testing::TestWithParam<plan::Instruction (*)(KernelBench&)> {
 protected:
  void SetUp() override {
    step_ = GetParam()(bench_);
    step_.module = "head";
    const auto bytes = provider_->measure_scratch(step_, bench_.addresses());
    ASSERT_TRUE(bytes.ok()) << bytes.status().to_string();
    if (*bytes > 0) step_.scratch = bench_.slice(*bytes);
  }
  void TearDown() override { fault = Fault::None; }

  KernelBench bench_;
  plan::Instruction step_;
  std::unique_ptr<kernel::KernelProvider> provider_ = kernel::make_native_provider();
};

TEST_P(OneDnnFailures, APrimitiveThatItLacksOrCannotMakeIsRefused) {
  for (const Fault each : {Fault::Lacks, Fault::IsNotMade}) {
    fault = each;
    const auto kernel = provider_->prepare(step_, bench_.addresses());
    ASSERT_FALSE(kernel.ok());
    EXPECT_EQ(kernel.status().code(), "DC6136");
    EXPECT_EQ(kernel.status().kind(), base::ErrorKind::Unsupported);
    EXPECT_NE(kernel.status().to_string().find("--providers aten"), std::string::npos);
    EXPECT_NE(kernel.status().to_string().find("in module head"), std::string::npos);
  }
}

TEST_P(OneDnnFailures, APrimitiveThatDoesNotRunEndsTheRun) {
  const auto kernel = provider_->prepare(step_, bench_.addresses());
  ASSERT_TRUE(kernel.ok()) << kernel.status().to_string();
  const auto stream = device::cpu_device().make_stream();
  EXPECT_TRUE((*kernel)->launch(*stream).ok());
  fault = Fault::Fails;
  const base::Status status = (*kernel)->launch(*stream);
  EXPECT_EQ(status.code(), "DC6139");
  EXPECT_EQ(status.kind(), base::ErrorKind::Internal);
}

INSTANTIATE_TEST_SUITE_P(Primitives, OneDnnFailures, testing::Values(product, convolution),
                         [](const auto& test) {
                           return test.index == 0 ? "Product" : "Convolution";
                         });

}  // namespace
}  // namespace dc::runtime
