// File: cuda/comm/call_record.h: a rank's calls on devices in the flight record (exec/flight), so
// that others can read them while they run, and once they hang.
//
// The thread that calls writes an entry before it launches: one look at the clock and some twenty
// stores, next to a launch that takes microseconds. How far the device has got, the process's
// watcher finds out ten times a second, by what costs calls nothing:
//
//   CUDA knows whether the latest call is over, by the event that orders calls; or else whether the
//   call is behind which another event was recorded. The watcher asks for such an event, and the
//   next launch records it: so a rank that never pauses is followed, too, for ten events a second.
//   A kernel that has waited for 20 ms says in memory of the host which entry it is of, and for
//   which rank it waits (kernels/cuda/calls.h). Calls run in order, so all before it are over.
//   A stream that waits for a value says so there, too (mesh/stream_signals.h).
//
// So an entry says that it has been launched, that it is the first that is not known to be over,
// that its kernel has begun and for which rank it waits, or how it ended. The end is the time at
// which the host learned of it, and it has the earliest time that is possible beside it. When a
// kernel began is not known, unless it waits.
//
// Graphs' replays, fused and one-sided operations and kernels of programs are not recorded.
#pragma once
#include <atomic>
#include <mutex>
#include <optional>
#include <string_view>

#include "cuda/comm/device_rank.h"
#include "cuda/comm/launch_order.h"
#include "exec/flight/recorder.h"

namespace tutti {

/// It has more than 15 fields: the thread that calls and the watcher each have their own.
class DeviceCallRecord {
 public:
  DeviceCallRecord(const DeviceRank& rank, const LaunchOrder& order) : rank_(rank), order_(order) {}
  /// On this thread's device, once the rank has joined. Before anything else.
  Status make();

  // By the thread that calls, between LaunchOrder's enter and leave.
  /// A collective is about to be launched, by the algorithm of that name, which stays; by a kernel,
  /// or by copy engines. What the kernel says of itself.
  cuda::LaunchMark begin(const Request& request, std::string_view name, bool by_copies = false);
  cuda::LaunchMark begin_message(bool sends, int peer, DataType type, std::size_t count);
  /// What the kernel of a call says of itself that is not recorded.
  cuda::LaunchMark unrecorded() const { return {0, calls_, order_.capturing()}; }
  /// What was begun is on the stream, and LaunchOrder has left it.
  Status launched(cudaStream_t stream);

  // By any other thread.
  /// Looks how far the device has got: `ask` CUDA, on the rank's device, or only memory of the
  /// host. `awaited`: the rank that a stream waits for, -1: none is known.
  void look(bool ask, int awaited);
  /// The calls that are not over have failed; the first of them, because of the error.
  void fail(const Error& error);
  /// The collectives that are over and have ended well: all of them, if what has failed ends within
  /// half a second, else those of which that is known. By the thread that calls, or once no thread
  /// calls, on the rank's device.
  std::uint64_t completed();

 private:
  using State = exec::flight::State;
  /// Entries from this one on were not over at that time, by ticks().
  struct NotOver {
    std::uint64_t entry = UINT64_MAX, at = 0;
  };
  /// What the first entry that is not over was last shown as.
  struct Shown {
    std::uint64_t entry = 0, since = 0;
    exec::flight::At at = exec::flight::At::kLaunched;
    int awaited = -1;  // The rank for which it has waited at last,
    int looks = 0;     // so many looks ago.
  };
  exec::CudaRings& rings() const { return rank_.mesh->rings(); }
  bool is_latest(std::uint64_t launched) const;
  void ask_cuda(std::uint64_t launched, std::uint64_t now);
  void end_until(std::uint64_t entry, std::uint64_t now);
  void show_first(std::uint64_t entry, exec::flight::At at, int awaited, std::uint64_t now);
  std::uint64_t entry_of_wait(const exec::CudaRings::LongWait& wait, std::uint64_t launched) const;

  const DeviceRank& rank_;
  const LaunchOrder& order_;
  std::optional<exec::flight::Recorder> recorder_;
  std::uint64_t calls_ = 0, entries_ = 0;  // Begun; by the thread that calls.
  // Entries that are on streams, and their collectives; and LaunchOrder::calls when the latest got
  // there. release, acquire: a thread that sees the number of entries sees the record of the event,
  // and the others, which are relaxed.
  std::atomic<std::uint64_t> launched_{0}, launched_calls_{0}, launched_orders_{0};
  std::atomic<bool> by_copies_{false};  // relaxed: as launched_calls_.
  CudaEvent mark_;  // Recorded behind so many entries; its number is 0 until it was asked for.
  // release, acquire: each side sees what the other wrote before it took the mark, or gave it back.
  std::atomic<bool> mark_wanted_{false};
  std::uint64_t marked_ =
      0;              // By the thread that calls while the mark is wanted, else under mutex_.
  std::mutex mutex_;  // For what follows, and the ends of entries.
  std::uint64_t over_ = 0, over_calls_ = 0;  // Entries that are known to be over, and collectives.
  NotOver not_over_;
  Shown shown_;
  std::uint64_t looked_ = 0;
  bool failed_ = false;
};

}  // namespace tutti
