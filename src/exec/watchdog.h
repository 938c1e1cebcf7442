// File: exec/watchdog.h: ends what can't go on (an abort, the deadline, a rank that has gone), and
// finds the rank to blame.
//
// The first error of a communicator is written into its region once, and ends all calls and
// messages of all ranks.
#pragma once
#include <atomic>
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "exec/calls/active_call.h"
#include "exec/calls/call_board.h"

namespace tutti::exec {

/// It has more than 20 functions: each way to end has its error, and each wait its clock.
class Watchdog {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Milliseconds = std::chrono::milliseconds;
  /// How long a call or message that failed waits for ranks that may still access its buffers.
  static constexpr Milliseconds kLongestStop{1000};
  /// How long a rank tries to tell the others that the communicator is over, in all its calls.
  static constexpr Milliseconds kLongestGoodbye{1000};

  /// `places`: as HostExecutor::Options has it.
  Watchdog(const CallBoard& board, const ActiveCall& call, Milliseconds timeout,
           std::vector<std::string> places);

  Milliseconds timeout() const { return timeout_; }

  /// This rank has seen that the communicator is of no more use.
  bool broken() const { return broken_; }
  /// The first time, this also writes the record of calls.
  void set_broken() noexcept;
  /// Whether it is, on any rank.
  bool over() const { return broken_ || board_.region().ending(); }

  /// A thread that executes something drives the wire from `claim_link` to `free_link`; if none
  /// does, a thread that aborts.
  void claim_link() {
    if (board_.team().remote_link != nullptr) claim();
  }
  void free_link() {
    if (board_.team().remote_link == nullptr) return;
    // seq_cst, as in `claim`: a thread that aborts now sees that nobody has the link, or the next
    // line sees its abort.
    link_users_.fetch_sub(1, std::memory_order_seq_cst);
    if (!broken_ && board_.region().ending()) [[unlikely]]
      tell_abort();
  }
  /// Ends the communicator on all ranks. Any thread.
  void abort(const Error& error);
  void pass_on_abort();
  /// Sends the abort if no thread executes anything. One that does passes it on by itself.
  void tell_abort();

  /// An error of this rank: tells all ranks, and returns the error for this rank's caller.
  Error report(Error error);
  /// The error that ended the communicator, for `what` of this rank.
  Error broken_error(const std::string& what) const;
  /// The error with the process of the rank that is to blame.
  Error with_place(Error error) const;

  /// A call has gone on, or waits; true if it begins to.
  void went_on() {
    if (waiting_) [[unlikely]]
      end_wait();
  }
  bool begins_waiting(Time now);
  /// Whether to look at peers again, once in a while.
  bool look_due(Time now);
  bool is_late(Time now) const { return waiting_ && now - wait_start_ > timeout_; }
  /// After a long wait in a call, tells the others which rank this one waits for, so that all blame
  /// the same. `awaited`: the ranks for which it waits, ascending.
  void say_waiting(Time now, std::span<const int> awaited);
  /// The same of messages: the rank whose message has waited longest, and since when. A call that
  /// waits comes first.
  void say_message_waits(const std::optional<std::pair<int, Time>>& longest, Time now);
  /// Messages have gone on. The others learn that at once: this rank may leave the library now.
  void messages_went_on() {
    if (shown_ && !waiting_) [[unlikely]]
      end_message_wait();
  }
  /// The error of an awaited rank that has died or left. A rank that did its part before it left
  /// is not missing. If another rank misses it, that one ends the call for all.
  std::optional<Error> find_gone(std::span<const int> awaited) const;
  Error timeout_error(std::span<const int> awaited) const;
  /// Whether to look at abort, deadline and peers although the network is busy: messages of others
  /// may keep it busy for ever.
  bool health_check_due();

  /// A call has failed. It is over once no rank writes into its buffers any more; names in `error`
  /// those that still may, if that took too long.
  void begin_stop();
  bool has_stopped(Error& error) const;
  /// The same for a sent message that peers may copy from. False: that took too long.
  bool wait_for_reader(int rank, Time last) const;

 private:
  void claim();
  void send_abort();
  bool is_long(Time since, Time now) const;
  void show_wait(std::uint64_t wait);
  void end_wait();
  void end_message_wait();
  bool is_here(int rank) const {
    return board_.team().endpoint.presence(rank).state == Presence::State::kHere;
  }
  std::string describe_rank(int rank) const;

  const CallBoard& board_;
  const ActiveCall& call_;
  Milliseconds timeout_;
  std::vector<std::string> places_;
  std::atomic<int> link_users_{0};  // Calls and batches of messages under way.
  std::atomic<bool> aborting_{false};
  bool broken_ = false, waiting_ = false;
  bool shown_ = false;  // The others see for which rank this one waits.
  Time wait_start_, next_look_, stop_end_;
  // For the thread that has the link.
  std::chrono::nanoseconds goodbye_left_{kLongestGoodbye};
  std::int64_t next_health_check_ = 0;  // By the coarse clock.
};

}  // namespace tutti::exec
