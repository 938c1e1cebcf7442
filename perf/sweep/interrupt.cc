#include "perf/sweep/interrupt.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <optional>

namespace tutti::perf {
namespace {

constexpr std::int64_t kMillisecond = 1'000'000;
// A terminal signals a rank, and so does the process that started it; that is one Ctrl-C.
constexpr std::int64_t kOnePress = 300 * kMillisecond;
// How long the size under way may still take.
constexpr std::int64_t kPatience = 2000 * kMillisecond;

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

int RanksInterrupts::wait(std::span<pid_t> ranks) const {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  sigaddset(&set, SIGINT);
  int code = 0;
  std::optional<std::int64_t> first;
  for (auto left = std::ssize(ranks); left > 0;) {
    // One SIGCHLD may stand for several ranks, and one may have ended before it was blocked.
    int status = 0;
    const pid_t ended = ::waitpid(-1, &status, WNOHANG);
    if (ended < 0) break;
    if (ended > 0) {
      const auto rank = std::ranges::find(ranks, ended);
      if (rank == ranks.end()) continue;
      *rank = 0;
      --left;
      // The others notice by themselves, and name the rank that they miss.
      if (code == 0) code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      continue;
    }
    int number = 0;
    if (::sigwait(&set, &number) != 0 || number != SIGINT) continue;
    if (first && now_ns() - *first > kOnePress) {
      die_of_interrupt();
      release();
    }
    if (!first) first = now_ns();
    for (const pid_t rank : ranks) {
      if (rank > 0) ::kill(rank, SIGINT);
    }
  }
  return code;
}

}  // namespace tutti::perf
