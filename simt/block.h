// File: simt/block.h: the engine's own state: fibers, barriers, warps, blocks.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "simt/engine.h"

#if TUTTI_SIMT_TSAN
extern "C" {
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_acquire(void* at);
void __tsan_release(void* at);
}
#define TUTTI_SIMT_IF_TSAN(code) code
#else
#define TUTTI_SIMT_IF_TSAN(code)
#endif

namespace tutti::simt {

/// xorshift64*: small, and the same everywhere.
struct Random {
  std::uint64_t state = 1;
  std::uint64_t next() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * 0x2545F4914F6CDD1Dull;
  }
  unsigned below(unsigned n) { return static_cast<unsigned>((next() >> 33) % n); }
};
/// A state that is never 0, unlike those of neighbouring numbers (splitmix64).
std::uint64_t mixed(std::uint64_t number);

struct Block;
class TimeSlices;

/// It has more than 15 fields: the state of a simulated thread and of its checks.
struct Fiber {
  enum class State : std::uint8_t { kReady, kBlocked, kDone };
  ThreadContext context;
  Block* block = nullptr;
  State state = State::kReady;
  bool started = false;
  void* stack_pointer = nullptr;
  char* stack = nullptr;
  Fiber* next = nullptr;  // In the list of those that wait for the same.
  // Where it is, for a report.
  const char* doing = nullptr;
  const volatile void* what = nullptr;
  void* caller = nullptr;
  // The sanitizers' idea of it. The two others hold the clocks of its last fence, see ordering.cc.
  void* tsan = nullptr;
  void* tsan_released = nullptr;
  void* tsan_acquired = nullptr;
  bool fenced = false;
  char release_token = 0, acquire_token = 0;
  void* asan_stack = nullptr;
};

/// A linked list without memory of its own: fibers must not allocate.
struct FiberList {
  Fiber* first = nullptr;
  Fiber* last = nullptr;
  void push(Fiber* fiber) {
    fiber->next = nullptr;
    (last != nullptr ? last->next : first) = fiber;
    last = fiber;
  }
};

struct Barrier {
  int arrived = 0, expected = 0;
  bool whole_block = false;
  Place place = {nullptr, 0};
  unsigned generation = 0;
  FiberList waiting;
  int all = 1, any = 0, count = 0;  // Over the predicates so far,
  std::array<int, 3> result = {};   // and of the last generation, by Vote.
  // The objects that the sanitizer orders by; two, as generations overlap.
  std::array<char, 2> token = {};
};

struct WarpGroup {
  bool used = false, complete = false;
  unsigned mask = 0, arrived = 0;
  int left = 0;
  WarpOp op = WarpOp::kSync;
  WarpValues values;
  FiberList waiting;
  char token = 0;
};
using Warp = std::array<WarpGroup, 64>;

/// It has more than 15 fields: the state of a simulated block and of its checks.
struct Block {
  const Launch* launch = nullptr;
  TimeSlices* slices = nullptr;  // Null: it waits for none.
  unsigned index = 0;
  std::vector<Fiber> fibers;
  std::vector<Fiber*> ready;  // A ring: `ready_count` from `ready_first`.
  std::size_t ready_first = 0, ready_count = 0;
  int alive = 0;
  std::array<Barrier, 16> barriers;
  std::vector<Warp> warps;
  Random random;
  std::vector<char> shared;
  Fiber* running = nullptr;
  // Polls in a row without progress, and how often the block stepped aside for them.
  std::size_t idle_polls = 0;
  unsigned pauses = 0;
  double last_progress_s = 0;
  // The scheduler itself, to which fibers go back.
  void* scheduler_stack_pointer = nullptr;
  void* scheduler_tsan = nullptr;
  void* scheduler_asan_stack = nullptr;
  const void* scheduler_stack_bottom = nullptr;
  std::size_t scheduler_stack_bytes = 0;
};
extern __thread Block* current_block;

// fiber.cc
char* take_stack();
void give_stack(char* stack);
void prepare(Fiber& fiber, void (*entry)());
void switch_to(Fiber& fiber);            // From the scheduler.
void switch_to_scheduler(bool forever);  // From the running fiber.
void fiber_entered();                    // The first thing a fiber does.

// scheduler.cc
void make_ready(Fiber* fiber);
void make_ready(FiberList& list);
/// Leaves the running fiber blocked, until someone makes it ready.
void block_on(const char* doing, const void* what, void* caller);

// collectives.cc
void complete(Barrier& barrier);

// report.cc
void block_begins(Block* block);
void block_ends(Block* block);

}  // namespace tutti::simt
