// File: virtual/driver.h: makes the world, forks the ranks of a run, kills those that the seed
// kills, and says what came of it.
#pragma once
#include <cstdint>
#include <string>

#include "virtual/kernel/world.h"

namespace tutti::virt {

/// Maps a world with room for runs of so many ranks. Once, before the first run.
void make_world(int ranks);

struct Outcome {
  std::string broken;  // The promise that was broken; empty: none.
  std::uint64_t hash = 0, points = 0, switches = 0;
  Time time = 0;
  int errors = 0;  // Calls that failed, as they have to where something fails.
};

/// Runs `parameters` to the end. The process must have one thread.
Outcome run(const Parameters& parameters, bool trace);

}  // namespace tutti::virt
