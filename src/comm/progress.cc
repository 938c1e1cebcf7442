#include "comm/progress.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "base/clock.h"
#include "base/threads.h"

namespace tutti {
namespace {

// The progress thread shares its CPU with whoever computes: it polls a while, then sleeps.
constexpr int kPollsBeforeRest = 200;
constexpr std::chrono::milliseconds kLongestRest{20};
// How often it looks at deadlines while something moves.
constexpr std::int64_t kPatrolMs = 50;

/// The call, with its block lists copied into the work, which lives as long as the call does.
exec::Call with_own_lists(const exec::Call& call, std::size_t ranks, Work::State& work) {
  exec::Call owned = call;
  const auto own = [&](const std::size_t*& list) {
    if (list == nullptr) return;
    work.blocks.insert(work.blocks.end(), list, list + ranks);
    list = work.blocks.data() + (work.blocks.size() - ranks);
  };
  if (call.uneven) {
    work.blocks.reserve(4 * ranks);  // So that the lists stay where they are.
    for (exec::BlockList* blocks : {&owned.input_blocks, &owned.output_blocks}) {
      own(blocks->counts);
      own(blocks->offsets);
    }
  }
  return owned;
}

}  // namespace

void Work::State::complete(Status status) {
  std::vector<std::function<void(const Status&)>> waiting;
  {
    const std::lock_guard lock(mutex);
    if (!status) error = std::move(status.error());
    done = true;
    waiting.swap(callbacks);
  }
  changed.notify_all();
  const Status result = outcome();
  for (auto& callback : waiting) callback(result);
}

Progress& Progress::instance() {
  static std::mutex mutex;
  static Progress* current = nullptr;  // Never destroyed: its thread may outlive main.
  const std::lock_guard lock(mutex);
  if (current == nullptr || current->pid_ != getpid()) {  // After a fork the thread is gone.
    current = new Progress();
    current->pid_ = getpid();
  }
  return *current;
}

std::shared_ptr<Work::State> Progress::submit(CallQueue& queue, const exec::Call& call) {
  auto work = std::make_shared<Work::State>();
  {
    const std::lock_guard lock(mutex_);
    queue.calls.push_back({with_own_lists(call, queue.executor.rank_count(), *work), work});
    enter(queue);
  }
  wake();
  return work;
}

std::shared_ptr<Work::State> Progress::submit(CallQueue& queue,
                                              std::unique_ptr<StartedMessages> messages) {
  auto work = messages->work;
  {
    const std::lock_guard lock(mutex_);
    queue.started.push_back(std::move(messages));
    enter(queue);
  }
  wake();
  return work;
}

/// Something was put into the queue; mutex_ is held.
void Progress::enter(CallQueue& queue) {
  queue.pending.fetch_add(1, std::memory_order_relaxed);  // relaxed: the mutex orders it.
  if (std::find(queues_.begin(), queues_.end(), &queue) == queues_.end()) queues_.push_back(&queue);
  if (!started_) {
    started_ = true;
    start_thread([this] { loop(); }).detach();
  }
  // release: pairs with the acquire in rest, so that what is new is seen before the sleep.
  submissions_.fetch_add(1, std::memory_order_release);
  // Only a call with others before it in its queue has to wait anyway.
  const bool next = !queue.started.empty() || queue.calls.size() == 1;
  if (resting_on_ != nullptr && (resting_on_ != &queue.executor || next)) resting_on_->wake();
}

void Progress::wake() {
  wake_.notify_one();
  syscall(SYS_futex, &submissions_, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

void Progress::drain(CallQueue& queue) {
  std::unique_lock lock(mutex_);
  // It has calls as long as it is listed. Not after a fork: nobody here would carry them on.
  drained_.wait(lock,
                [&] { return std::find(queues_.begin(), queues_.end(), &queue) == queues_.end(); });
}

void Progress::loop() {
  int idle = 0;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (queues_.empty()) {
        idle = 0;
        wake_.wait(lock, [this] { return !queues_.empty(); });
      }
      active_ = queues_;
    }
    // Calls that wait have deadlines, and may be aborted, also while those of others move.
    if (const std::int64_t now = coarse_ms(); now >= next_patrol_) {
      next_patrol_ = now + kPatrolMs;
      (void)patrol();
    }
    bool progressed = false;
    for (CallQueue* queue : active_) progressed = advance(*queue) || progressed;
    if (progressed) {
      idle = 0;
    } else if (++idle < kPollsBeforeRest) {
      std::this_thread::yield();
    } else {
      rest();
    }
  }
}

/// Polls the first call of a queue and its messages; true if anything moved.
bool Progress::advance(CallQueue& queue) {
  bool in_use = true;
  const bool moved = advance_call(queue, in_use);
  return (in_use && advance_messages(queue)) || moved;
}

/// `in_use` becomes false if that was all that the queue had: then it may be gone already.
bool Progress::advance_call(CallQueue& queue, bool& in_use) {
  exec::HostExecutor& executor = queue.executor;
  if (!queue.running) {
    exec::Call call;
    {
      const std::lock_guard lock(mutex_);
      if (queue.calls.empty()) return false;
      call = queue.calls.front().call;
    }
    executor.begin(call);
    queue.running = true;
  }
  const exec::Poll result = executor.poll();
  if (result != exec::Poll::kDone) return result == exec::Poll::kProgressed;
  queue.running = false;
  std::shared_ptr<Work::State> work;
  {
    const std::lock_guard lock(mutex_);
    work = std::move(queue.calls.front().work);
    queue.calls.pop_front();
  }
  in_use = leave(queue, *work, executor.take_status());
  return true;
}

bool Progress::advance_messages(CallQueue& queue) {
  exec::HostExecutor& executor = queue.executor;
  const std::size_t before = queue.under_way.size();
  {
    const std::lock_guard lock(mutex_);
    for (auto& started : queue.started) queue.under_way.push_back(std::move(started));
    queue.started.clear();
  }
  auto& under_way = queue.under_way;
  if (under_way.empty()) return false;
  for (std::size_t i = before; i < under_way.size(); ++i) {
    under_way[i]->batch.messages = under_way[i]->messages;
    executor.post(under_way[i]->batch);
  }
  const bool moved = executor.poll_messages() || under_way.size() > before;
  // What is over leaves the list first: its owner may destroy the queue once the last one is told.
  std::vector<std::unique_ptr<StartedMessages>> over;
  for (auto& batch : under_way) {
    const bool done = batch->batch.open == 0 && executor.messages_left();
    if (done || executor.broken()) over.push_back(std::move(batch));
  }
  std::erase(under_way, nullptr);
  for (const auto& batch : over) {
    Status status = executor.outcome(batch->batch);
    executor.retire(batch->batch);
    (void)leave(queue, *batch->work, std::move(status));
  }
  return moved || !over.empty();
}

/// A call or a batch is over. The executor is free before the work is seen done: its owner may call
/// again at once, and may destroy the queue once it has been told. False: that was the last.
bool Progress::leave(CallQueue& queue, Work::State& work, Status status) {
  bool in_use = true;
  {
    const std::lock_guard lock(mutex_);
    // release: pairs with the acquire of the caller's thread, which goes on with the executor.
    in_use = queue.pending.fetch_sub(1, std::memory_order_release) != 1;
    if (!in_use) std::erase(queues_, &queue);
  }
  drained_.notify_all();
  work.complete(std::move(status));
  return in_use;
}

/// Looks at the deadlines of all that is under way. False: something failed; its next poll says so.
bool Progress::patrol() {
  bool fine = true;
  for (CallQueue* queue : active_) {
    if (queue->running) fine = queue->executor.patrol() && fine;
    if (!queue->under_way.empty()) fine = queue->executor.patrol_messages() && fine;
  }
  return fine;
}

/// Nothing moves: patrols, and sleeps until a peer rings or a call is submitted.
void Progress::rest() {
  if (!patrol()) return;
  // acquire: pairs with the release in submit.
  const std::uint32_t seen = submissions_.load(std::memory_order_acquire);
  const auto submitted = [this, seen] {
    return submissions_.load(std::memory_order_acquire) != seen;
  };
  if (active_.size() > 1) {  // The doorbells can't all be waited on with one futex: short sleeps.
    if (same_queues(nullptr))
      wait_detail::futex_sleep(submissions_, seen, std::chrono::microseconds(100));
    return;
  }
  CallQueue& queue = *active_.front();
  exec::HostExecutor& executor = queue.executor;
  if (!same_queues(&executor)) return;
  const auto ready = [&] {
    return (queue.running && executor.poll() != exec::Poll::kPending) ||
           (!queue.under_way.empty() && executor.poll_messages()) || submitted();
  };
  (void)executor.sleep(ready, kLongestRest);
  const std::lock_guard lock(mutex_);
  resting_on_ = nullptr;
}

/// False if queues came meanwhile; else notes where the thread is about to sleep.
bool Progress::same_queues(const exec::HostExecutor* executor) {
  const std::lock_guard lock(mutex_);
  if (queues_ != active_) return false;
  resting_on_ = executor;
  return true;
}

}  // namespace tutti
