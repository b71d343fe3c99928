// What a thread of a fused kernel does with neighbouring elements, as text: it reads operands,
// computes values, folds and stores them. The loops around it are fused_source's.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/kernel/cuda/kernels/reduce_parameters.h"
#include "runtime/kernel/native/pointwise/expression_tensors.h"
#include "runtime/kernel/native/pointwise/operations.h"
#include "src/base/expression_phases.h"

namespace dc::runtime::kernel::cuda {

const char* lane_type(native::Lane lane);
// SumFold and the like, of kernels/reduce.h.
const char* fold_of(const base::ExpressionOperation& reduction);
std::string converted(std::string_view type, const std::string& value);

// Columns of packs of a block, and elements of a row that a thread folds at once: those of
// kernels/reduce.h.
inline constexpr int64_t kLanes = kResultsOfBlock, kChunk = kElementsOfLane;

class ElementWriter {
 public:
  ElementWriter(const base::Expression& expression, const native::ExpressionTensors& tensors,
                const native::Operations& operations);

 protected:
  using Dims = std::vector<native::Iteration::Dim>;
  // What a phase does with elements.
  struct Phase {
    std::vector<bool> computed;  // by value
    std::vector<size_t> folds;   // reductions
    std::vector<size_t> stores;  // results
    std::vector<bool> reads;     // by operand
  };

  int64_t rows() const { return tensors_.across.count(); }
  int64_t columns() const;
  const BoundTensor& tensor(size_t t) const;
  std::string_view overload(size_t value) const { return expression_.operations[value].overload; }
  std::vector<size_t> reductions() const;
  std::optional<size_t> result_of(size_t value) const;
  // Whether the thread's elements are in each range.
  std::string ranges_text() const;
  std::string parameters() const;
  std::string number(int64_t value) const;
  std::string declared(const std::string& name, const std::string& value) const;
  // The place of the thread's element in tensor `t`.
  std::string offset(size_t t) const;
  // The coordinates along `dims` of element `i`, or of the first element of pack `i`.
  std::string coordinates(const Dims& dims, const std::string& prefix, const std::string& i,
                          int64_t pack) const;
  // Whether the elements of a pack lie next to each other.
  bool is_packed(size_t t) const { return pack_ > 1 && along_.back().strides[t] == 1; }
  std::string load(size_t operand) const;
  bool is_one_for_all(size_t operand) const;
  // The part of a dim that the operand has; null if it has all.
  const base::IndexRange* window(size_t operand) const;
  // Operands that are one element for all.
  std::string loads_of_one() const;
  Phase phase(size_t number) const;
  std::string pack_of(size_t operand) const;
  // What a thread does with the elements of a pack, whose coordinates are known. First as if the
  // operands were moderate (scalar/activations.h), where that is faster: then again, if they are
  // not. `kept`: of row_loop(), where packs are read before they are used; null: elsewhere.
  std::string pack_of_elements(const Phase& phase, const std::vector<bool>* kept = nullptr) const;
  // Of a reduction: the type of its totals, and their name.
  std::string total_type(size_t reduction) const;
  base::DType folded_dtype(size_t reduction) const;
  static std::string total(size_t reduction) { return "total_" + std::to_string(reduction); }
  // Whether the operand has one element for each row.
  bool is_of_row(size_t operand) const;
  std::string operation(size_t number, bool moderate = false) const;

  const base::Expression& expression_;
  const native::ExpressionTensors& tensors_;
  const native::Operations& operations_;
  const base::ExpressionPhases phases_;
  bool has_reductions_;
  // Dims of rows, and of columns; without reductions all are of columns.
  Dims across_, along_;
  std::string index_;  // the type that counts elements
  int64_t pack_ = 1;   // elements that a thread has at once

 private:
  // Whether all numbers of elements fit, with room for some steps beyond the last.
  bool fits_32_bits() const;
  // How many neighbouring elements a thread has at once: as many as 16 bytes of the largest element
  // type have, up to 8, where every tensor lets them be read and written together. With more,
  // neighbouring threads would not touch neighbouring 16 bytes.
  int64_t widest_pack() const;
  bool takes_pack(int64_t pack) const;
  // Whether all elements of a pack are in a range of indices, or none.
  bool takes_ranges(int64_t pack) const;
  bool has_index() const { return expression_.window_dim().has_value(); }
  std::set<base::IndexRange> ranges() const;
  static std::string is_in(const base::IndexRange& range);
  // Elements before the first one that an operand has.
  int64_t missing(size_t operand) const;
  // The place of the thread's element in an operand, from where its address is.
  std::string operand_offset(size_t operand) const;
  size_t tensors() const { return tensors_.results.size() + tensors_.operands.size(); }
  // Whether it is a result with one element for each row or column.
  bool is_reduced(size_t t) const;
  std::string elements(const Phase& phase, bool moderate) const;
  // Where the thread has an element of a result, and the value for it.
  std::string element_of(size_t result) const;
  std::string stored(size_t result) const;
  // Whether a value is narrower than its lane, and a result: it is narrowed once.
  bool is_kept_narrow(size_t operation) const;
  std::string joined(size_t reduction) const;
  // An operation's operand, in the lane that it computes with.
  std::string operand_of(const base::ExpressionOperation& operation,
                         const native::PointwiseOperand& operand) const;
};

}  // namespace dc::runtime::kernel::cuda
