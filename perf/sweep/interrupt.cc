#include "perf/sweep/interrupt.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <limits>
#include <optional>

#include "base/output.h"

namespace tutti::perf {
namespace {

constexpr std::int64_t kMillisecond = 1'000'000;
// A terminal signals a rank, and so does the process that started it; that is one Ctrl-C.
constexpr std::int64_t kOnePress = 300 * kMillisecond;
// How long the size under way may still take.
constexpr std::int64_t kPatience = 2000 * kMillisecond;
// How long ranks may take to end, by themselves, once one has failed or they should have.
constexpr std::int64_t kGrace = 5000 * kMillisecond;
constexpr auto kNever = std::numeric_limits<std::int64_t>::max();

std::atomic<std::int64_t> interrupted_at{0};                   // 0: it was not.
static_assert(decltype(interrupted_at)::is_always_lock_free);  // A signal handler writes it.

std::int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

/// Ends the process as the signal does where nobody handles it, once it is not blocked.
void die_of_interrupt() {
  ::signal(SIGINT, SIG_DFL);
  ::raise(SIGINT);
}

void on_interrupt(int) {
  std::int64_t first = 0;
  const std::int64_t now = now_ns();
  if (interrupted_at.compare_exchange_strong(first, now)) return;
  if (now - first > kOnePress) die_of_interrupt();
}

bool ignores_interrupts() {
  struct sigaction action {};
  return ::sigaction(SIGINT, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

void note_interrupts() {
  if (ignores_interrupts()) return;
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, nullptr);
}

bool interrupted() { return interrupted_at.load(std::memory_order_relaxed) != 0; }

bool interrupt_overdue() {
  const std::int64_t at = interrupted_at.load(std::memory_order_relaxed);
  return at != 0 && now_ns() - at > kPatience;
}

RanksInterrupts::RanksInterrupts() {
  ::signal(SIGCHLD, SIG_DFL);  // Were it ignored, ranks would vanish without an exit code.
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  if (!ignores_interrupts()) sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, &old_);
}

void RanksInterrupts::release() const { pthread_sigmask(SIG_SETMASK, &old_, nullptr); }

namespace {

void signal_all(std::span<const pid_t> ranks, int number) {
  for (const pid_t rank : ranks) {
    if (rank > 0) ::kill(rank, number);
  }
}

/// Takes the exit code of one that has ended, and puts 0 in its place; nothing if none has. If the
/// process has no children any more, all become 0: nothing will come of them.
std::optional<int> take_ended(std::span<pid_t> ranks) {
  int status = 0;
  while (const pid_t ended = ::waitpid(-1, &status, WNOHANG)) {
    if (ended < 0) {
      std::ranges::fill(ranks, 0);
      return std::nullopt;
    }
    const auto rank = std::ranges::find(ranks, ended);
    if (rank == ranks.end()) continue;
    *rank = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  return std::nullopt;
}

/// The next of these signals; 0 if none comes before `end`.
int next_signal(const sigset_t& set, std::int64_t end) {
  const std::int64_t left = std::max<std::int64_t>(end - now_ns(), 0);
  const timespec time{left / 1'000'000'000, left % 1'000'000'000};
  return std::max(::sigtimedwait(&set, nullptr, &time), 0);
}

}  // namespace

int RanksInterrupts::wait(std::span<pid_t> ranks) const {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  sigaddset(&set, SIGINT);
  int code = 0;
  std::int64_t pressed_at = 0, kill_at = kNever;
  const auto end_within = [&](std::int64_t time) {
    signal_all(ranks, SIGCONT);  // A stopped one could not end.
    kill_at = std::min(kill_at, now_ns() + time);
  };
  const auto left = [&] {
    return std::ranges::count_if(ranks, [](pid_t rank) { return rank > 0; });
  };
  while (left() > 0) {
    // One SIGCHLD may stand for several ranks, and one may have ended before it was blocked.
    if (const auto ended = take_ended(ranks)) {
      if (code != 0 || *ended == 0) continue;
      code = *ended;
      end_within(kGrace);  // The others notice by themselves, and name the rank that they miss.
      continue;
    }
    if (left() == 0) break;
    const int number = next_signal(set, kill_at);
    if (now_ns() >= kill_at) {
      say_error("{} of {} ranks did not end; killing them\n", left(), ranks.size());
      if (code == 0) code = 128 + SIGINT;
      signal_all(ranks, SIGKILL);
      kill_at = kNever;
    }
    if (number != SIGINT) continue;
    if (pressed_at != 0 && now_ns() - pressed_at > kOnePress) {
      die_of_interrupt();
      release();
    }
    if (pressed_at == 0) pressed_at = now_ns();
    signal_all(ranks, SIGINT);
    end_within(kPatience + kGrace);
  }
  return code;
}

}  // namespace tutti::perf
