// File: cuda/comm/watcher.h: the thread that looks after the calls of communicators that nobody
// asks.
//
// A program may only wait for its stream, and then never asks whether its calls can still end well
// (health.h). So one thread of the process asks for all of its ranks, every kBetweenLooks. What
// it finds ends the kernels and reaches the other ranks, as if the program had asked. It sleeps
// while there are no ranks.
//
// An answer may take long, because CUDA may hold it up. So each rank has a lock of its own: a rank
// that leaves does not wait for the answer of another.
#pragma once
#include <unistd.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda/comm/health.h"
#include "tutti/result.h"

namespace tutti {

class Watcher {
 public:
  /// The process's own. Never destroyed: its thread runs until the process ends.
  static Watcher& instance();
  /// Watches a rank, until `remove`. kSystem: its thread can't be started. Any thread.
  Status add(const Health& health);
  /// Returns once no thread asks it any more. Does nothing if it was not added. Any thread.
  void remove(const Health& health);

 private:
  struct Watched {
    std::mutex mutex;                // Held while it is asked.
    const Health* health = nullptr;  // Null: removed. Only `remove` writes it, under mutex.
  };
  Status look();
  void loop();

  std::mutex mutex_;
  std::condition_variable added_;
  std::vector<std::shared_ptr<Watched>> ranks_;  // Guarded by mutex_.
  bool started_ = false;                         // Guarded by mutex_.
  const int owner_ = getpid();                   // The process that has the thread.
};

}  // namespace tutti
