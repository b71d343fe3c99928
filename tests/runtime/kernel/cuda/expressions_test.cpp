// Generated kernels on the double of a GPU (tests/double) next to the native kernels of the CPU:
// equal bits. What runs is C++ of the host's compiler; nothing about GPUs follows from it.
#include <set>

#include <gmock/gmock.h>

#include "runtime/device/cuda/cuda_device.h"
#include "runtime/kernel/cuda/block.h"
#include "runtime/kernel/cuda/nvrtc.h"
#include "src/base/shape.h"
#include "tests/runtime/kernel/cuda/expressions.h"
#include "tests/runtime/kernel/cuda/gpu_bench.h"

namespace dc::runtime {
namespace {

using namespace test;

const device::CudaDevice& gpu() {
  return static_cast<const device::CudaDevice&>(
      *device::open_device(base::DeviceKind::Cuda).value());
}

// Kernels of many cases, compiled as one text.
class Batch {
 public:
  void add(std::unique_ptr<ExpressionCase> one) {
    Item item;
    auto& device = *device::open_device(base::DeviceKind::Cuda).value();
    item.slab = device.allocate(static_cast<int64_t>(one->bench->used().size())).value();
    auto source = one->source(item.slab->base(), &item.addresses);
    ASSERT_TRUE(source.ok()) << source.status().to_string();
    if (!names_.contains(source->name)) text_ += source->text + "\n";
    names_.insert(source->name);
    item.source = *source;
    item.one = std::move(one);
    items_.push_back(std::move(item));
  }

  // Runs each case here and there.
  void compare() {
    int version = 0;
    ASSERT_EQ(gpu().driver().driver_version(&version), 0);
    auto nvrtc = kernel::cuda::Nvrtc::open(version);
    ASSERT_TRUE(nvrtc.ok()) << nvrtc.status().to_string();
    auto code = nvrtc->compile({"batch", text_, 0}, gpu().architecture());
    ASSERT_TRUE(code.ok()) << code.status().to_string();
    device::cuda::Module module = nullptr;
    ASSERT_EQ(gpu().driver().load_module(&module, code->data()), 0);
    for (Item& item : items_) compare(item, module);
    EXPECT_EQ(gpu().driver().unload_module(module), 0);
  }
  size_t size() const { return items_.size(); }

 private:
  struct Item {
    std::unique_ptr<ExpressionCase> one;
    std::unique_ptr<device::DeviceMemory> slab;
    std::vector<const void*> addresses;
    kernel::cuda::KernelSource source;
  };

  static std::vector<std::vector<std::string>> results(const Item& item) {
    std::vector<std::vector<std::string>> all;
    for (const int32_t id : item.one->results) all.push_back(elements(*item.one->bench, id));
    return all;
  }

  static void compare(Item& item, device::cuda::Module module) {
    SCOPED_TRACE(item.source.text);
    auto& device = *device::open_device(base::DeviceKind::Cuda).value();
    const std::span<std::byte> used = item.one->bench->used();
    EXPECT_TRUE(device.upload(item.slab->base(), used).ok());
    const base::Status ran = run_native(*item.one->bench, item.one->instruction());
    ASSERT_TRUE(ran.ok()) << ran.to_string();
    const auto expected = results(item);
    device::cuda::Function function = nullptr;
    ASSERT_EQ(gpu().driver().get_function(&function, module, item.source.name.c_str()), 0);
    const auto stream = device.make_stream();
    void* parameters[] = {item.addresses.data()};
    // Fewer threads than elements, so that some have several.
    ASSERT_EQ(gpu().driver().launch(function, 2, 1, 1, kernel::cuda::kBlockThreads, 1, 1, 0,
                                    static_cast<device::CudaStream&>(*stream).handle(), parameters,
                                    nullptr),
              0);
    const base::Status done = stream->drain();
    ASSERT_TRUE(done.ok()) << done.to_string();
    EXPECT_TRUE(device.download(used, item.slab->base()).ok());
    EXPECT_EQ(results(item), expected);
  }

