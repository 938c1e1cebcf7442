#include "exec/adapt/cpu_balancer.h"

#include <array>

#include "base/cpus.h"

namespace tutti::exec {

CpuBalancer::CpuBalancer(bool adapts, const CallBoard& board, int ranks_per_cpu)
    : adapts_(adapts), board_(board), ranks_per_cpu_(ranks_per_cpu), cpu_rebalancing_(shares()) {
  neighbours_.reserve(static_cast<std::size_t>(board.team().ranks));
}

void CpuBalancer::show() const {
  // relaxed: a hint.
  board_.log().record().cpu.store(current_cpu() + 1, std::memory_order_relaxed);
}

void CpuBalancer::look_around() {
  if (board_.number() < next_look_) return;
  // They move seldom, and others' records are far; where each has a CPU this is a rare case anyway.
  if (shares()) next_look_ = board_.number() + kPeriod;
  const int here = current_cpu();
  // relaxed: a hint.
  board_.log().record().cpu.store(here + 1, std::memory_order_relaxed);
  CpuSet full{};
  std::array<std::uint16_t, sizeof(CpuSet) * 8> ranks_on{};
  neighbours_.clear();
  int before = 0;
  for (int rank = 0; rank < board_.team().ranks; ++rank) {
    // relaxed: a hint; where a peer has moved since, a step too many is taken.
    const int at = board_.region().record(rank).cpu.load(std::memory_order_relaxed) - 1;
    if (rank == board_.team().me || at < 0 || at >= static_cast<int>(ranks_on.size())) continue;
    const auto cpu = static_cast<std::size_t>(at);
    if (++ranks_on[cpu] >= ranks_per_cpu_) full[cpu / 64] |= std::uint64_t{1} << (cpu % 64);
    if (at != here) continue;
    neighbours_.push_back(rank);
    before += rank < board_.team().me ? 1 : 0;
  }
  if (!adapts_ || here < 0) return;
  const auto move = cpu_rebalancing_.look(std::chrono::steady_clock::now(), board_.number(),
                                          before >= ranks_per_cpu_);
  if (move == CpuRebalancing::Move::kStay) return;
  moves_.fetch_add(1, std::memory_order_relaxed);  // relaxed: to be shown.
  if (move == CpuRebalancing::Move::kAside && leave_cpus(full)) return;
  // Back; or nowhere to go, as the ranks' affinity masks say so.
  CpuSet only{};
  const auto cpu = static_cast<std::size_t>(here) % ranks_on.size();
  only[cpu / 64] |= std::uint64_t{1} << (cpu % 64);
  (void)leave_cpus(only);
}

}  // namespace tutti::exec
