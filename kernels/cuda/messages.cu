// File: kernels/cuda/messages.cu: the kernel of messages (messages.h). It moves bytes, whatever
// their type is.
#include "kernels/cuda/messages.h"

#include "kernels/cuda/body.h"
#include "kernels/cuda/channel.h"
#include "plan/partition.h"

namespace tutti::cuda {
namespace {

constexpr std::size_t kUnitBytes = 16;
constexpr std::size_t kGrainBytes = 64;  // A cache line.

class Messenger {
 public:
  TUTTI_DEVICE Messenger(const MessageArguments& arguments, Work& work)
      : arguments_(arguments),
        queue_(arguments.queues[blockIdx.x / arguments.blocks]),
        work_(work),
        watch_{&arguments.common, blockIdx.x, queue_.sends == 0 ? 1 : 0} {}

  TUTTI_DEVICE void run() {
    const bool first_thread = threadIdx.x == 0;
    if (first_thread) failed_ = is_refused(watch_, take_block(arguments_.common));
    run_queue();
    if (watch_.why != Why::kNothing) tell(watch_);
    if (!first_thread || failed_) return;
    if (counts()) store_count(watch_.number);
    store_relaxed(&arguments_.common.states[blockIdx.x].busy, 0);
  }

 private:
  /// Only the block that moves lane 0 compares messages with the peer's.
  TUTTI_DEVICE bool counts() const { return blockIdx.x % arguments_.blocks == 0; }
  TUTTI_DEVICE std::uint64_t* count_at() const {
    return arguments_.counts + queue_.peer * 2 + queue_.sends;
  }
  TUTTI_DEVICE void store_count(std::uint32_t number) const {
    store(count_at(), std::uint64_t{number});
  }

  TUTTI_DEVICE void run_queue() {
    const unsigned first = blockIdx.x / arguments_.blocks * kMostInQueue;
    std::uint32_t number = 0;
    const bool compares = threadIdx.x == 0 && counts();
    if (compares) number = static_cast<std::uint32_t>(load<std::uint64_t>(count_at()));
    for (unsigned index = 0; index < queue_.count; ++index) {
      const Message& message = arguments_.messages[first + index];
      if (compares) {
        number = next_number(number);
        post_message(message, number);
      }
      if (!run(message)) return;
    }
  }

  /// Both ends post a message, so that the one that waits sees what the other one expects.
  TUTTI_DEVICE void post_message(const Message& message, std::uint32_t number) {
    const Arguments& common = arguments_.common;
    CallTag tag = common.tag;
    tag.words[1] = static_cast<std::uint32_t>(message.bytes);
    tag.words[2] = static_cast<std::uint32_t>(message.bytes >> 32);
    watch_.number = number;
    watch_.chain = chained(chained(tag.digest, tag.words[1]), tag.words[2]);
    watch_.compared = 0;
    watch_.message = {number, {tag.words[0], tag.words[1], tag.words[2]}};
    std::byte* const board = common.boards[queue_.peer];
    if (board == nullptr) return;
    Watch theirs = watch_;  // To the peer this message has the other direction.
    theirs.direction = queue_.sends != 0 ? 1 : 0;
    post(theirs.line(board, common.rank), number, watch_.chain, tag.words);
  }

  /// This block's lanes of a message. False: the launch is over for the block.
  TUTTI_DEVICE bool run(const Message& message) {
    const Arguments& common = arguments_.common;
    const unsigned lanes = message_lanes(message.bytes, common.slot_bytes, arguments_.lanes);
    const std::uint64_t tile_bytes =
        units_in_slot(common.format, common.slot_bytes, kUnitBytes) * kUnitBytes;
    const std::uint64_t longest = plan::piece_of(message.bytes, lanes, 0, kGrainBytes).count;
    for (std::uint64_t tile = 0; tile * tile_bytes < longest; ++tile) {
      for (unsigned lane = blockIdx.x % arguments_.blocks; lane < lanes;
           lane += arguments_.blocks) {
        const plan::Range piece = plan::piece_of(message.bytes, lanes, lane, kGrainBytes);
        const plan::Range range = plan::tile_of(piece, tile, tile_bytes);
        // The peer sees the same, so no slot is due either.
        if (range.count != 0 && !move(message, lane, range)) return false;
      }
    }
    return true;
  }

  /// A tile, into a slot or out of one.
  TUTTI_DEVICE bool move(const Message& message, unsigned lane, plan::Range range) {
    // Words where it is all words, else bytes; of slots both are the same units.
    const bool words =
        (reinterpret_cast<std::uintptr_t>(message.data) | message.bytes) % sizeof(std::uint32_t) ==
        0;
    const std::uint64_t elements = words ? range.count / sizeof(std::uint32_t) : range.count;
    if (threadIdx.x == 0 && !prepare(message.data + range.offset, elements, lane)) failed_ = true;
    if (sync_block_or(failed_)) return false;
    if (words) {
      copy_units<kUnitBytes, kUnitBytes / sizeof(std::uint32_t)>(work_, watch_, failed_);
    } else {
      copy_units<kUnitBytes, kUnitBytes>(work_, watch_, failed_);
    }
    if (sync_block_or(failed_)) return false;
    if (threadIdx.x == 0) {
      const auto units = static_cast<std::uint32_t>((range.count + kUnitBytes - 1) / kUnitBytes);
      pass_slot(arguments_.common, queue_.sends == 0, watch_, work_.locations[queue_.sends],
                units * static_cast<std::uint32_t>(kUnitBytes));
    }
    return true;
  }

  /// By the first thread: fills in the work, once the slot may be used.
  TUTTI_DEVICE bool prepare(std::byte* data, std::uint64_t elements, unsigned lane) {
    Resolved user = {}, slot = {};
    user.at = data;
    user.form = slot.form = Form::kResult;
    user.aligned = reinterpret_cast<std::uintptr_t>(data) % kUnitBytes == 0;
    slot.peer = queue_.peer;
    const bool source = queue_.sends == 0;
    RingEnd& ring = rings_of(arguments_.common, lane, source)[queue_.peer];
    if (!await_slot(arguments_.common, ring, source, watch_, slot)) return false;
    work_.locations[1 - queue_.sends] = user;  // A source, then a target.
    work_.locations[queue_.sends] = slot;
    work_.source_count = work_.target_count = 1;
    work_.elements = static_cast<unsigned>(elements);
    work_.lined = slot.format == SlotFormat::kLine;
    work_.plain = slot.format == SlotFormat::kSimple && user.aligned;
    work_.copy = true;
    work_.first_thread = 0;
    work_.share = 0;
    work_.shares = 1;
    return true;
  }

  const MessageArguments& arguments_;
  const MessageQueue& queue_;
  Work& work_;
  Watch watch_;
  bool failed_ = false;  // This thread gave up waiting.
};

__global__ void __launch_bounds__(kMostThreads, 1)
    messages(const __grid_constant__ MessageArguments arguments) {
  __shared__ Work work;
  Messenger(arguments, work).run();
}

}  // namespace

const void* messages_kernel() { return TUTTI_KERNEL_HANDLE(messages); }

}  // namespace tutti::cuda
