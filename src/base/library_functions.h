// Functions of a shared library that is opened when a program needs it: the program starts, and is
// built, where there is none. Plug-ins of our own: plugin.h.
#pragma once

#include <dlfcn.h>

#include <string>
#include <type_traits>

namespace dc::base {

class LibraryFunctions {
 public:
  // `file`: "libcuda.so.1". The library is never closed: its functions may be called to the end.
  explicit LibraryFunctions(const std::string& file)
      : library_(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) reason_ = dlerror();
  }

  bool opened() const { return library_ != nullptr; }
  const std::string& reason() const { return reason_; }  // why it could not be opened

  // Sets a pointer to a function; null if the library, which must have been opened, lacks it.
  template <typename Function>
  requires std::is_function_v<Function>
  void load(Function*& function, const char* symbol) {
    function = reinterpret_cast<Function*>(dlsym(library_, symbol));
    if (function == nullptr && absent_ == nullptr) absent_ = symbol;
  }
  // The first that was asked for and is not there; null if none.
  const char* absent() const { return absent_; }

 private:
  void* library_;
  std::string reason_;
  const char* absent_ = nullptr;
};

}  // namespace dc::base
