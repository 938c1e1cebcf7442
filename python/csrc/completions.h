// File: python/csrc/completions.h: the process's threads on which callbacks of Python run.
//
// A future's callback takes the interpreter's lock and may itself call collectives and wait for
// them (the PowerSGD hook does), so it must not run on Tutti's progress thread, which has to carry
// these on, and must not hold up the end of those that it waits for: a task that finds all threads
// busy gets another. Copies out of temporary buffers run here too, and time limits of single
// operations are kept.
#pragma once
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>

namespace tutti::python {

class Completions {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// The process's own; a forked child gets another, without the parent's tasks.
  static Completions& instance();
  /// Begins tasks in this order. They throw nothing. Any thread.
  void post(std::function<void()> task);
  /// Runs the task at that time. Any thread.
  void post_at(Time when, std::function<void()> task);

 private:
  /// Tasks that wait for each other, nested so deeply, are a mistake of their author's.
  static constexpr std::size_t kMostThreads = 64;

  void wake();
  void loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::multimap<Time, std::function<void()>> later_;
  std::size_t threads_ = 0, idle_ = 0;
  int pid_ = 0;
};

}  // namespace tutti::python
