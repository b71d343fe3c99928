#include "runtime/comm/plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace dc::runtime {
namespace {

std::vector<std::string> places() {
  std::vector<std::string> result;
  if (const char* folder = getenv("DCRUN_PLUGIN_DIR"); folder != nullptr && *folder != 0) {
    result.push_back(std::string(folder) + "/" + kMpiPlugin);
    return result;
  }
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  if (length > 0) {
    std::string folder(path, static_cast<size_t>(length));
    folder.resize(folder.rfind('/'));
    result.push_back(folder + "/" + kMpiPlugin);
    result.push_back(folder + "/../lib/" + kMpiPlugin);
  }
  return result;
}

}  // namespace

base::Result<std::unique_ptr<Job>> connect_mpi(const LaunchInfo& launch,
                                               const CommOptions& options) {
  if (launch.world > 1 &&
      (launch.launcher == Launcher::Torchrun || launch.launcher == Launcher::Dcrun)) {
    return base::Status(base::ErrorKind::Unavailable, "DC6111",
                        "--comm mpi needs ranks that MPI's own launcher started, these came from " +
                            std::string(name(launch.launcher)) +
                            "; start with mpirun, or use --comm local");
  }
  void* library = nullptr;
  std::string reasons;
  for (const std::string& place : places()) {
    if (access(place.c_str(), F_OK) != 0) continue;
    // Global: MPI libraries open components of their own that expect to find its symbols.
    library = dlopen(place.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library != nullptr) break;
    reasons += std::string("; ") + dlerror();
  }
  if (library == nullptr) {
    return base::Status(base::ErrorKind::Unavailable, "DC6111",
                        std::string("--comm mpi needs the plug-in ") + kMpiPlugin +
                            (reasons.empty() ? ", which is not beside dcrun, in ../lib or in "
                                               "$DCRUN_PLUGIN_DIR; build with DCC_WITH_MPI=ON"
                                             : ", which cannot be opened" + reasons));
  }
  const auto open = reinterpret_cast<OpenMpiJob>(dlsym(library, kMpiEntry));
  if (open == nullptr) {
    return base::Status(base::ErrorKind::Unavailable, "DC6111",
                        std::string(kMpiPlugin) + " is of another version of dcrun");
  }
  std::unique_ptr<Job> job;
  base::Status status;
  open(launch, options, &job, &status);
  if (!status.ok()) return status;
  return job;
}

}  // namespace dc::runtime
