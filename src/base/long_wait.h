// File: base/long_wait.h: a line in the log when a step of joining takes long.
//
// Such a step may last until its deadline, a minute or more. People who look at a silent terminal
// need to know before that what the rank waits for.
#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace tutti {

/// How long a step of joining may take before the log says what it waits for.
inline constexpr std::chrono::seconds kJoinPatience{2};

/// "joining: rank 1 has waited 2.0 s: `cause`; it goes on waiting". A rank below 0 is not known.
void say_long_wait(int rank, std::chrono::steady_clock::duration waited, std::string_view cause);

/// A wait that looks at the clock now and then. One thread.
class LongWait {
 public:
  explicit LongWait(int rank) : rank_(rank) {}
  /// `cause` returns what has not happened yet; it is called once, after kJoinPatience.
  template <class Cause>
  void look(Cause&& cause) {
    const auto waited = std::chrono::steady_clock::now() - start_;
    if (waited >= kJoinPatience && !std::exchange(said_, true))
      say_long_wait(rank_, waited, cause());
  }

 private:
  const int rank_;
  bool said_ = false;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Work of this thread that may block in the kernel, where it can't look at the clock: another
/// thread does as long as this object lives. Where the system refuses that thread, nothing is said.
class LongWork {
 public:
  /// `cause`: what has not happened yet.
  LongWork(int rank, std::string_view cause);
  ~LongWork();
  LongWork(const LongWork&) = delete;
  LongWork& operator=(const LongWork&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;
  std::thread watcher_;
};

}  // namespace tutti
