// What every communicator must do, written once. The values are formulas of rank and index, the
// expected results are computed from them without any communication, and sums are compared bit by
// bit with the sum in rank order.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "runtime/comm/rendezvous.h"

namespace dc::runtime::conformance {

using base::DType;

inline constexpr int64_t kSlabBytes = int64_t{24} << 20;

// A number with many mantissa bits whose size varies over four decades, so that another order of
// sums gives other bits.
inline float number(int rank, int64_t index, int salt) {
  uint64_t h = static_cast<uint64_t>(index) * 0x9e3779b97f4a7c15ull +
               static_cast<uint64_t>(rank) * 0xd1b54a32d192ed03ull +
               static_cast<uint64_t>(salt) * 0x8cb92ba72f3d8dd7ull;
  h = (h ^ (h >> 31)) * 0xbf58476d1ce4e5b9ull;
  h ^= h >> 29;
  const float mantissa =
      static_cast<float>(static_cast<int64_t>(h & 0xffffff) - 0x800000) / 8388608.0f;
  return std::ldexp(mantissa, static_cast<int>((h >> 40) % 14) - 7);
}

// The stored form of a number; truncation is enough, because the expectation reads it back with an
// independent decoder. Kept out of line: g++ 12.2 folds encoding and decoding into one `and` on a
// float register and then loses it.
[[gnu::noinline]] inline uint16_t encode_bf16(float value) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
}
inline uint16_t encode_f16(int rank, int64_t index, int salt) {
  // Any finite half, subnormals included: the bits are the formula.
  const auto bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(number(rank, index, salt)) >> 3);
  return (bits & 0x7c00u) == 0x7c00u ? static_cast<uint16_t>(bits & 0xbfffu) : bits;
}
inline float decode_f16(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                   : std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  return (bits & 0x8000) != 0 ? -size : size;
}

inline void store(std::byte* at, DType dtype, int rank, int64_t index, int salt) {
  const float value = number(rank, index, salt);
  uint16_t half = dtype == DType::BF16 ? encode_bf16(value) : encode_f16(rank, index, salt);
  if (dtype == DType::F32)
    std::memcpy(at, &value, 4);
  else
    std::memcpy(at, &half, 2);
}
inline float expected_value(DType dtype, int rank, int64_t index, int salt) {
  std::byte stored[4] = {};
  store(stored, dtype, rank, index, salt);
  uint32_t bits = 0;
  std::memcpy(&bits, stored, 4);
  if (dtype == DType::F16) return decode_f16(static_cast<uint16_t>(bits));
  return std::bit_cast<float>(dtype == DType::BF16 ? bits << 16 : bits);
}
inline float expected_sum(DType dtype, int world, int64_t index, int salt) {
  float sum = expected_value(dtype, 0, index, salt);
  for (int rank = 1; rank < world; ++rank) sum += expected_value(dtype, rank, index, salt);
  return sum;
}

struct Shape {
  int64_t elements = 0, shard = 0;
  DType dtype = DType::F32;
};

// One rank's view of the suite: hands out the same places of the slab on every rank.
class Suite {
 public:
  // `control` carries the control messages; null where the communicator has none. Suites of
  // different ranks at once need different salts, so that one's numbers are not the other's.
  Suite(comm::Communicator* control, comm::Communicator& communicator, device::Device& device,
        comm::Slab slab, int salt, std::vector<std::string>* faults)
      : control_(control),
        comm_(communicator),
        stream_(device.make_stream()),
        device_(device),
        slab_(slab),
        mirror_(static_cast<size_t>(slab.bytes)),
        faults_(faults),
        salt_(salt) {}

  void run();

 private:
  int rank() const { return comm_.rank().v; }
  int world() const { return comm_.size(); }
  void fault(const std::string& text) {
    if (faults_->size() < 20)
      faults_->push_back("rank " + std::to_string(rank()) + " of " + std::to_string(world()) +
                         ": " + text);
  }
  void need(const base::Status& status, const std::string& what) {
    if (!status.ok()) fault(what + ": " + status.to_string());
  }
  std::byte* take(int64_t bytes, int64_t misalign) {
    used_ = base::round_up(used_, base::kAlignment) + misalign;
    std::byte* at = slab_.base + used_;
    used_ += bytes + 64;
    if (used_ > slab_.bytes) std::abort();
    std::memset(here(at), 0xee, static_cast<size_t>(bytes) + 64);
    return at;
  }
  // Where the suite has what it writes to an address of the slab, and what it has read there.
  std::byte* here(void* address) {
    return mirror_.data() + (static_cast<std::byte*>(address) - slab_.base);
  }
  std::span<std::byte> used() { return std::span(mirror_).first(static_cast<size_t>(used_)); }
  void write_slab() { need(device_.upload(slab_.base, used()), "an upload"); }
  void read_slab() {
    need(stream_->drain(), "work of the stream");
    need(device_.download(used(), slab_.base), "a download");
  }
  void expect_bits(const void* actual, const void* wanted, int64_t bytes, const std::string& what) {
    if (std::memcmp(actual, wanted, static_cast<size_t>(bytes)) != 0)
      fault(what + ": other bits than expected");
  }
  void expect_guard(const std::byte* end, const std::string& what) {
    for (int i = 0; i < 64; ++i) {
      if (end[i] != std::byte{0xee}) return fault(what + ": wrote past its output");
    }
  }

  struct Case {
    comm::CollectiveBuffer buffer;
    Shape shape;
    int salt = 0;
    bool in_place = false;
    std::string label;
  };
  Case make_gather(Shape shape, bool in_place, int salt);
  Case make_reduction(Shape shape, bool whole, bool in_place, int salt);
  void check_gather(const Case& c);
  void check_reduction(const Case& c, bool whole);
  void run_gathers(const std::vector<Shape>& shapes, bool in_place, bool fused);
  void run_reductions(const std::vector<Shape>& shapes, bool whole, bool in_place, bool fused);
  void run_control();
  void run_traffic();
  std::vector<Shape> shapes() const;

  comm::Communicator* control_;
  comm::Communicator& comm_;
  std::unique_ptr<device::Stream> stream_;
  device::Device& device_;
  comm::Slab slab_;
  std::vector<std::byte> mirror_;  // of the slab
  std::vector<std::string>* faults_;
  int64_t used_ = 0;
  int salt_;
};

// 50 sums of 5000 elements at the start of the slab; what went wrong is added to the faults.
void run_sums(comm::Communicator& communicator, device::Device& device, comm::Slab slab,
              std::vector<std::string>* faults);

// Runs everything on one rank of a job; the texts say what was wrong. `threads_allowed`: also two
// communicators at once.
std::vector<std::string> run_rank(comm::ProcessGroup& job, bool threads_allowed);

}  // namespace dc::runtime::conformance
