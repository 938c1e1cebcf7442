#include "transport/net/endpoint.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/mapped_memory.h"
#include "transport/net/replicator.h"

namespace tutti::net {
namespace {

/// Which ranks are of this one's host, itself among them, ascending; the same for all of them.
std::vector<int> near_ranks(const std::vector<int>& hosts, int me) {
  std::vector<int> near;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    if (hosts[rank] == hosts[static_cast<std::size_t>(me)]) near.push_back(static_cast<int>(rank));
  }
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
                                       .ranks = near,
                                       .rank = opening.me,
                                       .config = config,
                                       .exchange = exchange,
                                       .deadline = opening.deadline,
                                       .look = opening.look});
}

std::byte* base_of(const Endpoint& near) {
  return reinterpret_cast<std::byte*>(&near.region().header());
}

class NetEndpoint final : public Endpoint {
 public:
  NetEndpoint(std::string_view name, std::vector<int> hosts, std::unique_ptr<Endpoint> near,
              std::span<const int> near_ranks, MappedMemory replica, const RegionConfig& config,
              const Opening& opening, std::unique_ptr<Network> network)
      : name_(name),
        hosts_(std::move(hosts)),
        near_(std::move(near)),
        replica_(std::move(replica)),
        near_index_(index_of(near_ranks, config.rank_count)),
        bases_(bases_of(near_index_, *near_, replica_.get())),
        gpudirect_hosts_(opening.gpudirect.hosts.begin(), opening.gpudirect.hosts.end()),
        gpudirect_{.memory = opening.gpudirect.memory, .hosts = gpudirect_hosts_},
        region_(region_of(opening, config)),
        cost_(network->cost()),
        nics_(network->nics()),
        replicator_(region_, opening.me, std::move(network),
                    {.near = opening.near_waits && near_ranks.size() > 1,
                     .on_machine = on_machine(opening),
                     .flush = opening.gpudirect.flush}) {}

  const Region& region() const override { return region_; }
  std::span<const int> hosts() const override { return hosts_; }
  BufferName name(const void* data, std::size_t bytes) override { return near_->name(data, bytes); }
  Result<std::byte*> map(int peer, BufferName name, std::size_t bytes) override {
    const int near = near_index_[static_cast<std::size_t>(peer)];
    if (near >= 0) return near_->map(near, name, bytes);
    return Error{Code::kSystem, name_ + ": rank " + std::to_string(peer) +
                                    " is of another host: its memory can't be mapped"};
  }
  bool alive(int peer) const override {
    const int near = near_index_[static_cast<std::size_t>(peer)];
    return near >= 0 ? near_->alive(near) : !replicator_.failure(peer);
  }
  std::string why_dead(int peer) const override {
    const auto& failure = replicator_.failure(peer);
    return failure ? "can't be reached any more: " + failure->what : Endpoint::why_dead(peer);
  }
  RemoteLink* remote_link() override { return &replicator_; }
  NetworkCost network_cost() const override { return cost_; }
  NicsUsed nics() const override { return nics_; }
  std::size_t shared_bytes() const override { return near_->shared_bytes(); }

 private:
  Region region_of(const Opening& opening, const RegionConfig& config) {
    Region region(base_of(*near_), config, bases_.data());
    if (gpudirect_.there()) region.use_gpudirect_slots(opening.me, gpudirect_);
    return region;
  }
  static std::vector<bool> on_machine(const Opening& opening) {
    std::vector<bool> local;
    for (const Peer& peer : opening.peers)
      local.push_back(on_one_machine(peer, opening.peers[static_cast<std::size_t>(opening.me)]));
    return local;
  }
  static std::vector<int> index_of(std::span<const int> near_ranks, std::size_t count) {
    std::vector<int> index(count, -1);
    for (std::size_t i = 0; i < near_ranks.size(); ++i)
      index[static_cast<std::size_t>(near_ranks[i])] = static_cast<int>(i);
    return index;
  }
  static std::vector<std::byte*> bases_of(const std::vector<int>& near_index, const Endpoint& near,
                                          std::byte* replica) {
    std::vector<std::byte*> bases;
    for (const int index : near_index) bases.push_back(index >= 0 ? base_of(near) : replica);
    return bases;
  }

  std::string name_;
  std::vector<int> hosts_;  // By rank.
  std::unique_ptr<Endpoint> near_;
  MappedMemory replica_;
  std::vector<int> near_index_;    // By rank, in near_; -1: elsewhere.
  std::vector<std::byte*> bases_;  // By rank, of the region or the replica.
  std::vector<int> gpudirect_hosts_;
  GpuDirectSlots gpudirect_;
  Region region_;
  NetworkCost cost_;
  NicsUsed nics_;
  Replicator replicator_;
};

}  // namespace

bool on_one_host(std::span<const Peer> peers) {
  return std::all_of(peers.begin(), peers.end(), [&](const Peer& peer) {
    return peer.host[0] == peers[0].host[0] && peer.host[1] == peers[0].host[1];
  });
}

Result<std::unique_ptr<Endpoint>> open_endpoint(
    const Opening& opening, std::string_view name,
    const std::function<Result<Connected>(const Joining&)>& connect) {
  if (opening.config.slot_bytes > kMostFrameBytes) {  // Alike on all ranks: nobody waits.
    return Error{Code::kInvalidArgument,
                 fmt::format("{}: slots of {} bytes; between hosts TUTTI_SLOT_BYTES is at most {}M",
                             name, opening.config.slot_bytes, kMostFrameBytes >> 20)};
  }
  std::vector<int> hosts = hosts_of(opening.peers);
  const std::vector<int> near = near_ranks(hosts, opening.me);
  RegionConfig config = opening.config;
  config.replica = 1;
  config.gpudirect = opening.gpudirect.there() ? 1 : 0;
  TUTTI_TRY(auto shared, open_near(opening, near, config));
  const std::size_t bytes = Region::bytes_for(config);
  // What others have in the region, for this rank alone. Only what is touched takes memory.
  MappedMemory replica = map_memory(bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
  if (replica == nullptr)
    return Error{Code::kSystem, fmt::format("{}: no memory for {} bytes", name, bytes)};
  Joining joining{.opening = opening,
                  .far = {},
                  .near = {base_of(*shared), bytes},
                  .replica = {replica.get(), bytes}};
  for (int rank = 0; rank < static_cast<int>(opening.peers.size()); ++rank) {
    if (std::find(near.begin(), near.end(), rank) == near.end()) joining.far.push_back(rank);
  }
  auto connected = connect(joining);
  if (!connected) {
    shared->end_joining(connected.error(), Rank{opening.rank});
    return std::move(connected.error());
  }
  std::unique_ptr<Endpoint> endpoint = std::make_unique<NetEndpoint>(
      name, std::move(hosts), std::move(shared), near, std::move(replica), config, opening,
      std::move(connected->network));
  if (connected->all) return endpoint;
  endpoint->end_joining(connected->all.error(), Rank{opening.rank});
  return std::move(connected->all.error());
}

}  // namespace tutti::net
