// Systems of equations with triangular matrices: A X = B for each matrix of a batch.
//
// X A = B is solved as its transpose. A block of columns of B is copied to rows without gaps; then,
// in the order in which they become known, each row loses the rows before it times their elements
// of A, one after the other, and is divided by the element on the diagonal. So each element has one
// order of operations, whatever the strides and the width of vectors.
#include <algorithm>
#include <array>
#include <vector>

#include "runtime/kernel/native/iteration.h"
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

// The last two dims of a tensor, as the equation A X = B has them.
struct MatrixStrides {
  int64_t row = 0, column = 0;
  MatrixStrides() = default;
  MatrixStrides(const BoundTensor& tensor, bool is_transposed)
      : row(tensor.strides[tensor.strides.size() - 2]), column(tensor.strides.back()) {
    if (is_transposed) std::swap(row, column);
  }
};

template <typename T>
class SolveTriangular final : public Kernel {
 public:
  struct Tensors {
    BoundTensor a, b, to;
    MatrixStrides a_strides, b_strides, to_strides;
    int64_t columns = 0;  // of X
    Iteration batch;      // over to, a, b
  };
  SolveTriangular(const Tensors& t, const Triangle<T>& triangle)
      : t_(t),
        triangle_(triangle),
        block_(static_cast<size_t>(triangle.size * BlockRow<T>::kLength)) {}

  base::Status launch(device::Stream& stream) override {
    const auto* a = static_cast<const T*>(stream.resolve(t_.a.data));
    const auto* b = static_cast<const T*>(stream.resolve(t_.b.data));
    auto* to = static_cast<T*>(stream.resolve(t_.to.data));
    t_.batch.for_each_row([&](const Offsets& at) {
      for (int64_t i = 0; i < t_.batch.inner(); ++i) {
        solve(to + at[0] + i * t_.batch.inner_stride(0), a + at[1] + i * t_.batch.inner_stride(1),
              b + at[2] + i * t_.batch.inner_stride(2));
      }
    });
    return {};
  }

 private:
  void solve(T* to, const T* a, const T* b) {
    constexpr int64_t kLength = BlockRow<T>::kLength;
    triangle_.data = a;
    const MatrixStrides &from = t_.b_strides, &into = t_.to_strides;
    for (int64_t first = 0; first < t_.columns; first += kLength) {
      const int64_t n = std::min(kLength, t_.columns - first);
      for_each_element(triangle_.size, n, from.row < from.column, [&](int64_t r, int64_t c) {
        block_[r * kLength + c] = b[r * from.row + (first + c) * from.column];
      });
      solve_block(triangle_, block_.data());
      for_each_element(triangle_.size, n, into.row < into.column, [&](int64_t r, int64_t c) {
        to[r * into.row + (first + c) * into.column] = block_[r * kLength + c];
      });
    }
  }

  Tensors t_;
  Triangle<T> triangle_;
  std::vector<T> block_;
};

// The tensor without its two last dims, broadcast to a batch of these sizes.
std::vector<int64_t> batch_strides(Call& call, const BoundTensor& tensor,
                                   std::span<const int64_t> sizes) {
  BoundTensor batch = tensor;
  batch.sizes = batch.sizes.first(batch.sizes.size() - 2);
  batch.strides = batch.strides.first(batch.sizes.size());
  const auto strides = broadcast_strides(batch, sizes);
  call.require(strides.has_value(), "an operand cannot be broadcast to the batch of the result");
  return strides.value_or(std::vector<int64_t>());
}

template <typename T>
Made solve_triangular(Call& call, const BoundTensor& a, const BoundTensor& b,
                      const BoundTensor& to) {
  const bool is_left = call.integer("left", 1) != 0, is_upper = call.integer("upper") != 0;
  Triangle<T> triangle;
  triangle.size = a.sizes.back();
  triangle.is_upper = is_upper == is_left;  // of the transpose the other half
  triangle.has_unit_diagonal = call.integer("unitriangular", 0) != 0;
  const size_t dims = to.sizes.size();
  const int64_t rows = to.sizes[is_left ? dims - 2 : dims - 1];
  call.require(a.sizes[a.sizes.size() - 2] == triangle.size && rows == triangle.size,
               "the matrix is not square or has another size than the equations");
  call.require(
      b.sizes.back() == to.sizes.back() && b.sizes[b.sizes.size() - 2] == to.sizes[dims - 2],
      "the result has another shape");
  call.require(triangle.size <= kMostRows, "the matrix has more than 65536 rows");
  typename SolveTriangular<T>::Tensors t;
  t.a = a, t.b = b, t.to = to;
  t.columns = to.sizes[is_left ? dims - 1 : dims - 2];
  t.a_strides = MatrixStrides(a, !is_left);
  t.b_strides = MatrixStrides(b, !is_left);
  t.to_strides = MatrixStrides(to, !is_left);
  triangle.row_stride = t.a_strides.row;
  triangle.column_stride = t.a_strides.column;
  const auto sizes = to.sizes.first(dims - 2), own = to.strides.first(dims - 2);
  const std::array strides{std::vector<int64_t>(own.begin(), own.end()),
                           batch_strides(call, a, sizes), batch_strides(call, b, sizes)};
  if (!call.ok()) return call.made(nullptr);
  t.batch = Iteration(sizes, strides);
  call.require(t.batch.fits(), "its tensors have too many dims");
  if (!call.ok()) return call.made(nullptr);
  return call.finish<SolveTriangular<T>>(t, triangle);
}

Made make_solve_triangular(Call& call) {
  const BoundTensor a = call.tensor("self"), b = call.tensor("B"), to = call.output(0);
  call.require(a.dtype == to.dtype && b.dtype == to.dtype, "the element types differ");
  call.require(to.dtype == base::DType::F32 || to.dtype == base::DType::F64, "it takes f32 or f64");
  call.require(a.sizes.size() >= 2 && b.sizes.size() >= 2 && to.sizes.size() >= 2,
               "it takes matrices");
  if (!call.ok()) return call.made(nullptr);
  return to.dtype == base::DType::F64 ? solve_triangular<double>(call, a, b, to)
                                      : solve_triangular<float>(call, a, b, to);
}

constexpr Row kRows[] = {
    {"aten.linalg_solve_triangular.default", make_solve_triangular},
};

}  // namespace

std::span<const Row> triangular_kernels() { return kRows; }

}  // namespace dc::runtime::kernel::native
