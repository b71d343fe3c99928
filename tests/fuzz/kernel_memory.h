// Memory in which each tensor has exactly the bytes that it reaches: what is touched outside of
// them ends the process, or shows afterwards.
//
// A tensor lies at the end of a window, behind which a page without access begins, or at the start,
// before which one ends. The rest of the window holds a pattern; with the address sanitizer it may
// not be touched either.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dc::fuzz {

class KernelMemory {
 public:
  static constexpr int64_t kPage = 4096;
  static constexpr int64_t kWindow = 8 * kPage;     // bytes of a tensor at most
  static constexpr int64_t kScratch = 256 * kPage;  // bytes of scratch at most
  static constexpr size_t kWindows = 24;

  KernelMemory();
  ~KernelMemory();
  KernelMemory(const KernelMemory&) = delete;
  KernelMemory& operator=(const KernelMemory&) = delete;

  std::byte* data() const { return memory_; }
  // Where a tensor of so many bytes begins in the arena, at the end of its window or at the start.
  static int64_t place(size_t window, int64_t bytes, bool at_end);
  // Of scratch, which begins on a multiple of 64.
  static int64_t place_scratch(int64_t bytes);

  // A part of the arena that a kernel may use.
  struct Part {
    int64_t begin = 0, bytes = 0;
    int64_t window = 0, window_bytes = 0;  // that it lies in
  };
  static Part part(size_t window, int64_t begin, int64_t bytes);
  static Part scratch_part(int64_t begin, int64_t bytes);

  // Fills the window with the pattern; then nothing but the part may be touched.
  void open(const Part& part);
  // Everything in the window may be touched again.
  void close(const Part& part);
  // Whether the window around the part is as it was.
  bool is_intact(const Part& part) const;

 private:
  std::byte* memory_;
};

}  // namespace dc::fuzz
