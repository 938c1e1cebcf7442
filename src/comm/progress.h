// File: comm/progress.h: the one thread of a process that carries asynchronous work on.
//
// It sleeps while there is none. Calls of one communicator are executed in the order in which they
// were started; communicators take turns.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "exec/host_executor.h"
#include "tutti/communicator.h"

namespace tutti {

/// What a Work shares with the progress thread.
struct Work::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  /// False: messages of an open group, which begin at its end.
  std::atomic<bool> begun{true};
  std::optional<Error> error;
  std::vector<std::function<void(const Status&)>> callbacks;
  std::vector<std::size_t> blocks;  // What the call's block lists point to.

  void complete(Status status);
  Status outcome() const { return error ? Status(*error) : Status(); }
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
  exec::HostExecutor& executor;
  // Guarded by the progress thread's mutex.
  std::deque<Entry> calls;
  std::vector<std::unique_ptr<StartedMessages>> started;
  // Only the progress thread touches these.
  bool running = false;  // The first call has begun.
  std::vector<std::unique_ptr<StartedMessages>> under_way;
  /// Calls and batches of messages not yet completed. Zero means that the executor is free for its
  /// communicator's own thread.
  std::atomic<std::size_t> pending{0};
};

class Progress {
 public:
  /// The process's own; its thread starts with the first call.
  static Progress& instance();
  /// Queues a call. The queue has to live until its `pending` is 0.
  std::shared_ptr<Work::State> submit(CallQueue& queue, const exec::Call& call);
  std::shared_ptr<Work::State> submit(CallQueue& queue, std::unique_ptr<StartedMessages> messages);
  /// Waits until the queue is empty (the calls may have failed).
  void drain(CallQueue& queue);

 private:
  void loop();
  void enter(CallQueue& queue);
  void wake();
  bool advance(CallQueue& queue);
  bool advance_call(CallQueue& queue, bool& in_use);
  bool advance_messages(CallQueue& queue);
  bool leave(CallQueue& queue, Work::State& work, Status status);
  bool patrol();
  void rest();
  bool same_queues(const exec::HostExecutor* executor);

  std::mutex mutex_;
  std::condition_variable wake_, drained_;
  std::vector<CallQueue*> queues_;             // Those with calls. Guarded by mutex_.
  std::vector<CallQueue*> active_;             // The progress thread's copy.
  std::int64_t next_patrol_ = 0;               // The progress thread's; of coarse_ms.
  std::atomic<std::uint32_t> submissions_{0};  // Changes with every submission; a futex word.
  const exec::HostExecutor* resting_on_ =
      nullptr;  // Where the thread sleeps with one queue at hand. Guarded by mutex_.
  bool started_ = false;
  int pid_ = 0;
};

}  // namespace tutti
