// File: simt/message_cases.h: messages between all ranks of a mesh, and whether what comes is
// right, byte for byte, and nothing beside it is touched.
#pragma once
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "simt/communicator/device_ranks.h"

namespace tutti::test {

struct MessageCase {
  int ranks = 2;
  unsigned most = 6;  // From one rank to another, in one list; each pair has as many or fewer.
  std::size_t most_bytes = 5000;  // In a message.
};

/// A message's bytes at both ends. Both begin anywhere, with room around them.
struct MessageEnds {
  static constexpr std::size_t kRoom = 32;
  int from = 0, to = 0;
  std::size_t bytes = 0, source_at = 0, target_at = 0;
  exec::CudaMemory source, target;
  std::vector<Buffer> data, got;  // By round.
};

inline std::vector<std::unique_ptr<MessageEnds>> make_messages(const DeviceRanks& ranks,
                                                               const MessageCase& test, int rounds,
                                                               std::uint64_t seed,
                                                               std::string& complaint) {
  std::mt19937_64 random(seed);
  std::vector<std::unique_ptr<MessageEnds>> all;
  const auto add = [&](int from, int to) {
    auto one = std::make_unique<MessageEnds>();
    one->from = from;
    one->to = to;
    // Words as a rule, nothing at times.
    one->bytes = random() % 5 == 0 ? random() % 40 : random() % (test.most_bytes + 1);
    if (random() % 2 == 0) one->bytes -= one->bytes % 4;
    const std::size_t step = random() % 2 == 0 ? 4 : 1;
    one->source_at = MessageEnds::kRoom + random() % 16 / step * step;
    one->target_at = MessageEnds::kRoom + random() % 16 / step * step;
    const std::size_t whole = one->bytes + 3 * MessageEnds::kRoom;
    auto source = exec::CudaMemory::allocate(ranks.device(static_cast<std::size_t>(from)), whole);
    auto target = exec::CudaMemory::allocate(ranks.device(static_cast<std::size_t>(to)), whole);
    if (!source || !target) {
      complaint = "no memory for messages";
      return;
    }
    one->source = *std::move(source);
    one->target = *std::move(target);
    for (int round = 0; round < rounds; ++round) {
      Buffer& data = one->data.emplace_back(one->bytes);
      for (std::byte& byte : data) byte = static_cast<std::byte>(random());
      one->got.emplace_back(whole);
    }
    all.push_back(std::move(one));
  };
  for (int from = 0; from < test.ranks; ++from) {
    for (int to = 0; to < test.ranks; ++to) {
      if (from == to) continue;
      for (std::uint64_t left = random() % (test.most + 1); left > 0; --left) add(from, to);
    }
  }
  return all;
}

/// What is wrong with what came.
inline std::string compare_message(const MessageEnds& one, std::size_t round) {
  Buffer want(one.got[round].size());
  if (one.bytes != 0) std::memcpy(want.data() + one.target_at, one.data[round].data(), one.bytes);
  const auto differs = std::mismatch(want.begin(), want.end(), one.got[round].begin());
  if (differs.first == want.end()) return "";
  return "a message of " + std::to_string(one.bytes) + " bytes from rank " +
         std::to_string(one.from) + " to " + std::to_string(one.to) + " differs at " +
         std::to_string(differs.first - want.begin()) + ", it begins at " +
         std::to_string(one.target_at) + ", call " + std::to_string(round);
}

/// Each round is one list for each rank, with data of its own, that nothing but the kernels orders.
inline std::string run_messages(DeviceRanks& ranks, const MessageCase& test, std::uint64_t seed,
                                int rounds = 3) {
  std::string complaint;
  const auto all = make_messages(ranks, test, rounds, seed, complaint);
  if (!complaint.empty()) return complaint;
  complaint = ranks.each([&](std::size_t rank) {
    const int me = static_cast<int>(rank);
    std::string wrong;
    for (std::size_t round = 0; round < static_cast<std::size_t>(rounds); ++round) {
      std::vector<exec::CudaMessage> list;
      for (const auto& one : all) {
        std::byte* const source = one->source.data() + one->source_at;
        if (one->from == me) {
          ranks.copy_in(rank, source, one->data[round].data(), one->bytes);
          list.push_back({true, one->to, source, one->bytes});
        }
        if (one->to == me)
          list.push_back({false, one->from, one->target.data() + one->target_at, one->bytes});
      }
      ranks.in_step();
      wrong += said(ranks.mesh().launch_messages(me, std::move(list), ranks.stream(rank)));
      ranks.in_step();
      for (const auto& one : all) {
        if (one->to == me)
          ranks.copy_out(rank, one->got[round].data(), one->target.data(), one->got[round].size());
      }
    }
    return wrong;
  });
  for (std::size_t round = 0; round < static_cast<std::size_t>(rounds); ++round) {
    for (const auto& one : all) {
      if (complaint.empty()) complaint = compare_message(*one, round);
    }
  }
  return complaint.empty() ? "" : "seed " + std::to_string(seed) + ": " + complaint;
}

}  // namespace tutti::test
