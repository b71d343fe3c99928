#include "runtime/kernel/cuda/compiler_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string_view>

#include "runtime/kernel/cuda/nvrtc.h"

namespace dc::runtime::kernel::cuda {
namespace {

constexpr std::string_view kArgument = "compile-kernels";
std::atomic<bool> is_served = false;  // by this program

// Before a request's name and text; before a reply's code, as its text.
struct Header {
  int32_t architecture = 0, driver_version = 0;
  uint64_t name_bytes = 0, text_bytes = 0;
};

bool send_all(int socket, const void* from, size_t bytes) {
  const auto* next = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t sent = send(socket, next, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    next += sent;
    bytes -= static_cast<size_t>(sent);
  }
  return true;
}

bool receive_all(int socket, void* to, size_t bytes) {
  auto* next = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = recv(socket, next, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    next += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

bool receive_text(int socket, uint64_t bytes, std::string& to) {
  constexpr uint64_t kMost = uint64_t{1} << 30;
  if (bytes > kMost) return false;
  to.resize(bytes);
  return receive_all(socket, to.data(), bytes);
}

// Until the other end is closed.
void compile_requests(int socket) {
  std::map<int32_t, base::Result<Nvrtc>> libraries;  // by version of the driver
  for (;;) {
    Header header;
    KernelSource source;
    if (!receive_all(socket, &header, sizeof header) ||
        !receive_text(socket, header.name_bytes, source.name) ||
        !receive_text(socket, header.text_bytes, source.text)) {
      return;
    }
    auto library = libraries.find(header.driver_version);
    if (library == libraries.end()) {
      library = libraries.emplace(header.driver_version, Nvrtc::open(header.driver_version)).first;
    }
    std::string code;
    if (library->second.ok()) {
      base::Result<std::string> made = library->second->compile(source, header.architecture);
      if (made.ok()) code = std::move(made).value();
    }
    Header reply;
    reply.text_bytes = code.size();
    if (!send_all(socket, &reply, sizeof reply) || !send_all(socket, code.data(), code.size()))
      return;
  }
}

}  // namespace

bool serve_compiler(int argc, char** argv) {
  if (argc == 2 && argv[1] == kArgument) {
    compile_requests(STDIN_FILENO);
    return true;
  }
  is_served = true;
  return false;
}

std::unique_ptr<CompilerProcess> CompilerProcess::start() {
  if (!is_served) return nullptr;
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return nullptr;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::string name = "dcc-kernel-compiler", argument(kArgument);
  char* arguments[] = {name.data(), argument.data(), nullptr};
  pid_t process = 0;
  const int failed = posix_spawn(&process, "/proc/self/exe", &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (failed == 0) return std::unique_ptr<CompilerProcess>(new CompilerProcess(process, ends[0]));
  close(ends[0]);
  return nullptr;
}

CompilerProcess::~CompilerProcess() {
  close(socket_);
  while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

std::string CompilerProcess::compile(const KernelSource& source, int architecture,
                                     int driver_version) {
  const Header header{architecture, driver_version, source.name.size(), source.text.size()};
  Header reply;
  std::string code;
  const bool is_done = send_all(socket_, &header, sizeof header) &&
                       send_all(socket_, source.name.data(), source.name.size()) &&
                       send_all(socket_, source.text.data(), source.text.size()) &&
                       receive_all(socket_, &reply, sizeof reply) &&
                       receive_text(socket_, reply.text_bytes, code);
  return is_done ? code : "";
}

}  // namespace dc::runtime::kernel::cuda
