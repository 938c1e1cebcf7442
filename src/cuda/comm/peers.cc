// Peers that have ended while this rank's calls wait for them.
//
// Kernels do not see processes and would wait until their deadline. So `check` and each call look
// now and then whether all peers live. A rank may end right after it did its part. Then this rank's
// kernels need nothing more of it and end. So only kernels that still run a while later wait in
// vain.
#include <chrono>

#include <fmt/format.h>

#include "cuda/comm/state.h"

namespace tutti {
namespace {

constexpr std::chrono::nanoseconds kBetweenLooks = std::chrono::milliseconds(50);
constexpr std::chrono::nanoseconds kGrace = std::chrono::milliseconds(500);

std::int64_t now_ns() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

}  // namespace

/// Empty, or why a peer has ended, in words that follow "rank 3 ". The network's proxy looks all
/// the time at peers on other hosts.
std::string DeviceCommunicator::State::why_ended(int peer) const {
  const Endpoint& endpoint = control_state().executor->endpoint();
  switch (endpoint.presence(peer).state) {
    case Presence::State::kLeft: return "";  // No failure: it did its part.
    case Presence::State::kDead: return endpoint.why_dead(peer);
    case Presence::State::kHere: break;
  }
  return network != nullptr ? network->why_away(peer) : "";
}

bool DeviceCommunicator::State::has_work() const {
  const RelaxedCapture relaxed;
  const exec::OnDevice on(device);
  return !launched.event.done();
}

Status DeviceCommunicator::State::look_at_peers() const {
  const std::int64_t now = now_ns();
  // relaxed, here and below: only times; each thread looks for itself.
  std::int64_t due = next_look.load(std::memory_order_relaxed);
  if (now < due || !next_look.compare_exchange_strong(due, now + kBetweenLooks.count(),
                                                      std::memory_order_relaxed)) {
    return ok();
  }
  int peer = 0;
  std::string why;
  for (; peer < rank_count; ++peer) {
    if (peer != me.value) why = why_ended(peer);
    if (!why.empty()) break;
  }
  if (why.empty() || !has_work()) {
    ended_since.store(0, std::memory_order_relaxed);
    return ok();
  }
  std::int64_t since = 0;
  if (ended_since.compare_exchange_strong(since, now, std::memory_order_relaxed)) return ok();
  if (now - since < kGrace.count()) return ok();
  return Error{Code::kPeerFailed,
               fmt::format("rank {} {}, and calls of this rank wait for it", peer, why), me,
               Rank{peer}};
}

}  // namespace tutti
