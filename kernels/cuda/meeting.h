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

class Meeting {
 public:
  TUTTI_DEVICE Meeting(const Arguments& arguments, Watch& watch)
      : arguments_(arguments), watch_(watch) {}

  /// By one thread.
  TUTTI_DEVICE void signal(unsigned peer) const {
    SignalEnd& end = end_of(peer);
    // release: what the block did to the peer's memory is over before the signal is there.
    store_release(end.outgoing, ++end.sent);
  }

  /// By one thread. False: it gave up waiting.
  TUTTI_DEVICE bool wait(unsigned peer) const {
    SignalEnd& end = end_of(peer);
    if (!waits()) return true;
    // acquire: pairs with the release in signal.
    while (load_acquire(end.incoming) <= end.taken) {
      if (watch_.gives_up(peer)) return false;
    }
    ++end.taken;
    return true;
  }

  /// By all threads, of which the first see to it: tells all peers, and waits for them. What other
  /// threads of the block did before has to be ordered by a barrier, as what they do after has.
  /// False in a thread that gave up waiting.
  TUTTI_DEVICE bool meet() const {
    for (unsigned peer = threadIdx.x; peer < arguments_.ranks; peer += blockDim.x) {
      if (peer != arguments_.rank) signal(peer);
    }
    bool met = true;
    for (unsigned peer = threadIdx.x; peer < arguments_.ranks; peer += blockDim.x) {
      if (peer != arguments_.rank && !wait(peer)) met = false;
    }
    return met;
  }

 private:
  TUTTI_DEVICE SignalEnd& end_of(unsigned peer) const {
    return arguments_.signals[blockIdx.x * arguments_.ranks + peer];
  }

  const Arguments& arguments_;
  Watch& watch_;
};

}  // namespace tutti::cuda
