// KernelCompiler: from the text of kernels to machine code, which is kept for later runs.
#pragma once

#include <atomic>
#include <string>

#include "runtime/kernel/cuda/nvrtc.h"

namespace dc::runtime::kernel::cuda {

// compile() may be called by several threads at once.
class KernelCompiler {
 public:
  // `directory`: where machine code is kept, in its folder `kernels`; empty: nowhere.
  KernelCompiler(Nvrtc nvrtc, int architecture, std::string directory)
      : nvrtc_(std::move(nvrtc)), architecture_(architecture), directory_(std::move(directory)) {}

  // Machine code from the folder, if it has that of this text, these headers, options, architecture
  // and version of NVRTC; else compiles the text and keeps what it gives. A file that is damaged is
  // replaced, one that cannot be written is not. As Nvrtc::compile.
  base::Result<std::string> compile(const KernelSource& source);

  int compiled() const { return compiled_; }      // so far
  int from_cache() const { return from_cache_; }  // so far

 private:
  std::string path_of(const KernelSource& source) const;

  Nvrtc nvrtc_;
  int architecture_;
  std::string directory_;
  std::atomic<int> compiled_{0}, from_cache_{0};
};

}  // namespace dc::runtime::kernel::cuda
