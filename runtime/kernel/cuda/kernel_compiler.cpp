#include "runtime/kernel/cuda/kernel_compiler.h"

#include <filesystem>
#include <optional>

#include "runtime/kernel/cuda/kernel_headers.h"
#include "src/base/cache_directory.h"
#include "src/base/file.h"
#include "src/base/sha256.h"

namespace dc::runtime::kernel::cuda {
namespace {

// A file is the hash of the code, a line feed, the code.
constexpr size_t kHashDigits = 64;

std::optional<std::string> read_code(const std::string& path) {
  base::Result<std::string> file = base::read_file(path);
  if (!file.ok() || file->size() <= kHashDigits || (*file)[kHashDigits] != '\n')
    return std::nullopt;
  std::string code = file->substr(kHashDigits + 1);
  if (base::sha256_hex(code) != std::string_view(*file).substr(0, kHashDigits)) return std::nullopt;
  return code;
}

// What cannot be kept is compiled again the next time.
void keep_code(const std::string& path, const std::string& code) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (!error) (void)base::write_file_atomically(path, base::sha256_hex(code) + "\n" + code);
}

}  // namespace

std::string KernelCompiler::path_of(const KernelSource& source) const {
  base::Sha256 hash;
  const auto add = [&hash](std::string_view text) {
    hash.update(std::to_string(text.size()) + ":");
    hash.update(text);
  };
  add(source.text);
  for (const KernelHeader& header : kernel_headers()) {
    add(header.name);
    add(header.text);
  }
  for (const std::string& option : nvrtc_.options(architecture_)) add(option);
  add(nvrtc_.version());
  return directory_ + "/" + std::string(base::kKernelFolder) + "/" + hash.hex() +
         std::string(base::kKernelExtension);
}

std::string KernelCompiler::compile_in_process(const KernelSource& source) {
  std::unique_ptr<CompilerProcess> process;
  {
    const std::lock_guard lock(processes_);
    if (!idle_.empty()) {
      process = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (process == nullptr) process = CompilerProcess::start();
  if (process == nullptr) return "";
  std::string code = process->compile(source, architecture_, driver_version_);
  const std::lock_guard lock(processes_);
  if (!code.empty()) idle_.push_back(std::move(process));
  return code;
}

void KernelCompiler::end_processes() {
  const std::lock_guard lock(processes_);
  idle_.clear();
}

// What a process does not compile is compiled here, which says why it cannot be.
base::Result<std::string> KernelCompiler::compile_anew(const KernelSource& source) {
  if (const std::unique_lock own(here_, std::try_to_lock); own.owns_lock())
    return nvrtc_.compile(source, architecture_);
  std::string code = compile_in_process(source);
  if (code.empty()) return nvrtc_.compile(source, architecture_);
  ++by_processes_;
  return code;
}

base::Result<std::string> KernelCompiler::compile(const KernelSource& source) {
  const std::string path = directory_.empty() ? "" : path_of(source);
  if (!path.empty()) {
    if (std::optional<std::string> code = read_code(path)) {
      ++from_cache_;
      base::mark_used(path);
      return *std::move(code);
    }
  }
  DC_ASSIGN_OR_RETURN(std::string code, compile_anew(source));
  ++compiled_;
  if (!path.empty()) keep_code(path, code);
  return code;
}

}  // namespace dc::runtime::kernel::cuda
