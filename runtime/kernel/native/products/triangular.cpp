// Systems of equations with triangular matrices: A X = B for each matrix of a batch.
//
// A block of columns of B is copied to rows without gaps; then, in the order in which they become
// known, each row loses the rows before it times their elements of A, one after the other, and is
// divided by the element on the diagonal. So each element has one order of operations, whatever the
// strides and the width of vectors.
#include <algorithm>
#include <vector>

#include "runtime/kernel/native/products/triangular_call.h"
#include "runtime/kernel/native/registry.h"
#include "runtime/kernel/native/vector_clones.h"

namespace dc::runtime::kernel::native {
namespace {

constexpr int64_t kMostRows = int64_t{1} << 16;

// One matrix; strides in elements.
template <typename T>
struct Triangle {
  const T* data = nullptr;
  int64_t size = 0, row_stride = 0, column_stride = 0;
  bool is_upper = false, has_unit_diagonal = false;
};

// 256 bytes of a row: four vectors of 64 bytes, or more shorter ones, as the CPU has them.
template <typename T>
struct BlockRow {
  static constexpr int64_t kWidth = 64 / sizeof(T), kVectors = 4, kLength = kWidth * kVectors;
  using Vector [[gnu::vector_size(64)]] = T;
  using InMemory [[gnu::vector_size(64), gnu::aligned(sizeof(T)), gnu::may_alias]] = T;
};

// Rows of kLength elements, overwritten by the solution.
template <typename T>
DC_VECTOR_CLONES void solve_block(const Triangle<T>& a, T* block) {
  using R = BlockRow<T>;
  for (int64_t done = 0; done < a.size; ++done) {
    const int64_t i = a.is_upper ? a.size - 1 - done : done, next = a.is_upper ? -1 : 1;
    auto* row = reinterpret_cast<typename R::InMemory*>(block + i * R::kLength);
    typename R::Vector left[R::kVectors];
    for (int64_t v = 0; v < R::kVectors; ++v) left[v] = row[v];
    const T* factors = a.data + i * a.row_stride;
    int64_t k = a.is_upper ? a.size - 1 : 0;
    for (int64_t known = 0; known < done; ++known, k += next) {
      const auto* other = reinterpret_cast<const typename R::InMemory*>(block + k * R::kLength);
      const T factor = factors[k * a.column_stride];
      for (int64_t v = 0; v < R::kVectors; ++v) left[v] = left[v] - other[v] * factor;
    }
    if (!a.has_unit_diagonal) {
      const T diagonal = factors[i * a.column_stride];
      for (int64_t v = 0; v < R::kVectors; ++v) left[v] = left[v] / diagonal;
    }
    for (int64_t v = 0; v < R::kVectors; ++v) row[v] = left[v];
  }
}

// Between a block and rows and columns of any strides.
template <typename F>
void for_each_element(int64_t rows, int64_t columns, bool rows_are_near, F&& f) {
  if (rows_are_near) {
    for (int64_t c = 0; c < columns; ++c)
      for (int64_t r = 0; r < rows; ++r) f(r, c);
  } else {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) f(r, c);
  }
}

template <typename T>
class SolveTriangular final : public Kernel {
 public:
  explicit SolveTriangular(const TriangularCall& of)
      : of_(of),
        triangle_{nullptr, of.size, of.a.row, of.a.column, of.is_upper, of.has_unit_diagonal},
        block_(static_cast<size_t>(of.size * BlockRow<T>::kLength)) {}

  base::Status launch(device::Stream& stream) override {
    const auto* a = static_cast<const T*>(stream.resolve(of_.a.data));
    const auto* b = static_cast<const T*>(stream.resolve(of_.b.data));
    auto* to = static_cast<T*>(stream.resolve(of_.x.data));
    of_.batch.for_each_row([&](const Offsets& at) {
      for (int64_t i = 0; i < of_.batch.inner(); ++i) {
        solve(to + at[0] + i * of_.batch.inner_stride(0), a + at[1] + i * of_.batch.inner_stride(1),
              b + at[2] + i * of_.batch.inner_stride(2));
      }
    });
    return {};
  }

 private:
  void solve(T* to, const T* a, const T* b) {
    constexpr int64_t kLength = BlockRow<T>::kLength;
    triangle_.data = a;
    const MatrixTensor &from = of_.b, &into = of_.x;
    for (int64_t first = 0; first < of_.columns; first += kLength) {
      const int64_t n = std::min(kLength, of_.columns - first);
      for_each_element(triangle_.size, n, from.row < from.column, [&](int64_t r, int64_t c) {
        block_[r * kLength + c] = b[r * from.row + (first + c) * from.column];
      });
      solve_block(triangle_, block_.data());
      for_each_element(triangle_.size, n, into.row < into.column, [&](int64_t r, int64_t c) {
        to[r * into.row + (first + c) * into.column] = block_[r * kLength + c];
      });
    }
  }

  TriangularCall of_;
  Triangle<T> triangle_;
  std::vector<T> block_;
};

Made make_solve_triangular(Call& call) {
  const TriangularCall of = read_triangular(call);
  call.require(of.size <= kMostRows, "the matrix has more than 65536 rows");
  return of.dtype == base::DType::F64 ? call.finish<SolveTriangular<double>>(of)
                                      : call.finish<SolveTriangular<float>>(of);
}

constexpr Row kRows[] = {
    {"aten.linalg_solve_triangular.default", make_solve_triangular},
};

}  // namespace

std::span<const Row> triangular_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
