// File: virtual/kernel/real.h: functions of the C library that the simulator replaces in the
// program, as the C library has them.
#pragma once
#include <dlfcn.h>

#include <cstdlib>

namespace tutti::virt {

/// The next definition of a symbol after this program's.
template <class Function>
Function* real(const char* name) {
  void* const found = dlsym(RTLD_NEXT, name);
  if (found == nullptr) std::abort();
  return reinterpret_cast<Function*>(found);
}

}  // namespace tutti::virt

/// The C library's own function of that name, looked up once.
#define TUTTI_REAL(name)                                                                    \
  [] {                                                                                      \
    static decltype(::name)* const function = ::tutti::virt::real<decltype(::name)>(#name); \
    return function;                                                                        \
  }()
