// File: cuda/comm/health.h: whether a rank's calls can still end well, and how they are ended
// early.
//
// Neither kernels nor streams that wait for signals (mesh/stream_signals.h) see processes. They
// would wait for a peer that has ended until their deadline. So
// `failure`, which each call and the watcher (watcher.h) ask, looks now and then whether all peers
// live. A rank may end right after it did its part. Then this rank's kernels need nothing more from
// it and end. So only kernels that still run a while later wait in vain.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "cuda/comm/call_record.h"
#include "cuda/comm/device_rank.h"
#include "cuda/comm/launch_order.h"
#include "cuda/mesh/stream_signals.h"

namespace tutti {

class Health {
 public:
  /// All of them have to outlive this.
  Health(DeviceRank& rank, const LaunchOrder& order, exec::StreamSignals& signals,
         DeviceCallRecord& record)
      : rank_(rank), order_(order), signals_(signals), record_(record) {}

  /// Ok, or why calls have ended early or will; all other ranks then learn of it. Any thread.
  Status failure() const;
  /// What the watcher does now and then: as failure, and notes in the record how far calls are.
  void watch() const;
  /// Ends all calls, on all ranks. Any thread.
  void abort(std::string_view reason);
  /// The same, so that all ranks come to `shrink`. Any thread.
  void revoke(std::string_view reason);
  /// Ends this rank's calls; the others do not learn of it. Any thread.
  void stop();

 private:
  Status look_at_peers() const;
  /// Ends what waits, in kernels and in streams, on this rank.
  void end_waits() const;
  std::string why_ended(int peer) const;
  bool has_work() const;
  Status find_failure() const;

  DeviceRank& rank_;
  const LaunchOrder& order_;
  exec::StreamSignals& signals_;
  DeviceCallRecord& record_;
  std::atomic<bool> stopped_{false};  // relaxed: no other memory depends on it.
  // By the steady clock, in ns: when to look at peers next, and since when this rank has waited for
  // a peer that had ended; 0: it does not. relaxed: only times; each thread looks for itself.
  mutable std::atomic<std::int64_t> next_look_{0}, ended_since_{0};
};

}  // namespace tutti
