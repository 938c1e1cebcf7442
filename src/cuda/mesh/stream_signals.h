// File: cuda/mesh/stream_signals.h: signals between ranks by operations of streams, without a
// kernel.
//
// Each rank has counters, some for each peer, which only that peer writes
// (CudaRings::stream_counter). A signal is a write to the peer's counter (cuStreamWriteValue64):
// how many signals there were. A wait holds the stream until a counter of this rank has come so far
// (cuStreamWaitValue64). Neither takes a multiprocessor. Counters are in memory of the host that
// all devices there access (docs/decisions/0043-counters-of-streams.md).
//
// Beside the counters each pair has two flags, which the peer sets to a value and the rank clears
// again when it has met all others: what is written does not depend on how often, so it may be
// captured. The value is the call's, so ranks that meet with different calls are found out.
//
// A stream that waits knows of no deadline and no abort. So before it waits it writes into memory
// of the host what for, and 0 behind that. `check`, which the watcher asks all the time
// (cuda/comm/watcher.h), marks what it finds there. What still has the mark at the deadline has
// waited so long. `release` then stores to the counter what the stream waits for. None of this asks
// the driver, which another thread may hold: one that copies to pageable memory behind the wait
// keeps all others from launching on the device until the wait has ended.
#pragma once
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <mutex>
#include <vector>

#include "cuda/driver/memory.h"
#include "cuda/mesh/rings.h"
#include "tutti/result.h"

namespace tutti::exec {

class StreamSignals {
 public:
  /// For a rank that has joined the others' rings, which have to outlive this. Before anything
  /// else.
  Status make(const CudaRings& rings, int rank);

  /// kUnsupported: why streams can't signal between the two, in words that follow a colon.
  Status reaches(int peer) const;

  // One thread at a time, and streams in the order of calls. Not for capture: a replay would write
  // the same number again.
  /// What comes on the stream has `peer` see one signal more, after all that the stream did before.
  Status signal(int peer, int number, cudaStream_t stream);
  /// What comes on the stream waits for `count` signals of `peer` that nothing waited for yet.
  Status wait(int peer, int number, std::uint64_t count, cudaStream_t stream);

  // The flags, by which all ranks of a host meet (copy_engines.h). Any two ranks set each of them
  // in turn.
  enum class Flag : std::uint8_t { kEntry, kExit };
  /// Sets it at the peer, behind all that the stream did before. `value`: not 0.
  Status set(int peer, Flag flag, std::uint64_t value, cudaStream_t stream) const;
  /// What comes on the stream waits until all others have set it here, and then clears it.
  Status meet(Flag flag, std::uint64_t value, cudaStream_t stream);

  // Any thread.
  /// kTimeout: a wait lasts longer than the deadline; kMismatch: a peer has met this rank with
  /// another value. To be asked several times a deadline.
  Status check();
  /// Whether a stream waits,
  bool waits() const;
  /// and for which rank; -1: none, or that is not known. If for several, one of them.
  int awaited() const;
  /// Ends waits that streams are in; to be called again for those that follow.
  void release();

 private:
  /// What a stream waits for.
  struct Waiting {
    std::uint64_t word;   // Its parts: stream_signals.cc.
    std::uint64_t value;  // That the counter has to come to.
  };
  /// Notes what the stream waits for, from here on.
  Status begin_wait(int peer, int number, std::uint64_t value, cudaStream_t stream);
  Status end_wait(cudaStream_t stream) const;
  Status hold(const std::uint64_t* counter, std::uint64_t value, unsigned how,
              cudaStream_t stream) const;
  int missing_at(std::uint64_t word, std::uint64_t value) const;
  Status check_met(std::uint64_t word, std::uint64_t value, bool late) const;
  Status write(std::uint64_t* at, std::uint64_t value, cudaStream_t stream) const;
  int rank_count() const { return static_cast<int>(rings_->options().devices.size()); }
  std::uint64_t& of(std::vector<std::uint64_t>& list, int peer, int number) const {
    return list[static_cast<std::size_t>(peer) * kStreamCounters +
                static_cast<std::size_t>(number)];
  }

  const CudaRings* rings_ = nullptr;
  int rank_ = 0, device_ = 0;
  bool supported_ = false;
  CudaHostMemory memory_;                    // A Waiting.
  std::vector<std::uint64_t> sent_, taken_;  // By peer and number: signals.
  std::uint64_t waits_ = 0;
  std::mutex mutex_;  // Guards what follows.
  std::chrono::steady_clock::time_point marked_, looked_;
};

}  // namespace tutti::exec
