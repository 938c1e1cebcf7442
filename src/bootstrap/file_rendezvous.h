// File: bootstrap/file_rendezvous.h: a store in a directory, and the directories that fit.
#pragma once
#include <string>

#include "tutti/rendezvous.h"

namespace tutti::bootstrap {

/// A directory of this user's, for jobs on this host: $XDG_RUNTIME_DIR/tutti, or /tmp/tutti-<uid>
/// where that is not set, not there, or another user's (sudo -E).
/// Made if it is missing, mode 0700; kSystem if somebody else's lies there.
Result<std::string> user_directory();

/// Removes what jobs that nobody takes part in any more have left in `directory`. Best effort.
void remove_dead_jobs(const std::string& directory);

}  // namespace tutti::bootstrap
