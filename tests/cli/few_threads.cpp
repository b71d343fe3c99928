// Loaded before a program (LD_PRELOAD): each process gets FEW_THREADS threads at a time and
// FEW_PROCESSES forks, and then what the system says at a limit. The limit itself (RLIMIT_NPROC)
// would count other processes of the user, and not bind root.
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>

namespace {

int given(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 1 << 20 : std::atoi(text);
}

std::atomic<int>& threads_left() {
  static std::atomic<int> left{given("FEW_THREADS")};
  return left;
}

struct Start {
  void* (*function)(void*);
  void* argument;
};

void* run(void* start) {
  const Start todo = *static_cast<Start*>(start);
  delete static_cast<Start*>(start);
  void* result = todo.function(todo.argument);
  ++threads_left();
  return result;
}

}  // namespace

extern "C" {

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                   void* argument) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  Start* todo = threads_left()-- > 0 ? new (std::nothrow) Start{start, argument} : nullptr;
  if (todo != nullptr) return create(thread, attributes, run, todo);
  ++threads_left();
  return EAGAIN;
}

pid_t fork() {
  static std::atomic<int> left{given("FEW_PROCESSES")};
  using Fork = pid_t (*)();
  static const auto real = reinterpret_cast<Fork>(dlsym(RTLD_NEXT, "fork"));
  if (left-- > 0) return real();
  errno = EAGAIN;
  return -1;
}

}  // extern "C"
