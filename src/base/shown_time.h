// File: base/shown_time.h: times as tables show them, with two decimals.
#pragma once

namespace tutti {

/// Whether a bound is not shown as 0.00 us. One that is says nothing, and nor does its share of a
/// time: bounds have no latency, so those of small messages are far below any time.
inline bool is_shown(double bound_us) { return bound_us >= 0.005; }
/// Instead of such a bound in a sentence; "-" in a table.
inline constexpr const char* kNotShown = "- (less than 0.01 us)";

}  // namespace tutti
