// File: fake_drivers/fake_driver.h: what the fake drivers share: they are loaded as
// the real ones are, have the real functions' names and signatures, and tell of a machine with two
// GPUs (or RDMA devices) that does not exist.
#pragma once
#include <cstdlib>
#include <cstring>

namespace fake_driver {

/// Whether the test wants this function to fail: TUTTI_STAND_IN_FAILS has its name.
inline bool fails(const char* function) {
  const char* const name = std::getenv("TUTTI_STAND_IN_FAILS");
  return name != nullptr && std::strcmp(name, function) == 0;
}

inline void copy(char* to, std::size_t size, const char* text) {
  std::strncpy(to, text, size - 1);
  to[size - 1] = '\0';
}

inline constexpr const char* kBus[2] = {"00000000:19:00.0", "00000000:98:00.0"};

}  // namespace fake_driver

#define FAKE_DRIVER extern "C" __attribute__((visibility("default")))
// The failure of a function, with the error that the real library would give.
#define MAY_FAIL(error) \
  if (fake_driver::fails(__func__)) return error
