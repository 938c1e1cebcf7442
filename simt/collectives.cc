// File: simt/collectives.cc: barriers of a block, and collectives of a warp.
//
// Barriers and __syncwarp order memory; shuffles and votes don't, and neither do they here.
#include "simt/block.h"

namespace tutti::simt {

void complete(Barrier& barrier) {
  barrier.result = {barrier.all, barrier.any, barrier.count};
  barrier.all = 1;
  barrier.any = barrier.count = 0;
  barrier.arrived = barrier.expected = 0;
  barrier.whole_block = false;
  ++barrier.generation;
  make_ready(barrier.waiting);
  note_progress();
}

namespace {

/// Dies unless this thread may join those that are at the barrier already.
void check_arrival(const Barrier& barrier, int id, bool whole_block, int count, Place place) {
  if (barrier.arrived == 0) return;
  if (barrier.whole_block != whole_block || (!whole_block && barrier.expected != count)) {
    die("barrier %d: threads disagree on how many take part (%d and %d)", id, barrier.expected,
        count);
  }
  if (whole_block && place.line != barrier.place.line) {
    die("threads of one block meet at different barriers: %s:%d and %s:%d", barrier.place.file,
        barrier.place.line, place.file, place.line);
  }
}

int arrive(int id, int count, int predicate, Vote vote, Place place, void* caller) {
  Block* block = current_block;
  if (id < 0 || id >= static_cast<int>(block->barriers.size())) die("there is no barrier %d", id);
  Barrier& barrier = block->barriers[static_cast<std::size_t>(id)];
  const bool whole_block = count == 0;
  if (whole_block) {
    count = block->alive;
  } else if (count % 32 != 0) {
    die("barrier %d: %d threads are no multiple of a warp", id, count);
  }
  check_arrival(barrier, id, whole_block, count, place);
  barrier.place = place;
  barrier.whole_block = whole_block;
  barrier.expected = count;
  barrier.all &= predicate != 0 ? 1 : 0;
  barrier.any |= predicate != 0 ? 1 : 0;
  barrier.count += predicate != 0 ? 1 : 0;
  [[maybe_unused]] char* token = &barrier.token[barrier.generation % 2];
  TUTTI_SIMT_IF_TSAN(__tsan_release(token));
  if (++barrier.arrived >= barrier.expected) {
    complete(barrier);
  } else {
    barrier.waiting.push(block->running);
    block_on("at barrier", &barrier, caller);
  }
  TUTTI_SIMT_IF_TSAN(__tsan_acquire(token));
  const int result = barrier.result[static_cast<std::size_t>(vote)];
  yield_point();
  return result;
}

/// The collective of this mask that the lane joins, or a new one.
WarpGroup& join(Warp& warp, unsigned mask, unsigned lane, WarpOp op) {
  WarpGroup* spare = nullptr;
  for (WarpGroup& group : warp) {
    if (!group.used) {
      if (spare == nullptr) spare = &group;
    } else if (!group.complete) {
      if (group.mask == mask) {
        if (group.op != op) die("lanes of mask %08x are in different collectives", mask);
        return group;
      }
      if ((group.arrived >> lane & 1) != 0) die("lane %u is in two collectives at once", lane);
    }
  }
  if (spare == nullptr) die("more collectives of a warp at once than the engine has room for");
  spare->used = true;
  spare->complete = false;
  spare->mask = mask;
  spare->arrived = 0;
  spare->left = 0;
  spare->op = op;
  return *spare;
}

}  // namespace

void barrier(int id, int thread_count, Place place) {
  if (planted(Mistake::kNoBarrier, place)) return yield_point();
  arrive(id, thread_count, 0, Vote::kAnd, place, __builtin_return_address(0));
}

int barrier_vote(int predicate, Vote vote, Place place) {
  if (planted(Mistake::kNoBarrier, place)) {
    yield_point();
    return predicate;
  }
  return arrive(0, 0, predicate, vote, place, __builtin_return_address(0));
}

WarpValues warp_exchange(unsigned mask, std::uint64_t value, WarpOp op) {
  Block* block = current_block;
  Fiber* fiber = block->running;
  const unsigned lane = fiber->context.lane;
  if ((mask >> lane & 1) == 0) die("lane %u calls a collective of mask %08x", lane, mask);
  WarpGroup& group = join(block->warps[fiber->context.warp], mask, lane, op);
  group.values.of_lane[lane] = value;
  group.arrived |= 1u << lane;
  if (op == WarpOp::kSync) {
    TUTTI_SIMT_IF_TSAN(__tsan_release(&group.token));
  }
  if (group.arrived == mask) {
    group.complete = true;
    make_ready(group.waiting);
    // Votes are what polling loops of a warp end with, so they are no progress.
    if (op != WarpOp::kVote) note_progress();
  } else {
    group.waiting.push(fiber);
    block_on("in a collective of the warp", nullptr, __builtin_return_address(0));
  }
  if (op == WarpOp::kSync) {
    TUTTI_SIMT_IF_TSAN(__tsan_acquire(&group.token));
  }
  const WarpValues values = group.values;
  if (++group.left == __builtin_popcount(mask)) group.used = false;
  return values;
}

}  // namespace tutti::simt
