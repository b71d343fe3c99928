#include "runtime/kernel/cuda/nvrtc.h"

#include <algorithm>

#include "runtime/kernel/cuda/kernel_headers.h"
#include "src/base/library_functions.h"

namespace dc::runtime::kernel::cuda {
namespace {

using base::ErrorKind;
using base::Status;

std::string library_name(int major) { return "libnvrtc.so." + std::to_string(major); }

// Whether the library has all of them.
bool load_calls(base::LibraryFunctions& library, NvrtcCalls& calls) {
#define DC_LOAD(symbol, member, parameters) library.load(calls.member, #symbol);
  DC_NVRTC_CALLS(DC_LOAD)
#undef DC_LOAD
  return library.absent() == nullptr;
}

std::string log_of(const NvrtcCalls& calls, NvrtcProgram program) {
  size_t bytes = 0;
  if (calls.log_size(program, &bytes) != kNvrtcSuccess || bytes <= 1) return "";
  std::string log(bytes, '\0');
  if (calls.log(program, log.data()) != kNvrtcSuccess) return "";
  log.resize(bytes - 1);
  return log;
}

}  // namespace

base::Result<Nvrtc> Nvrtc::open(int driver_version, std::span<const int> majors) {
  std::string missing, other;  // why not
  int newer = 0;
  for (const int major : majors) {
    base::LibraryFunctions library(library_name(major));
    if (!library.opened()) {
      if (missing.empty()) missing = library.reason();
      continue;
    }
    Nvrtc made;
    if (!load_calls(library, made.calls_) ||
        made.calls_.version(&made.major_, &made.minor_) != kNvrtcSuccess || made.major_ != major) {
      other = library_name(major) + " is of version " + made.version();
      continue;
    }
    if (major > driver_version / 1000) {
      newer = major;
      continue;
    }
    int count = 0;
    if (made.calls_.architecture_count(&count) == kNvrtcSuccess && count > 0) {
      made.architectures_.resize(static_cast<size_t>(count));
      (void)made.calls_.architectures(made.architectures_.data());
    }
    return made;
  }
  if (newer != 0) {
    return Status(ErrorKind::Unavailable, "DC6152",
                  "the CUDA driver is of version " + std::to_string(driver_version / 1000) +
                      " and cannot run what NVRTC " + std::to_string(newer) +
                      " compiles; update the driver of this host's GPU, or install NVRTC " +
                      std::to_string(driver_version / 1000) + " of the CUDA toolkit");
  }
  if (!other.empty()) {
    return Status(ErrorKind::Unavailable, "DC6151",
                  other + ", which is not known here; install NVRTC 12 or 13 of the CUDA toolkit");
  }
  return Status(ErrorKind::Unavailable, "DC6150",
                "there is no NVRTC to compile kernels with (" + missing +
                    "); install the CUDA toolkit, or add the folder of its libraries to "
                    "LD_LIBRARY_PATH");
}

std::string Nvrtc::version() const { return std::to_string(major_) + "." + std::to_string(minor_); }

// Equal numbers on every device: no fused multiply-add unless a kernel asks for it, subnormals are
// kept, quotients and square roots are rounded once.
std::vector<std::string> Nvrtc::options(int architecture) const {
  // Instructions that compute capability 9.0 alone has, too (kernels/warpgroup.h).
  const char* const own = architecture == 90 ? "a" : "";
  std::vector<std::string> all = {"--gpu-architecture=sm_" + std::to_string(architecture) + own,
                                  "--std=c++20",
                                  "--device-as-default-execution-space",
                                  "--fmad=false",
                                  "--ftz=false",
                                  "--prec-div=true",
                                  "--prec-sqrt=true"};
  // Without textures and the runtime's calls, which kernels do not use: a fifth of the time less.
  constexpr int kKnowsMinimal = 13;
  if (major_ >= kKnowsMinimal) all.push_back("--minimal");
  return all;
}

base::Result<std::string> Nvrtc::compile(const KernelSource& source, int architecture) const {
  if (std::ranges::count(architectures_, architecture) == 0) {
    return Status(ErrorKind::Unsupported, "DC6153",
                  "NVRTC " + version() + " cannot compile for this GPU's architecture, sm_" +
                      std::to_string(architecture) +
                      "; install the newest NVRTC that the driver of this host's GPU runs");
  }
  std::vector<const char*> texts, names, options;
  for (const KernelHeader& header : kernel_headers()) {
    names.push_back(header.name);
    texts.push_back(header.text);
  }
  const std::vector<std::string> chosen = this->options(architecture);
  for (const std::string& option : chosen) options.push_back(option.c_str());
  NvrtcProgram program = nullptr;
  const std::string file = source.name + ".cu";
  int failed = calls_.create(&program, source.text.c_str(), file.c_str(),
                             static_cast<int>(texts.size()), texts.data(), names.data());
  if (failed == kNvrtcSuccess)
    failed = calls_.compile(program, static_cast<int>(options.size()), options.data());
  std::string code, log;
  size_t bytes = 0;
  if (failed == kNvrtcSuccess) failed = calls_.cubin_size(program, &bytes);
  if (failed == kNvrtcSuccess) {
    code.resize(bytes);
    failed = calls_.cubin(program, code.data());
  }
  if (failed != kNvrtcSuccess && program != nullptr) log = log_of(calls_, program);
  if (program != nullptr) (void)calls_.destroy(&program);
  if (failed == kNvrtcSuccess) return code;
  return Status(ErrorKind::Internal, "DC6154",
                "NVRTC " + version() + " does not compile the kernel '" + source.name +
                    "' for sm_" + std::to_string(architecture) + " (error " +
                    std::to_string(failed) + "): " + (log.empty() ? "it says no more" : log) +
                    "; please report this");
}

}  // namespace dc::runtime::kernel::cuda