  std::vector<Item> items_;
  std::set<std::string> names_;
  std::string text_;
};

// A GPU's functions of f64 are those of its library, with other last bits.
bool has_f64(const ExpressionCase& one) {
  const auto is_f64 = [](DType dtype) { return dtype == DType::F64; };
  return std::ranges::any_of(
             one.operands,
             [&](int32_t id) { return is_f64(one.bench->plan().tensors[id].dtype); }) ||
         std::ranges::any_of(one.expression.operations,
                             [&](const ExpressionOperation& each) { return is_f64(each.dtype); });
}

void compare_random_ones(size_t count, bool with_f64) {
  Batch batch;
  for (uint32_t seed = 0; batch.size() < count; ++seed)
    if (auto one = random_case(seed); one != nullptr && has_f64(*one) == with_f64)
      batch.add(std::move(one));
  batch.compare();
}

TEST(CudaExpression, RandomOnesGiveTheBitsOfTheCpu) { compare_random_ones(160, false); }
TEST(CudaExpressionOfTheDouble, RandomOnesOfF64GiveTheBitsOfTheCpu) {
  compare_random_ones(40, true);
}

TEST(CudaExpression, RandomOnesWithWindowsGiveTheBitsOfTheCpu) {
  Batch batch;
  for (uint32_t seed = 0; batch.size() < 160; ++seed)
    if (auto one = random_case(seed, Ends::Elementwise, Ranges::Some);
        one != nullptr && !has_f64(*one) && one->expression.window_dim())
      batch.add(std::move(one));
  batch.compare();
}

// A rotary embedding and its gradient, of halves that begin where a pack does and where none does.
constexpr const char* kRotary =
    "a2=window(dim=3,begin=0,end=HALF);a3=window(dim=3,begin=HALF,end=WHOLE);"
    "t0:bf16=mul.Tensor(self=a0,other=a1);t1:bf16=neg.default(self=a2);"
    "t2:bool=index_in.range(dim=3,begin=0,end=HALF);"
    "t3:bf16=where.self(condition=t2,self=t1,other=a3);t4:bf16=mul.Tensor(self=t3,other=a4);"
    "t5:bf16=add.Tensor(self=t0,other=t4);->t5";
std::unique_ptr<ExpressionCase> rotary(int64_t whole) {
  const auto with = [&](std::string text) {
    for (const auto& [word, size] : {std::pair{"HALF", whole / 2}, std::pair{"WHOLE", whole}})
      for (size_t at = 0; (at = text.find(word)) != std::string::npos;)
        text.replace(at, std::string_view(word).size(), std::to_string(size));
    return text;
  };
  auto made = std::make_unique<ExpressionCase>();
  made->expression = *Expression::parse(with(kRotary));
  KernelBench& bench = *made->bench;
  const Sizes heads = {2, 3, 5, whole}, halves = {2, 3, 5, whole / 2};
  const Sizes transposed = {15 * whole, whole, 3 * whole, 1};
  RandomExpression draw(3);
  const auto add = [&](const Sizes& sizes, const Sizes& strides) {
    made->operands.push_back(bench.tensor(DType::BF16, sizes, strides));
    fill(bench, made->operands.back(), DType::BF16, draw);
  };
  add(heads, transposed);
  add({1, 1, 5, whole}, {5 * whole, 5 * whole, whole, 1});
  add(halves, transposed);
  add(halves, transposed);
  add({1, 1, 5, whole}, {5 * whole, 5 * whole, whole, 1});
  made->results = {bench.tensor(DType::BF16, heads)};
  return made;
}

TEST(CudaExpression, ARotaryEmbeddingGivesTheBitsOfTheCpu) {
  Batch batch;
  for (const int64_t whole : {64, 24, 6, 128}) batch.add(rotary(whole));
  batch.compare();
}

// Sums of the CPU are of f32 in part.
TEST(CudaExpression, RandomReductionsGiveTheNumbersOfTheCpu) {
  int checked = 0;
  for (uint32_t seed = 0; checked < 40; ++seed) {
    const auto one =
        random_case(seed, Ends::WithReductions, checked < 30 ? Ranges::None : Ranges::Some);
    if (one == nullptr || has_f64(*one)) continue;
    SCOPED_TRACE("seed " + std::to_string(seed) + " " + one->expression.text());
    expect_near_cpu(*one->bench, one->instruction(), one->results, 2e-2);
    ++checked;
  }
}

TEST(CudaExpression, RandomRowValuesGiveTheNumbersOfTheCpu) {
  int checked = 0;
  for (uint32_t seed = 0; checked < 30; ++seed) {
    const auto one = random_case(seed, Ends::ReadsRows);
    if (one == nullptr || has_f64(*one)) continue;
    SCOPED_TRACE("seed " + std::to_string(seed) + " " + one->expression.text());
    expect_near_cpu(*one->bench, one->instruction(), one->results, 2e-2);
    ++checked;
  }
}

// All numbers of 16 bits: in packs of moderate ones, of others and of both.
TEST(CudaExpression, ActivationsOfEveryBf16GiveTheBitsOfTheCpu) {
  constexpr int64_t kCount = 1 << 16;
  const std::string text =
      "t0:bf16=silu.default(self=a0);t1:bf16=silu_backward.default(grad_output=a1,self=a0);"
      "t2:bf16=sigmoid.default(self=a0);t3:bf16=mul.Tensor(self=t2,other=a1);->t0,t1,t3";
  KernelBench bench;
  const int32_t x = bench.tensor(DType::BF16, {2 * kCount}),
                g = bench.tensor(DType::BF16, {2 * kCount});
  std::vector<int32_t> results(3);
  for (int32_t& id : results) id = bench.tensor(DType::BF16, {2 * kCount});
  for (int64_t i = 0; i < kCount; ++i) {
    bench.data<uint16_t>(x)[i] = static_cast<uint16_t>(i);
    bench.data<uint16_t>(x)[kCount + i] = static_cast<uint16_t>(i * 40503);
    bench.data<uint16_t>(g)[i] = 0x3fa0;  // 1.25
    bench.data<uint16_t>(g)[kCount + i] = static_cast<uint16_t>(i * 25173);
  }
  const plan::Instruction step = fused(text, {x, g}, results);
  ASSERT_TRUE(run_native(bench, step).ok());
  std::vector<std::vector<std::string>> expected(results.size());
  for (size_t i = 0; i < results.size(); ++i) expected[i] = elements(bench, results[i]);
  const std::vector<std::byte> after = after_on_gpu(bench, step);
  ASSERT_EQ(after.size(), bench.used().size());
  std::ranges::copy(after, bench.used().begin());
  for (size_t i = 0; i < results.size(); ++i) EXPECT_EQ(elements(bench, results[i]), expected[i]);
}

struct FoldCase {
  const char* text;
  Sizes shape, folded;
};
void PrintTo(const FoldCase& one, std::ostream* out) { *out << one.text; }
class CudaFusedFolds : public ::testing::TestWithParam<FoldCase> {};

// A fused kernel's reduction and the kernel of the operator after one without: rows and columns,
// packs and none, few threads for a row and many, columns in one part and in several.
TEST_P(CudaFusedFolds, GiveTheBitsOfKernelsApart) {
  const FoldCase& each = GetParam();
  const Expression whole = *Expression::parse(each.text);
  Expression apart = whole;
  std::erase_if(apart.operations, [](const ExpressionOperation& operation) {
    return base::is_reduction(operation.overload);
  });
  apart.results = {apart.operations.size() - 1};
  KernelBench bench;
  RandomExpression draw(5);
  std::vector<int32_t> operands;
  for (size_t i = 0; i < whole.operands(); ++i) {
    operands.push_back(bench.tensor(i == 0 ? DType::BF16 : DType::F32, each.shape));
    fill(bench, operands.back(), i == 0 ? DType::BF16 : DType::F32, draw);
    auto* numbers = bench.data<float>(operands.back());
    if (i > 0)
      std::replace_if(
          numbers, numbers + base::numel(each.shape), [](float x) { return std::isnan(x); }, 0.0f);
  }
  const DType dtype = apart.operations.back().dtype;
  const int32_t value = bench.tensor(dtype, each.shape), kept = bench.tensor(dtype, each.shape);
  const ExpressionOperation& fold = whole.operations.back();
  Sizes sizes;
  for (size_t d = 0; d < each.shape.size(); ++d)
    if (std::ranges::count(each.folded, static_cast<int64_t>(d)) == 0)
      sizes.push_back(each.shape[d]);
  const int32_t expected = bench.tensor(fold.dtype, sizes), got = bench.tensor(fold.dtype, sizes);
  const auto run = [&](const plan::Instruction& step) {
    const std::vector<std::byte> after = after_on_gpu(bench, step);
    ASSERT_EQ(after.size(), bench.used().size());
    std::ranges::copy(after, bench.used().begin());
  };
  run(fused(apart.text(), operands, {value}));
  run(instruction("aten." + fold.overload,
                  {tensor_arg(value, "self"), list_arg("dim", each.folded)}, {expected}));
  const bool keeps = whole.results.size() > 1;
  run(fused(whole.text(), operands, keeps ? std::vector{kept, got} : std::vector{got}));
  EXPECT_EQ(elements(bench, got), elements(bench, expected));
  if (keeps) {
    EXPECT_EQ(elements(bench, kept), elements(bench, value));
  }
}
constexpr const char* kSums =
    "t0:f32=mul.Tensor(self=a0,other=a1);t1:f32=sum.dim_IntList(self=t0,dim=[1]);->t0,t1";
constexpr const char* kMeans =
    "t0:f32=_to_copy.default(self=a0);t1:f32=mean.dim(self=t0,dim=[2]);->t1";
constexpr const char* kColumns =
    "t0:bf16=neg.default(self=a0);t1:bf16=sum.dim_IntList(self=t0,dim=[0,1]);->t0,t1";
constexpr const char* kLargest =
    "t0:f32=sub.Tensor(self=a1,other=a0);t1:f32=amax.default(self=t0,dim=[0]);->t1";
constexpr const char* kLargestOfRow =
    "t0:f32=sub.Tensor(self=a1,other=a0);t1:f32=amax.default(self=t0,dim=[1]);->t1";
INSTANTIATE_TEST_SUITE_P(
    Shapes, CudaFusedFolds,
    ::testing::Values(FoldCase{kSums, {19, 2072}, {1}}, FoldCase{kSums, {300, 40}, {1}},
                      FoldCase{kSums, {7, 2048}, {1}}, FoldCase{kSums, {9, 333}, {1}},
                      FoldCase{kMeans, {3, 5, 1024}, {2}}, FoldCase{kColumns, {4, 130, 72}, {0, 1}},
                      FoldCase{kColumns, {2, 20, 333}, {0, 1}}, FoldCase{kLargest, {700, 64}, {0}},
                      FoldCase{kLargestOfRow, {5, 4104}, {1}}));

// Expressions that read row values next to the kernels of their operations, on the double: rows
// with packs and without, a row of several steps, rows that a thread keeps and longer ones.
struct RowsCase {
  const char* text;
  Sizes shape;
};
void PrintTo(const RowsCase& one, std::ostream* out) { *out << one.text; }
class CudaFusedRows : public ::testing::TestWithParam<RowsCase> {};

// a0 and a1 are of all elements, a2 is a row of columns, a3 has an element for each row.
TEST_P(CudaFusedRows, GiveTheBitsOfKernelsApart) {
  const RowsCase& each = GetParam();
  const Expression whole = *Expression::parse(each.text);
  KernelBench bench;
  RandomExpression draw(5);
  Sizes of_rows = each.shape;
  of_rows.back() = 1;
  const std::pair<DType, Sizes> kinds[] = {{DType::BF16, each.shape},
                                           {DType::BF16, each.shape},
                                           {DType::BF16, {each.shape.back()}},
                                           {DType::F32, of_rows}};
  std::vector<int32_t> operands, values, results;
  for (size_t i = 0; i < whole.operands(); ++i) {
    operands.push_back(bench.tensor(kinds[i].first, kinds[i].second));
    for (int64_t k = 0; k < base::numel(kinds[i].second); ++k) {
      const float real = static_cast<float>(draw.below(2001)) / 500.0f - 2.0f;
      if (i < 3)
        bench.data<uint16_t>(operands[i])[k] =
            static_cast<uint16_t>(std::bit_cast<uint32_t>(real) >> 16);
      else
        bench.data<float>(operands[i])[k] = real;
    }
  }
  for (size_t i = 0; i < whole.operations.size(); ++i)
    values.push_back(
        bench.tensor(whole.operations[i].dtype, whole.is_row_value(i) ? of_rows : each.shape));
  for (const size_t i : whole.results)
    results.push_back(
        bench.tensor(whole.operations[i].dtype, whole.is_row_value(i) ? of_rows : each.shape));
  const auto run = [&](const plan::Instruction& step) {
    const std::vector<std::byte> after = after_on_gpu(bench, step);
    ASSERT_EQ(after.size(), bench.used().size());
    std::ranges::copy(after, bench.used().begin());
  };
  for (size_t i = 0; i < values.size(); ++i) {
    std::vector<plan::Arg> args;
    for (const ExpressionArgument& read : whole.operations[i].arguments) {
      const auto index = static_cast<size_t>(read.integer);
      if (read.kind == ExpressionArgumentKind::Operand)
        args.push_back(tensor_arg(operands[index], read.name));
      else if (read.kind == ExpressionArgumentKind::Value)
        args.push_back(tensor_arg(values[index], read.name));
      else if (read.kind == ExpressionArgumentKind::Ints)
        args.push_back(list_arg(read.name, read.integers));
      else
        args.push_back(float_arg(read.name, read.number));
    }
    run(instruction("aten." + whole.operations[i].overload, args, {values[i]}));
  }
  run(fused(each.text, operands, results));
  for (size_t i = 0; i < results.size(); ++i)
    EXPECT_EQ(elements(bench, results[i]), elements(bench, values[whole.results[i]])) << i;
}
constexpr const char* kRmsNorm =
    "t0:bf16=add.Tensor(self=a0,other=a1);t1:f32=_to_copy.default(self=t0);"
    "t2:f32=pow.Tensor_Scalar(self=t1,exponent=2.0);t3:f32=mean.dim(self=t2,dim=[1]);"
    "t4:f32.row=add.Scalar(self=t3,other=1e-06);t5:f32.row=rsqrt.default(self=t4);"
    "t6:f32=mul.Tensor(self=t1,other=t5);t7:bf16=_to_copy.default(self=t6);"
    "t8:bf16=mul.Tensor(self=a2,other=t7);->t0,t5,t7,t8";
constexpr const char* kRmsNormBackward =
    "t0:bf16=mul.Tensor(self=a0,other=a2);t1:f32=_to_copy.default(self=t0);"
    "t2:f32=_to_copy.default(self=a1);t3:f32=mul.Tensor(self=t1,other=a3);"
    "t4:f32=mul.Tensor(self=t1,other=t2);t5:f32=sum.dim_IntList(self=t4,dim=[1]);"
    "t6:f32.row=pow.Tensor_Scalar(self=a3,exponent=3.0);"
    "t7:f32.row=mul.Scalar(self=t5,other=-0.5);t8:f32.row=mul.Tensor(self=t7,other=t6);"
    "t9:f32.row=div.Scalar(self=t8,other=2048.0);t10:f32=mul.Scalar(self=t2,other=2.0);"
    "t11:f32=mul.Tensor(self=t9,other=t10);t12:f32=add.Tensor(self=t3,other=t11);"
    "t13:bf16=_to_copy.default(self=t12);->t13,t5";
constexpr const char* kLayerNorm =
    "t0:f32=_to_copy.default(self=a0);t1:f32=mean.dim(self=t0,dim=[1]);"
    "t2:f32=sub.Tensor(self=t0,other=t1);t3:f32=mul.Tensor(self=t2,other=t2);"
    "t4:f32=mean.dim(self=t3,dim=[1]);t5:f32.row=add.Scalar(self=t4,other=1e-05);"
    "t6:f32.row=rsqrt.default(self=t5);t7:f32=mul.Tensor(self=t2,other=t6);"
    "t8:f32=add.Tensor(self=t7,other=a1);->t8,t6,t1";
constexpr const char* kSoftmax =
    "t0:bf16=add.Tensor(self=a0,other=a1);t1:bf16=amax.default(self=t0,dim=[1]);"
    "t2:bf16=sub.Tensor(self=t0,other=t1);t3:f32=_to_copy.default(self=t2);"
    "t4:f32=exp.default(self=t3);t5:f32=sum.dim_IntList(self=t4,dim=[1]);"
    "t6:f32=div.Tensor(self=t4,other=t5);->t6";
INSTANTIATE_TEST_SUITE_P(
    Shapes, CudaFusedRows,
    ::testing::Values(RowsCase{kRmsNorm, {19, 2048}}, RowsCase{kRmsNorm, {9, 333}},
                      RowsCase{kRmsNorm, {8, 8192}}, RowsCase{kRmsNormBackward, {40, 2048}},
                      RowsCase{kRmsNormBackward, {13, 296}}, RowsCase{kLayerNorm, {24, 1536}},
                      RowsCase{kLayerNorm, {17, 63}}, RowsCase{kSoftmax, {70, 100}}));

class CudaOperators : public ::testing::TestWithParam<DType> {};
TEST_P(CudaOperators, GiveTheBitsOfTheCpu) {
  Batch batch;
  size_t operations = 0;
  for (auto& one : every_operator(GetParam())) {
    operations += one->expression.operations.size();
    batch.add(std::move(one));
  }
  EXPECT_GT(operations, base::is_floating(GetParam()) ? 80u : 40u);
  batch.compare();
}
INSTANTIATE_TEST_SUITE_P(Types, CudaOperators,
                         ::testing::Values(DType::F32, DType::BF16, DType::F16, DType::F64,
                                           DType::I64, DType::I32, DType::U8, DType::Bool),
                         [](const auto& info) { return std::string(base::name(info.param)); });

TEST(CudaExpression, ThoseOfModelsGiveTheBitsOfTheCpu) {
  Batch batch;
  for (const DType dtype : {DType::F32, DType::BF16})
    for (auto& one : expressions_of_models(dtype)) batch.add(std::move(one));
  EXPECT_GT(batch.size(), 20u);
  batch.compare();
}

// Rows of 8 elements a time, and what has one element, or a row, for all.
TEST(CudaExpression, PacksGiveTheBitsOfTheCpu) {
  Batch batch;
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16})
    for (const bool broadcasts : {false, true})
      for (auto& one : expressions_of_models(dtype, {37, 64}, broadcasts))
        batch.add(std::move(one));
  EXPECT_GT(batch.size(), 60u);
  batch.compare();
}

