#include "cuda/comm/watcher.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/threads.h"
#include "base/wall.h"

namespace tutti {
namespace {

// A peer's end is known for sure only half a second later (health.cc), so more often gains nothing.
constexpr std::chrono::milliseconds kBetweenLooks{100};

}  // namespace

Watcher& Watcher::instance() {
  static auto* one = new Watcher();
  return *one;
}

Status Watcher::add(const Health& health) {
  auto watched = std::make_shared<Watched>();
  watched->health = &health;
  const std::lock_guard lock(mutex_);
  if (!started_) {
    TUTTI_TRY(std::thread thread,
              start_thread("the thread that watches calls", [this] { loop(); }));
    thread.detach();
    started_ = true;
  }
  ranks_.push_back(std::move(watched));
  added_.notify_one();
  return ok();
}

void Watcher::remove(const Health& health) {
  // In a forked child there is no such thread, and a lock that it held at the fork stays held.
  if (getpid() != owner_) return;
  std::shared_ptr<Watched> watched;
  {
    const std::lock_guard lock(mutex_);
    // Nobody writes the `health` of a rank that is in the list.
    const auto at =
        std::ranges::find_if(ranks_, [&](const auto& one) { return one->health == &health; });
    if (at == ranks_.end()) return;
    watched = std::move(*at);
    ranks_.erase(at);
  }
  const std::lock_guard lock(watched->mutex);
  watched->health = nullptr;
}

/// Asks for all ranks.
Status Watcher::look() {
  std::vector<std::shared_ptr<Watched>> ranks;
  {
    std::unique_lock lock(mutex_);
    added_.wait(lock, [this] { return !ranks_.empty(); });
    ranks = ranks_;
  }
  for (const auto& rank : ranks) {
    const std::lock_guard lock(rank->mutex);
    if (rank->health != nullptr) rank->health->watch();
  }
  return ok();
}

void Watcher::loop() {
  for (;;) {
    // Without memory for an error it looks again later.
    static_cast<void>(walled("watching calls", [this] { return look(); }));
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

}  // namespace tutti
