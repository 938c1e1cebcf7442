// File: exec/calls/agreement.h: finds calls that differ between ranks, by the records of the latest
// calls, and describes a difference.
//
// A rank that reads a line sees from its tag whether the writer has made the same calls
// (call_digest.h). Three kinds of ranks read no line that would show a difference:
//
//   givers: the root of a small broadcast, the other ranks of a small reduce
//       At their next call they look at lines that stay empty if all ranks make the same call.
//   waiting ranks: the awaited rank is in another call and will not write the line
//       They compare records: with the awaited rank when they begin to wait, with all ranks now
//       and then.
//   ranks that run ahead
//       They compare all records once in kCalls calls.
//
// The records also show the first call that differs, and which rank is the odd one.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "exec/calls/active_call.h"
#include "exec/calls/call_board.h"

namespace tutti::exec {

class Agreement {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Agreement(const CallBoard& board, const ActiveCall& call) : board_(board), call_(call) {}

  /// An error if that rank's calls are not this one's.
  std::optional<Error> compare(int rank) const;
  /// The same with all other ranks; for a rank that runs ahead it is `due` once in kCalls calls.
  std::optional<Error> compare_all();
  bool due() const { return board_.number() >= next_compare_; }
  /// The same for a rank that waits for `awaited` (-1: for no rank), at every health check.
  std::optional<Error> compare_waiting(Time now, bool begins, int awaited);
  /// Whether that rank can't go on before this one has made another call.
  bool waits_for_this(int rank) const;

 private:
  /// A call that two ranks made differently: the first such call that both records still have.
  struct Difference {
    std::uint64_t number = 0;
    CallSeen mine, theirs;
    bool first = false;  // It is known that the calls before it agree.
  };
  std::optional<Difference> difference_with(int rank) const;
  Error mismatch(int rank, const Difference& found) const;
  void await_others(std::uint64_t number) const;
  int odd_one(int rank, std::uint64_t number) const;

  const CallBoard& board_;
  const ActiveCall& call_;
  // When a waiting rank compares its calls with the others' again, and how long after that.
  Time next_comparison_;
  std::chrono::milliseconds pause_{1};
  std::uint64_t next_compare_ = 0;  // A rank that runs ahead compares again before this call.
  std::uint64_t shown_ = 0;         // The latest call that was shown to a rank on another host.
};

/// "whose latest call is 7, all_reduce of 1024 float32 (sum)", if "call" is the kind. A rank on
/// another host shows its calls with the lines that it writes; of calls in which it only reads it
/// says now and then that it has finished them. So its latest may be later: "whose latest call
/// known here is 7", "of which no call is known here".
std::string describe_latest(const Endpoint& endpoint, Rank me, int rank, std::string_view kind);

/// The rank for which a rank that waits for `awaited` waits in the end: follows which rank waits
/// for which, as far as they show it (RankStatus::waits_for). `awaited` where they wait for each
/// other.
int follow_waits(const Region& region, int me, int awaited);

/// The remedy where ranks that make the same call would run different plans or take different
/// paths.
inline constexpr const char* kBuiltAlike =
    "; all ranks need the same build of Tutti, the same settings and the same plan files";

}  // namespace tutti::exec
