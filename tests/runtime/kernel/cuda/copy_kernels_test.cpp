// Copies, embeddings and indices on the double of a GPU give the CPU's bits.
#include <gtest/gtest.h>

#include "tests/runtime/kernel/cuda/gpu_bench.h"

namespace dc::runtime {
namespace {

using base::DType;
using Sizes = KernelBench::Sizes;

plan::Arg tensors_arg(const std::vector<int64_t>& ids) {
  plan::Arg arg;
  arg.name = "tensors";
  arg.kind = plan::ArgKind::Tensors;
  arg.ints = ids;
  return arg;
}

// Lengths with every width of words, and between regions that begin anywhere.
TEST(CudaCopies, OfPartsOfEveryLengthGiveTheBitsOfTheCpu) {
  for (const DType dtype : {DType::F32, DType::BF16, DType::U8, DType::I64}) {
    for (const int64_t length : {1, 3, 4, 8, 15, 16, 64}) {
      SCOPED_TRACE(std::string(base::name(dtype)) + " " + std::to_string(length));
      KernelBench bench;
      const auto numbered = [&](const Sizes& sizes) {
        const int32_t id = bench.tensor(dtype, sizes);
        auto* bytes = bench.data<uint8_t>(id);
        const int64_t count = KernelBench::bytes(bench.plan().tensors[static_cast<size_t>(id)]);
        for (int64_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(i * 7 + id);
        return id;
      };
      const int32_t left = numbered({3, length}), right = numbered({3, 2 * length}),
                    both = bench.tensor(dtype, {3, 3 * length}),
                    padded = bench.tensor(dtype, {3, 3 * length + 2}),
                    transposed = bench.tensor(dtype, {2 * length, 3});
      plan::Tensor view = bench.plan().tensors[static_cast<size_t>(right)];
      std::swap(view.sizes[0], view.sizes[1]);
      std::swap(view.strides[0], view.strides[1]);
      bench.plan().tensors.push_back(view);
      const auto columns = static_cast<int32_t>(bench.plan().tensors.size()) - 1;
      expect_bits_of_cpu(
          bench,
          instruction("aten.cat.default", {tensors_arg({left, right}), int_arg("dim", 1)}, {both}));
      expect_bits_of_cpu(bench, instruction("aten.slice_backward.default",
                                            {tensor_arg(right, "grad_output"), int_arg("dim", 1),
                                             int_arg("start", 1), int_arg("end", 1 + 2 * length),
                                             int_arg("step", 1)},
                                            {padded}));
      expect_bits_of_cpu(
          bench, instruction("aten.clone.default", {tensor_arg(columns, "self")}, {transposed}));
    }
  }
}

TEST(CudaCopies, OfRolledPartsGiveTheBitsOfTheCpu) {
  for (const DType dtype : {DType::F32, DType::BF16}) {
    KernelBench bench;
    const int32_t self = noisy(bench, dtype, {4, 6, 8}, 5), to = bench.tensor(dtype, {4, 6, 8});
    const auto expect_bits = [&](const Sizes& shifts, const Sizes& dims) {
      expect_bits_of_cpu(bench, instruction("aten.roll.default",
                                            {tensor_arg(self, "self"), list_arg("shifts", shifts),
                                             list_arg("dims", dims)},
                                            {to}));
    };
    expect_bits({1}, {1});
    expect_bits({-2, 5}, {0, -1});
    expect_bits({77}, {});
  }
}

TEST(CudaCopies, TrianglesAndCountsGiveTheBitsOfTheCpu) {
  KernelBench bench;
  const int32_t square = noisy(bench, DType::F32, {2, 5, 7}, 3),
                to = bench.tensor(DType::F32, {2, 5, 7});
  for (const int64_t diagonal : {-9, -1, 0, 2, 9})
    for (const char* op : {"aten.tril.default", "aten.triu.default"})
      expect_bits_of_cpu(
          bench,
          instruction(op, {tensor_arg(square, "self"), int_arg("diagonal", diagonal)}, {to}));
  for (const DType dtype : {DType::I64, DType::F32, DType::BF16}) {
    const int32_t count = bench.tensor(dtype, {300});
    expect_bits_of_cpu(bench, instruction("aten.arange.start_step",
                                          {int_arg("start", -3), int_arg("step", 2)}, {count}));
  }
}

TEST(CudaEmbedding, AndItsGradientGiveTheBitsOfTheCpu) {
  for (const DType dtype : {DType::F32, DType::BF16}) {
    for (const int64_t columns : {1, 6, 8, 40}) {
      for (const bool by_frequency : {false, true}) {
        constexpr int64_t kRows = 11, kBatch = 3, kLength = 130;
        KernelBench bench;
        std::vector<int64_t> numbers(kBatch * kLength);
        for (size_t i = 0; i < numbers.size(); ++i)
          numbers[i] = static_cast<int64_t>(i * i % 13 % static_cast<size_t>(kRows));
        const int32_t table = noisy(bench, dtype, {kRows, columns}, 1),
                      indices = bench.filled(DType::I64, {kBatch, kLength}, numbers),
                      to = bench.tensor(dtype, {kBatch, kLength, columns}),
                      g = noisy(bench, dtype, {kBatch, kLength, columns}, 2),
                      of_table = bench.tensor(dtype, {kRows, columns});
        expect_bits_of_cpu(
            bench,
            instruction("aten.embedding.default",
                        {tensor_arg(table, "weight"), tensor_arg(indices, "indices")}, {to}));
        expect_bits_of_cpu(
            bench, instruction("aten.embedding_dense_backward.default",
                               {tensor_arg(g, "grad_output"), tensor_arg(indices, "indices"),
                                int_arg("num_weights", kRows), int_arg("padding_idx", 3),
                                int_arg("scale_grad_by_freq", by_frequency ? 1 : 0)},
                               {of_table}));
      }
    }
  }
}

TEST(CudaEmbedding, OfARowThatThereIsNotIsNaN) {
  KernelBench bench;
  const int32_t table = noisy(bench, DType::F32, {4, 8}, 1),
                indices = bench.filled<int64_t>(DType::I64, {2}, {1, 4}),
                to = bench.tensor(DType::F32, {2, 8});
  const auto memory = after_on_gpu(
      bench, instruction("aten.embedding.default",
                         {tensor_arg(table, "weight"), tensor_arg(indices, "indices")}, {to}));
  const std::vector<double> got = elements_of(bench, memory, to);
  EXPECT_FALSE(std::isnan(got[7]));
  EXPECT_TRUE(std::isnan(got[8]));
}

// Where indices are equal, the last one stays, or all are added in order.
TEST(CudaScatter, OfEqualIndicesGivesTheBitsOfTheCpu) {
  for (const DType dtype : {DType::F32, DType::BF16}) {
    KernelBench bench;
    std::vector<int64_t> numbers(80);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int64_t>(i * 5 % 7);
    const int32_t self = noisy(bench, dtype, {4, 9}, 1), src = noisy(bench, dtype, {4, 20}, 2),
                  index = bench.filled(DType::I64, {4, 20}, numbers),
                  to = bench.tensor(dtype, {4, 9});
    for (const char* op : {"aten.scatter.src", "aten.scatter_add.default"})
      expect_bits_of_cpu(bench, instruction(op,
                                            {tensor_arg(self, "self"), int_arg("dim", 1),
                                             tensor_arg(index, "index"), tensor_arg(src, "src")},
                                            {to}));
  }
}

// Of floats the line, or the tensor, begins with NaN, which is seen; of integers nothing is
// written.
template <typename T>
class NoSuchIndex {
 public:
  explicit NoSuchIndex(DType dtype) : dtype_(dtype) {}

  void expect(int64_t bad, bool is_last) {
    SCOPED_TRACE(std::to_string(bad) + (is_last ? " last" : " first"));
    const auto with = [&](int64_t good) {
      return is_last ? std::vector{good, bad} : std::vector{bad, good};
    };
    const int32_t src = bench_.filled<T>(dtype_, {2, 2}, {10, 10, 30, 40}),
                  more = bench_.filled<T>(dtype_, {2, 3}, {10, 20, 30, 10, 20, 30});
    std::vector<int64_t> of_lines = with(0);
    of_lines.insert(of_lines.end(), {1, 0});
    const int32_t lines = bench_.filled(DType::I64, {2, 2}, of_lines);
    const std::vector<plan::Arg> scattered = {int_arg("dim", 1), tensor_arg(lines, "index"),
                                              tensor_arg(src, "src")};
    expect("aten.scatter.src", scattered, {10, 2, 3, 40, 30, 6}, 1);
    expect("aten.scatter_add.default", scattered, {11, 2, 3, 44, 35, 6}, 1);
    for (const int64_t row : {0, 1}) {
      const int32_t rows = bench_.filled(DType::I64, {2}, with(row));
      plan::Arg indices;
      indices.name = "indices";
      indices.kind = plan::ArgKind::Tensors;
      indices.ints = {rows};
      std::vector<T> put = kBefore, added = kBefore;
      for (size_t i = 0; i < 3; ++i) {
        T& element = put[static_cast<size_t>(row) * 3 + i];
        element = static_cast<T>(10 * (i + 1));
        added[static_cast<size_t>(row) * 3 + i] += element;
      }
      for (const bool adds : {false, true})
        expect("aten.index_put.default",
               {indices, tensor_arg(more, "values"), int_arg("accumulate", adds ? 1 : 0)},
               adds ? added : put, 3);
      expect("aten.index_add.default",
             {int_arg("dim", 0), tensor_arg(rows, "index"), tensor_arg(more, "source")}, added, 3);
    }
  }

 private:
  const std::vector<T> kBefore = {1, 2, 3, 4, 5, 6};

  // `nans`: how many elements of floats are NaN, from the first on.
  void expect(const char* op, std::vector<plan::Arg> arguments, const std::vector<T>& wanted,
              size_t nans) {
    SCOPED_TRACE(op);
    const int32_t self = bench_.filled<T>(dtype_, {2, 3}, kBefore),
                  to = bench_.tensor(dtype_, {2, 3});
    arguments.push_back(tensor_arg(self, "self"));
    const auto memory = after_on_gpu(bench_, instruction(op, std::move(arguments), {to}));
    const std::vector<double> got = elements_of(bench_, memory, to);
    for (size_t i = 0; i < got.size(); ++i) {
      if (base::is_floating(dtype_) && i < nans)
        EXPECT_TRUE(std::isnan(got[i])) << "element " << i << " is " << got[i];
      else
        EXPECT_EQ(got[i], static_cast<double>(wanted[i])) << "element " << i;
    }
  }

  DType dtype_;
  KernelBench bench_;
};
TEST(CudaScatter, ByAnIndexThatThereIsNotIsSeen) {
  for (const bool is_last : {false, true}) {
    for (const int64_t bad : {int64_t{3}, int64_t{-4}, int64_t{1} << 40}) {
      NoSuchIndex<float>(DType::F32).expect(bad, is_last);
      NoSuchIndex<double>(DType::F64).expect(bad, is_last);
      NoSuchIndex<int64_t>(DType::I64).expect(bad, is_last);
    }
  }
}

}  // namespace
}  // namespace dc::runtime
