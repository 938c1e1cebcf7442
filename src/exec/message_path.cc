#include "exec/message_path.h"

#include <fmt/format.h>
#include <new>

namespace tutti::exec {

bool MessagePath::poll() {
  if (watchdog_.over()) [[unlikely]]
    return check_health(false), true;
  bool moved = messages_.poll(), news = false;
  // A look at the network is a system call: not while there is something to do without.
  if (!moved && board_.team().remote_link != nullptr && board_.team().remote_link->progress()) {
    moved = messages_.poll();
    news = true;
  }
  if (moved) watchdog_.messages_went_on();
  if (!messages_.error()) return moved || news;
  end(*messages_.error());
  return true;
}

/// An error if a rank has taken nothing of what was written for it for longer than the timeout. The
/// time counts only while somebody waits for that.
std::optional<Error> MessagePath::check_flush(bool flushing,
                                              std::chrono::steady_clock::time_point now) {
  const RemoteLink* const link = board_.team().remote_link;
  if (link == nullptr) return std::nullopt;
  const auto timeout = watchdog_.timeout();
  for (int rank = 0; rank < board_.team().ranks; ++rank) {
    Flush& flush = flushes_[static_cast<std::size_t>(rank)];
    if (!flushing || !link->pending_to(rank)) {
      flush.since.reset();
      continue;
    }
    // This thread may have come late itself: one more look.
    if (flush.since && now - *flush.since > timeout) (void)poll();
    const std::uint64_t taken = link->taken_for(rank);
    if (!flush.since || taken != flush.taken) {
      flush = {taken, now};
    } else if (now - *flush.since > timeout) {
      return Error{Code::kTimeout,
                   fmt::format("messages: waited {} ms for rank {} to take what was sent to it; "
                               "TUTTI_TIMEOUT_MS sets the limit",
                               timeout.count(), rank),
                   Rank{board_.team().me}, Rank{rank}};
    }
  }
  return std::nullopt;
}

bool MessagePath::check_health(bool flushing) {
  if (!watchdog_.over()) {
    const auto now = std::chrono::steady_clock::now();
    auto failure = messages_.check_health(now, watchdog_.timeout());
    if (!failure) failure = check_flush(flushing, now);
    if (!failure) {
      watchdog_.say_message_waits(messages_.longest_wait(), now);
      return true;
    }
    end(*failure);
  } else if (!watchdog_.broken()) {
    watchdog_.pass_on_abort();  // A thread that aborts leaves that to the one that has the link.
  }
  give_up();
  return false;
}

bool MessagePath::find_stuck() {
  for (int rank = 0; rank < board_.team().ranks; ++rank) {
    if (rank == board_.team().me || !messages_.waits_for(rank) || !agreement_.waits_for_this(rank))
      continue;
    if (poll()) return false;  // It may have sent the message before it began to wait.
    end(messages_.stuck(
        rank,
        fmt::format("rank {}, {}, waits there for rank {}; ranks must make their "
                    "calls and messages in an order in which each can go on",
                    rank,
                    describe_latest(board_.team().endpoint, Rank{board_.team().me}, rank, "call"),
                    board_.team().me)));
    return true;
  }
  return false;
}

void MessagePath::end(const Error& failure) {
  Error own = watchdog_.with_place(failure);
  const bool first = board_.region().abort(own);
  watchdog_.pass_on_abort();
  give_up();
  // Another rank may have reported first: then error_of repeats its report.
  if (first || own.code == Code::kMismatch) failure_ = std::move(own);
}

void MessagePath::retire(MessageBatch& batch) {
  watchdog_.free_link();
  if (!watchdog_.broken()) return;
  const auto last = std::chrono::steady_clock::now() + Watchdog::kLongestStop;
  for (const Message& message : batch.messages) {
    if (!message.sends || message.stage != Message::Stage::kMapped) continue;
    if (!watchdog_.wait_for_reader(message.peer, last)) batch.reader = message.peer;
  }
}

Error MessagePath::error_of(const MessageBatch& batch) const {
  Error error =
      failure_ ? *failure_  // This rank's own.
               : watchdog_.broken_error(batch.messages.empty() ? "a message"
                                                               : describe(batch.messages.front()));
  if (batch.reader >= 0)
    error.what += fmt::format("; rank {} may still read this message's buffer", batch.reader);
  return error;
}

Status MessagePath::outcome(const MessageBatch& batch) const noexcept {
  if (batch.open == 0 && !board_.region().ending()) return ok();
  const Rank me{board_.team().me};
  try {
    return error_of(batch);
  } catch (const std::bad_alloc&) {
    return Error{Code::kSystem, "out of memory", me, me};
  }
}

}  // namespace tutti::exec
