// File: virtual/workload.h: what the ranks of a run do, and what came of it.
#pragma once
#include <string>

#include "virtual/kernel/world.h"

namespace tutti::virt {

/// The run of a seed.
Parameters draw(std::uint64_t seed);
/// So many ranks, which join over TCP and call each collective once, in shared memory if there is
/// one host. Every second seed kills a rank once all have joined.
Parameters draw_many(std::uint64_t seed, int ranks, int hosts);
/// One line for people.
std::string describe(const Parameters& run);

/// Joins, makes the calls of the seed, leaves. Reports into the world.
void run_rank(int rank);

/// The first promise that a run has broken, for people; empty: none.
std::string broken_promise();

}  // namespace tutti::virt
