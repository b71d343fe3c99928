// Random numbers by counter (SplitMix64, Steele, Lea and Flood 2014): the same on every host.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dc::fusion {

constexpr uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(mixed(seed)) {}
  // Of 0 to count - 1; count is at least 1.
  size_t below(size_t count) {
    return static_cast<size_t>(
        static_cast<unsigned __int128>(mixed(seed_ ^ mixed(counter_++))) * count >> 64);
  }

 private:
  uint64_t seed_, counter_ = 0;
};

}  // namespace dc::fusion
