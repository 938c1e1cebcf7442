// File: virtual/leaks.h: what a process holds of the system, counted before it joins and after it
// has left. The real kernel counts: virtual sockets have descriptors of it as well.
#pragma once
#include <array>
#include <cstddef>

namespace tutti::virt {

struct Holdings {
  enum Kind : std::size_t { kMemory, kProcess, kOther, kMappings, kThreads, kKinds };
  std::array<int, kKinds> count{};
};

/// What this process holds now. The world's own memory is none of it.
Holdings count_holdings();

/// What is held now beyond `before` and beyond what the library keeps for a process; empty:
/// nothing. Into `text`, for people.
void say_leaks(const Holdings& before, bool made_id, char* text, std::size_t bytes);

}  // namespace tutti::virt
