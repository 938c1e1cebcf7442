// TCP transport: ranks on any hosts. Those of one host share a region; of all others each rank has
// an image of its own, which a wire over authenticated connections keeps up to date (mirror.h).
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "transport/tcp/mesh.h"
#include "transport/tcp/mirror.h"
#include "transport/transport.h"

namespace tutti::tcp {
namespace {

/// One rank's image of what others have in the region. Only what is touched takes memory.
class Image {
 public:
  explicit Image(const RegionConfig& config)
      : bytes_(Region::bytes_for(config)),
        base_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~Image() {
    if (there()) munmap(base_, bytes_);
  }
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;
  bool there() const { return base_ != MAP_FAILED; }
  std::byte* base() const { return static_cast<std::byte*>(base_); }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  void* base_;
};

/// Which ranks share memory with this one, itself among them, ascending; the same for all of them.
/// If all do, TCP is what somebody wants to see: then none but itself.
std::vector<int> near_ranks(const Opening& opening) {
  std::vector<int> near;
  const Peer& mine = opening.peers[static_cast<std::size_t>(opening.me)];
  for (std::size_t rank = 0; rank < opening.peers.size(); ++rank) {
    if (shared_memory_transport.reach(mine, opening.peers[rank]))
      near.push_back(static_cast<int>(rank));
  }
  if (near.size() == opening.peers.size()) near = {opening.me};
  return near;
}

/// The region that the ranks of this host share.
Result<std::unique_ptr<Endpoint>> open_near(const Opening& opening, const std::vector<int>& near,
                                            const RegionConfig& config) {
  std::vector<Peer> peers;
  for (const int rank : near) peers.push_back(opening.peers[static_cast<std::size_t>(rank)]);
  const auto me = std::find(near.begin(), near.end(), opening.me) - near.begin();
  const auto exchange = [&](std::string_view phase,
                            std::span<const std::byte> mine) -> Result<std::vector<Bytes>> {
    TUTTI_TRY(auto all, opening.exchange(phase, mine));
    std::vector<Bytes> of_near;
    for (const int rank : near) of_near.push_back(std::move(all[static_cast<std::size_t>(rank)]));
    return of_near;
  };
  return shared_memory_transport.open({.me = static_cast<int>(me),
                                       .peers = peers,
                                       .rank = opening.me,
                                       .config = config,
                                       .exchange = exchange,
                                       .deadline = opening.deadline});
}

class TcpEndpoint final : public Endpoint {
 public:
  /// `connections`: by rank; empty for those that are near.
  TcpEndpoint(std::unique_ptr<Endpoint> near, std::span<const int> near_ranks,
              std::unique_ptr<Image> image, const RegionConfig& config, int me,
              std::vector<std::vector<Connection>> connections)
      : near_(std::move(near)),
        image_(std::move(image)),
        near_index_(index_of(near_ranks, connections.size())),
        bases_(bases_of(near_index_, *near_, *image_)),
        region_(base_of(*near_), config, bases_.data()),
        mirror_(region_, me, std::move(connections), near_ranks.size() > 1) {}

  const Region& region() const override { return region_; }
  BufferName name(const void*, std::size_t) override { return {}; }
  Result<std::byte*> map(int peer, BufferName, std::size_t) override {
    return Error{Code::kSystem,
                 "tcp: no memory of rank " + std::to_string(peer) + " can be mapped"};
  }
  bool alive(int peer) const override {
    const int near = near_index_[static_cast<std::size_t>(peer)];
    return near >= 0 ? near_->alive(near) : !mirror_.failure(peer);
  }
  std::string why_dead(int peer) const override {
    const auto& failure = mirror_.failure(peer);
    return failure ? "can't be reached any more: " + failure->what : Endpoint::why_dead(peer);
  }
  Wire* wire() override { return &mirror_; }
  std::size_t shared_bytes() const override { return near_->shared_bytes(); }

 private:
  static std::byte* base_of(const Endpoint& near) {
    return reinterpret_cast<std::byte*>(&near.region().header());
  }
  static std::vector<int> index_of(std::span<const int> near_ranks, std::size_t count) {
    std::vector<int> index(count, -1);
    for (std::size_t i = 0; i < near_ranks.size(); ++i)
      index[static_cast<std::size_t>(near_ranks[i])] = static_cast<int>(i);
    return index;
  }
  static std::vector<std::byte*> bases_of(const std::vector<int>& near_index, const Endpoint& near,
                                          const Image& image) {
    std::vector<std::byte*> bases;
    for (const int index : near_index) bases.push_back(index >= 0 ? base_of(near) : image.base());
    return bases;
  }

  std::unique_ptr<Endpoint> near_;
  std::unique_ptr<Image> image_;
  std::vector<int> near_index_;    // By rank, in near_; -1: elsewhere.
  std::vector<std::byte*> bases_;  // By rank, of the region or the image.
  Region region_;
  Mirror mirror_;
};

bool on_one_host(std::span<const Peer> peers) {
  return std::all_of(peers.begin(), peers.end(), [&](const Peer& peer) {
    return peer.host[0] == peers[0].host[0] && peer.host[1] == peers[0].host[1];
  });
}

/// Rank 0 makes it; the rendezvous, which is believed, carries it.
Result<Secret> share_secret(const Opening& opening) {
  Secret secret{};
  if (opening.me == 0) {
    TUTTI_TRY(secret, random_bytes());
  }
  const std::span mine(secret.data(), opening.me == 0 ? secret.size() : 0);
  TUTTI_TRY(const auto all, opening.exchange("tcp secret", mine));
  if (all[0].size() != secret.size())
    return Error{Code::kMismatch, "tcp: rank 0 speaks another version"};
  std::memcpy(secret.data(), all[0].data(), secret.size());
  return secret;
}

Result<std::unique_ptr<Endpoint>> open(const Opening& opening) {
  TUTTI_TRY(const auto facts, probe_interfaces());
  TUTTI_TRY(auto chosen, choose_addresses(facts, {.rule = opening.net_interfaces,
                                                  .one_host = on_one_host(opening.peers)}));
  const std::vector<int> near = near_ranks(opening);
  Joining joining;
  joining.me = opening.me;
  joining.rank_count = static_cast<int>(opening.peers.size());
  for (int rank = 0; rank < joining.rank_count; ++rank) {
    if (std::find(near.begin(), near.end(), rank) == near.end()) joining.peers.push_back(rank);
  }
  TUTTI_TRY(joining.secret, share_secret(opening));
  joining.addresses = std::move(chosen.addresses);
  joining.exchange = opening.exchange;
  joining.deadline = opening.deadline;
  TUTTI_TRY(auto mesh, connect_mesh(joining));

  std::vector<std::vector<Connection>> connections(opening.peers.size());
  for (Connection& one : mesh.connections)
    connections[static_cast<std::size_t>(one.peer)].push_back(std::move(one));
  RegionConfig config = opening.config;
  config.wire = 1;
  TUTTI_TRY(auto shared, open_near(opening, near, config));
  auto image = std::make_unique<Image>(config);
  if (!image->there()) {
    return Error{Code::kSystem, "tcp: no memory for " + std::to_string(image->bytes()) + " bytes"};
  }
  return std::unique_ptr<Endpoint>(std::make_unique<TcpEndpoint>(
      std::move(shared), near, std::move(image), config, opening.me, std::move(connections)));
}

}  // namespace
}  // namespace tutti::tcp

namespace tutti {

constinit const Transport tcp_transport{
    .name = "tcp", .reach = [](const Peer&, const Peer&) { return true; }, .open = tcp::open};

}  // namespace tutti
