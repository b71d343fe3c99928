// Loops over what runtime/kernel/scalar/drawing.h says of an element.
#include "runtime/kernel/drawing.h"

#include <algorithm>
#include <cstring>

#include "runtime/kernel/elements.h"
#include "runtime/kernel/native/lanes.h"
#include "runtime/kernel/native/vector_clones.h"

namespace dc::runtime::kernel {
namespace {

using base::DType;
using scalar::kDrawGroup, scalar::kDrawLanes;

// The elements of one group.
DC_VECTOR_CLONES void draw_group(const Drawing& what, int64_t group, float* __restrict out) {
  uint32_t words[4][kDrawLanes];
  float numbers[4][kDrawLanes];
  scalar::draw_words(what.key, static_cast<uint64_t>(group) * kDrawLanes, words);
  scalar::draw_numbers(what, words, numbers);
  std::memcpy(out, numbers, sizeof numbers);
}

// Numbers from `first` on, in place.
void round_elements(float* numbers, int64_t count, DType through, DType to, void* out) {
  if (!base::is_floating(through) || !base::is_floating(to)) {
    convert(DType::F32, numbers, through, to, out, count);
    return;
  }
  if (const native::LoopOverLanes round = native::rounder(native::Lane::F32, through)) {
    const void* const in[] = {numbers};
    round(nullptr, numbers, in, count);
  }
  native::storer(native::Lane::F32, to)(out, 1, numbers, count);
}

}  // namespace

void draw_elements(const Drawing& what, int64_t first, int64_t count, DType through, DType to,
                   void* out) {
  constexpr int64_t kGroups = 4;
  float numbers[kGroups * kDrawGroup];
  auto* place = static_cast<std::byte*>(out);
  for (int64_t i = first, end = first + count; i < end;) {
    const int64_t begin = i / kDrawGroup * kDrawGroup;
    const int64_t next = std::min(end, begin + kGroups * kDrawGroup);
    for (int64_t at = begin; at < next; at += kDrawGroup)
      draw_group(what, at / kDrawGroup, numbers + (at - begin));
    const int64_t zeros_begin = std::clamp(what.zeros_begin, i, next);
    const int64_t zeros_end = std::clamp(what.zeros_end, zeros_begin, next);
    std::fill(numbers + (zeros_begin - begin), numbers + (zeros_end - begin), 0.0f);
    round_elements(numbers + (i - begin), next - i, through, to, place);
    place += (next - i) * base::byte_size(to);
    i = next;
  }
}

}  // namespace dc::runtime::kernel
