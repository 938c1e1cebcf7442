// File: fuzz/replicator_calls.h: the calls of two ranks during which replicator_fuzz gets frames.
// The seeds (seeds.cc) are the frames that rank 1 sends in them.
#pragma once
#include <array>
#include <vector>

#include "support/net/slow_network.h"

namespace tutti::fuzz {

inline constexpr int kRanks = 2;
inline constexpr std::size_t kScripts = 5;  // The first byte of an input, modulo.

/// A call as rank `me` makes it, with the memory that it uses.
struct OwnCall {
  OwnCall(Collective collective, DataType type, std::size_t count, int me, int root = 0)
      : input(count * size_of(type) * kRanks, std::byte(me + 1)), output(input.size()) {
    call.collective = collective;
    call.type = type;
    call.count = count;
    call.root = root;
    call.input = input.data();
    call.output = output.data();
  }
  /// all_to_all_v with blocks of these sizes by rank, alike in both directions.
  OwnCall(std::array<std::size_t, kRanks> blocks, int me)
      : OwnCall(Collective::kAllToAll, DataType::kUint8, blocks[0] + blocks[1], me) {
    counts = blocks;
    call.vector_variant = true;
    call.count = 0;
    call.input_blocks.counts = call.output_blocks.counts = counts.data();
  }
  OwnCall(const OwnCall&) = delete;
  OwnCall& operator=(const OwnCall&) = delete;

  test::Buffer input, output;
  std::array<std::size_t, kRanks> counts{};
  exec::Call call;
};
using Calls = std::vector<std::unique_ptr<OwnCall>>;

/// The calls of a script: eager ones, plans of several tiles, blocks by rank, a root that is not
/// me.
inline Calls calls_of(std::size_t script, int me) {
  Calls calls;
  const auto add = [&](auto... what) { calls.push_back(std::make_unique<OwnCall>(what...)); };
  switch (script) {
    case 0:
      add(Collective::kAllReduce, DataType::kFloat32, std::size_t{9}, me);
      add(Collective::kGather, DataType::kFloat32, std::size_t{700}, me);
      add(Collective::kAllReduce, DataType::kBfloat16, std::size_t{300}, me);
      break;
    case 1:
      add(Collective::kAllReduce, DataType::kFloat32, std::size_t{1500}, me);
      add(Collective::kBroadcast, DataType::kUint8, std::size_t{100}, me, 1);
      add(Collective::kAllGather, DataType::kInt64, std::size_t{200}, me);
      break;
    case 2:
      add(std::array<std::size_t, kRanks>{30, 30}, me);
      add(std::array<std::size_t, kRanks>{2500, 2500}, me);
      break;
    case 3:
      add(Collective::kReduceScatter, DataType::kUint8, std::size_t{2500}, me);
      add(Collective::kScatter, DataType::kUint8, std::size_t{2500}, me, 1);
      break;
    default: break;  // Messages.
  }
  return calls;
}

/// The sizes of messages from rank 1 to rank 0 in the last script: in the header's slot, in several
/// slots, none.
inline constexpr std::array<std::size_t, 4> kMessages{8, 1000, 0, 5000};
/// The message of that index, as rank `me` posts it, in this memory.
inline exec::Message message_of(std::size_t index, int me, test::Buffer& memory) {
  memory.assign(kMessages[index], std::byte{7});
  exec::Message message;
  message.sends = me == 1;
  message.peer = 1 - me;
  message.data = memory.data();
  message.count = memory.size();
  return message;
}

/// The region of both ranks; small, as each input gets a new one.
inline RegionConfig small_region() {
  RegionConfig config = test::slow_region(kRanks);
  config.lanes = 2;
  config.packet_slots = 16;
  config.packet_bytes = 4096;
  config.message_bytes = 1024;
  config.slot_bytes = 1024;
  config.notes = 1;
  return config;
}

/// Calls of up to so many bytes are eager.
inline exec::EagerLimits::Bytes eager_limits() {
  exec::EagerLimits::Bytes limits{};
  limits.fill(1024);
  return limits;
}

}  // namespace tutti::fuzz
