// File: sweep/measure.h: one line of a sweep: buffers, timing loop, verification, bound.
#pragma once
#include <string_view>

#include "perf/sweep/bound.h"
#include "perf/sweep/check.h"
#include "tutti/communicator.h"

namespace tutti::perf {

/// The measurement for one way of placing the buffers.
struct Timing {
  double us = 0;                              // Per call.
  double algbw = 0, busbw = 0;                // GB/s, 10^9 bytes.
  long long wrong = -1;                       // -1: not checked.
  double error = 0, allowed_error = 0;        // With a wire: of the worst element.
  double p50_us = 0, p99_us = 0, max_us = 0;  // For single calls, if asked for.
};

struct Line {
  Shape shape;
  std::size_t bytes = 0;
  Timing out_of_place, in_place;
  double bound_us = 0;             // Nothing can be faster (sweep/bound.h); 0: not asked for.
  std::string_view bound_by = "";  // "memory" or "links".
  double percent_of_bound() const {
    return bound_us > 0 && out_of_place.us > 0 ? 100 * bound_us / out_of_place.us : 0;
  }
};

/// Measures on all ranks; every rank gets the same line. The first error ends it. kAborted: a rank
/// was interrupted, and the measurement took too long to wait for its end.
Result<Line> measure(Communicator& comm, const Options& options, const Shape& shape,
                     const LinksBound& links);

}  // namespace tutti::perf
