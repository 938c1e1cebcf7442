// File: tools/report/live.h: serves a page, and what the ranks of this host do, to browsers of this
// host.
#pragma once
#include <functional>
#include <string>

#include "tutti/result.h"

namespace tutti::tools {

struct LiveParts {
  std::string html;                     // The page.
  std::function<std::string()> status;  // JSON, each time that a page asks for it.
};

/// Answers at 127.0.0.1, at `port` or, if that is 0, at any free one, below a path that only its
/// reader has been told (SECURITY.md), until SIGINT, SIGTERM or SIGHUP. `announce` gets the address
/// once it answers. Call it before other threads are started: they would get the signals.
Status serve_live(const LiveParts& parts, int port,
                  const std::function<void(const std::string& address)>& announce);

}  // namespace tutti::tools
