#include "exec/message_path.h"

#include <fmt/format.h>
#include <new>

namespace tutti::exec {

bool MessagePath::poll() {
  if (watchdog_.over()) [[unlikely]]
    return check_health(), true;
  bool moved = messages_.poll();
  // A look at the network is a system call: not while there is something to do without.
  if (!moved && board_.team().remote_link != nullptr && board_.team().remote_link->progress()) {
    (void)messages_.poll();
    moved = true;
  }
  if (!messages_.error()) return moved;
  end(*messages_.error());
  return true;
}

bool MessagePath::check_health() {
  if (!watchdog_.over()) {
    const auto failure =
        messages_.check_health(std::chrono::steady_clock::now(), watchdog_.timeout());
    if (!failure) return true;
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
