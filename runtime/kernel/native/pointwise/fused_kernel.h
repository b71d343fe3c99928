// FusedKernel: the operations of an expression, run block by block.
//
// A block is a part of a row, or several short rows. So few elements keep the processor's reads of
// all operands going while it computes, and every value in the first-level cache. Values lie in
// registers of one block each, as lanes rounded to their element type: their bits are those that
// the kernels apart store and load. Lanes of operands and results that are next to each other in
// memory are read and written where they are.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/kernel/native/pointwise/operations.h"

namespace dc::runtime::kernel::native {

class FusedKernel : public Kernel {
 public:
  // Values, operands in registers, and at each operation what converts its operands.
  static constexpr size_t kMostRegisters =
      base::Expression::kMostOperations + base::Expression::kMostTensors + 8;
  static constexpr int64_t kRegisterBytes = kLoopLanes * 8;
  // A slot holds the address of a value, an operand or a number in the block that runs.
  static constexpr size_t kMostSlots = 8 * base::Expression::kMostOperations;

  // A result or an operand. Where its lanes in memory have gaps or another type, they are moved
  // from or to a register.
  struct Side {
    void* data = nullptr;
    size_t tensor = 0, slot = 0;   // in the iteration, in a block
    int64_t element = 1;           // bytes
    int64_t stride = 1, step = 0;  // bytes, along a row and from a row to the next
  };
  // Copies rows of n elements without gaps; steps from a row to the next in bytes.
  using CopyRows = void (*)(std::byte* to, int64_t to_step, const std::byte* from,
                            int64_t from_step, int64_t rows, int64_t n);
  struct Move {
    Side side;
    int64_t stride = 1;       // elements
    CopyRows copy = nullptr;  // where rows have no gaps and lanes lie in memory as they are
    LoadLanes load = nullptr;
    StoreLanes store = nullptr;
    int64_t lane_bytes = 0;
    // Of an operand with a window: the index of its first element, and the one after its last; from
    // an index to the next in bytes.
    struct Window {
      int64_t begin = 0, end = 0, stride = 0;
    };
    std::optional<Window> window = std::nullopt;
    // The block where an operand is read: each, the first of a row, the first of many rows.
    enum class When : uint8_t { EachBlock, EachRow, EachPlane } when = When::EachBlock;
  };

  // Through an element type: what is stored in it and loaded again.
  struct Conversion {
    StoreLanes store = nullptr;
    LoadLanes load = nullptr;
  };
  struct Step {
    LoopOverLanes run = nullptr;
    const void* context = nullptr;
    size_t out = 0;
    std::array<size_t, kMostOperands> in{};
  };

  Iteration iteration;
  std::vector<Side> in_place;       // read or written where they are
  std::vector<Move> loads, stores;  // of the others
  // The index along the dim of windows, in a type of one byte. Of loads with windows.
  Side index;
  std::vector<Step> steps;
  std::vector<std::pair<size_t, size_t>> registers;        // slot, register
  std::vector<std::pair<size_t, const std::byte*>> fixed;  // slot, lanes of a number
  // What steps refer to.
  Operations operations;
  std::deque<Conversion> conversions;
  struct Number {
    alignas(64) std::array<std::byte, kRegisterBytes> lanes;
  };
  std::deque<Number> numbers;
  std::deque<std::vector<std::byte>> masks;  // of ranges of indices: whether each is in it
  int64_t rows_at_once = 1, length = 1;      // of a block, at most

  base::Status launch(device::Stream& stream) final;
  // On other elements of the tensors: from[t] behind those that it was made for. Tensors are the
  // results, then the operands.
  virtual void run_from(device::Stream& stream, const Offsets& from) const;

 protected:
  // Of tensors, and of masks.
  using Addresses =
      std::array<std::byte*, base::Expression::kMostTensors + base::Expression::kMostOperations>;
  // Of element 0 of the sides.
  struct Bases {
    Addresses in_place, loads, stores;
  };
  struct Registers {
    alignas(64) std::byte memory[kMostRegisters * kRegisterBytes];
  };
  struct Block {
    std::array<std::byte*, kMostSlots> slots;
    Addresses loads, stores;  // of their first elements
    int64_t rows = 1, length = 0;
    int64_t index = 0;  // of its first element
    Move::When when = Move::When::EachBlock;
  };

  void prepare(Block& block, Registers& memory) const;
  Bases resolve(device::Stream& stream, const Offsets& from) const;
  // The addresses of a block whose first elements are offset(side) bytes from element 0.
  template <typename Offset>
  void place(Block& block, const Bases& bases, const Offset& offset) const {
    for (size_t i = 0; i < in_place.size(); ++i)
      block.slots[in_place[i].slot] = bases.in_place[i] + offset(in_place[i]);
    for (size_t i = 0; i < loads.size(); ++i)
      block.loads[i] = bases.loads[i] + offset(loads[i].side);
    for (size_t i = 0; i < stores.size(); ++i)
      block.stores[i] = bases.stores[i] + offset(stores[i].side);
    block.index = offset(index);
  }
  void run(Block& block) const;

 private:
  void read(const Move& move, const std::byte* from, const Block& block) const;
  static void read_rows(const Move& move, std::byte* to, int64_t n, const std::byte* from,
                        int64_t rows, int64_t count);
  void read_window(const Move& move, std::byte* to, const std::byte* from, const Block& block,
                   int64_t rows, int64_t n) const;
  void write(const Move& move, std::byte* to, const Block& block) const;
};

// Null where lanes do not lie in memory as they are.
FusedKernel::CopyRows row_copier(base::DType dtype);

}  // namespace dc::runtime::kernel::native