std::string text_of(const ExpressionCase& one) {
  std::vector<const void*> addresses;
  const auto source = one.source(nullptr, &addresses);
  EXPECT_TRUE(source.ok()) << source.status().to_string();
  return source->text;
}

TEST(CudaSource, IsTheSameForEqualExpressionsAndLayouts) {
  EXPECT_EQ(text_of(*random_case(7)), text_of(*random_case(7)));
  EXPECT_NE(text_of(*random_case(7)), text_of(*random_case(8)));
}

TEST(CudaSource, CountsWith64BitsOnlyWhereItMust) {
  ExpressionCase small, large;
  for (ExpressionCase* one : {&small, &large}) {
    one->expression = *Expression::parse("t0:f32=neg.default(self=a0);->t0");
    one->operands = {one->bench->tensor(DType::F32, {4})};
    one->results = {one->bench->tensor(DType::F32, {4})};
  }
  // Two rows that lie far from each other.
  for (const int32_t id : {large.operands[0], large.results[0]}) {
    large.bench->plan().tensors[static_cast<size_t>(id)].sizes = {2, 4};
    large.bench->plan().tensors[static_cast<size_t>(id)].strides = {int64_t{1} << 31, 1};
  }
  EXPECT_THAT(text_of(small), ::testing::HasSubstr("for (uint32_t i"));
  EXPECT_THAT(text_of(large), ::testing::HasSubstr("for (int64_t i"));
}

