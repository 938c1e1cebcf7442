// File: soak/schedstat.h: how long threads were ready to run and had no CPU.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <map>

namespace tutti::soak {

/// Nanoseconds of each thread of a process that lives, by the thread's number. Linux counts them.
std::map<int, std::uint64_t> waited_ns(pid_t pid);

}  // namespace tutti::soak
