// Folds over some dims: floating-point elements in f64, others in i64, in an order that depends on
// no GPU. Where the result is an integer, floating-point elements are cut to integers first.
#pragma once

#include "runtime/kernel/cuda/kernels/blocks.h"
#include "runtime/kernel/cuda/kernels/numbers.h"
#include "runtime/kernel/cuda/kernels/reduce_parameters.h"
#include "runtime/kernel/scalar/math.h"

namespace dc::runtime::kernel::cuda {

template <typename From, typename To>
inline constexpr bool kFoldsFloating = scalar::kFloating<decltype(scalar::load(To{}))> ||
                                       (scalar::kFloating<decltype(scalar::load(From{}))> &&
                                        scalar::kSame<To, scalar::Bool>);
template <bool kIsFloating>
struct TotalType {
  using Type = double;
};
template <>
struct TotalType<false> {
  using Type = int64_t;
};
template <typename From, typename To>
using Total = typename TotalType<kFoldsFloating<From, To>>::Type;

struct SumFold {
  template <typename A>
  static A neutral() {
    return 0;
  }
  template <typename A>
  static A of(A x) {
    return x;
  }
  template <typename A>
  static A join(A a, A b) {
    return a + b;
  }
};
struct ProductFold : SumFold {
  template <typename A>
  static A neutral() {
    return 1;
  }
  template <typename A>
  static A join(A a, A b) {
    return a * b;
  }
};
struct MaxFold : SumFold {
  template <typename A>
  static A neutral() {
    if constexpr (scalar::kFloating<A>) {
      return minus_infinity<A>();
    } else {
      return scalar::numeric_limits<A>::min();
    }
  }
  template <typename A>
  static A join(A a, A b) {
    return larger(a, b);
  }
};
struct MinFold : SumFold {
  template <typename A>
  static A neutral() {
    if constexpr (scalar::kFloating<A>) {
      return -minus_infinity<A>();
    } else {
      return scalar::numeric_limits<A>::max();
    }
  }
  template <typename A>
  static A join(A a, A b) {
    return b < a || b != b ? b : a;
  }
};
struct AnyFold : SumFold {
  template <typename A>
  static A of(A x) {
    return x != 0 ? 1 : 0;
  }
  template <typename A>
  static A join(A a, A b) {
    return a != 0 || b != 0 ? 1 : 0;
  }
};
struct AllFold : AnyFold {
  template <typename A>
  static A neutral() {
    return 1;
  }
  template <typename A>
  static A join(A a, A b) {
    return a != 0 && b != 0 ? 1 : 0;
  }
};

template <typename To, typename A>
inline To of_total(A total, double divisor) {
  if constexpr (scalar::kFloating<A>) total = total / divisor;
  return scalar::store<To>(total);
}

// The elements that one result is made of.
template <typename From, typename To>
struct Terms {
  using A = Total<From, To>;
  Terms(const Reduce& parameters, int64_t result)
      : of(parameters), begin(places_of(parameters.kept, result)) {}
  A at(int64_t term) const {
    const int64_t place = begin.at[0] + places_of(of.folded, term).at[0];
    return scalar::store<A>(scalar::load(static_cast<const From*>(of.from)[place]));
  }
  void put(A total) const {
    static_cast<To*>(of.to)[begin.at[1]] = of_total<To>(total, of.divisor);
  }
  const Reduce& of;
  Places<2> begin;
};

// A block makes a result: thread t folds the terms t, t + kBlockThreads ... in order.
template <typename From, typename To, typename Fold>
inline void reduce_by_blocks(const Reduce& parameters) {
  using A = Total<From, To>;
  for (int64_t i = blockIdx.x; i < parameters.kept.count; i += gridDim.x) {
    const Terms<From, To> terms(parameters, i);
    A total = Fold::template neutral<A>();
    for_each_in_block(parameters.folded.count,
                      [&](int64_t term) { total = Fold::join(total, Fold::of(terms.at(term))); });
    total = block_join(total, [](A a, A b) { return Fold::join(a, b); });
    if (threadIdx.x == 0) terms.put(total);
  }
}

// What the kLanes threads of a row have, for each of them: a tree over halves of a warp, then one
// over halves of the row's warps.
template <typename Fold, unsigned kLanes, typename A>
inline A row_total(A total) {
  constexpr unsigned kWarp = 32, kWarps = kLanes / kWarp;
  for (unsigned half = kWarp / 2; half > 0; half /= 2)
    total = Fold::join(total, exchange(total, half));
  if constexpr (kWarps == 1) {
    return exchange(total, threadIdx.x % kWarp);  // the first one's
  } else {
    __shared__ A of_warps[kBlockThreads / kWarp];
    if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = total;
    __syncthreads();
    A all[kWarps];
    for (unsigned w = 0; w < kWarps; ++w) all[w] = of_warps[threadIdx.x / kLanes * kWarps + w];
    __syncthreads();
    for (unsigned half = kWarps / 2; half > 0; half /= 2)
      for (unsigned w = 0; w < half; ++w) all[w] = Fold::join(all[w], all[w + half]);
    return all[0];
  }
}
// Folds kCount columns of each of kResultsOfBlock threads over the threads of the block that share
// them, which are kResultsOfBlock apart, in their order. Calls put(thread, k, total) once for each
// column k of each of these threads, in any thread of the block; with one column each, in its own.
template <typename Fold, int kCount, typename A, typename Put>
inline void for_each_column(const A (&totals)[kCount], Put put) {
  constexpr unsigned kColumns = kResultsOfBlock, kLanes = kBlockThreads / kColumns;
  constexpr unsigned kPitch = kColumns + 4;  // so that neither writes nor reads wait for banks
  __shared__ A all[kLanes][kCount * kPitch];
  const unsigned thread = threadIdx.x;
  for (int k = 0; k < kCount; ++k)
    all[thread / kColumns][k * kPitch + thread % kColumns] = totals[k];
  __syncthreads();
  if (thread < kCount * kColumns) {
    const unsigned k = thread % kCount, column = thread / kCount, place = k * kPitch + column;
    A total = all[0][place];
    for (unsigned l = 1; l < kLanes; ++l) total = Fold::join(total, all[l][place]);
    put(column, k, total);
  }
  __syncthreads();
}
// For results whose elements lie next to each other: kLanes threads make one. Lane l folds
// kElementsOfLane neighbours from l * kElementsOfLane on, then those of kLanes lanes further, in
// order; then the lanes are folded as row_total says.
template <typename From, typename To, typename Fold, int64_t kLanes>
inline void reduce_by_rows(const Reduce& parameters) {
  using A = Total<From, To>;
  constexpr int64_t kRows = kBlockThreads / kLanes, kChunk = kElementsOfLane;
  const int64_t row = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  const int64_t count = parameters.folded.count;
  for (int64_t first = int64_t{blockIdx.x} * kRows; first < parameters.kept.count;
       first += int64_t{gridDim.x} * kRows) {
    const bool exists = first + row < parameters.kept.count;
    const Terms<From, To> terms(parameters, exists ? first + row : first);
    const From* from = static_cast<const From*>(parameters.from) + terms.begin.at[0];
    const bool has_packs = reinterpret_cast<scalar::uint64_t>(from) % 16 == 0;
    A total = Fold::template neutral<A>();
    const auto add = [&](From x) {
      total = Fold::join(total, Fold::of(scalar::store<A>(scalar::load(x))));
    };
    for (int64_t at = lane * kChunk; exists && at < count; at += kLanes * kChunk) {
      if (has_packs && at + kChunk <= count) {
        const auto pack = load_pack<kChunk>(from + at);
        for (int64_t k = 0; k < kChunk; ++k) add(pack.at[k]);
      } else {
        for (int64_t k = at; k < at + kChunk && k < count; ++k) add(from[k]);
      }
    }
    total = row_total<Fold, kLanes>(total);
    if (lane == 0 && exists) terms.put(total);
  }
}

// The total of the terms begin + l, begin + l + lanes ... before `end` of a result, for a thread of
// lane l, folded in order. All lanes of a result are folded by for_each_column.
template <typename From, typename To, typename Fold>
inline Total<From, To> column_total(const Terms<From, To>& terms, bool exists, int64_t begin,
                                    int64_t end) {
  using A = Total<From, To>;
  constexpr int64_t kLanes = kBlockThreads / kResultsOfBlock;
  A total = Fold::template neutral<A>();
#pragma unroll 4
  for (int64_t term = begin + threadIdx.x / kResultsOfBlock; exists && term < end; term += kLanes)
    total = Fold::join(total, Fold::of(terms.at(term)));
  return total;
}

// A block makes kResultsOfBlock neighbouring results, for results whose elements are neighbours of
// each other's.
template <typename From, typename To, typename Fold>
inline void reduce_by_columns(const Reduce& parameters) {
  const int64_t column = threadIdx.x % kResultsOfBlock;
  for (int64_t first = int64_t{blockIdx.x} * kResultsOfBlock; first < parameters.kept.count;
       first += int64_t{gridDim.x} * kResultsOfBlock) {
    const int64_t result = first + column;
    const bool exists = result < parameters.kept.count;
    const Terms<From, To> terms(parameters, exists ? result : first);
    const Total<From, To> own[] = {
        column_total<From, To, Fold>(terms, exists, 0, parameters.folded.count)};
    for_each_column<Fold>(own, [&](unsigned, unsigned, auto total) {
      if (exists) terms.put(total);  // of this thread's own column
    });
  }
}

// The same for a part of the terms: the next kernel folds the parts in order.
template <typename From, typename To, typename Fold>
inline void reduce_parts_by_columns(const ReduceParts& parameters) {
  const int64_t column = threadIdx.x % kResultsOfBlock, results = parameters.of.kept.count;
  const int64_t groups = (results + kResultsOfBlock - 1) / kResultsOfBlock;
  auto* totals = static_cast<Total<From, To>*>(parameters.totals);
  for (int64_t block = blockIdx.x; block < groups * parameters.parts; block += gridDim.x) {
    const int64_t part = block / groups, result = block % groups * kResultsOfBlock + column;
    const bool exists = result < results;
    const Terms<From, To> terms(parameters.of, exists ? result : 0);
    const int64_t begin = part * parameters.terms_of_part, all = begin + parameters.terms_of_part;
    const int64_t end = all < parameters.of.folded.count ? all : parameters.of.folded.count;
    const Total<From, To> own[] = {column_total<From, To, Fold>(terms, exists, begin, end)};
    for_each_column<Fold>(own, [&](unsigned, unsigned, auto total) {
      if (exists) totals[part * results + result] = total;  // of this thread's own column
    });
  }
}

// A block makes a result. The mean first, then the squares of the distances from it.
template <typename From, typename To>
inline void variance(const Variance& parameters) {
  const auto count = static_cast<double>(parameters.of.folded.count);
  for (int64_t i = blockIdx.x; i < parameters.of.kept.count; i += gridDim.x) {
    const Terms<From, To> terms(parameters.of, i);
    double sum = 0, squares = 0;
    for_each_in_block(parameters.of.folded.count, [&](int64_t term) { sum += terms.at(term); });
    const double mean = block_sum(sum) / count;
    for_each_in_block(parameters.of.folded.count, [&](int64_t term) {
      const double distance = terms.at(term) - mean;
      squares += distance * distance;
    });
    squares = block_sum(squares);
    if (threadIdx.x != 0) continue;
    const double result = squares / parameters.of.divisor;
    static_cast<To*>(parameters.of.to)[terms.begin.at[1]] =
        scalar::store<To>(parameters.takes_root ? scalar::sqrt(result) : result);
  }
}

// A block makes a result. Exponentials are of elements less the greatest one, so that none
// overflows.
template <typename From, typename To>
inline void logsumexp(const Reduce& parameters) {
  using C = Computed<To>;
  for (int64_t i = blockIdx.x; i < parameters.kept.count; i += gridDim.x) {
    const Terms<From, To> terms(parameters, i);
    double greatest = minus_infinity<double>(), sum = 0;
    for_each_in_block(parameters.folded.count,
                      [&](int64_t term) { greatest = larger(greatest, terms.at(term)); });
    greatest = block_largest(greatest);
    const double less = scalar::fabs(greatest) == -minus_infinity<double>() ? 0 : greatest;
    for_each_in_block(parameters.folded.count, [&](int64_t term) {
      sum += static_cast<double>(scalar::math::exp(static_cast<C>(terms.at(term) - less)));
    });
    sum = block_sum(sum);
    if (threadIdx.x == 0) terms.put(scalar::log(sum) + less);
  }
}

// A block makes a result.
template <typename From, typename To>
inline void vector_norm(const VectorNorm& parameters) {
  const NormKind kind = parameters.kind;
  const bool chooses = kind == NormKind::Largest || kind == NormKind::Smallest;
  const auto of = [&](double x) {
    const double magnitude = scalar::fabs(x);
    if (kind == NormKind::Count) return x != 0 ? 1.0 : 0.0;
    if (kind == NormKind::Squares) return x * x;
    return kind == NormKind::Power ? scalar::pow(magnitude, parameters.power) : magnitude;
  };
  const auto join = [&](double a, double b) {
    if (!chooses) return a + b;
    return kind == NormKind::Largest ? larger(a, b) : MinFold::join(a, b);
  };
  for (int64_t i = blockIdx.x; i < parameters.of.kept.count; i += gridDim.x) {
    const Terms<From, To> terms(parameters.of, i);
    double total = kind == NormKind::Smallest ? MinFold::neutral<double>() : 0.0;
    for_each_in_block(parameters.of.folded.count,
                      [&](int64_t term) { total = join(total, of(terms.at(term))); });
    total = block_join(total, join);
    if (threadIdx.x != 0) continue;
    if (kind == NormKind::Squares) total = scalar::sqrt(total);
    if (kind == NormKind::Power) total = scalar::pow(total, 1 / parameters.power);
    terms.put(total);
  }
}

}  // namespace dc::runtime::kernel::cuda
