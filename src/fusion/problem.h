// Problem: what operator and tensor fusion decide over, as plain numbers: the kernels of one
// forward and backward phase, the values between them, and the reductions of the gradients they
// make.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/base/units.h"

namespace dc::fusion {

// A tensor. A view has another value as its root; only roots are written.
struct Value {
  int32_t maker = -1;  // the kernel that writes its bytes; -1: there from the start
  int32_t root = -1;   // itself, unless it is a view
  int64_t bytes = 0;
  bool kept = false;  // a root that something beyond the kernels reads: a reduction, the update
};

struct Kernel {
  base::Nanos time;                   // alone, apart
  int32_t kind = -1;                  // kernels of one kind may be fused; -1: never
  std::vector<int32_t> reads, makes;  // values, each once; `makes` roots alone
  std::vector<int32_t> after;  // kernels that must have ended for another reason than a value read
};

struct Reduction {
  std::vector<int32_t> after;  // kernels that must have ended
  base::Bytes bytes;
  int32_t kind = 0;  // those of one kind may travel together
};

// Of one fused kernel. 0: any number.
struct Limits {
  size_t most_operations = 0;
  size_t most_tensors = 0;  // operands and results
};

// Kernels are numbered in an order in which they may run.
struct Problem {
  std::vector<Kernel> kernels;
  std::vector<Value> values;
  std::vector<Reduction> reductions;
  Limits limits;

  // Works out what follows. A kernel that nothing reads is taken to be there for its effect: what
  // it makes becomes kept. Call it once all is there.
  void finish();

  // Kernels that read what the kernel makes, also through views; those that come after it for
  // another reason; the reductions that wait for it. Ascending.
  std::span<const int32_t> readers(int32_t kernel) const { return of(readers_, kernel); }
  std::span<const int32_t> followers(int32_t kernel) const { return of(followers_, kernel); }
  std::span<const int32_t> reductions_of(int32_t kernel) const { return of(reductions_, kernel); }
  int32_t maker(int32_t value) const {
    return values[static_cast<size_t>(values[static_cast<size_t>(value)].root)].maker;
  }
  const Kernel& kernel(int32_t index) const { return kernels[static_cast<size_t>(index)]; }
  const Value& value(int32_t index) const { return values[static_cast<size_t>(index)]; }

 private:
  using Lists = std::vector<std::vector<int32_t>>;
  static std::span<const int32_t> of(const Lists& lists, int32_t kernel) {
    return lists[static_cast<size_t>(kernel)];
  }
  Lists readers_, followers_, reductions_;
};

}  // namespace dc::fusion
