// TCP transport: ranks on any hosts. Every rank has an image of the region of its own; a wire over
// authenticated connections with every other rank keeps the images alike (mirror.h).
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "transport/tcp/mesh.h"
#include "transport/tcp/mirror.h"
#include "transport/transport.h"

namespace tutti::tcp {
namespace {

/// One rank's image of the region. Only what is touched takes memory.
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

class TcpEndpoint final : public Endpoint {
 public:
  TcpEndpoint(std::unique_ptr<Image> image, const Region& region, int me,
              std::vector<std::vector<Connection>> connections)
      : image_(std::move(image)), region_(region), mirror_(region, me, std::move(connections)) {}

  const Region& region() const override { return region_; }
  BufferName name(const void*, std::size_t) override { return {}; }
  Result<std::byte*> map(int peer, BufferName, std::size_t) override {
    return Error{Code::kSystem,
                 "tcp: no memory of rank " + std::to_string(peer) + " can be mapped"};
  }
  bool alive(int peer) const override { return !mirror_.failure(peer); }
  std::string why_dead(int peer) const override {
    const auto& failure = mirror_.failure(peer);
    return failure ? "can't be reached any more: " + failure->what : Endpoint::why_dead(peer);
  }
  Wire* wire() override { return &mirror_; }
  std::size_t shared_bytes() const override { return image_->bytes(); }

 private:
  std::unique_ptr<Image> image_;
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
  Joining joining;
  joining.me = opening.me;
  joining.rank_count = static_cast<int>(opening.peers.size());
  for (int rank = 0; rank < joining.rank_count; ++rank) {
    if (rank != opening.me) joining.peers.push_back(rank);
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
  auto image = std::make_unique<Image>(config);
  if (!image->there()) {
    return Error{Code::kSystem, "tcp: no memory for " + std::to_string(image->bytes()) + " bytes"};
  }
  Region region(image->base(), config);
  region.format();
  return std::unique_ptr<Endpoint>(
      std::make_unique<TcpEndpoint>(std::move(image), region, opening.me, std::move(connections)));
}

}  // namespace
}  // namespace tutti::tcp

namespace tutti {

constinit const Transport tcp_transport{
    .name = "tcp", .reach = [](const Peer&, const Peer&) { return true; }, .open = tcp::open};

}  // namespace tutti
