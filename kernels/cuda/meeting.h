// File: kernels/cuda/meeting.h: signals between a block and the blocks of its number in peers'
// kernels.
//
// Counters only grow, and each is written by one peer alone, so that nothing is ever set back. How
// far both ends are is in device memory and survives launches.
#pragma once
#include "kernels/cuda/interpreter.h"
#include "kernels/cuda/prim.h"
#include "kernels/cuda/unit.h"

namespace tutti::cuda {

TUTTI_DEVICE SignalEnd& signal_end(const Arguments& arguments, unsigned peer) {
  return arguments.signals[blockIdx.x * arguments.ranks + peer];
}

/// By one thread.
TUTTI_DEVICE void send_signal(const Arguments& arguments, unsigned peer) {
  SignalEnd& end = signal_end(arguments, peer);
  // release: what the block did to the peer's memory is over before the signal is there.
  store_release(end.outgoing, ++end.sent);
}

/// By one thread. False: it gave up waiting.
TUTTI_DEVICE bool take_signal(const Arguments& arguments, unsigned peer, Watch& watch) {
  SignalEnd& end = signal_end(arguments, peer);
  if (!waits()) return true;
  // acquire: pairs with the release in send_signal.
  while (load_acquire(end.incoming) <= end.taken) {
    if (watch.gives_up(peer)) return false;
  }
  ++end.taken;
  return true;
}

/// By all threads, of which the first see to it: tells all peers, and waits for them. What other
/// threads of the block did before has to be ordered by a barrier, as what they do after has. False
/// in a thread that gave up waiting.
TUTTI_DEVICE bool meet_peers(const Arguments& arguments, Watch& watch) {
  for (unsigned peer = threadIdx.x; peer < arguments.ranks; peer += blockDim.x) {
    if (peer != arguments.rank) send_signal(arguments, peer);
  }
  bool met = true;
  for (unsigned peer = threadIdx.x; peer < arguments.ranks; peer += blockDim.x) {
    if (peer != arguments.rank && !take_signal(arguments, peer, watch)) met = false;
  }
  return met;
}

}  // namespace tutti::cuda
