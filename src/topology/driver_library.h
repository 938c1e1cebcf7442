// File: topology/driver_library.h: a driver's library that may be absent, opened at run time, and
// its functions, each of which an old one may lack. Internal to nvml.cc, cuda.cc and verbs.cc.
#pragma once
#include <dlfcn.h>

namespace tutti::topology {

class DriverLibrary {
 public:
  explicit DriverLibrary(const char* name) : handle_(dlopen(name, RTLD_NOW | RTLD_LOCAL)) {}
  // Never closed: drivers leave threads and exit handlers behind.
  bool opened() const { return handle_ != nullptr; }

  /// Sets a pointer to the function of that name, or to nullptr.
  template <class Function>
  void bind(Function& function, const char* name) const {
    function = reinterpret_cast<Function>(dlsym(handle_, name));
  }

 private:
  void* handle_;
};

/// Calls a function that may be missing; whether it answered. All three libraries return 0 then.
template <class Function, class... Arguments>
bool ask(Function function, Arguments... arguments) {
  return function != nullptr && function(arguments...) == 0;
}

}  // namespace tutti::topology
