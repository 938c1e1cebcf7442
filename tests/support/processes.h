// File: support/processes.h: ranks as real processes. The test itself must not have started
// threads.
#pragma once
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tutti/communicator.h"

namespace tutti::test {

/// A directory of this test's own, removed with the object.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tutti-test-XXXXXX").string();
    if (mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    if (owner_ == getpid()) std::filesystem::remove_all(path_, ignored);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  pid_t owner_ = getpid();
};

/// Until `condition` holds. The usual limit only ends what hangs: under a sanitizer, on a machine
/// that others use, minutes pass.
template <class Condition>
bool eventually(Condition condition, std::chrono::seconds limit = std::chrono::seconds(400)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

/// Says to the test, which waits for it, that this rank is in the middle of things.
inline void say_ready(const ScratchDirectory& directory, int rank) {
  std::ofstream(directory.path() + "/ready." + std::to_string(rank)).put('\n');
}
inline bool all_ready(const ScratchDirectory& directory, int ranks) {
  return eventually([&] {
    for (int rank = 0; rank < ranks; ++rank) {
      if (!std::filesystem::exists(directory.path() + "/ready." + std::to_string(rank)))
        return false;
    }
    return true;
  });
}

/// Forked ranks. Each runs `body(rank)`; an empty string is success, any other is printed.
class Processes {
 public:
  Processes(int count, const std::function<std::string(int rank)>& body) {
    std::fflush(nullptr);
    for (int rank = 0; rank < count; ++rank) {
      const pid_t pid = fork();
      if (pid == 0) {
        const std::string complaint = body(rank);
        if (!complaint.empty()) std::fprintf(stderr, "rank %d: %s\n", rank, complaint.c_str());
        std::fflush(nullptr);
        _exit(complaint.empty() ? 0 : 1);
      }
      pids_.push_back(pid);
    }
  }
  ~Processes() {
    for (const pid_t pid : pids_) {
      if (pid > 0) kill(pid, SIGKILL), waitpid(pid, nullptr, 0);
    }
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  void signal(int rank, int number) const { kill(pids_[static_cast<std::size_t>(rank)], number); }

  /// The rank's exit code; 128 + signal if it was killed; -1 if it still ran at the limit. The
  /// usual limit only ends what hangs: under a sanitizer, on a machine that others use, minutes
  /// pass.
  int wait(int rank, std::chrono::seconds limit = std::chrono::seconds(400)) {
    pid_t& pid = pids_[static_cast<std::size_t>(rank)];
    const auto end = std::chrono::steady_clock::now() + limit;
    for (int status = 0;; std::this_thread::sleep_for(std::chrono::milliseconds(2))) {
      if (waitpid(pid, &status, WNOHANG) == pid) {
        pid = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      }
      if (std::chrono::steady_clock::now() >= end) return -1;
    }
  }

 private:
  std::vector<pid_t> pids_;
};

inline Result<Communicator> join(const ScratchDirectory& meeting, int rank, int ranks,
                                 const Settings& settings = {}) {
  TUTTI_TRY(const auto rendezvous, file_rendezvous(meeting.path(), "test"));
  return Communicator::create(*rendezvous, Rank{rank}, ranks, settings);
}

/// Forked ranks of one communicator. Each runs `body(rank, comm)` once it has joined.
class RankProcesses : public Processes {
 public:
  RankProcesses(const ScratchDirectory& meeting, int count, const Settings& settings,
                const std::function<std::string(int rank, Communicator& comm)>& body)
      : Processes(count, [&](int rank) -> std::string {
          auto comm = join(meeting, rank, count, settings);
          return comm ? body(rank, *comm) : comm.error().to_string();
        }) {}
};

}  // namespace tutti::test
