// File: base/driver_library.h: a driver's library that may be absent, opened at run time, and its
// functions, each of which an old one may lack.
#pragma once
#include <dlfcn.h>

namespace tutti {

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

// A driver's handles have types that its own headers keep to themselves; here they are declared
// alike but named otherwise, which a sanitizer that compares names takes for another function.
#ifdef __clang__
#define TUTTI_DRIVER_CALL [[clang::no_sanitize("function")]]
#else
#define TUTTI_DRIVER_CALL
#endif

/// The result of a function that the library has.
template <class Function, class... Arguments>
TUTTI_DRIVER_CALL auto call(Function function, Arguments... arguments) {
  return function(arguments...);
}

/// Calls a function that may be missing; whether it answered. All three libraries return 0 then.
template <class Function, class... Arguments>
bool ask(Function function, Arguments... arguments) {
  return function != nullptr && call(function, arguments...) == 0;
}

}  // namespace tutti
