// File: base/cpus.h: what this process may use of the machine.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace tutti {

/// A set of CPUs, the first 1024 of a machine.
using CpuSet = std::array<std::uint64_t, 16>;

/// The CPUs that this thread may run on.
CpuSet affinity();
/// The CPU that this thread runs on now; -1 where that can't be told. About a nanosecond.
int current_cpu();
/// Moves this thread off the CPUs of `crowded`, if it may run elsewhere, and leaves it as free to
/// move as it was. False if there is nowhere to go. A few microseconds.
bool leave_cpus(const CpuSet& crowded);
/// CPUs that this process's cgroup allows, by time (v1 and v2, rounded up); 0: no limit.
int quota_cpus();

/// CPUs that this process can really use: its affinity mask, cut by the CPU quota of its cgroup (v1
/// and v2, rounded up). At least 1. Never the machine's core count: containers and launchers give
/// less.
int usable_cpus();

/// NUMA nodes of this machine, counted from sysfs: cheap; 1 where it can't be told.
int numa_nodes();

/// Bytes of the largest cache level of this machine; 32 MiB when it can't be told.
std::size_t last_level_cache_bytes();

}  // namespace tutti
