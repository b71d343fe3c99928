// Random numbers of the elements of a tensor: functions of a key and the element's index alone,
// with equal bits on every device.
//
// Philox 4x32-10 with the tensor's key. Element e has word e / 32 % 4 of counter e / 128 * 32 +
// e % 32: neighbours have the same word of neighbouring counters. Words 0 and 1 of a counter make
// two normal numbers by Box and Muller's formula, so do words 2 and 3.
#pragma once

#include "runtime/kernel/scalar/math.h"
#include "runtime/kernel/scalar/philox.h"

namespace dc::runtime::kernel::scalar {

enum class DrawKind : uint8_t { Constant, Uniform, Normal };

// Normal: mean `base` and standard deviation `scale`. Uniform: from `base` on, `scale` wide.
// Constant: `base`. Elements [zeros_begin, zeros_end) are zero.
struct Drawing {
  uint64_t key = 0;
  int64_t zeros_begin = 0, zeros_end = 0;
  float base = 0, scale = 0;
  DrawKind kind = DrawKind::Constant;
};

inline constexpr int kDrawLanes = 32;              // neighbouring counters
inline constexpr int kDrawGroup = 4 * kDrawLanes;  // elements that they draw for

// The words of kWidth counters from `first` on: of lane i, words[..][i]. `first` is a multiple of
// kWidth, a power of two.
template <int kWidth>
inline void draw_words(uint64_t key, uint64_t first, uint32_t (&words)[4][kWidth]) {
  for (int lane = 0; lane < kWidth; ++lane) {
    words[0][lane] = static_cast<uint32_t>(first) + static_cast<uint32_t>(lane);
    words[1][lane] = static_cast<uint32_t>(first >> 32);
    words[2][lane] = 0;
    words[3][lane] = 0;
  }
  philox_10(words, key);
}

// In [0, 1), on a grid of 2^-24.
inline float unit_uniform(uint32_t word) {
  return static_cast<float>(static_cast<int32_t>(word >> 8)) * 0x1p-24f;
}

struct NormalPair {
  float first, second;
};
// The radius is at most 6.8. The angle is word `turn` of 2^32 to a turn: its nearest quarter, and a
// rest of at most an eighth, of which Cephes' polynomials give sine and cosine.
inline NormalPair unit_normals(uint32_t length, uint32_t turn) {
  const float radius = sqrt(-2.0f * math::log(fma(static_cast<float>(length), 0x1p-32f, 0x1p-33f)));
  const uint32_t quarters = (turn + 0x20000000u) >> 30;
  const float r =
      static_cast<float>(static_cast<int32_t>(turn - (quarters << 30))) * 1.4629180792671596e-9f;
  const float z = r * r;
  float sine = -1.9515295891e-4f;
  sine = fma(sine, z, 8.3321608736e-3f);
  sine = fma(sine, z, -1.6666654611e-1f);
  sine = fma(sine * z, r, r);
  float cosine = 2.443315711809948e-5f;
  cosine = fma(cosine, z, -1.388731625493765e-3f);
  cosine = fma(cosine, z, 4.166664568298827e-2f);
  cosine = fma(cosine * z, z, fma(z, -0.5f, 1.0f));
  const bool swapped = (quarters & 1u) != 0;
  const float x = swapped ? sine : cosine, y = swapped ? cosine : sine;
  const bool left = ((quarters + 1u) & 2u) != 0, low = (quarters & 2u) != 0;
  return {radius * (left ? -x : x), radius * (low ? -y : y)};
}

// From the words of counters to what their elements are, in place of them: numbers[word][lane].
template <int kWidth>
inline void draw_numbers(const Drawing& what, const uint32_t (&words)[4][kWidth],
                         float (&numbers)[4][kWidth]) {
  if (what.kind == DrawKind::Normal) {
    for (int half = 0; half < 4; half += 2) {
      for (int lane = 0; lane < kWidth; ++lane) {
        const NormalPair pair = unit_normals(words[half][lane], words[half + 1][lane]);
        numbers[half][lane] = fma(what.scale, pair.first, what.base);
        numbers[half + 1][lane] = fma(what.scale, pair.second, what.base);
      }
    }
    return;
  }
  const float scale = what.kind == DrawKind::Uniform ? what.scale : 0.0f;
  for (int word = 0; word < 4; ++word) {
    for (int lane = 0; lane < kWidth; ++lane)
      numbers[word][lane] = fma(scale, unit_uniform(words[word][lane]), what.base);
  }
}

}  // namespace dc::runtime::kernel::scalar
