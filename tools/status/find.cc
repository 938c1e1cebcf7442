#include "tools/status/find.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/fd.h"

namespace tutti::tools {
namespace {

namespace fs = std::filesystem;
namespace flight = exec::flight;

/// The number that a process gives itself: the last of its namespaces'; 0: not known.
std::uint64_t own_pid(const fs::path& process) {
  std::ifstream status(process / "status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("NSpid:")) continue;
    std::istringstream words(line.substr(6));
    std::uint64_t pid = 0;
    while (words >> pid) {
    }
    return pid;
  }
  return 0;
}

/// "R", "S", "T" and so on; '?' if it has gone.
char state_of(const fs::path& process) {
  std::ifstream stat(process / "stat");
  std::string line;
  std::getline(stat, line);
  const auto name_end = line.rfind(')');  // The name may have any character.
  return name_end == std::string::npos || name_end + 2 >= line.size() ? '?' : line[name_end + 2];
}

std::string name_of(const fs::path& process) {
  std::ifstream file(process / "comm");
  std::string name;
  std::getline(file, name);
  for (char& c : name) {
    if (c < ' ' || c > '~') c = '?';
  }
  return name;
}

/// All in a file of records; empty if it is none.
std::vector<flight::SeenTrack> read_tracks(const fs::path& path, const flight::Now& now) {
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat facts {};
  if (!file || fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) return {};
  const flight::Copy copy = [&](std::uint64_t offset, std::span<std::byte> to) {
    while (!to.empty()) {
      const ssize_t got = pread(file.get(), to.data(), to.size(), static_cast<off_t>(offset));
      if (got <= 0) return false;
      offset += static_cast<std::uint64_t>(got);
      to = to.subspan(static_cast<std::size_t>(got));
    }
    return true;
  };
  return flight::read_file(copy, now);
}

/// Whether a descriptor with that link may be a record (exec/flight/place.h).
bool may_be_record(const std::string& link) {
  const std::string memory = std::string("/memfd:") + flight::kFileName;
  const std::string name = link.substr(link.rfind('/') + 1);
  return link.starts_with(memory) ||
         (name.starts_with(flight::kFileName) && name.find(flight::kFileEnd) != std::string::npos);
}

bool is_number(const std::string& text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c); });
}

void read_process(const fs::path& process, int pid, Found& found) {
  std::error_code failed;
  for (fs::directory_iterator at(process / "fd", failed), end; !failed && at != end;
       at.increment(failed)) {
    std::error_code no_link;
    if (!may_be_record(fs::read_symlink(at->path(), no_link).string())) continue;
    const std::uint64_t own = own_pid(process);
    found.now = flight::Now::look();
    for (auto& track : read_tracks(at->path(), found.now)) {
      // A process that inherited the descriptor makes none of these calls.
      if (own == 0 || track.pid == own)
        found.tracks.push_back({std::move(track), pid, name_of(process), false});
    }
    return;
  }
  if (failed == std::errc::permission_denied) ++found.hidden;
}

}  // namespace

std::vector<flight::SeenTrack> read_record(const std::string& path) {
  auto tracks = read_tracks(path, flight::Now::look());
  for (flight::SeenTrack& track : tracks) {
    // What it did last is the last that is known of its time.
    track.seen_ns = track.made_ns;
    for (const flight::Seen& seen : track.entries)
      track.seen_ns = std::max({track.seen_ns, seen.begin_ns, seen.end_ns});
  }
  return tracks;
}

Found find_tracks(const std::string& proc) {
  Found found;
  std::error_code failed;
  for (fs::directory_iterator at(proc, failed), end; !failed && at != end; at.increment(failed)) {
    const std::string name = at->path().filename().string();
    if (is_number(name)) read_process(at->path(), std::stoi(name), found);
  }
  for (FoundTrack& one : found.tracks) {
    const char state = state_of(fs::path(proc) / std::to_string(one.pid));
    one.stopped = state == 'T' || state == 't';
  }
  found.now = flight::Now::look();
  return found;
}

}  // namespace tutti::tools
