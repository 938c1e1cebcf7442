// File: support/net/verbs_network.h: ranks that are threads and have RDMA queue pairs with each
// other.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "transport/verbs/connect.h"
#include "tutti/rendezvous.h"

namespace tutti::test {

/// Pages of zeros, as regions and images are.
class Pages {
 public:
  explicit Pages(std::size_t bytes)
      : bytes_(bytes), memory_(static_cast<std::byte*>(std::aligned_alloc(4096, bytes))) {
    std::fill_n(memory_.get(), bytes, std::byte{0});
  }
  std::span<std::byte> span() const { return {memory_.get(), bytes_}; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::size_t bytes_;
  std::unique_ptr<std::byte, Free> memory_;
};

/// One rank; what it writes to others lies in `near`, what they write in `replica`.
struct VerbsRank {
  explicit VerbsRank(std::size_t bytes) : near(bytes), replica(bytes) {}
  Pages near, replica;  // Outlive the network.
  ~VerbsRank() {
    network.reset();
    if (after) after();
  }
  VerbsRank(const VerbsRank&) = delete;
  VerbsRank& operator=(const VerbsRank&) = delete;
  std::unique_ptr<verbs::VerbsNetwork> network;
  std::string error;
  std::function<void()> after;
};

/// The owner of the devices.
struct VerbsFabric {
  std::string prefix;  // The prefix of their names: "rxe" in rxe0.
  std::vector<verbs::Port> ports;
  std::function<void()> after{};  // Called once a rank has left.
};

struct VerbsOptions {
  int ranks = 2;
  std::size_t bytes = std::size_t{1} << 20;  // Each rank's memory.
  verbs::Options options{};
  bool one_host = true;                            // Ranks of one host share out its ports.
  std::function<std::string(int rank)> devices{};  // Rules; without it, each rank has its own.
  int gid_index = -1;
  PacketMarks marks{};
  std::chrono::milliseconds timeout{20000};
};

/// All of them, joined; those that could not join have an error.
inline std::vector<std::unique_ptr<VerbsRank>> join_verbs(const VerbsFabric& fabric,
                                                          const VerbsOptions& options = {}) {
  const std::shared_ptr<Rendezvous> meeting = memory_rendezvous();
  std::vector<std::unique_ptr<VerbsRank>> ranks;
  for (int me = 0; me < options.ranks; ++me) {
    ranks.push_back(std::make_unique<VerbsRank>(options.bytes));
    ranks.back()->after = fabric.after;
  }
  Peer peer = this_process();
  peer.rdma = verbs::usable_layers(fabric.ports);
  std::vector<Peer> peers(static_cast<std::size_t>(options.ranks), peer);
  for (std::size_t rank = 0; rank < peers.size() && !options.one_host; ++rank)
    peers[rank].host[0] += rank;
  std::vector<std::jthread> threads;
  for (int me = 0; me < options.ranks; ++me) {
    threads.emplace_back([&, me] {
      VerbsRank& mine = *ranks[static_cast<std::size_t>(me)];
      const std::string devices =
          options.devices ? options.devices(me) : fabric.prefix + std::to_string(me);
      const Deadline deadline = Deadline::after(options.timeout);
      const Opening opening{.me = me,
                            .peers = peers,
                            .rank = me,
                            .config = {},
                            .rdma_devices = devices,
                            .rdma_gid_index = options.gid_index,
                            .rdma_marks = options.marks,
                            .exchange =
                                [&](std::string_view phase, std::span<const std::byte> bytes) {
                                  return exchange(*meeting, Rank{me}, options.ranks, phase, bytes,
                                                  deadline);
                                },
                            .deadline = deadline};
      net::Joining to{
          .opening = opening, .far = {}, .near = mine.near.span(), .replica = mine.replica.span()};
      for (int rank = 0; rank < options.ranks; ++rank) {
        if (rank != me) to.far.push_back(rank);
      }
      auto network = verbs::connect(to, fabric.ports, options.options);
      if (network)
        mine.network = *std::move(network);
      else
        mine.error = network.error().what;
    });
  }
  threads.clear();
  return ranks;
}

}  // namespace tutti::test
