// Processes that compile kernels: NVRTC 13 does most of a compilation under a lock, so threads of
// one process wait for each other. A program that calls serve_compiler() in its main() is started
// once more for each.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "runtime/kernel/cuda/kernel_source.h"
#include "src/base/status.h"

namespace dc::runtime::kernel::cuda {

// At the beginning of main(). True if this process was started to compile, which it has done then:
// main() returns. Else, from now on such processes may be started.
bool serve_compiler(int argc, char** argv);

class CompilerProcess {
 public:
  // Null if this program does not call serve_compiler(), or the system gives no process.
  static std::unique_ptr<CompilerProcess> start();
  ~CompilerProcess();  // ends it
  CompilerProcess(const CompilerProcess&) = delete;
  CompilerProcess& operator=(const CompilerProcess&) = delete;

  // As Nvrtc::open(driver_version) and its compile(). Empty if it did not compile, for whatever
  // reason: the caller's own NVRTC can say it.
  std::string compile(const KernelSource& source, int architecture, int driver_version);

 private:
  CompilerProcess(pid_t process, int socket) : process_(process), socket_(socket) {}
  pid_t process_;
  int socket_;
};

}  // namespace dc::runtime::kernel::cuda
