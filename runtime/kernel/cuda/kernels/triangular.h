// Systems of equations with triangular matrices. A thread takes a column of a result: each element
// loses those before it times their elements of A, one after the other, and is divided by the
// element on the diagonal, as on CPUs.
#pragma once

#include "runtime/kernel/cuda/kernel_words.h"
#include "runtime/kernel/cuda/kernels/triangular_parameters.h"

namespace dc::runtime::kernel::cuda {

template <typename T>
inline void solve_triangular(const TriangularSystem& parameters) {
  const int64_t size = parameters.size;
  for (int64_t i = first_element<int64_t>(); i < parameters.batch.count * parameters.columns;
       i += all_threads<int64_t>()) {
    const Places<3> at = places_of(parameters.batch, i / parameters.columns);
    const int64_t column = i % parameters.columns;
    T* x = static_cast<T*>(parameters.x.data) + at.at[0] + column * parameters.x.column;
    const T* a = static_cast<const T*>(parameters.a.data) + at.at[1];
    const T* b = static_cast<const T*>(parameters.b.data) + at.at[2] + column * parameters.b.column;
    for (int64_t done = 0; done < size; ++done) {
      const int64_t row = parameters.is_upper ? size - 1 - done : done;
      const T* factors = a + row * parameters.a.row;
      T left = b[row * parameters.b.row];
      for (int64_t k = 0; k < done; ++k) {
        const int64_t known = parameters.is_upper ? size - 1 - k : k;
        left = left - x[known * parameters.x.row] * factors[known * parameters.a.column];
      }
      if (!parameters.has_unit_diagonal) left = left / factors[row * parameters.a.column];
      x[row * parameters.x.row] = left;
    }
  }
}

}  // namespace dc::runtime::kernel::cuda
