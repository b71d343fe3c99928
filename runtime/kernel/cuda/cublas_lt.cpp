#include "runtime/kernel/cuda/cublas_lt.h"

#include <string>

#include "src/base/library_functions.h"

namespace dc::runtime::kernel::cuda {
namespace {

base::Result<CublasLt> load_cublas_lt(int driver_version) {
  std::string why;
  for (const int major : {13, 12}) {
    if (major > driver_version / 1000) continue;
    const std::string name = "libcublasLt.so." + std::to_string(major);
    base::LibraryFunctions library(name);
    if (!library.opened()) {
      if (why.empty()) why = library.reason();
      continue;
    }
    CublasLt calls;
#define DC_LOAD(symbol, member, parameters) library.load(calls.member, #symbol);
    DC_CUBLAS_LT_CALLS(DC_LOAD)
#undef DC_LOAD
    if (library.absent() == nullptr) return calls;
    why = name + " lacks " + library.absent();
  }
  return base::Status(base::ErrorKind::Unavailable, "DC6157",
                      "there is no cuBLASLt for matrix products (" + why +
                          "); install the CUDA toolkit, or add the folder of its libraries to "
                          "LD_LIBRARY_PATH");
}

}  // namespace

base::Result<const CublasLt*> open_cublas_lt(int driver_version) {
  // Leaked: kernels may outlive every static object.
  static const base::Result<CublasLt>* calls =
      new base::Result<CublasLt>(load_cublas_lt(driver_version));
  if (!calls->ok()) return calls->status();
  return &calls->value();
}

}  // namespace dc::runtime::kernel::cuda
