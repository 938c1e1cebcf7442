// File: exec/recovery_board.h: what ranks tell each other where calls are not possible: on a
// communicator that has failed, or next to its calls.
//
// Each rank has a board (Region::board). It alone writes it, and all others read it: on one host in
// the memory that they share, which stays until the last of them unmaps it, also if its maker has
// died; between hosts the link carries it, also after the abort word is set. A reader sees the
// latest words, each time all of one writing, and may miss those before.
//
// Use it between calls, by the thread whose turn it is on the communicator.
#pragma once
#include <array>
#include <chrono>
#include <vector>

#include "exec/host_executor.h"

namespace tutti::exec {

class RecoveryBoard {
 public:
  static constexpr std::size_t kWords = kNoteWords - 1;  // One is for the board itself.
  using Words = std::array<std::uint64_t, kWords>;

  explicit RecoveryBoard(HostExecutor& executor);
  ~RecoveryBoard();
  RecoveryBoard(const RecoveryBoard&) = delete;
  RecoveryBoard& operator=(const RecoveryBoard&) = delete;

  /// Writes this rank's board and wakes the others. Does not allocate.
  void show(const Words& words) noexcept;
  /// Reads a rank's board; true if it has changed since the last look.
  bool look(int rank);
  /// What the last look found; zeros if that rank has shown nothing.
  const Words& seen(int rank) const { return seen_[static_cast<std::size_t>(rank)].words; }
  /// Whether the rank has died or left. Slow. What it showed before that is there for a `look` that
  /// comes after this.
  bool gone(int rank) const {
    return executor_.endpoint().presence(rank).state != Presence::State::kHere;
  }

  /// Waits until `ready()`, which may look at boards; between naps it calls `check()`, which
  /// returns false to end the wait. True if ready.
  template <class Ready, class Check>
  bool wait(Ready&& ready, Check&& check) {
    const auto look = [&] {
      if (link_ != nullptr) link_->progress();
      return ready();
    };
    return wait_until(
        executor_.wait(), look, [] {}, check,
        [this](auto& until, auto longest) { return executor_.sleep(until, longest); });
  }
  /// Moves what came and what is to be sent, once.
  void progress() {
    if (link_ != nullptr) link_->progress();
  }
  /// Sends what this rank has shown: for a rank that will not look at the link for a while. Takes
  /// at most `longest`.
  void flush(std::chrono::milliseconds longest);

 private:
  struct Seen {
    std::uint64_t version = 0;
    Words words{};
  };

  HostExecutor& executor_;
  Region region_;
  RemoteLink* link_;
  std::vector<Seen> seen_;  // By rank.
  NoteImage image_;
};

}  // namespace tutti::exec
