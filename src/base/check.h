// File: base/check.h: assertions for our own bugs. They stay on in releases, and never judge a
// peer's bytes.
#pragma once

namespace tutti {

/// Prints the line and ends the process: the library's own state can't be trusted any more.
[[noreturn]] void check_failed(const char* expression, const char* file, int line);

}  // namespace tutti

#define TUTTI_CHECK(expression) \
  (static_cast<bool>(expression) ? void(0) : ::tutti::check_failed(#expression, __FILE__, __LINE__))

#ifdef NDEBUG
#define TUTTI_DCHECK(expression) void(0)
#else
#define TUTTI_DCHECK(expression) TUTTI_CHECK(expression)
#endif
