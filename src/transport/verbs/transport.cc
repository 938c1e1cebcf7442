// RDMA transport: ranks on hosts with InfiniBand or RoCE devices, written to by libibverbs.
#include "transport/net/endpoint.h"
#include "transport/verbs/connect.h"

namespace tutti::verbs {
namespace {

Result<std::unique_ptr<Endpoint>> open(const Opening& opening) {
  return net::open_endpoint(opening, "verbs", [](const net::Joining& to) -> Result<net::Connected> {
    TUTTI_TRY(auto network, connect(to, probe_ports()));
    return net::Connected{std::move(network)};
  });
}

Result<std::vector<std::string>> cards(const Opening& opening) {
  return try_cards(opening, probe_ports());
}

}  // namespace
}  // namespace tutti::verbs

namespace tutti {

constinit const Transport verbs_transport{
    .name = "verbs",
    .joins = "ranks that have active RDMA devices of one kind, and libibverbs",
    .reach = [](const Peer& self, const Peer& peer) { return (self.rdma & peer.rdma) != 0; },
    .open = verbs::open,
    // A hundred gigabits a second, as such devices' makers say; not measured on one.
    .network = {.link = {2, 10}, .message_us = 0.3},
    // The configuration that it was measured with.
    .longest_slot = std::size_t{256} << 10,
    .cards = verbs::cards};

}  // namespace tutti
