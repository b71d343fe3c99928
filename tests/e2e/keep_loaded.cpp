// LD_PRELOAD library: turns dcrun into a server that has libtorch loaded and forks a dcrun per
// request (served.py). To load it and to take it down costs a rank 0.25 s of processor time; most
// tests train for less.
//
//   DCC_KEEP_LOADED=SOCKET    where to listen; serves until standard input is closed
//   DCC_KEEP_LIBRARY=FILE     what to load: libdcrun_aten.so
//
// A request runs dcrun's main() in a forked process. Where that starts ranks by exec of
// "/proc/self/exe", the forked rank runs main() too. Both end without static destructors. A request
// is a Head with standard output and error as descriptors, then NUL-terminated strings: the
// folder, the arguments, the environment. The reply is an Answer. A client that closes the
// connection before ends the process.
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio_ext.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

namespace {

using Main = int (*)(int, char**, char**);

Main program_main;
bool is_served;  // this process is a dcrun, no longer the server

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "keep_loaded: %s: %s\n", what, std::strerror(errno));
  _exit(1);
}

[[noreturn]] void run_main(int argc, char** argv) {
  const int code = program_main(argc, argv, environ);
  std::fflush(nullptr);
  _exit(code);
}

struct Head {
  uint32_t bytes, arguments, variables;
};

struct Answer {
  int32_t status;  // as waitpid gives it
  int32_t unused;
  int64_t microseconds;
};

struct Request {
  std::vector<char> text;
  std::vector<char*> arguments, variables;  // with a null pointer at the end, as main() wants them
  const char* folder = nullptr;
  int streams[2] = {-1, -1};
};

bool read_whole(int socket, char* into, size_t bytes) {
  while (bytes > 0) {
    const ssize_t got = read(socket, into, bytes);
    if (got <= 0) return false;
    into += got, bytes -= static_cast<size_t>(got);
  }
  return true;
}

bool receive_head(int socket, Head& head, int (&streams)[2]) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(streams))] = {};
  iovec data{&head, sizeof(head)};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  if (recvmsg(socket, &message, MSG_WAITALL) != sizeof(head)) return false;
  const cmsghdr* first = CMSG_FIRSTHDR(&message);
  if (first == nullptr || first->cmsg_len != CMSG_LEN(sizeof(streams))) return false;
  std::memcpy(streams, CMSG_DATA(first), sizeof(streams));
  return true;
}

bool receive(int socket, Request& request) {
  Head head{};
  if (!receive_head(socket, head, request.streams)) return false;
  request.text.resize(head.bytes);
  if (!read_whole(socket, request.text.data(), head.bytes)) return false;
  char* at = request.text.data();
  const auto next = [&] {
    char* word = at;
    at += std::strlen(at) + 1;
    return word;
  };
  request.folder = next();
  for (uint32_t i = 0; i < head.arguments; ++i) request.arguments.push_back(next());
  for (uint32_t i = 0; i < head.variables; ++i) request.variables.push_back(next());
  request.arguments.push_back(nullptr);
  request.variables.push_back(nullptr);
  return true;
}

[[noreturn]] void become(Request& request, int socket) {
  is_served = true;
  close(socket);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (dup2(nothing, 0) < 0 || dup2(request.streams[0], 1) < 0 || dup2(request.streams[1], 2) < 0)
    fail("standard streams");
  for (const int stream : {nothing, request.streams[0], request.streams[1]}) close(stream);
  if (chdir(request.folder) != 0) fail(request.folder);
  environ = request.variables.data();
  run_main(static_cast<int>(request.arguments.size()) - 1, request.arguments.data());
}

// In a process per request: starts the program, waits until it or the client has gone.
[[noreturn]] void serve(int socket) {
  Request request;
  if (!receive(socket, request)) _exit(1);
  const pid_t pid = fork();
  if (pid == 0) become(request, socket);
  if (pid < 0) fail("fork");
  for (const int stream : request.streams) close(stream);
  const int process = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (process < 0) fail("pidfd_open");
  pollfd wanted[] = {{process, POLLIN, 0}, {socket, POLLIN, 0}};
  while (poll(wanted, 2, -1) < 0 && errno == EINTR) {
  }
  if (wanted[0].revents == 0) kill(pid, SIGKILL);
  Answer answer{};
  rusage used{};
  if (wait4(pid, &answer.status, 0, &used) != pid) fail("wait4");
  for (const timeval& time : {used.ru_utime, used.ru_stime})
    answer.microseconds += int64_t{time.tv_sec} * 1'000'000 + time.tv_usec;
  _exit(write(socket, &answer, sizeof(answer)) == sizeof(answer) ? 0 : 1);
}

int listen_at(const char* path) {
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
  if (listener < 0 || bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener, 64) != 0)
    fail(path);
  return listener;
}

int serve_all(int, char**, char**) {
  const char* library = std::getenv("DCC_KEEP_LIBRARY");
  if (library != nullptr && dlopen(library, RTLD_NOW | RTLD_LOCAL) == nullptr) {
    std::fprintf(stderr, "keep_loaded: %s\n", dlerror());
    return 1;
  }
  const int listener = listen_at(std::getenv("DCC_KEEP_LOADED"));
  std::puts("ready");
  std::fflush(stdout);
  pollfd wanted[] = {{listener, POLLIN, 0}, {0, POLLIN, 0}};
  for (;;) {
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if (poll(wanted, 2, -1) < 0) continue;
    if (wanted[1].revents != 0) _exit(0);
    const int socket = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) continue;
    if (fork() == 0) {
      close(listener);
      serve(socket);
    }
    close(socket);
  }
}

// What exec does with descriptors.
void close_descriptors() {
  std::vector<int> open;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    open.push_back(std::atoi(entry.path().filename().c_str()));
  for (const int descriptor : open) {
    if (const int flags = fcntl(descriptor, F_GETFD); flags >= 0 && (flags & FD_CLOEXEC) != 0)
      close(descriptor);
  }
}

}  // namespace

extern "C" {

// NOLINTNEXTLINE(bugprone-reserved-identifier): libc's name, which is to be replaced.
int __libc_start_main(Main main, int argc, char** argv, void (*init)(), void (*fini)(),
                      void (*rtld_fini)(), void* stack_end) {
  using Start = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);
  const auto start = reinterpret_cast<Start>(dlsym(RTLD_NEXT, "__libc_start_main"));
  program_main = main;
  const bool serves = std::getenv("DCC_KEEP_LOADED") != nullptr;
  return start(serves ? serve_all : main, argc, argv, init, fini, rtld_fini, stack_end);
}

int execv(const char* path, char* const* argv) {
  if (!is_served || std::strcmp(path, "/proc/self/exe") != 0) return execve(path, argv, environ);
  __fpurge(stdout);
  close_descriptors();
  int argc = 0;
  while (argv[argc] != nullptr) ++argc;
  run_main(argc, const_cast<char**>(argv));
}

}  // extern "C"
