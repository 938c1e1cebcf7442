// File: support/net/fake_link.h: what a link of verbs is made of, over the devices of
// support/net/fake_rdma.h. A device that refuses ends the process.
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "support/net/fake_rdma.h"
#include "transport/verbs/link.h"

namespace tutti::test {

inline std::unique_ptr<verbs::Device> open_fake_device(std::size_t which) {
  verbs::use_library(FakeRdma::library());
  verbs::use_ports(FakeRdma::ports());
  const verbs::Port port = FakeRdma::ports()[which];
  auto device = verbs::Device::open({.port = port, .gid = port.gids.front(), .near = ""}, 4096);
  TUTTI_CHECK(device);
  return *std::move(device);
}

/// Not connected, for rings of so many records.
inline std::vector<verbs::Pair> make_pairs(const verbs::Device& device, std::size_t count,
                                           std::uint32_t depth) {
  std::vector<verbs::Pair> pairs;
  while (pairs.size() < count) {
    ibv_qp_cap wanted = verbs::capacity(depth);
    auto pair = device.make_pair(wanted);
    TUTTI_CHECK(pair);
    pairs.push_back(*std::move(pair));
  }
  return pairs;
}

/// Memory on the heap, whose end a sanitizer knows, and the device's key for it.
struct RegisteredMemory {
  RegisteredMemory(const verbs::Device& device, std::size_t bytes) : memory(bytes) {
    auto enrolled = device.enroll(memory);
    TUTTI_CHECK(enrolled);
    key = *std::move(enrolled);
  }
  verbs::LocalMemory local() { return {memory, key->lkey}; }
  verbs::RemoteMemory remote() const {
    return {reinterpret_cast<std::uintptr_t>(memory.data()), memory.size(), key->rkey};
  }
  std::vector<std::byte> memory;
  verbs::Memory key;
};

/// Those of a link with fake1 of another host, but for its memory.
inline verbs::LinkParts fake_link_parts(int me, int peer, std::uint32_t depth) {
  verbs::LinkParts parts;
  parts.me = me;
  parts.peer = peer;
  parts.where = "verbs: a link with rank " + std::to_string(peer);
  parts.peer_host = "node7";
  parts.peer_device = "fake1:1";
  parts.depth = depth;
  parts.most_message = 1 << 20;
  parts.told_bytes = 4096;
  parts.patience = std::chrono::hours(1);
  return parts;
}

}  // namespace tutti::test
