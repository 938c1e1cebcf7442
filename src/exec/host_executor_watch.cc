// What HostExecutor does while it waits: checks abort, deadline and peers, moves between CPUs, and
// carries messages.
#include "exec/host_executor.h"

namespace tutti::exec {
namespace {

// Looks of a rank whose neighbours have nothing to do.
constexpr int kLooks = 64;

}  // namespace

/// What is awaited is a line: whether there is any use in a whole step.
bool HostExecutor::has_news() const {
  if (!gathering() || wire_ != nullptr || next_peer_ == ranks_) return true;
  return is_there(next_peer_, next_line_);
}

/// Whether a line of this call is there, be it what it should be or not.
bool HostExecutor::is_there(int rank, std::size_t line) const {
  // relaxed: who goes on from this looks again.
  const std::uint64_t tag = region_.lines(rank, place_)[line].tag.load(std::memory_order_relaxed);
  return same_number(tag, tag_);
}

/// As has_news, for a while where nobody else on this CPU has anything to do before there are news:
/// to let them run and find that out takes two switches, about 2 us.
bool HostExecutor::look_for_news() const {
  if (has_news()) return true;
  if (!may_look_on()) return false;
  for (int i = 0; i < kLooks; ++i) {
    cpu_relax();
    if (has_news()) return true;
  }
  return false;
}

/// Whether all ranks of this CPU have done their part of the call.
bool HostExecutor::may_look_on() const {
  if (options_.wait.ranks_per_cpu == 1 || !symmetric()) return false;
  return std::all_of(neighbours_.begin(), neighbours_.end(),
                     [this](int rank) { return is_there(rank, first_line_); });
}

/// Who is one too many on its CPU moves off those that have enough. Measured on 2 cores: 2 ranks, 8
/// bytes, 8 us a call on one CPU instead of 0.08; barrier of 4 ranks, 1.5 us with 2 of them on
/// each, 3.3 or 4.6 with 3 or 4 on one.
void HostExecutor::look_around() {
  const int most = options_.wait.ranks_per_cpu;
  if (number_ < next_look_around_) return;
  // They move seldom, and others' records are far; where each has a CPU this is a rare case anyway.
  if (most > 1) next_look_around_ = number_ + kCpuPeriod;
  const int here = current_cpu();
  // relaxed: a hint.
  region_.record(me_).cpu.store(here + 1, std::memory_order_relaxed);
  CpuSet full{};
  std::array<std::uint16_t, sizeof(CpuSet) * 8> ranks_on{};
  neighbours_.clear();
  int before = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    // relaxed: a hint; where a peer has moved since, a step too many is taken.
    const int at = region_.record(rank).cpu.load(std::memory_order_relaxed) - 1;
    if (rank == me_ || at < 0 || at >= static_cast<int>(ranks_on.size())) continue;
    const auto cpu = static_cast<std::size_t>(at);
    if (++ranks_on[cpu] >= most) full[cpu / 64] |= std::uint64_t{1} << (cpu % 64);
    if (at != here) continue;
    neighbours_.push_back(rank);
    before += rank < me_ ? 1 : 0;
  }
  const auto move = crowding_.look(std::chrono::steady_clock::now(), number_, before >= most);
  if (move == Crowding::Move::kStay || here < 0) return;
  if (move == Crowding::Move::kAside && leave_cpus(full)) return;
  // Back; or nowhere to go, as the ranks' affinity masks say so.
  CpuSet only{};
  const auto cpu = static_cast<std::size_t>(here) % ranks_on.size();
  only[cpu / 64] |= std::uint64_t{1} << (cpu % 64);
  (void)leave_cpus(only);
}

bool HostExecutor::patrol() {
  if (phase_ == Phase::kStopping || phase_ == Phase::kDone) return true;  // A poll says more.
  if (region_.ending()) return end_by_abort() != Poll::kDone;
  const auto now = std::chrono::steady_clock::now();
  if (!waiting_) {
    waiting_ = true;
    wait_start_ = now;
    next_look_ = now + std::chrono::milliseconds(50);
    (void)calls_agree(now);
    return phase_ != Phase::kDone;
  }
  if (!calls_agree(now)) return phase_ != Phase::kDone;
  if (now >= next_look_) {
    next_look_ = now + std::chrono::milliseconds(50);
    say_waiting(now - wait_start_);
    look_at_peers();
  }
  if (waiting_ && phase_ != Phase::kDone && phase_ != Phase::kStopping &&
      now - wait_start_ > options_.timeout) {
    // This thread may have come late itself: one more look, at this call alone.
    waiting_ = step() == Poll::kPending;
    if (waiting_) fail(explain_timeout());
  }
  return phase_ != Phase::kDone;
}

/// The rest of finish_running. It has a function of its own, as a small call that finds all data
/// there needs none of this.
Status HostExecutor::finish_waiting(Poll result) {
  for (;; result = poll()) {
    if (result == Poll::kPending) {
      const bool moved = wait_until(
          options_.wait, [&] { return look_for_news() && (result = poll()) != Poll::kPending; },
          [this] { look_around(); }, [this] { return patrol_alone(); },
          [this](auto& ready, auto longest) { return sleep(ready, longest); });
      if (!moved) return take_status();
    }
    if (result == Poll::kDone || (patrol_due() && !patrol())) return take_status();
  }
}

bool HostExecutor::poll_messages() {
  if (broken_ || region_.ending()) [[unlikely]]
    return patrol_messages(), true;
  bool moved = messages_.poll();
  // A look at the network is a system call: not while there is something to do without.
  if (wire_ != nullptr && !moved && wire_->progress()) {
    (void)messages_.poll();
    moved = true;
  }
  if (!messages_.error()) return moved;
  end_messages(*messages_.error());
  return true;
}

bool HostExecutor::patrol_messages() {
  if (!broken_ && !region_.ending()) {
    const auto now = std::chrono::steady_clock::now();
    const auto failure = messages_.patrol(now, options_.timeout);
    if (!failure) return true;
    end_messages(*failure);
  }
  give_up();
  return false;
}

void HostExecutor::end_messages(const Error& failure) {
  Error own = with_place(failure);
  const bool first = region_.abort(own);
  if (wire_ != nullptr) wire_->progress();
  give_up();
  // Another rank may have reported first: then message_error repeats its report.
  if (first || own.code == Code::kMismatch) failure_ = std::move(own);
}

Error HostExecutor::message_error(const MessageBatch& batch) const {
  Error error = failure_ ? *failure_  // This rank's own.
                         : broken_error(batch.messages.empty() ? "a message"
                                                               : describe(batch.messages.front()));
  if (batch.reader >= 0)
    error.what +=
        "; rank " + std::to_string(batch.reader) + " may still read this message's buffer";
  return error;
}

Status HostExecutor::run(MessageBatch& batch) {
  if (broken_) return message_error(batch);
  walled([&] { run_posted(batch); });
  retire(batch);
  return outcome(batch);
}

void HostExecutor::run_posted(MessageBatch& batch) {
  post(batch);
  const auto over = [&] { return (batch.open == 0 && messages_left()) || broken_; };
  // Whatever moved may have left something to be sent: who slept then would keep the peer waiting.
  // And once it is over nobody looks again: that would send what can wait.
  while (!over()) {
    if (poll_messages()) continue;
    wait_until(
        options_.wait, [this] { return poll_messages(); }, [this] { look_around(); },
        [this] { return patrol_messages() && !messages_stuck(); },
        [this](auto& ready, auto longest) { return sleep(ready, longest); });
  }
}

}  // namespace tutti::exec
