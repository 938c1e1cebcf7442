// File: virtual/kernel/raw.h: system calls of the real kernel, past the C library, whose functions
// the simulator replaces.
#pragma once
#include <sys/syscall.h>

#include <cerrno>
#include <cstdint>
#include <type_traits>

namespace tutti::virt {

template <class T>
long as_word(T value) {
  if constexpr (std::is_null_pointer_v<T>)
    return 0;
  else if constexpr (std::is_pointer_v<T>)
    return reinterpret_cast<long>(value);
  else
    return static_cast<long>(value);
}

/// The kernel's answer: a value, or a negative error number. Any thread.
template <class... Args>
long raw(long number, Args... args) {
  static_assert(sizeof...(args) <= 6);
#if defined(__x86_64__)
  const long given[6] = {as_word(args)...};
  long result = 0;
  register long r10 asm("r10") = given[3];
  register long r8 asm("r8") = given[4];
  register long r9 asm("r9") = given[5];
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(given[0]), "S"(given[1]), "d"(given[2]), "r"(r10), "r"(r8),
                 "r"(r9)
               : "rcx", "r11", "memory");
  return result;
#elif defined(__aarch64__)
  const long given[6] = {as_word(args)...};
  register long x8 asm("x8") = number;
  register long x0 asm("x0") = given[0];
  register long x1 asm("x1") = given[1];
  register long x2 asm("x2") = given[2];
  register long x3 asm("x3") = given[3];
  register long x4 asm("x4") = given[4];
  register long x5 asm("x5") = given[5];
  asm volatile("svc 0"
               : "+r"(x0)
               : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
               : "memory");
  return x0;
#endif
}

/// The same as the C library says it: -1 and errno.
template <class... Args>
long raw_errno(long number, Args... args) {
  const long result = raw(number, args...);
  if (result >= 0 || result < -4095) return result;
  errno = static_cast<int>(-result);
  return -1;
}

}  // namespace tutti::virt
