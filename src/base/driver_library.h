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

  /// A function of whatever type it is assigned to; nullptr if the library lacks it.
  struct Symbol {
    void* address;
    template <class Function>
    operator Function*() const {
      return reinterpret_cast<Function*>(address);
    }
  };
  Symbol find(const char* name) const { return {opened() ? dlsym(handle_, name) : nullptr}; }

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
