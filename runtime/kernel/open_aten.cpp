// Finds and opens the plug-in with the ATen kernels. Programs that need none never load libtorch.
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "runtime/kernel/aten/plugin.h"

namespace dc::runtime {
namespace {

std::vector<std::filesystem::path> candidates() {
  if (const char* chosen = std::getenv("DCRUN_PLUGIN_DIR"); chosen != nullptr && *chosen != '\0') {
    return {std::filesystem::path(chosen) / aten::kLibrary};
  }
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return {};
  const auto folder = program.parent_path();
  return {folder.parent_path() / "lib" / aten::kLibrary, folder / aten::kLibrary};
}

base::Status unavailable(const std::string& reason) {
  return base::Status(base::ErrorKind::Unavailable, "DC6110",
                      "the plan has aten kernels, but " + std::string(aten::kLibrary) +
                          " cannot be used: " + reason +
                          "; build with DCC_WITH_TORCH=ON or set DCRUN_PLUGIN_DIR to its folder");
}

// libtorch's OpenMP threads spin while they wait, which starves the other ranks of a shared
// machine. The library reads these once, when it is loaded.
void make_threads_sleep() {
  setenv("OMP_WAIT_POLICY", "passive", 0);
  setenv("GOMP_SPINCOUNT", "0", 0);
}

}  // namespace

base::Result<std::unique_ptr<KernelProvider>> open_aten_provider(int threads) {
  make_threads_sleep();
  std::string looked;
  for (const auto& path : candidates()) {
    std::error_code error;
    if (!std::filesystem::exists(path, error)) {
      looked += (looked.empty() ? "" : ", ") + path.string();
      continue;
    }
    // Never closed: libtorch does not survive it.
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return unavailable(dlerror());
    void* entry = dlsym(library, aten::kEntry);
    if (entry == nullptr) return unavailable(path.string() + " has no entry " + aten::kEntry);
    std::string problem;
    std::unique_ptr<KernelProvider> provider(
        reinterpret_cast<aten::Open>(entry)(aten::kAbi, threads, &problem));
    if (provider == nullptr) return unavailable(problem);
    return provider;
  }
  return unavailable("it is not at " + (looked.empty() ? "the program's folder" : looked));
}

}  // namespace dc::runtime
