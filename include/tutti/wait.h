// File: tutti/wait.h: waiting for several works at once. In C: tutti_work_wait_all and
// tutti_work_wait_any (tutti_options.h).
//
//   std::vector<tutti::Work> works = ...;
//   while (!works.empty()) {
//     auto place = tutti::wait_any(works);
//     if (!place) return fail(place.error());
//     use(*place, works[*place].wait());  // How it ended; at once.
//     works.erase(works.begin() + *place);
//   }
//
// Any thread but the progress thread, on which callbacks run (Work::then); several threads may wait
// for the same works. Works of several communicators may be mixed.
#pragma once
#include <chrono>
#include <cstddef>
#include <span>

#include "tutti/communicator.h"
#include "tutti/export.h"
#include "tutti/result.h"

namespace tutti {

/// Waits until all of the works are done, or `timeout` in all has passed. The first error of any,
/// by their order: those of the calls; kTimeout if some are not done yet, which go on and can be
/// waited for again; kInvalidArgument for a Work that was never started, for a message of a group
/// that this thread has open, and on the progress thread.
TUTTI_API Status wait_all(std::span<const Work> works,
                          std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max());

/// Waits until one of the works is done: its place, the first one's if there are several. How it
/// ended is what its `wait` returns. Works that were never started are passed over, so `works[i] =
/// {}` takes one out. kTimeout: none is done within `timeout`; they go on and can be waited for
/// again. kInvalidArgument: there is none that was started, this thread has a group open, or it is
/// the progress thread.
TUTTI_API Result<std::size_t> wait_any(
    std::span<const Work> works,
    std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max());

}  // namespace tutti
