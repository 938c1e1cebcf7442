// File: kernels/cuda/meeting.h: signals between a block and the blocks of its number in peers'
// kernels.
//
// Counters only grow, and each is written by one peer alone, so that nothing is ever set back. How
// far both ends are is in device memory and survives launches. The bits above a counter hold a part
// of the sender's chain (calls.h), for peers on other hosts, which see no board.
#pragma once
#include "kernels/cuda/interpreter.h"
#include "kernels/cuda/unit.h"
#include "tutti/detail/prim.h"

namespace tutti::cuda {

TUTTI_DEVICE SignalEnd& signal_end(const Arguments& arguments, unsigned peer) {
  return arguments.signals[blockIdx.x * arguments.ranks + peer];
}

inline constexpr unsigned kSignalBits = 48;  // Bits of the counter.

/// By one thread.
TUTTI_DEVICE void send_signal(const Arguments& arguments, unsigned peer, const Watch& watch) {
  SignalEnd& end = signal_end(arguments, peer);
  // release: what the block did to the peer's memory is over before the signal is there.
  store_release(end.outgoing, ++end.sent | std::uint64_t{watch.chain} << kSignalBits);
}

/// Waits for a peer's next signal. One thread calls it. False: it gave up, or the peer is in
/// another call. It does not notice another call of a peer on another host if that peer's next
/// signal, which may belong to its next call, has already come.
TUTTI_DEVICE bool take_signal(const Arguments& arguments, unsigned peer, Watch& watch) {
  SignalEnd& end = signal_end(arguments, peer);
  if (!waits()) return true;
  constexpr std::uint64_t kCounter = (std::uint64_t{1} << kSignalBits) - 1;
  std::uint64_t signal = 0;
  while (((signal = load_relaxed(end.incoming)) & kCounter) <= end.taken) {
    if (watch.gives_up(peer)) return false;
  }
  acquire(end.incoming);  // Pairs with the release in send_signal.
  ++end.taken;
  constexpr std::uint64_t kChain = (std::uint64_t{1} << (64 - kSignalBits)) - 1;
  const bool differs =
      (signal & kCounter) == end.taken && signal >> kSignalBits != (watch.chain & kChain);
  if (!watch.met(peer)) return false;
  return !differs || !watch.fail(Why::kDiffers, peer);
}

/// Signals all peers and waits for their signals. All threads call it; the first warp does the
/// work. A barrier of the block has to order what other threads do before and after it. False in a
/// thread that gave up waiting.
TUTTI_DEVICE bool meet_peers(const Arguments& arguments, Watch& watch) {
  if (threadIdx.x >= kWarpLanes) return true;
  for (unsigned peer = threadIdx.x; peer < arguments.ranks; peer += kWarpLanes) {
    if (peer != arguments.rank) send_signal(arguments, peer, watch);
  }
  bool met = true;
  for (unsigned peer = threadIdx.x; peer < arguments.ranks; peer += kWarpLanes) {
    if (peer != arguments.rank && !take_signal(arguments, peer, watch)) met = false;
  }
  return met;
}

}  // namespace tutti::cuda
