#include "virtual/leaks.h"

#include <dirent.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <string>
#include <string_view>

#include "virtual/kernel/raw.h"

namespace tutti::virt {
namespace {

// The library keeps until a process ends: the flight record's memory, the progress thread, and the
// thread that hands out memory with its socket. A rank that has made a unique id keeps its store: a
// thread, a listener, an epoll set and an eventfd.
constexpr std::array<int, Holdings::kKinds> kKept = {1, 0, 1, 1, 2}, kStore = {0, 0, 3, 0, 1};
constexpr std::array<const char*, Holdings::kKinds> kNames = {
    "descriptors of memory", "descriptors of processes", "other descriptors",
    "mappings of shared memory", "threads"};

template <class Each>
void each_in(const char* folder, const Each& each) {
  DIR* const entries = opendir(folder);
  if (entries == nullptr) return;
  while (const dirent* const entry = readdir(entries)) {
    if (entry->d_name[0] != '.') each(entry->d_name);
  }
  closedir(entries);
}

std::string target_of(const char* descriptor) {
  char target[256];
  const std::string path = std::string("/proc/self/fd/") + descriptor;
  const ssize_t length = readlink(path.c_str(), target, sizeof(target));
  return length < 0 ? std::string() : std::string(target, static_cast<std::size_t>(length));
}

}  // namespace

Holdings count_holdings() {
  Holdings held;
  each_in("/proc/self/fd", [&](const char* number) {
    const std::string target = target_of(number);
    const bool memory = target.starts_with("/memfd:"), process = target == "anon_inode:[pidfd]";
    ++held.count[memory ? Holdings::kMemory : process ? Holdings::kProcess : Holdings::kOther];
  });
  each_in("/proc/self/task", [&](const char*) { ++held.count[Holdings::kThreads]; });
  std::FILE* const maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) return held;
  for (char line[512]; std::fgets(line, sizeof(line), maps) != nullptr;)
    held.count[Holdings::kMappings] += std::string_view(line).find("/memfd:") != std::string::npos;
  std::fclose(maps);
  return held;
}

namespace {

struct Leaks {
  std::string text;
  bool threads_alone = false;
};

Leaks find_leaks(const Holdings& before, bool made_id) {
  const Holdings after = count_holdings();
  Leaks found;
  for (std::size_t kind = 0; kind < Holdings::kKinds; ++kind) {
    const int more = after.count[kind] - before.count[kind];
    const int kept = kKept[kind] + (made_id ? kStore[kind] : 0);
    if (more <= kept) continue;
    found.threads_alone = kind == Holdings::kThreads && found.text.empty();
    found.text +=
        (found.text.empty() ? "" : ", ") + std::to_string(more - kept) + " " + kNames[kind];
  }
  return found;
}

}  // namespace

void say_leaks(const Holdings& before, bool made_id, char* text, std::size_t bytes) {
  Leaks found = find_leaks(before, made_id);
  // A thread that has ended for the C library ends in the kernel a moment later. That is real time.
  for (int looks = 0; found.threads_alone && looks < 2000; ++looks) {
    const timespec moment{0, 1'000'000};
    raw(SYS_nanosleep, &moment, nullptr);
    found = find_leaks(before, made_id);
  }
  std::snprintf(text, bytes, "%s", found.text.c_str());
}

}  // namespace tutti::virt
