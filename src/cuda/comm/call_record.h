// File: cuda/comm/call_record.h: a rank's calls on devices in the flight record (exec/flight), so
// that others can read them while they run, and once they hang.
//
// The thread that calls writes an entry before it launches: one look at the clock and some twenty
// stores, next to a launch that takes microseconds. How far the device has got is known to CUDA
// alone. The process's watcher asks it ten times a second: whether the latest call is over, or else
// whether the call is behind which an event was recorded. It asks for such an event, and the next
// launch records it: so a rank that never pauses is followed, too, for ten events a second. So an
// entry says that it has been launched, that it is the first that is not over, or how it ended,
// without the time.
//
// What graphs replay is not recorded.
#pragma once
#include <atomic>
#include <mutex>
#include <optional>
#include <string_view>

#include "cuda/comm/device_rank.h"
#include "cuda/comm/launch_order.h"
#include "exec/flight/recorder.h"

namespace tutti {

class DeviceCallRecord {
 public:
  DeviceCallRecord(const DeviceRank& rank, const LaunchOrder& order) : rank_(rank), order_(order) {}
  /// On this thread's device, once the rank has joined. Before anything else.
  Status make();

  // By the thread that calls, between LaunchOrder's enter and leave.
  /// A collective is about to be launched, by the algorithm of that name, which stays.
  void begin(const Request& request, std::string_view name);
  void begin_message(bool sends, int peer, DataType type, std::size_t count);
  /// What was begun is on the stream.
  Status launched(cudaStream_t stream);

  // By any other thread, on the rank's device.
  /// Asks how far the device has got.
  void look();
  /// The calls that are not over have failed; the first of them, because of the error.
  void fail(const Error& error);

 private:
  using State = exec::flight::State;
  void end_until(std::uint64_t entry);
  void set(std::uint64_t entry, exec::flight::At at, exec::flight::Outcome outcome);

  const DeviceRank& rank_;
  const LaunchOrder& order_;
  std::optional<exec::flight::Recorder> recorder_;
  std::uint64_t calls_ = 0, entries_ = 0;  // Begun; by the thread that calls.
  // Entries that are on streams. release, acquire: a thread that sees the number sees the record of
  // the event.
  std::atomic<std::uint64_t> launched_{0};
  CudaEvent mark_;  // Recorded behind so many entries; its number is 0 until it was asked for.
  // release, acquire: each side sees what the other wrote before it took the mark, or gave it back.
  std::atomic<bool> mark_wanted_{false};
  std::uint64_t marked_ =
      0;                    // By the thread that calls while the mark is wanted, else under mutex_.
  std::mutex mutex_;        // For what follows, and the ends of entries.
  std::uint64_t over_ = 0;  // Entries that are known to be over.
  bool failed_ = false;
};

}  // namespace tutti
