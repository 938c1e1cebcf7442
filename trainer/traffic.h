// File: trainer/traffic.h: a communicator as strategies use it: it counts bytes and time.
//
// Bytes are those that a rank sends by the usual arithmetic: for S bytes on N ranks an all-gather
// or a reduce-scatter sends (N-1)/N S, an all-reduce the sum of both, a broadcast or a reduction to
// a root (N-1)/N S on average over the ranks, and a message S. They are counted by call, so that
// strategies can be compared; what a transport really sends depends on the plan.
#pragma once
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "tutti/communicator.h"
#include "tutti/spans.h"

namespace tutti::trainer {

/// A collective that was started.
class Pending {
 public:
  /// Whether there is one.
  bool started() const { return ended_ != nullptr; }

 private:
  friend class Traffic;
  using Clock = std::chrono::steady_clock;
  Collective collective_ = Collective::kAllReduce;
  Work work_;
  Clock::time_point began_{};
  std::shared_ptr<std::atomic<Clock::rep>> ended_;  // 0: not yet.
};

/// float32 values to or from another rank.
struct Message {
  float* data = nullptr;
  std::size_t count = 0;
  std::size_t peer = 0;
};

/// The calls of one rank's strategy. One thread at a time.
class Traffic {
 public:
  /// `row`: where its spans stand in a trace.
  explicit Traffic(Communicator& comm, std::string_view row = "trainer")
      : comm_(comm), spans_(comm, row) {}

  Communicator& communicator() { return comm_; }
  std::size_t ranks() const { return static_cast<std::size_t>(comm_.rank_count()); }
  std::size_t me() const { return static_cast<std::size_t>(comm_.rank().value); }

  /// Blocking calls of any kind. The counts are as in Request.
  Status call(const Request& request);
  Status all_reduce(void* data, std::size_t count, DataType type = DataType::kFloat32,
                    ReduceOp op = ReduceOp::kSum);
  Status send(const void* data, std::size_t count, std::size_t to);
  Status recv(void* data, std::size_t count, std::size_t from);
  /// Sends and receives at the same time, so that the order on the other ranks does not matter.
  Status exchange(std::span<const Message> out, std::span<const Message> in);

  /// Started calls; `wait` gives them back. At most one at a time may be waited for.
  Result<Pending> start(const Request& request);
  Status wait(Pending& pending);

  /// Bytes that this rank has sent, by the arithmetic above, since training began.
  double bytes() const { return bytes_; }
  /// Seconds in which calls were under way, and in which this rank did nothing but wait for them.
  double busy_seconds() const { return busy_s_; }
  double exposed_seconds() const { return exposed_s_; }
  /// Calls that are no part of training are not counted: those of an evaluation.
  void pause(bool paused) { paused_ = paused; }
  /// Counts calls that another communicator makes for this strategy.
  void add(double bytes, double exposed_seconds) {
    bytes_ += bytes;
    busy_s_ += exposed_seconds;
    exposed_s_ += exposed_seconds;
  }
  /// What this rank does, in the trace of its calls. For the thread that makes the calls.
  const Spans& spans() const { return spans_; }
  /// What a call sends on each of `ranks`.
  static double bytes_of(const Request& request, std::size_t ranks);

 private:
  using Clock = std::chrono::steady_clock;
  template <class Call>
  Status timed(std::string_view name, double bytes, Call call);

  Communicator& comm_;
  Spans spans_;
  double bytes_ = 0, busy_s_ = 0, exposed_s_ = 0;
  Clock::time_point busy_until_{};
  bool paused_ = false;
};

}  // namespace tutti::trainer