TEST(CudaSource, TakesPacksWhereRangesAreOfWholePacks) {
  using ::testing::HasSubstr;
  EXPECT_THAT(text_of(*rotary(64)), HasSubstr("pack_a3 = cuda::load_pack_if<8>(in_32_64"));
  EXPECT_THAT(text_of(*rotary(24)), HasSubstr("pack_a3 = cuda::load_pack_if<4>(in_12_24"));
  EXPECT_THAT(text_of(*rotary(6)), Not(HasSubstr("load_pack")));
}

// As many elements as 16 bytes of the largest type have, where all lie so that this goes.
TEST(CudaSource, TakesPacksWhereElementsAreNeighbours) {
  const auto text = [](DType dtype, const Sizes& sizes, const Sizes& strides, size_t skipped) {
    ExpressionCase one;
    const std::string type(base::name(dtype));
    one.expression = *Expression::parse("t0:" + type + "=neg.default(self=a0);->t0");
    one.operands = {one.bench->tensor(dtype, sizes, strides)};
    one.results = {one.bench->tensor(dtype, sizes)};
    std::vector<const void*> addresses;
    alignas(64) static std::byte memory[4096];
    return one.source(memory + skipped, &addresses)->text;
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(text(DType::F32, {6, 16}, {16, 1}, 0), HasSubstr("load_pack<4>"));
  EXPECT_THAT(text(DType::BF16, {6, 16}, {16, 1}, 0), HasSubstr("load_pack<8>"));
  EXPECT_THAT(text(DType::BF16, {6, 16}, {20, 1}, 0), HasSubstr("load_pack<4>"));
  EXPECT_THAT(text(DType::BF16, {6, 16}, {16, 1}, 4), HasSubstr("load_pack<2>"));
  EXPECT_THAT(text(DType::F32, {6, 15}, {16, 1}, 0), Not(HasSubstr("load_pack")));
  EXPECT_THAT(text(DType::F32, {6, 16}, {1, 6}, 0), Not(HasSubstr("load_pack")));
}

}  // namespace
}  // namespace dc::runtime
