// File: kernels/cuda/channel.h: one end of a ring of slots: taking its next slot, and passing it
// on.
//
// A slot is taken once it is full (a source's), or free (a target's). A ring's position moves on
// when its slot is taken, and survives the launch. In each direction a ring has one user at a time:
// the block that works for its lane.
#pragma once
#include "kernels/cuda/interpreter.h"
#include "kernels/cuda/unit.h"
#include "tutti/detail/prim.h"

namespace tutti::cuda {

TUTTI_DEVICE RingEnd* rings_of(const Arguments& arguments, unsigned lane, bool source) {
  return (source ? arguments.inboxes : arguments.outboxes) + lane * arguments.ranks;
}

/// Whether the ring's next slot may be taken: one poll. Packed data say themselves that they are
/// there.
TUTTI_DEVICE bool slot_is_ready(const Arguments& arguments, const RingEnd& ring, bool source) {
  if (!source) {
    return !waits() || ring.position - load_relaxed(ring.tail) < arguments.slot_count;
  }
  return arguments.format != SlotFormat::kSimple || !waits() ||
         load_relaxed(ring.head) > ring.position;
}

/// Takes the slot that is ready. False: it belongs to another call of `to.peer`.
TUTTI_DEVICE bool take_slot(const Arguments& arguments, RingEnd& ring, bool source, Watch& watch,
                            Resolved& to) {
  const std::uint64_t position = ring.position++;
  const std::uint64_t slot = position % arguments.slot_count;
  bool same = true;
  if (!source) {
    acquire(ring.tail);  // Pairs with the reader's release of tail: its reads are over.
    watch.got_room();
  } else if (arguments.format == SlotFormat::kSimple) {
    acquire(ring.head);  // Pairs with the writer's release of head.
    same = ring.stamps == nullptr ? watch.met(to.peer)
                                  : watch.met(to.peer, load<std::uint32_t>(&ring.stamps[slot]));
  }
  to.ring = &ring;
  to.at = ring.slots + slot * arguments.slot_bytes;
  to.format = arguments.format;
  const std::uint32_t flag = packed_flag(position);
  to.flag = arguments.format == SlotFormat::kPacked ? packed_flags(flag, flag) : position + 1;
  to.position = position;
  to.whole = true;
  to.aligned = true;
  return same;
}

/// By one thread: the next slot of the ring from or to `to.peer`. False: it gave up waiting.
TUTTI_DEVICE bool await_slot(const Arguments& arguments, RingEnd& ring, bool source, Watch& watch,
                             Resolved& to) {
  while (!slot_is_ready(arguments, ring, source)) {
    if (watch.gives_up(to.peer)) return false;
  }
  return take_slot(arguments, ring, source, watch, to);
}

/// By one thread, after a barrier behind the block's work on the slot: it is free (a source's), or
/// full, with so many bytes of it used by the call that `watch` watches. Threads of a warp that
/// call it together share a fence, whichever of the two they do.
TUTTI_DEVICE void pass_slot(const Arguments& arguments, bool source, const Watch& watch,
                            const Resolved& at, std::uint32_t bytes) {
  if (!source && at.format != SlotFormat::kSimple) return;
  std::uint64_t* const counter = source ? at.ring->tail : at.ring->head;
  if (!source && at.ring->used != nullptr) {
    at.ring->used[at.position % arguments.slot_count] = bytes;
    at.ring->stamps[at.position % arguments.slot_count] = watch.chain;
  }
  // release: the block's reads are over before the writer sees the slot free; what the block wrote
  // into it is there before the reader sees it full.
  store_release(counter, at.position + 1);
}

}  // namespace tutti::cuda
