#include "completions.h"

#include <unistd.h>

#include <thread>

namespace tutti::python {

Completions& Completions::instance() {
  static std::mutex mutex;
  static Completions* current = nullptr;  // Never destroyed: its thread may outlive main.
  const std::lock_guard lock(mutex);
  if (current == nullptr || current->pid_ != getpid()) {  // After a fork the thread is gone.
    current = new Completions();
    current->pid_ = getpid();
  }
  return *current;
}

void Completions::post(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  wake();
}

void Completions::post_at(Time when, std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  later_.emplace(when, std::move(task));
  wake();
}

/// There is something to do, now or later; mutex_ is held.
void Completions::wake() {
  if (idle_ < tasks_.size() + (later_.empty() ? 0 : 1) && threads_ < kMostThreads) {
    ++threads_;
    std::thread([this] { loop(); }).detach();
  } else {
    changed_.notify_one();
  }
}

void Completions::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (!later_.empty() && later_.begin()->first <= std::chrono::steady_clock::now()) {
      tasks_.push_back(std::move(later_.begin()->second));
      later_.erase(later_.begin());
    }
    if (tasks_.empty()) {
      ++idle_;
      if (later_.empty())
        changed_.wait(lock);
      else
        changed_.wait_until(lock, Time(later_.begin()->first));
      --idle_;
      continue;
    }
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr;  // What it held is let go without the lock.
    lock.lock();
  }
}

}  // namespace tutti::python
