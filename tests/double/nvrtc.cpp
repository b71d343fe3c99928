// The double of libnvrtc: the calls of runtime/kernel/cuda/nvrtc.h. It compiles with the host's C++
// compiler; its machine code is a shared library for the double of libcuda.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "runtime/kernel/cuda/nvrtc.h"
#include "tests/double/gpu.h"

namespace dc::runtime::kernel::cuda {

struct OpaqueProgram {
  std::string text;
  std::vector<std::pair<std::string, std::string>> headers;  // name, text
  std::string code, log;
};

namespace {

namespace fs = std::filesystem;
using dc::gpu_double::Image;

constexpr int kCompilation = 6, kInvalidInput = 3;
constexpr int kArchitectures[] = {80, 90, 100};

int number_or(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : otherwise;
}

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "nvrtc_double_XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~Folder() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// Whether a text, or a header that it includes, has barriers.
bool waits_for_block(const std::string& text,
                     const std::vector<std::pair<std::string, std::string>>& headers) {
  return text.find("__syncthreads") != std::string::npos ||
         std::ranges::any_of(headers, [&](const auto& header) {
           return text.find("#include \"" + header.first + '"') != std::string::npos &&
                  waits_for_block(header.second, headers);
         });
}

int copy_out(const std::string& text, char* to) {
  std::ranges::copy(text, to);
  return 0;
}

}  // namespace
}  // namespace dc::runtime::kernel::cuda

using namespace dc::runtime::kernel::cuda;  // NOLINT: the functions below belong to no namespace

extern "C" {

int nvrtcVersion(int* major, int* minor) {
  *major = number_or("DOUBLE_NVRTC", 13);
  *minor = 0;
  return 0;
}
int nvrtcGetNumSupportedArchs(int* count) {
  *count = static_cast<int>(std::size(kArchitectures));
  return 0;
}
int nvrtcGetSupportedArchs(int* list) {
  std::ranges::copy(kArchitectures, list);
  return 0;
}
int nvrtcCreateProgram(NvrtcProgram* program, const char* text, const char*, int headers,
                       const char* const* texts, const char* const* names) {
  *program = new OpaqueProgram{text, {}, "", ""};
  for (int i = 0; i < headers; ++i) (*program)->headers.emplace_back(names[i], texts[i]);
  return 0;
}
int nvrtcDestroyProgram(NvrtcProgram* program) {
  delete *program;
  *program = nullptr;
  return 0;
}

int nvrtcCompileProgram(NvrtcProgram program, int count, const char* const* options) {
  // As on a GPU: what is contracted has other bits.
  const bool is_exact = std::any_of(options, options + count, [](const char* option) {
    return std::strcmp(option, "--fmad=false") == 0;
  });
  if (!is_exact) return kInvalidInput;
  const Folder folder;
  const auto write = [&](const std::string& name, const std::string& text) {
    fs::create_directories((folder.path() / name).parent_path());
    std::ofstream(folder.path() / name, std::ios::binary) << text;
  };
  for (const auto& [name, text] : program->headers) write(name, text);
  write("kernels.cpp", program->text);
  const std::string& text = program->text;
  const bool has_barriers = waits_for_block(text, program->headers);
  const std::string at = folder.path().string();
  const std::string command =
      std::string(DC_DOUBLE_COMPILER) + " -shared -I" + at +
      " -include " DC_DOUBLE_STANDARD " -include " DC_DOUBLE_WORDS
      " '-DDC_WARP_WORDS=\"" DC_DOUBLE_WARP_WORDS "\"' -DDC_DOUBLE_HAS_BARRIERS=" +
      (has_barriers ? "true" : "false") + " -o " + at + "/module.so " + at +
      "/kernels.cpp -L" DC_DOUBLE_FOLDER " -l:libcuda.so.1 > " + at + "/log 2>&1";
  const int failed = std::system(command.c_str());
  program->log = contents(folder.path() / "log");
  if (failed != 0) return kCompilation;
  const std::string library = contents(folder.path() / "module.so");
  Image image{};
  std::memcpy(image.mark, Image::kMark, sizeof image.mark);
  image.bytes = library.size();
  program->code.assign(reinterpret_cast<const char*>(&image), sizeof image);
  program->code += library;
  return 0;
}

int nvrtcGetCUBINSize(NvrtcProgram program, size_t* bytes) {
  *bytes = program->code.size();
  return 0;
}
int nvrtcGetCUBIN(NvrtcProgram program, char* bytes) { return copy_out(program->code, bytes); }
int nvrtcGetProgramLogSize(NvrtcProgram program, size_t* bytes) {
  *bytes = program->log.size() + 1;
  return 0;
}
int nvrtcGetProgramLog(NvrtcProgram program, char* bytes) {
  bytes[program->log.size()] = '\0';
  return copy_out(program->log, bytes);
}

}  // extern "C"
