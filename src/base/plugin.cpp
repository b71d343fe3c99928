#include "src/base/plugin.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "src/base/interface_id.h"

namespace dc::base {
namespace {

std::vector<std::filesystem::path> candidates(const char* file) {
  if (const char* chosen = std::getenv("DCRUN_PLUGIN_DIR"); chosen != nullptr && *chosen != '\0') {
    return {std::filesystem::path(chosen) / file};
  }
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return {};
  const auto folder = program.parent_path();
  return {folder.parent_path() / "lib" / file, folder / file};
}

Status unavailable(const PluginUse& use, const std::string& reason) {
  return Status(ErrorKind::Unavailable, use.code,
                use.why + ", but " + use.file + " cannot be used: " + reason + "; build with " +
                    use.built_by + "=ON or set DCRUN_PLUGIN_DIR to its folder");
}

Result<void*> entry_of(void* library, const std::string& path, const PluginUse& use) {
  using Interface = const char* (*)();
  const auto interface = reinterpret_cast<Interface>(dlsym(library, "dcrun_plugin_interface"));
  const std::string theirs = interface == nullptr ? "no interfaces that it names" : interface();
  if (theirs != interface_id()) {
    return Status(ErrorKind::Mismatch, "DC6125",
                  path + " belongs to another build: it has " + theirs + ", this program has " +
                      interface_id() +
                      "; build programs and plug-ins together, or set DCRUN_PLUGIN_DIR to the "
                      "folder of this build's plug-ins");
  }
  void* entry = dlsym(library, use.entry);
  if (entry == nullptr) return unavailable(use, path + " has no entry " + use.entry);
  return entry;
}

}  // namespace

Result<void*> open_plugin(const PluginUse& use, PluginSymbols symbols) {
  std::string looked;
  for (const auto& path : candidates(use.file)) {
    std::error_code error;
    if (!std::filesystem::exists(path, error)) {
      looked += (looked.empty() ? "" : ", ") + path.string();
      continue;
    }
    void* library = dlopen(
        path.c_str(), RTLD_NOW | (symbols == PluginSymbols::Global ? RTLD_GLOBAL : RTLD_LOCAL));
    if (library == nullptr) return unavailable(use, dlerror());
    return entry_of(library, path.string(), use);
  }
  return unavailable(use, "it is not at " + (looked.empty() ? "the program's folder" : looked));
}

}  // namespace dc::base
