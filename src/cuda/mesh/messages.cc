// File: cuda/mesh/messages.cc: a rank's messages, as launches of the kernel of messages.
//
// Both ends of a message must have it in the same launch. Otherwise a rank could wait in one launch
// for what its peer sends in a later one. So launches are cut by numbers that both ends
// know: a message to the rank r places on, or from the one r places back, is in round r, and a
// launch has the rounds of a window; and of each queue kMostInQueue messages, by their place in it.
// By induction over windows, and places in them, each message finds its other half.
#include <algorithm>
#include <string>

#include "cuda/mesh/mesh.h"
#include "kernels/cuda/messages.h"

namespace tutti::exec {
namespace {

/// Messages of one direction and peer, of a list that has them together.
struct Queue {
  std::size_t round = 0;
  std::span<const CudaMessage> messages;
};

/// The queues of `list`, which gets sorted. Queues of one round are neighbours.
std::vector<Queue> queues_of(std::vector<CudaMessage>& list, int rank, int ranks) {
  const auto round = [=](const CudaMessage& one) {
    const int way = one.sends ? one.peer - rank : rank - one.peer;
    return static_cast<std::size_t>((way + ranks) % ranks);
  };
  const auto key = [&](const CudaMessage& one) { return 2 * round(one) + (one.sends ? 0U : 1U); };
  std::stable_sort(list.begin(), list.end(),
                   [&](const CudaMessage& a, const CudaMessage& b) { return key(a) < key(b); });
  std::vector<Queue> queues;
  for (std::size_t begin = 0, end = 0; begin < list.size(); begin = end) {
    while (end < list.size() && key(list[end]) == key(list[begin])) ++end;
    queues.push_back({round(list[begin]), std::span(list).subspan(begin, end - begin)});
  }
  return queues;
}

/// What a launch takes of the queues: their messages from number `first` on. `common` says how long
/// slots are.
cuda::MessageArguments message_arguments(const cuda::Arguments& common,
                                         std::span<const Queue> queues, std::size_t first,
                                         std::uint32_t lanes, std::uint32_t blocks) {
  cuda::MessageArguments arguments;
  arguments.common = common;
  arguments.lanes = lanes;
  std::uint32_t count = 0, most = 1;
  for (const Queue& queue : queues) {
    if (queue.messages.size() <= first) continue;
    const auto messages = queue.messages.subspan(
        first, std::min<std::size_t>(queue.messages.size() - first, cuda::kMostInQueue));
    for (std::size_t i = 0; i < messages.size(); ++i) {
      const cuda::Message message{messages[i].data, messages[i].bytes};
      arguments.messages[std::size_t{count} * cuda::kMostInQueue + i] = message;
      most = std::max(most, cuda::message_lanes(message.bytes, common.slot_bytes, lanes));
    }
    arguments.queues[count++] = {static_cast<std::uint16_t>(messages[0].peer),
                                 static_cast<std::uint8_t>(messages[0].sends ? 1 : 0),
                                 static_cast<std::uint8_t>(messages.size())};
  }
  arguments.queue_count = count;
  arguments.blocks = std::clamp(blocks / count, 1U, most);
  return arguments;
}

}  // namespace

Status CudaMesh::launch_messages(int rank, std::vector<CudaMessage> list, cudaStream_t stream,
                                 const cuda::LaunchMark& mark) {
  const int ranks = static_cast<int>(options().devices.size());
  for (const CudaMessage& message : list) {
    if (message.peer >= 0 && message.peer < ranks && message.peer != rank) continue;
    return Error{Code::kInvalidArgument, "a message between ranks " + std::to_string(rank) +
                                             " and " + std::to_string(message.peer) + " of " +
                                             std::to_string(ranks)};
  }
  std::erase_if(list, [](const CudaMessage& one) { return one.bytes == 0; });
  const std::vector<Queue> queues = queues_of(list, rank, ranks);
  cuda::Arguments common = rings_.arguments(rank);
  common.mark = mark;
  common.tag = tag_of({.kind = CudaCallName::kMessage});
  const std::uint32_t most = options().queues != 0 ? options().queues : options().lanes;
  const std::size_t rounds = std::clamp(most, 2U, cuda::kMostQueues) / 2;
  const auto window_of = [=](const Queue& queue) { return (queue.round - 1) / rounds; };
  for (std::size_t begin = 0, end = 0; begin < queues.size(); begin = end) {
    std::size_t longest = 0;
    for (; end < queues.size() && window_of(queues[end]) == window_of(queues[begin]); ++end)
      longest = std::max(longest, queues[end].messages.size());
    const auto window = std::span(queues).subspan(begin, end - begin);
    for (std::size_t first = 0; first < longest; first += cuda::kMostInQueue) {
      auto arguments = message_arguments(common, window, first, options().lanes,
                                         std::max(options().lanes, options().message_blocks));
      arguments.counts = rings_.counts(rank);
      TUTTI_RETURN_IF_ERROR(start(rank, cuda::messages_kernel(),
                                  std::size_t{arguments.queue_count} * arguments.blocks, &arguments,
                                  stream, "the messages"));
    }
  }
  return ok();
}

}  // namespace tutti::exec
