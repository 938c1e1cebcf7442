// HostExecutor while it waits: it carries messages, and checks abort, deadline and peers.
#include <algorithm>
#include <optional>

#include "exec/host_executor.h"

namespace tutti::exec {
namespace {

// Looks of a rank whose neighbours have nothing to do.
constexpr int kLooks = 64;

}  // namespace

/// As has_news, for a while where nobody else on this CPU has anything to do before there are news:
/// to let them run and find that out takes two switches, about 2 us.
bool HostExecutor::look_for_news() const {
  if (has_news()) return true;
  // Whether all ranks of this CPU have done their part of the call.
  const auto done = [this](int rank) { return board_.is_there(rank, board_.round().first); };
  if (!adapt_.cpus.shares() || !board_.round().symmetric() ||
      !std::ranges::all_of(adapt_.cpus.neighbours(), done))
    return false;
  for (int i = 0; i < kLooks; ++i) {
    cpu_relax();
    if (has_news()) return true;
  }
  return false;
}

/// The rest of finish_running. It has a function of its own, as a small call that finds all data
/// there needs none of this.
Status HostExecutor::finish_waiting(Poll result) {
  // A health check on the caller's own thread: while it waits, this rank does nothing else.
  const auto check_health_alone = [this] {
    if (phase_ == Phase::kGather) board_.say_blocked();
    return check_health();
  };
  for (;; result = poll()) {
    if (result == Poll::kPending) {
      std::optional<std::chrono::steady_clock::time_point> asleep;  // Since the first nap.
      const auto sleep_patiently = [&](auto& ready, auto longest) {
        if (!asleep) {
          if (patience_.yield_until(ready)) return true;
          asleep = std::chrono::steady_clock::now();
        }
        return sleep(ready, longest);
      };
      const bool moved = wait_until(
          wait_, [&] { return look_for_news() && (result = poll()) != Poll::kPending; },
          [this] { adapt_.cpus.look_around(); }, check_health_alone, sleep_patiently);
      if (!moved) return take_status();
      if (asleep) patience_.slept(std::chrono::steady_clock::now() - *asleep);
    }
    if (result == Poll::kDone || (watchdog_.health_check_due() && !check_health()))
      return take_status();
  }
}

Status HostExecutor::run(MessageBatch& batch) {
  if (broken()) return messages_.outcome(batch);
  walled([&] { run_posted(batch); });
  messages_.retire(batch);
  return messages_.outcome(batch);
}

void HostExecutor::run_posted(MessageBatch& batch) {
  messages_.post(batch);
  const auto over = [&] { return (batch.open == 0 && messages_.left()) || broken(); };
  const auto check_health = [&] { return messages_.check_health(batch.open == 0); };
  // Whatever moved may have left something to be sent: a rank that slept then would keep the peer
  // waiting. And once it is over nobody looks again: that would send what can wait.
  while (!over()) {
    // What moves may be other ranks' news, for ever.
    if (watchdog_.health_check_due() && !check_health()) continue;
    if (messages_.poll()) continue;
    // A health check polls as well: the last message may end there, and then nothing moves any
    // more.
    wait_until(
        wait_, [&] { return messages_.poll() || over(); }, [this] { adapt_.cpus.look_around(); },
        [&] { return check_health() && !messages_.find_stuck(); },
        [this](auto& ready, auto longest) { return sleep(ready, longest); });
  }
}

/// For a rank that only wrote in its last call, and saw no line that would show a difference. A
/// rank that wrote a line where none is due made another call. False: the call has failed.
bool HostExecutor::strays_agree() {
  const Round& round = board_.round();
  for (int rank = board_.stray_writer(round.quiet); rank < round.quiet_end;
       rank = board_.stray_writer(rank + 1)) {
    if (fails(agreement_.compare(rank))) return false;
  }
  return true;
}

/// Whether this rank waits for that one now.
bool HostExecutor::awaits(int rank) const {
  switch (phase_) {
    case Phase::kCredit: return board_.waits_for_credit_of(rank);
    case Phase::kGather: return board_.waits_for_lines_of(rank);
    case Phase::kLanes: return plans_.waits_for(rank);
    case Phase::kLeave: return team().remote_link->pending_to(rank);
    default: return false;
  }
}

std::span<const int> HostExecutor::find_awaited() {
  awaited_.clear();
  for (int rank = 0; rank < team().ranks; ++rank) {
    if (rank != team().me && awaits(rank)) awaited_.push_back(rank);
  }
  return awaited_;
}

bool HostExecutor::check_health() {
  if (phase_ >= Phase::kStopping) return true;  // A poll says more.
  if (board_.region().ending()) return end_by_abort() != Poll::kDone;
  const auto now = std::chrono::steady_clock::now();
  const bool begins = watchdog_.begins_waiting(now);
  // A rank whose part is done needs no other rank. Only at its deadline it names those that have
  // not taken what it sent.
  const auto awaited = phase_ == Phase::kLeave ? std::span<const int>{} : find_awaited();
  const int last = awaited.empty() ? -1 : awaited.back();
  const int next = phase_ == Phase::kGather ? board_.next_peer() : last;
  // A round that has not shown itself has not come to a wait: the record's latest is the one
  // before.
  if (board_.log().shown() == board_.number())
    flight_.wait(board_.number(), phase_, last, phase_ == Phase::kLanes ? plans_.tile() : 0);
  if (fails(agreement_.compare_waiting(now, begins, next)) || begins) return phase_ != Phase::kDone;
  if (watchdog_.look_due(now)) {
    watchdog_.say_waiting(now, awaited);
    auto gone = watchdog_.find_gone(awaited);
    // All that it wrote before it ended has arrived by now, so look once more.
    if (gone && poll() == Poll::kPending) fail(*std::move(gone));
  }
  // This thread may have come late itself: one more look, at this call alone.
  if (phase_ < Phase::kStopping && watchdog_.is_late(now)) {
    if (step() == Poll::kPending)
      fail(watchdog_.timeout_error(find_awaited()));
    else
      watchdog_.went_on();
  }
  return phase_ != Phase::kDone;
}

}  // namespace tutti::exec
