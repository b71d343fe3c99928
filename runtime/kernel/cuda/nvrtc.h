// NVRTC, CUDA's compiler as a library, opened when a kernel is to be compiled: programs start where
// there is none, and building them needs no CUDA.
//
// The types are those of the library's binary interface (nvrtc.h, CUDA 12 and 13);
// tests/runtime/kernel/cuda/nvrtc_interface_test.cpp compares them with the toolkit's header.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "runtime/kernel/cuda/kernel_source.h"
#include "src/base/status.h"

namespace dc::runtime::kernel::cuda {

struct OpaqueProgram;
using NvrtcProgram = OpaqueProgram*;

inline constexpr int kNvrtcSuccess = 0;

// f(name in the library, member, parameters)
// clang-format off
#define DC_NVRTC_CALLS(f)                                                                         \
  f(nvrtcVersion, version, (int* major, int* minor))                                              \
  f(nvrtcGetNumSupportedArchs, architecture_count, (int* count))                                  \
  f(nvrtcGetSupportedArchs, architectures, (int* list))                                           \
  f(nvrtcCreateProgram, create,                                                                   \
    (NvrtcProgram* program, const char* text, const char* name, int headers,                      \
     const char* const* texts, const char* const* names))                                         \
  f(nvrtcDestroyProgram, destroy, (NvrtcProgram* program))                                        \
  f(nvrtcCompileProgram, compile, (NvrtcProgram program, int count, const char* const* options))  \
  f(nvrtcGetCUBINSize, cubin_size, (NvrtcProgram program, size_t* bytes))                         \
  f(nvrtcGetCUBIN, cubin, (NvrtcProgram program, char* bytes))                                    \
  f(nvrtcGetProgramLogSize, log_size, (NvrtcProgram program, size_t* bytes))                      \
  f(nvrtcGetProgramLog, log, (NvrtcProgram program, char* bytes))
// clang-format on

struct NvrtcCalls {
#define DC_MEMBER(symbol, member, parameters) int(*member) parameters = nullptr;
  DC_NVRTC_CALLS(DC_MEMBER)
#undef DC_MEMBER
};

// May be used by several threads at once.
class Nvrtc {
 public:
  // Major versions whose interface and language are known, the newest first.
  static constexpr int kMajors[] = {13, 12};
  // The newest library whose machine code a driver of this version (cuDriverGetVersion) runs.
  // Unavailable (69): DC6150 if there is none, DC6151 if all are of another major version than
  // those that are known, DC6152 if all are newer than the driver.
  static base::Result<Nvrtc> open(int driver_version, std::span<const int> majors = kMajors);

  std::string version() const;  // "13.0"
  // Options that decide the machine code, as the library takes them.
  std::vector<std::string> options(int architecture) const;
  // Machine code for an architecture: 90 is sm_90. Unsupported (81), DC6153, if the library does
  // not know it; Internal (70), DC6154, with the library's log if the text does not compile.
  base::Result<std::string> compile(const KernelSource& source, int architecture) const;

 private:
  NvrtcCalls calls_;
  int major_ = 0, minor_ = 0;
  std::vector<int> architectures_;
};

}  // namespace dc::runtime::kernel::cuda
