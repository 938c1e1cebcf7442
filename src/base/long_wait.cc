#include "base/long_wait.h"

#include "base/log.h"
#include "base/threads.h"

namespace tutti {

void say_long_wait(int rank, std::chrono::steady_clock::duration waited, std::string_view cause) {
  const std::chrono::duration<double> seconds = waited;
  log::warn(log::Part::kJoin, "joining: {} has waited {:.1f} s: {}; it goes on waiting",
            rank < 0 ? "this process" : fmt::format("rank {}", rank), seconds.count(), cause);
}

LongWork::LongWork(int rank, std::string_view cause) {
  auto started = start_thread("joining: the thread that looks at the clock", [this, rank, cause] {
    const auto start = std::chrono::steady_clock::now();
    std::unique_lock lock(mutex_);
    if (ended_.wait_until(lock, start + kJoinPatience, [this] { return over_; })) return;
    lock.unlock();  // The work's end has to wait for no line of the log.
    say_long_wait(rank, std::chrono::steady_clock::now() - start, cause);
  });
  if (started) watcher_ = *std::move(started);
}

LongWork::~LongWork() {
  if (!watcher_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  ended_.notify_one();
  watcher_.join();
}

}  // namespace tutti
