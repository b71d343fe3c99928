// Piece: a range of one value of the training state, as it lies in a file of a checkpoint.
//
// A value is a parameter, one of its optimizer tensors, or a buffer. Each rank writes its own range
// of every value, so any rank of any later job can put together whatever range it needs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "runtime/checkpoint/checksum.h"
#include "runtime/plan/saved_state.h"

namespace dc::runtime::checkpoint {

using plan::ValueKind;
// "parameter", "master", and PyTorch's names of optimizer state: "exp_avg", "exp_avg_sq",
// "momentum_buffer"; "buffer".
std::string_view name(ValueKind kind);
std::optional<ValueKind> value_kind(std::string_view name);

struct ValueId {
  ValueKind kind = ValueKind::Parameter;
  std::string fqn;  // canonical name of the parameter or buffer
  int rank = -1;    // of a buffer that every rank has for itself; -1: all ranks have the same
  bool operator<(const ValueId& other) const {
    return std::tie(kind, fqn, rank) < std::tie(other.kind, other.fqn, other.rank);
  }
};
// "exp_avg 'lm_head.weight'"
std::string describe(const ValueId& value);

struct Piece {
  ValueId value;
  base::DType dtype = base::DType::F32;
  std::vector<int64_t> sizes;    // of the whole value
  int64_t first = 0, count = 0;  // elements of the whole value, in row-major order
  std::string file, tensor;      // where they are: a file of the folder, a tensor of that file
  int64_t at = 0;                // element of that tensor with which the piece begins
  Checksum checksum;             // of its bytes

  int64_t numel() const;  // of the whole value
  int64_t bytes() const { return count * base::byte_size(dtype); }
};

}  // namespace dc::runtime::checkpoint
