// File: exec/adapt/cpu_balancer.h: moves a rank off a CPU that has more ranks than others, if that
// makes calls faster (cpu_rebalancing.h).
//
// Measured on 2 cores: 2 ranks, 8 bytes, 8 us a call on one CPU instead of 0.08; barrier of 4
// ranks, 1.5 us with 2 of them on each, 3.3 or 4.6 with 3 or 4 on one.
#pragma once
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "exec/adapt/cpu_rebalancing.h"
#include "exec/calls/call_board.h"

namespace tutti::exec {

class CpuBalancer {
 public:
  /// Rounds after which a rank that repeats its call looks where it is.
  static constexpr std::uint64_t kPeriod = CpuRebalancing::kSureCalls;

  CpuBalancer(bool adapts, const CallBoard& board, int ranks_per_cpu);

  /// Shows the others this rank's CPU, at the start of a call.
  void show() const;
  /// For a rank that waits: looks which ranks share its CPU, and may move to another one.
  void look_around();
  /// The ranks of this CPU, as far as is known.
  std::span<const int> neighbours() const { return neighbours_; }
  /// Whether ranks have to share CPUs.
  bool shares() const { return ranks_per_cpu_ > 1; }
  /// How often this rank was moved. Any thread.
  std::uint64_t moves() const { return moves_.load(std::memory_order_relaxed); }

 private:
  bool adapts_;
  const CallBoard& board_;
  int ranks_per_cpu_;
  CpuRebalancing cpu_rebalancing_;
  std::vector<int> neighbours_;
  std::uint64_t next_look_ = 0;  // The round from which on to look again.
  std::atomic<std::uint64_t> moves_{0};
};

}  // namespace tutti::exec
