// File: perf/cuda_facts.h: what the probe of a GPU (cuda_facts.cc) and its kernels both know.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tutti::facts {

/// Flags are words of their own lines, in memory that both sides reach.
struct Arguments {
  std::uint64_t* mine = nullptr;    // Polled here,
  std::uint64_t* theirs = nullptr;  // and written for the other side.
  std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::uint64_t bytes = 0;     // A tile, or the table that is chased.
  std::uint64_t count = 0;     // How often it is repeated.
  std::uint64_t patience = 0;  // Nanoseconds after which a wait is given up.
};

inline constexpr unsigned kThreads = 512;  // In a block, as the interpreter has.

/// Handles for cudaLaunchKernel; the argument is an Arguments.
const void* empty_kernel();
/// One thread waits until *mine is not 0.
const void* spin_kernel();
/// One thread answers `count` times: waits for *mine, then writes *theirs. `to` null: it begins.
const void* ping_pong_kernel();
/// One thread loads `count` times, each from where the load before says, in `from`.
const void* chase_kernel();
/// A block copies a tile `count` times, between barriers.
const void* copy_kernel();
/// The same, and one thread releases a flag behind each.
const void* release_kernel();
/// A block stores lines of 128 bytes `count` times, eight threads each, and waits until the other
/// one has seen each; that has `from`, where it says how many each thread saw in part.
const void* lines_kernel();

}  // namespace tutti::facts
