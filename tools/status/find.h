// File: tools/status/find.h: finds the processes of this host that have flight records, and reads
// them.
#pragma once
#include <string>
#include <vector>

#include "exec/flight/reader.h"

namespace tutti::tools {

struct FoundTrack {
  exec::flight::SeenTrack track;
  int pid = 0;           // As this process sees it.
  std::string program;   // The process's name.
  bool stopped = false;  // By a signal or a debugger.
};

struct Found {
  std::vector<FoundTrack> tracks;
  int hidden = 0;  // Processes of other users, whose descriptors we may not read.
  exec::flight::Now now;
};

/// The record in a file, of a process that has been killed; empty: it is none. Times are of the
/// clock of the host that it ran on, if that has not been started again since.
std::vector<exec::flight::SeenTrack> read_record(const std::string& path);

/// All of this host. `proc`: "/proc".
Found find_tracks(const std::string& proc);

}  // namespace tutti::tools
