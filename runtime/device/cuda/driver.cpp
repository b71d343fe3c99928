#include "runtime/device/cuda/driver.h"

#include <cstdlib>

#include "src/base/library_functions.h"

namespace dc::runtime::device::cuda {
namespace {

using base::ErrorKind;
using base::Status;

constexpr const char* kLibrary = "libcuda.so.1";
constexpr int kOldest = 12000;  // of cuDriverGetVersion

Status missing(const std::string& why) {
  return Status(ErrorKind::Unavailable, "DC6140",
                "there is no CUDA driver (" + why +
                    "); run with --device cpu, or install the driver of this host's GPU");
}

}  // namespace

Status no_gpu(const std::string& why) {
  return Status(ErrorKind::Unavailable, "DC6142",
                "there is no GPU for this rank (" + why +
                    "); check nvidia-smi and CUDA_VISIBLE_DEVICES, or run with --device cpu");
}

namespace {

base::Result<Driver> load() {
  base::LibraryFunctions library(kLibrary);
  if (!library.opened()) return missing(library.reason());
  Driver driver;
#define DC_LOAD(symbol, member, parameters) library.load(driver.member, #symbol);
  DC_CUDA_DRIVER_CALLS(DC_LOAD)
#undef DC_LOAD
  const char* absent = library.absent();
#define DC_LOAD(symbol, member, parameters) library.load(driver.member, #symbol);
  DC_CUDA_NEWER_DRIVER_CALLS(DC_LOAD)
#undef DC_LOAD
  int version = 0;
  if (driver.driver_version != nullptr) (void)driver.driver_version(&version);
  if (absent != nullptr || version < kOldest) {
    return Status(ErrorKind::Unavailable, "DC6141",
                  "the CUDA driver is too old (" + std::to_string(version / 1000) + "." +
                      std::to_string(version % 1000 / 10) +
                      (absent ? std::string(", without ") + absent : std::string()) +
                      "; 12.0 is needed); update the driver of this host's GPU");
  }
  // Streams share queues to the GPU, 8 unless this says otherwise, and where one waits for a rank
  // of this process, so do all that share its queue, that rank's perhaps.
  (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  const int failed = driver.init(0);
  if (failed == kNoDevice) return no_gpu(kShowsNone);
  if (failed != kSuccess) return missing(driver.explain(failed));
  return driver;
}

}  // namespace

std::string Driver::explain(int error) const {
  const char *name = nullptr, *text = nullptr;
  if (error_name(error, &name) != kSuccess || name == nullptr)
    return "CUDA error " + std::to_string(error);
  (void)error_string(error, &text);
  return std::string(name) + (text ? std::string(" (") + text + ")" : std::string());
}

bool Driver::edits_graphs() const {
#define DC_HAS(symbol, member, parameters) &&member != nullptr
  return true DC_CUDA_NEWER_DRIVER_CALLS(DC_HAS);
#undef DC_HAS
}

base::Result<const Driver*> open_driver() {
  // Leaked: kernels and memory may outlive every static object.
  static const base::Result<Driver>* driver = new base::Result<Driver>(load());
  if (!driver->ok()) return driver->status();
  return &driver->value();
}

}  // namespace dc::runtime::device::cuda
