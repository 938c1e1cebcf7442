// File: tests/support/shortage.h: memory that runs out at a chosen allocation of a thread.
//
// It replaces operator new and delete of the program that includes it, so one file of a program may
// do so, and a sanitizer that replaces them can't (tests/CMakeLists.txt leaves shortage_*_test.cc
// out of the thread sanitizer's build).
#pragma once
#include <chrono>
#include <cstdlib>
#include <new>
#include <string>
#include <utility>

#include "tutti/result.h"

namespace tutti::test {

// How many allocations this thread makes until one fails; 0: none fails.
inline thread_local long until_failure = 0;
inline thread_local bool all_later_ones = false;  // Fail as well, until this is false again.
inline thread_local bool failing = false;         // The next allocation does.

inline bool fails() {
  if (until_failure > 0 && --until_failure == 0) failing = true;
  return std::exchange(failing, failing && all_later_ones);
}

inline void* allocate(std::size_t bytes, std::size_t alignment) {
  if (fails()) return nullptr;
  if (alignment <= alignof(std::max_align_t)) return std::malloc(bytes == 0 ? 1 : bytes);
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

inline void* allocate_or_throw(std::size_t bytes, std::size_t alignment) {
  void* const memory = allocate(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace tutti::test

// These replace the library's own in the whole program. Those that are missing call these; those
// that don't throw are here too, as a sanitizer has its own of them.
// NOLINTBEGIN(misc-definitions-in-headers): those that replace the library's can't be inline.
void* operator new(std::size_t bytes) {
  return tutti::test::allocate_or_throw(bytes, alignof(std::max_align_t));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return tutti::test::allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return tutti::test::allocate(bytes, alignof(std::max_align_t));
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return tutti::test::allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
// NOLINTEND(misc-definitions-in-headers)

namespace tutti::test {

// Every call's limit. Ranks are told of a failure well before it.
inline constexpr std::chrono::seconds kLimit{60};
inline constexpr std::chrono::seconds kToldWithin{40};

enum class Failing { kOne, kAllFromThenOn };

inline void begin_shortage(long n, Failing which) {
  until_failure = n;
  all_later_ones = which == Failing::kAllFromThenOn;
}
inline void end_shortage() {
  until_failure = 0;
  all_later_ones = failing = false;
}

/// Makes the nth allocation of this thread fail, and all later ones if so said, while it lives.
class Shortage {
 public:
  Shortage(long n, Failing which) { begin_shortage(n, which); }
  ~Shortage() { end_shortage(); }
  Shortage(const Shortage&) = delete;
  Shortage& operator=(const Shortage&) = delete;
  bool has_struck() const { return until_failure == 0; }
};

/// The allocations to fail: each where one fails. Where all later ones fail, too, most are alike.
inline long next(long n, Failing which) {
  return which == Failing::kOne || n < 24 ? n + 1 : n + n / 8;
}

inline std::string text(const Status& status) { return status ? "ok" : status.error().to_string(); }

}  // namespace tutti::test
