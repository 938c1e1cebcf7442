// File: kernels/cuda/channel.h: one end of a ring of slots: taking its next slot, and passing it
// on.
//
// A thread that takes a slot waits until the slot is full (a source's), or free (a target's). A
// ring's position moves on when its slot is taken, and survives the launch. In each direction a
// ring has one user at a time: the block that works for its lane.
#pragma once
#include "kernels/cuda/interpreter.h"
#include "kernels/cuda/unit.h"
#include "tutti/detail/prim.h"

namespace tutti::cuda {

/// By one thread: the next slot of the ring from or to `to.peer`. False: it gave up waiting.
TUTTI_DEVICE bool take_slot(const Arguments& arguments, unsigned lane, bool source, Watch& watch,
                            Resolved& to) {
  RingEnd* rings = source ? arguments.inboxes : arguments.outboxes;
  RingEnd& ring = rings[lane * arguments.ranks + to.peer];
  const std::uint64_t position = ring.position++;
  if (source) {
    // acquire: pairs with the writer's release of head. Packed data say themselves that they are
    // there.
    if (arguments.format == SlotFormat::kSimple && waits()) {
      while (load_acquire(ring.head) <= position) {
        if (watch.gives_up(to.peer)) return false;
      }
      const bool same =
          ring.stamps == nullptr
              ? watch.met(to.peer)
              : watch.met(to.peer,
                          load<std::uint32_t>(&ring.stamps[position % arguments.slot_count]));
      if (!same) return false;
    }
  } else if (waits()) {
    // acquire: pairs with the reader's release of tail; its reads are over before we write.
    while (position - load_acquire(ring.tail) >= arguments.slot_count) {
      if (watch.gives_up(to.peer)) return false;
    }
    watch.got_room();
  }
  to.ring = &ring;
  to.at = ring.slots + position % arguments.slot_count * arguments.slot_bytes;
  to.format = arguments.format;
  const std::uint32_t flag = packed_flag(position);
  to.flag = arguments.format == SlotFormat::kPacked ? packed_flags(flag, flag) : position + 1;
  to.position = position;
  to.whole = true;
  to.aligned = true;
  return true;
}

/// By one thread, after a barrier behind the block's work on the slot: it is free (a source's), or
/// full, with so many bytes of it used by the call that `watch` watches.
TUTTI_DEVICE void pass_slot(const Arguments& arguments, bool source, const Watch& watch,
                            const Resolved& at, std::uint32_t bytes) {
  if (source) {
    // release: the block's reads are over before the writer sees the slot free.
    store_release(at.ring->tail, at.position + 1);
  } else if (at.format == SlotFormat::kSimple) {
    if (at.ring->used != nullptr) {
      at.ring->used[at.position % arguments.slot_count] = bytes;
      at.ring->stamps[at.position % arguments.slot_count] = watch.chain;
    }
    // release: publishes what the block wrote into the slot.
    store_release(at.ring->head, at.position + 1);
  }
}

}  // namespace tutti::cuda
