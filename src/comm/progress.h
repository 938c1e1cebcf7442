// File: comm/progress.h: the one thread of a process that carries asynchronous work on.
//
// It sleeps while there is none. Calls of one communicator are executed in the order in which they
// were started; communicators take turns.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "base/fork.h"
#include "exec/host_executor.h"
#include "tutti/communicator.h"

namespace tutti {

/// The state that a Work shares with the progress thread.
struct Work::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  /// False: messages of an open group, which begin at its end.
  std::atomic<bool> begun{true};
  std::optional<Error> error;
  std::vector<std::function<void(const Status&)>> callbacks;
  std::vector<std::size_t> blocks;           // The call's block lists point into it.
  const std::uint32_t forks = fork_count();  // That of the process that carries it out.

  /// Null: it was never started.
  static const std::shared_ptr<State>& of(const Work& work) { return work.state_; }
  /// Never throws. An exception of a callback is logged and dropped.
  void complete(Status status) noexcept;
  static void tell(const std::function<void(const Status&)>& callback,
                   const Status& status) noexcept;
  /// If there is no memory for the error's text, the error has a short one.
  Status outcome() const noexcept;
  /// An error if this process is a forked child of the one that carries it out. Call it before
  /// locking anything.
  Status is_here() const;
};

/// Messages that were started together.
struct StartedMessages {
  std::vector<exec::Message> messages;
  exec::MessageBatch batch;
  std::shared_ptr<Work::State> work = std::make_shared<Work::State>();
};

/// The calls of one communicator that wait for the progress thread, and its messages.
struct CallQueue {
  explicit CallQueue(exec::HostExecutor& which) : executor(which) {}
  struct Entry {
    exec::Call call;
    std::shared_ptr<Work::State> work;
  };
  /// The object that has the queue, if the progress thread is to delete it.
  using Owner = std::unique_ptr<void, void (*)(void*)>;
  using Batches = std::list<std::unique_ptr<StartedMessages>>;  // Moved on without allocating.
  exec::HostExecutor& executor;
  // Guarded by the progress thread's mutex.
  std::deque<Entry> calls;
  Batches started;
  Owner owner{nullptr, nullptr};
  // Only the progress thread touches these.
  bool running = false;  // The first call has begun.
  Batches under_way;
  /// Calls and batches of messages not yet completed. Zero means that the executor is free for its
  /// communicator's own thread.
  std::atomic<std::size_t> pending{0};
};

class Progress {
 public:
  /// The process's own; its thread starts with the first call.
  static Progress& instance();
  /// kInvalidArgument on the progress thread itself, that is, in a callback: waiting there would
  /// stop all work. `function` is the function that would wait.
  static Status may_wait(std::string_view function);
  /// Queues a call. The queue has to live until its `pending` is 0. kSystem if the thread can't be
  /// started: then nothing was queued, and the next call tries again.
  Result<std::shared_ptr<Work::State>> submit(CallQueue& queue, const exec::Call& call);
  Result<std::shared_ptr<Work::State>> submit(CallQueue& queue,
                                              std::unique_ptr<StartedMessages> messages);
  /// Waits until the queue is empty; the deadlines of its calls bound that. Not on the progress
  /// thread.
  void drain(CallQueue& queue);
  /// Waits until the queue is empty (the calls may have failed), then deletes its owner. On the
  /// progress thread it returns at once, and the owner is deleted after its last call.
  void end(CallQueue& queue, CallQueue::Owner owner);
  /// A fork holds it, so that queues are whole in the child.
  std::mutex& mutex() { return mutex_; }

 private:
  void loop();
  Status admit();
  void enter(CallQueue& queue);
  void wake();
  bool advance(CallQueue& queue);
  bool advance_call(CallQueue& queue, bool& in_use);
  bool advance_messages(CallQueue& queue);
  bool leave(CallQueue& queue, Work::State& work, Status status);
  bool check_health();
  void rest();
  bool same_queues(const exec::HostExecutor* executor);

  std::mutex mutex_;
  std::condition_variable wake_, drained_;
  std::vector<CallQueue*> queues_;  // Those with calls. Guarded by mutex_.
  // The progress thread's copy. Changes under mutex_; `spare_` has the room that it will need.
  std::vector<CallQueue*> active_, spare_;
  std::int64_t next_health_check_ = 0;         // The progress thread's; of coarse_ms.
  std::atomic<std::uint32_t> submissions_{0};  // Changes with every submission; a futex word.
  const exec::HostExecutor* resting_on_ =
      nullptr;  // Where the thread sleeps with one queue at hand. Guarded by mutex_.
  bool started_ = false;
};

}  // namespace tutti
