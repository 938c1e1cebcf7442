// File: tools/status/merge.h: what `tutti status --save` wrote on several hosts, or ranks after an
// error (TUTTI_FLIGHT), as if it had been found here.
#pragma once
#include <string>
#include <vector>

#include "tools/status/waiting.h"
#include "tutti/result.h"

namespace tutti::tools {

/// All of these communicators, as JSON.
std::string save(const std::vector<CommStatus>& comms);
/// Reads files that `save` or ranks wrote. Times of other hosts become those of the first file's,
/// by the clock on which hosts agree. An error names the file.
Result<Found> merge(const std::vector<std::string>& files);

}  // namespace tutti::tools
