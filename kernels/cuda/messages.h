// File: kernels/cuda/messages.h: what the host and the kernel of messages both know: all messages
// of a rank that are under way at a time.
//
// Model. A queue has the messages from this rank to one peer, or from one, in their order. All
// queues of a launch go at a time: each has as many blocks, and no two queues wait for each other.
// So one launch does for what a rank sends and gets, on one stream.
//
// A message stands for the plan `direct` of a broadcast from its sender to its receiver, with as
// many lanes as message_lanes says: both ends know that from its size. How many blocks share these
// lanes is up to each end: a block takes its lanes in turn, tile by tile, so that the earliest tile
// that is under way can always go on.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/interpreter.h"

namespace tutti::cuda {

/// Queues of a launch, at most, and messages of a queue. The same on all ranks, as what does not
/// fit comes in the next launch.
inline constexpr unsigned kMostQueues = 32;
inline constexpr unsigned kMostInQueue = 4;

struct Message {
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;
};
struct MessageQueue {
  std::uint16_t peer = 0;
  std::uint8_t sends = 0;  // Or gets.
  std::uint8_t count = 0;
};

/// Messages use the rings, the boards, report, timeout_ns, slot_bytes, slot_count, ranks and format
/// of `common`.
struct MessageArguments {
  Arguments common;
  Message messages[kMostQueues * kMostInQueue] = {};  // Queue q's from q * kMostInQueue on.
  MessageQueue queues[kMostQueues] = {};
  std::uint64_t* counts = nullptr;  // By peer: the number of messages from it, and of those to it.
  std::uint32_t queue_count = 0;
  std::uint32_t blocks = 1;  // For each queue.
  std::uint32_t lanes = 1;   // At most, for a message.
};
static_assert(sizeof(MessageArguments) <= 4096, "what a launch may have for arguments");

/// A lane for each quarter of a slot.
constexpr unsigned message_lanes(std::uint64_t bytes, std::uint64_t slot_bytes, unsigned lanes) {
  const std::uint64_t worth = 4 * bytes / slot_bytes;
  return worth < 1 ? 1 : worth < lanes ? static_cast<unsigned>(worth) : lanes;
}

/// Its grid has the blocks of all queues, one queue after the other.
const void* messages_kernel();

}  // namespace tutti::cuda
