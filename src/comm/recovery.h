// File: comm/recovery.h: agreement of the ranks that are left, on a communicator that may have
// failed. `shrink` and `agree` are attempts that it runs.
//
// Ranks meet on their boards (exec/recovery_board.h), so it does not matter which ranks have died,
// and no store is needed. It goes in epochs:
//
//   agreeing     Each rank shows the ranks that it takes for dead: they have died or left, were
//                silent for the time limit, or another rank took them for dead. Once all others
//                show the same members and the same epoch, the attempt begins.
//   exchanging   The attempt, which exchanges bytes among the members, in pieces. A board has the
//                pieces of two steps: a rank is at most one step ahead of another.
//   ready        This rank's attempt has succeeded. Once all members are ready, a rank commits the
//                epoch, shows that, and is done.
//
// A rank that takes a member for dead goes to the next epoch, and the others follow: the attempt is
// made again. A rank that was ready and sees that another has committed that epoch commits it too,
// even if it has gone on: so all survivors have the same outcome. What a dead rank showed last is
// there for all on one host; over a network, a rank that commits and then can't be reached by some
// may leave them with another outcome. Then no result is wrong: a communicator needs all of its
// members, and ends with an error.
//
// A rank that was taken for dead and comes late gets an error. Errors of one rank's attempt end the
// operation on all ranks. If operations have numbers, that holds for ranks that come to it later,
// too.
#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "comm/exchange_over.h"
#include "exec/recovery_board.h"
#include "tutti/communicator.h"

namespace tutti {

/// What one communicator keeps from one operation to the next.
struct RecoveryHistory {
  std::uint64_t epoch = 0;                      // The latest that this rank has shown.
  std::array<std::uint64_t, 3> committed = {};  // The latest, newest first; 0: none.
  std::vector<bool> dead = {};                  // By rank; for good.
  /// How often this rank has aborted the communicator. Any thread. relaxed: only the number counts.
  std::atomic<std::uint32_t> aborts{0};
};

/// It has more than 20 functions and 15 fields: one for each that can happen while ranks wait for
/// each other, and what an epoch consists of.
class Recovery {
 public:
  enum class Operation : std::uint8_t { kShrink = 1, kAgree = 2, kShare = 3 };
  struct Options {
    Operation operation = Operation::kShrink;
    std::chrono::milliseconds limit{0};
    std::span<const Rank> excluded = {};  // Take no part, alike on all others.
    /// Ends the operation on all ranks, and leaves the communicator as it is.
    std::stop_token stop = {};
    /// Which one it is of those with this list; 0: operations have no numbers. A rank that has gone
    /// on to a later one has given this one up.
    std::uint16_t number = 0;
  };
  /// What an attempt is given. `exchange` and `look` are the Opening's; an error of theirs ends the
  /// attempt.
  struct Attempt {
    std::span<const int> members;  // Ascending.
    Rank me;                       // The index of this rank there.
    Exchange exchange;
    std::function<Status()> look;
  };

  /// An abort by this rank meanwhile ends the operation on all ranks. `excluded` is read before the
  /// constructor returns.
  Recovery(exec::HostExecutor& executor, RecoveryHistory& history, Options options);
  ~Recovery();
  Recovery(const Recovery&) = delete;
  Recovery& operator=(const Recovery&) = delete;

  /// Runs `attempt` until it succeeds on all members. The last success counts: `attempt` keeps
  /// what it made. An error is alike on all members, but names the rank that returns it.
  Status run(const std::function<Status(const Attempt&)>& attempt);

 private:
  using Time = std::chrono::steady_clock::time_point;
  using Words = exec::RecoveryBoard::Words;
  enum class Stage : std::uint8_t { kNone, kAgreeing, kExchanging, kReady, kFailed, kDone };
  struct Shown;  // A rank's board, read.

  Shown shown_by(int rank) const;
  void show(Stage stage);
  void show_dead(Stage stage);
  Status end(Error error);
  void commit();

  bool agree_on_members();
  Result<std::vector<Bytes>> exchange(std::span<const std::byte> mine);
  Status look_at_others();
  bool all_ready();
  Error superseded() const;

  template <class Awaited>
  bool wait_for(Awaited&& awaited);
  bool over() const { return taken_ || restart_ || error_.has_value(); }
  void survey();
  void survey(int rank);
  bool has_gone_on(const Shown& theirs) const;
  bool has_failed(const Shown& theirs) const;
  void take_dead(int rank, const Words& bits);
  void drop(int rank);
  void drop_gone();
  template <class Awaited>
  bool check_time(Awaited& awaited);
  void follow();
  bool has_committed(const Shown& theirs, std::uint64_t epoch) const;
  bool may_be_ready(int rank) const;
  std::uint64_t hash_of_members() const;
  Error error(Code code, const std::string& what, int peer) const;

  exec::RecoveryBoard board_;
  RecoveryHistory& history_;
  const std::uint32_t aborts_ = history_.aborts.load(std::memory_order_relaxed);
  Options options_;
  std::chrono::milliseconds limit_ = options_.limit;
  std::string_view name_;
  int me_, ranks_;
  std::vector<bool> excluded_;
  std::uint32_t excluded_hash_;
  std::vector<int> members_;
  std::uint64_t members_hash_ = 0;

  Words mine_{};
  Stage stage_ = Stage::kNone;
  std::uint64_t first_epoch_ = 0;
  std::uint64_t phase_ = 0;     // Pieces that this rank has shown in this epoch.
  std::uint64_t prepared_ = 0;  // The epoch of the last success.
  std::uint64_t newest_ = 0;    // The latest epoch that a member has shown.
  bool taken_ = false;          // Another rank has committed what was prepared.
  bool restart_ = false;        // The epoch is over.
  bool members_changed_ = false;
  std::optional<Error> error_;
  Time start_, stage_start_, next_look_;
  std::vector<Time> changed_;  // By rank: when its board last changed.
};

}  // namespace tutti
