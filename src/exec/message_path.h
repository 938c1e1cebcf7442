// File: exec/message_path.h: carries messages between two ranks (messages.h), and ends them with
// the communicator.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "exec/calls/agreement.h"
#include "exec/messages.h"
#include "exec/watchdog.h"

namespace tutti::exec {

class MessagePath {
 public:
  MessagePath(const CallBoard& board, const Agreement& agreement, Watchdog& watchdog,
              std::size_t stream_from_bytes, std::size_t most_unexpected)
      : board_(board),
        agreement_(agreement),
        watchdog_(watchdog),
        messages_(board.team().endpoint, board.team().me, stream_from_bytes, board.flight(),
                  most_unexpected),
        flushes_(static_cast<std::size_t>(board.team().ranks)) {}

  std::size_t stream_from_bytes() const { return messages_.stream_from_bytes(); }
  /// Posts a batch, which stays where it is until `retire`.
  void post(MessageBatch& batch) {
    watchdog_.claim_link();
    messages_.post(batch);
  }
  /// Moves what is under way. True if anything moved.
  bool poll();
  /// Checks abort, deadline and peers. `flushing`: a batch has ended but for `left`, so a rank that
  /// takes nothing of what was written for it is late too. False: all messages have failed.
  bool check_health(bool flushing);
  /// For a thread that waits for messages: whether the other end of one waits for a call of this
  /// rank, so that neither can go on. True: the messages have failed.
  bool find_stuck();
  /// Whether what messages have written is on its way.
  bool left() const {
    return board_.team().remote_link == nullptr || !board_.team().remote_link->pending();
  }
  /// A batch that was posted is over. If it failed, waits (1 s at most) until no peer copies from
  /// its buffers any more: the caller may free them after an error.
  void retire(MessageBatch& batch);
  /// The result of a batch that is over. Never throws.
  Status outcome(const MessageBatch& batch) const noexcept;

  /// This communicator is of no more use. Messages under way touch no buffer from now on: their
  /// batches are over, and the caller may free them at once.
  void give_up() {
    watchdog_.set_broken();
    messages_.drop();
  }
  /// The error of batches that are over by it; null of a communicator that another rank has ended.
  void set_failure(Error error) noexcept { failure_ = std::move(error); }

 private:
  /// How data for one rank leave this one.
  struct Flush {
    std::uint64_t taken = 0;  // What RemoteLink::taken_for returned last.
    /// When that last changed; none: no data wait to leave.
    std::optional<std::chrono::steady_clock::time_point> since;
  };

  void end(const Error& failure);
  std::optional<Error> check_flush(bool flushing, std::chrono::steady_clock::time_point now);
  Error error_of(const MessageBatch& batch) const;

  const CallBoard& board_;
  const Agreement& agreement_;
  Watchdog& watchdog_;
  Messages messages_;
  std::vector<Flush> flushes_;    // By rank.
  std::optional<Error> failure_;  // Why a message of this rank failed.
};

}  // namespace tutti::exec
