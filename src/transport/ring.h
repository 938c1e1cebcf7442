// File: transport/ring.h: a channel, a single-producer single-consumer ring of fixed-size slots.
//
// A ring is plain memory: the executor of a plan writes and reads it directly, without a call.
// Between ranks that share memory the two sides look at the same ring. Any other transport keeps a
// ring at each side and moves slots between them in its `progress`. A device sees the same fields.
//
//      sender                              receiver
//      wait until head - tail < slots      wait until tail < head
//      write slot[head % slots]            read slot[tail % slots]
//      head + 1 (release)                  tail + 1 (release)
//
// Counters are monotonic and 64-bit; nobody resets them. Each has one writer.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tutti {

/// A counter alone on its cache line, so that its writer and the writer of the next do not meet.
struct alignas(64) Counter {
  std::atomic<std::uint64_t> value{0};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free,
              "counters live in memory shared by processes");

/// One ring. `tails` has one counter per reader: one for a channel, one per rank for a multicast
/// ring (the writer's own is unused).
struct Ring {
  std::byte* slots = nullptr;
  Counter* head = nullptr;
  Counter* tails = nullptr;
  std::size_t slot_bytes = 0;
  std::uint32_t slot_count = 0;
  /// By slot, for rings whose slots are carried, else null: the bytes that are used, and what the
  /// writer stamped on it. The stamp arrives with the slot; what it means is up to both ends.
  std::uint32_t* used = nullptr;
  std::uint32_t* stamps = nullptr;

  std::byte* slot(std::uint64_t position) const {
    return slots + position % slot_count * slot_bytes;
  }
};

}  // namespace tutti
