// TCP transport: ranks on any hosts, over authenticated connections (tcp/mesh.h).
#include <cstring>

#include "transport/net/endpoint.h"
#include "transport/tcp/mesh.h"
#include "transport/tcp/network.h"

namespace tutti::tcp {
namespace {

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

Result<std::unique_ptr<net::Network>> connect(const net::Joining& to) {
  const Opening& opening = to.opening;
  TUTTI_TRY(const auto facts, probe_interfaces());
  TUTTI_TRY(auto chosen, choose_addresses(facts, {.rule = opening.net_interfaces,
                                                  .one_host = net::on_one_host(opening.peers)}));
  Joining joining;
  joining.me = opening.me;
  joining.rank_count = static_cast<int>(opening.peers.size());
  joining.peers = to.far;
  TUTTI_TRY(joining.secret, share_secret(opening));
  joining.addresses = std::move(chosen.addresses);
  joining.exchange = opening.exchange;
  joining.deadline = opening.deadline;
  TUTTI_TRY(auto mesh, connect_mesh(joining));

  std::vector<std::vector<Connection>> connections(opening.peers.size());
  for (Connection& one : mesh.connections)
    connections[static_cast<std::size_t>(one.peer)].push_back(std::move(one));
  return std::unique_ptr<net::Network>(std::make_unique<TcpNetwork>(std::move(connections)));
}

Result<std::unique_ptr<Endpoint>> open(const Opening& opening) {
  return net::open_endpoint(opening, "tcp", connect);
}

}  // namespace
}  // namespace tutti::tcp

namespace tutti {

constinit const Transport tcp_transport{
    .name = "tcp", .reach = [](const Peer&, const Peer&) { return true; }, .open = tcp::open};

}  // namespace tutti
