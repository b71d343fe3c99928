// How dc.linear_cross_entropy makes its logits a part at a time, and the scratch memory that this
// takes: the pass, the kernel and the compiler's estimate agree by this header.
//
// By rows: the logits of some rows and all classes. The gradient of the weight is a sum over the
// parts, in f32: in its own place, or in scratch if it has 16 bits.
// By classes: those of all rows and some classes, twice. The sums of exponentials need all classes
// before the first gradient is known, so logits wait where the gradient of the same classes'
// weights will be: as many rows of them as the weights are deep, the others in scratch. The
// gradient of the hidden states is the sum over the parts.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <optional>

#include "src/base/checked.h"
#include "src/base/dtype.h"
#include "src/base/units.h"

namespace dc::base {

// hidden[rows, depth] times the transposed weight[classes, depth].
struct OutputLayer {
  int64_t rows = 0, classes = 0, depth = 0;
  DType dtype = DType::F32;  // of hidden states, weights, logits and their gradients
};

// What exists of the logits at once. Either rows or classes are all that there are.
struct LogitChunk {
  int64_t rows = 0, classes = 0;
  bool operator==(const LogitChunk&) const = default;
};

// Bytes of each part of the scratch memory, rounded up to kAlignment.
struct LogitScratch {
  int64_t chunk = 0;    // logits, then their gradients
  int64_t waiting = 0;  // logits that wait for theirs in no gradient's place
  int64_t sums = 0;     // f32, of a gradient of 16 bits
  int64_t numbers = 0;  // of each row
  int64_t bytes() const { return chunk + waiting + sums + numbers; }
};

// Bytes for each row: in each part its largest logit and the sum of exponentials; the logit of its
// own class, the largest of all and the logarithm of the sum.
inline constexpr int64_t kLogitNumbers = 12, kLogitNumbersPerPart = 16;

inline int64_t parts_of(int64_t size, int64_t at_once) { return (size + at_once - 1) / at_once; }

// Nothing where the bytes do not fit an int64_t. Sizes are at least 1, a chunk's at most the
// layer's.
inline std::optional<LogitScratch> logit_scratch(const OutputLayer& of, const LogitChunk& chunk) {
  const int64_t element = byte_size(of.dtype);
  const auto bytes = [](std::array<int64_t, 3> factors) -> std::optional<int64_t> {
    const auto product = checked_product(factors);
    constexpr int64_t kMost = int64_t{1} << 60;  // four of them fit
    if (!product || *product > kMost) return std::nullopt;
    return round_up(*product, kAlignment);
  };
  const bool by_classes = chunk.classes < of.classes, is_narrow = of.dtype != DType::F32;
  const int64_t parts = parts_of(of.classes, chunk.classes);
  const auto logits = bytes({element, chunk.rows, chunk.classes});
  auto waiting = std::optional<int64_t>(0), sums = waiting, numbers = waiting;
  if (by_classes) {
    waiting = bytes({element, std::max<int64_t>(of.rows - of.depth, 0), of.classes});
    numbers = bytes({kLogitNumbers + kLogitNumbersPerPart * parts, of.rows, 1});
  }
  if (is_narrow && by_classes) sums = bytes({4, of.rows, of.depth});
  if (is_narrow && chunk.rows < of.rows) sums = bytes({4, of.classes, of.depth});
  if (!logits || !waiting || !sums || !numbers) return std::nullopt;
  return LogitScratch{*logits, *waiting, *sums, *numbers};
}

// The one that takes the least scratch: all logits at once; by rows or by classes in at most 16
// parts of at least 256, which products are still fast of. It depends on nothing else, so the bits
// of a model do not either.
inline LogitChunk choose_logit_chunk(const OutputLayer& of) {
  static constexpr int64_t kMostParts = 16, kLeast = 256, kMultiple = 64;
  const auto part = [](int64_t size) {
    const int64_t at_once = round_up(parts_of(size, kMostParts), kMultiple);
    return std::min(size, std::max(at_once, kLeast));
  };
  const LogitChunk choices[] = {
      {of.rows, of.classes}, {part(of.rows), of.classes}, {of.rows, part(of.classes)}};
  const auto bytes = [&](const LogitChunk& chunk) {
    const auto scratch = logit_scratch(of, chunk);
    return scratch ? scratch->bytes() : INT64_MAX;
  };
  return *std::min_element(
      std::begin(choices), std::end(choices),
      [&](const LogitChunk& a, const LogitChunk& b) { return bytes(a) < bytes(b); });
}

}  // namespace dc::base
