// KernelCompiler: from the text of kernels to machine code, which is kept for later runs.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/kernel/cuda/compiler_process.h"
#include "runtime/kernel/cuda/nvrtc.h"

namespace dc::runtime::kernel::cuda {

// compile() may be called by several threads at once: one of them compiles here, the others let
// processes do it, where this program has them (compiler_process.h).
class KernelCompiler {
 public:
  // `directory`: where machine code is kept, in its folder `kernels`; empty: nowhere.
  // `driver_version`: as of Nvrtc::open.
  KernelCompiler(Nvrtc nvrtc, int architecture, int driver_version, std::string directory)
      : nvrtc_(std::move(nvrtc)),
        architecture_(architecture),
        driver_version_(driver_version),
        directory_(std::move(directory)) {}

  // Machine code from the folder, if it has that of this text, these headers, options, architecture
  // and version of NVRTC; else compiles the text and keeps what it gives. A file that is damaged is
  // replaced, one that cannot be written is not. As Nvrtc::compile.
  base::Result<std::string> compile(const KernelSource& source);

  void end_processes();  // until the next one is needed

  int compiled() const { return compiled_; }                   // so far
  int compiled_by_processes() const { return by_processes_; }  // of these
  int from_cache() const { return from_cache_; }               // so far

 private:
  std::string path_of(const KernelSource& source) const;
  base::Result<std::string> compile_anew(const KernelSource& source);
  std::string compile_in_process(const KernelSource& source);

  Nvrtc nvrtc_;
  int architecture_, driver_version_;
  std::string directory_;
  std::mutex here_;       // held by the thread that compiles here
  std::mutex processes_;  // of those that are idle
  std::vector<std::unique_ptr<CompilerProcess>> idle_;
  std::atomic<int> compiled_{0}, by_processes_{0}, from_cache_{0};
};

}  // namespace dc::runtime::kernel::cuda
