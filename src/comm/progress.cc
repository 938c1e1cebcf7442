#include "comm/progress.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "base/threads.h"
#include "base/wall.h"

namespace tutti {
namespace {

constinit std::mutex instance_mutex;
// Never destroyed: its thread may outlive main. Not on the heap: a thread that destroys a
// communicator needs it even when there is no memory.
alignas(Progress) constinit std::byte room[sizeof(Progress)] = {};
constinit Progress* current = nullptr;
constinit int current_pid = 0;
thread_local constinit bool on_progress_thread = false;

// The child's only thread is not the progress thread, even if it forked in a callback.
const HeldAcrossFork instance_held(
    ForkOrder::kProgressInstance, []() -> std::mutex& { return instance_mutex; },
    [] { on_progress_thread = false; });
const HeldAcrossFork queues_held(ForkOrder::kProgressQueues, []() -> std::mutex& {
  static constinit std::mutex none;
  return current != nullptr ? current->mutex() : none;
});

// The progress thread shares its CPU with threads that compute: it polls a while, then sleeps.
constexpr int kPollsBeforeRest = 200;
constexpr std::chrono::milliseconds kLongestRest{20};
// How often it looks at deadlines while something moves.
constexpr std::int64_t kHealthCheckMs = 50;

/// The call, with its block lists copied into the work, which lives as long as the call does.
exec::Call with_own_lists(const exec::Call& call, std::size_t ranks, Work::State& work) {
  exec::Call owned = call;
  const auto own = [&](const std::size_t*& list) {
    if (list == nullptr) return;
    work.blocks.insert(work.blocks.end(), list, list + ranks);
    list = work.blocks.data() + (work.blocks.size() - ranks);
  };
  if (call.vector_variant) {
    work.blocks.reserve(4 * ranks);  // So that the lists stay where they are.
    for (exec::BlockList* blocks : {&owned.input_blocks, &owned.output_blocks}) {
      own(blocks->counts);
      own(blocks->offsets);
    }
  }
  return owned;
}

}  // namespace

void Work::State::tell(const std::function<void(const Status&)>& callback,
                       const Status& status) noexcept {
  try {
    callback(status);
  } catch (const std::exception& thrown) {
    try {
      log::error(log::Part::kCalls, "a callback of Work::then has thrown, which is ignored: {}",
                 thrown.what());
    } catch (const std::exception&) {  // No memory to say so.
    }
  }
}

Status Work::State::outcome() const noexcept { return error ? Status(copy_of(*error)) : ok(); }

Status Work::State::is_here() const {
  if (forks != fork_count())
    return Error{Code::kInvalidArgument,
                 "wait: the process that started this call carries it on, not a forked child"};
  return ok();
}

void Work::State::complete(Status status) noexcept {
  std::vector<std::function<void(const Status&)>> waiting;
  {
    const std::lock_guard lock(mutex);
    if (!status) error = std::move(status.error());
    done = true;
    waiting.swap(callbacks);
  }
  changed.notify_all();
  const Status result = outcome();
  for (const auto& callback : waiting) tell(callback, result);
}

Progress& Progress::instance() {
  const std::lock_guard lock(instance_mutex);
  if (current == nullptr || current_pid != getpid()) {  // After a fork the thread is gone.
    current = new (room) Progress();
    current_pid = getpid();
  }
  return *current;
}

Status Progress::may_wait(std::string_view function) {
  if (!on_progress_thread) return ok();
  return Error{Code::kInvalidArgument,
               std::string(function) +
                   ": a callback of Work::then can't wait for work: it runs on the thread that "
                   "carries all work on; start the call, or wait on another thread"};
}

Result<std::shared_ptr<Work::State>> Progress::submit(CallQueue& queue, const exec::Call& call) {
  auto work = std::make_shared<Work::State>();
  const exec::Call own =
      with_own_lists(call, static_cast<std::size_t>(queue.executor.team().ranks), *work);
  {
    const std::lock_guard lock(mutex_);
    TUTTI_RETURN_IF_ERROR(admit());
    queue.calls.push_back({own, work});
    enter(queue);
  }
  wake();
  return work;
}

Result<std::shared_ptr<Work::State>> Progress::submit(CallQueue& queue,
                                                      std::unique_ptr<StartedMessages> messages) {
  auto work = messages->work;
  {
    const std::lock_guard lock(mutex_);
    TUTTI_RETURN_IF_ERROR(admit());
    queue.started.push_back(std::move(messages));
    enter(queue);
  }
  wake();
  return work;
}

/// Makes sure of the thread and of room in its lists for one more queue, so that nothing after this
/// fails for lack of memory. mutex_ is held.
Status Progress::admit() {
  const std::size_t most = queues_.size() + 1;
  queues_.reserve(most);
  if (active_.capacity() < most) spare_.reserve(queues_.capacity());
  if (!started_) {
    TUTTI_TRY(auto thread, start_thread("the progress thread, which carries asynchronous calls,",
                                        [this] { loop(); }));
    thread.detach();
    started_ = true;
  }
  return ok();
}

/// Something was put into the queue; mutex_ is held.
void Progress::enter(CallQueue& queue) {
  queue.pending.fetch_add(1, std::memory_order_relaxed);  // relaxed: the mutex orders it.
  if (std::find(queues_.begin(), queues_.end(), &queue) == queues_.end()) queues_.push_back(&queue);
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

void Progress::end(CallQueue& queue, CallQueue::Owner owner) {
  std::unique_lock lock(mutex_);
  // It has calls as long as it is listed. Not after a fork: nobody here would carry them on.
  const auto empty = [&] {
    return std::find(queues_.begin(), queues_.end(), &queue) == queues_.end();
  };
  if (on_progress_thread && !empty()) {
    queue.owner = std::move(owner);
    return;
  }
  drained_.wait(lock, empty);
}

void Progress::drain(CallQueue& queue) {
  std::unique_lock lock(mutex_);
  drained_.wait(lock,
                [&] { return std::find(queues_.begin(), queues_.end(), &queue) == queues_.end(); });
}

void Progress::loop() {
  on_progress_thread = true;
  int idle = 0;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (queues_.empty()) {
        idle = 0;
        wake_.wait(lock, [this] { return !queues_.empty(); });
      }
      if (active_.capacity() < queues_.size()) active_.swap(spare_);  // See admit.
      active_.assign(queues_.begin(), queues_.end());
    }
    // Calls that wait have deadlines, and may be aborted, also while those of others move.
    if (const std::int64_t now = coarse_ms(); now >= next_health_check_) {
      next_health_check_ = now + kHealthCheckMs;
      (void)check_health();
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
    queue.running = true;
    executor.walled([&] { executor.begin(call); });
  }
  exec::Poll result = exec::Poll::kProgressed;  // If that throws: the next poll says kDone.
  executor.walled([&] { result = executor.poll(); });
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
  CallQueue::Batches begun, over;
  {
    const std::lock_guard lock(mutex_);
    begun.swap(queue.started);
  }
  auto& under_way = queue.under_way;
  if (under_way.empty() && begun.empty()) return false;
  bool moved = !begun.empty();
  for (const auto& batch : begun) {
    batch->batch.messages = batch->messages;
    executor.walled([&] { executor.messages().post(batch->batch); });
  }
  under_way.splice(under_way.end(), begun);
  executor.walled([&] { moved = executor.messages().poll() || moved; });
  // What is over leaves the list first: its owner may destroy the queue once the last one is told.
  for (auto at = under_way.begin(); at != under_way.end();) {
    const auto batch = at++;
    const bool done = (*batch)->batch.open == 0 && executor.messages().left();
    if (done || executor.broken()) over.splice(over.end(), under_way, batch);
  }
  for (const auto& batch : over) {
    Status status = executor.messages().outcome(batch->batch);
    executor.messages().retire(batch->batch);
    (void)leave(queue, *batch->work, std::move(status));
  }
  return moved || !over.empty();
}

/// A call or a batch is over. The executor is free before the work is seen done: its owner may call
/// again at once, and may destroy the queue once it has been told. False: that was the last.
bool Progress::leave(CallQueue& queue, Work::State& work, Status status) {
  bool in_use = true;
  CallQueue::Owner owner{nullptr, nullptr};  // Deleted after the last work has its outcome.
  {
    const std::lock_guard lock(mutex_);
    // release: pairs with the acquire of the caller's thread, which goes on with the executor.
    in_use = queue.pending.fetch_sub(1, std::memory_order_release) != 1;
    if (!in_use) {
      std::erase(queues_, &queue);
      owner = std::move(queue.owner);
    }
  }
  drained_.notify_all();
  work.complete(std::move(status));
  return in_use;
}

/// Looks at the deadlines of all that is under way. False: something failed; its next poll says so.
bool Progress::check_health() {
  bool fine = true;
  for (CallQueue* queue : active_) {
    exec::HostExecutor& executor = queue->executor;
    const bool whole = executor.walled([&] {
      if (queue->running) fine = executor.check_health() && fine;
      const auto& batches = queue->under_way;
      const bool flushing =
          std::ranges::any_of(batches, [](const auto& one) { return one->batch.open == 0; });
      if (!batches.empty()) fine = executor.messages().check_health(flushing) && fine;
    });
    fine = fine && whole;
  }
  return fine;
}

/// Nothing moves: checks the peers, and sleeps until a peer rings or a call is submitted.
void Progress::rest() {
  if (!check_health()) return;
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
           (!queue.under_way.empty() && executor.messages().poll()) || submitted();
  };
  executor.walled([&] { (void)executor.sleep(ready, kLongestRest); });
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
