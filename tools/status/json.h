// File: tools/status/json.h: what the ranks of a communicator do, for programs and for pages.
#pragma once
#include <cstdint>
#include <string>

#include "base/json.h"
#include "tools/status/waiting.h"

namespace tutti::tools {

/// Its latest call, or its oldest message that is not over, in words; empty: it has made none.
std::string last_text(const RankStatus& rank);
/// "waits for 2, 1.3 s", "in it, 0.2 s", "ok", "no call yet".
std::string state_text(const RankStatus& rank, std::int64_t now_ns);
/// `calls`: also all calls that the record of each rank still has.
Json to_json(const CommStatus& comm, std::int64_t now_ns, bool calls);

}  // namespace tutti::tools
