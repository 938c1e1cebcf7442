// A unique id: where the store of one job is, and the secret to join it, in 128 bytes.
//
//   mark "tui2" (4) · port u16 · count u8 · secret (32) · count addresses: 4 and an IPv4 address,
//   or 6 and an IPv6 address · zeros
//
// One server per process serves all its ids; each has a store and a secret of its own. There are
// more servers if ids are asked for by different interfaces.
#include <arpa/inet.h>

#include <array>
#include <map>
#include <vector>

#include "base/bytes.h"
#include "base/fork.h"
#include "base/net/interfaces.h"
#include "bootstrap/limits.h"
#include "bootstrap/tcp_client.h"
#include "bootstrap/tcp_server.h"

namespace tutti {
namespace bootstrap {
namespace {

constexpr std::array<std::byte, 4> kMark{std::byte{'t'}, std::byte{'u'}, std::byte{'i'},
                                         std::byte{'2'}};
constexpr std::uint8_t kIpv4 = 4, kIpv6 = 6;

/// What a store that listens everywhere is reached by. Loopback comes first: right on this host,
/// refused at once on others, and the handshake tells an unauthenticated peer's store that happens
/// to listen there.
std::vector<SocketAddress> all_addresses() {
  auto addresses = own_addresses();
  addresses.insert(addresses.begin(), ipv4_address({htonl(INADDR_LOOPBACK)}, 0));
  return addresses;
}

/// The addresses of the interfaces that fit the rule. Loopback is one of them if the rule names it,
/// or if it only excludes others and nothing else is there: the ranks may all be on this host.
Result<std::vector<SocketAddress>> addresses_of(std::string_view rule) {
  TUTTI_TRY(auto facts, tcp::probe_interfaces());
  // A link-local address means nothing without the interface it is on, for which an id has no room.
  std::erase_if(facts, [](const tcp::InterfaceAddress& one) {
    return one.address.family() == AF_INET6 && one.address.is_link_local();
  });
  auto chosen = tcp::choose_addresses(facts, {.rule = rule});
  if (!chosen) {
    auto here = tcp::choose_addresses(facts, {.rule = rule, .one_host = true});
    if (!here) return std::move(chosen.error());
    chosen = std::move(here);
  }
  std::vector<SocketAddress> addresses;
  for (const tcp::InterfaceAddress& one : chosen->addresses) addresses.push_back(one.address);
  return addresses;
}

/// With those of the addresses that fit.
UniqueId encode(int port, std::span<const SocketAddress> addresses, const Secret& secret) {
  UniqueId id;
  ByteWriter writer(id.bytes);
  writer.copy(kMark);
  writer.number(htons(static_cast<std::uint16_t>(port)));
  std::byte& count = id.bytes[id.bytes.size() - writer.room()];
  writer.number(std::uint8_t{0});
  writer.copy(secret);
  for (const SocketAddress& address : addresses) {
    if (1 + address.ip().size() > writer.room()) continue;
    writer.number(address.family() == AF_INET ? kIpv4 : kIpv6);
    writer.copy(address.ip());
    count = static_cast<std::byte>(std::to_integer<int>(count) + 1);
  }
  return id;
}

Result<StorePlace> decode(const UniqueId& id) {
  const Error malformed{Code::kInvalidArgument,
                        "unique id: these 128 bytes are none that Tutti made; were they carried to "
                        "this rank whole?"};
  ByteReader reader(id.bytes);
  StorePlace place;
  const auto mark = reader.take(kMark.size());
  const int port = ntohs(reader.number<std::uint16_t>());
  const auto count = reader.number<std::uint8_t>();
  std::ranges::copy(reader.take(place.secret.size()), place.secret.begin());
  if (!std::ranges::equal(mark, kMark) || port == 0 || count == 0) return malformed;
  for (int i = 0; i < count; ++i) {
    const auto family = reader.number<std::uint8_t>();
    const auto ip = reader.take(family == kIpv4 ? sizeof(in_addr) : sizeof(in6_addr));
    if ((family != kIpv4 && family != kIpv6) || ip.empty()) return malformed;
    const SocketAddress address = ip_address(ip, 0);
    place.candidates.emplace_back(address.ip_text(), port);
    // Named by an address that means something to people.
    if (place.name.empty() && !address.is_loopback()) place.name = address.ip_text();
  }
  if (place.name.empty()) place.name = place.candidates.front().first;
  place.name += ":" + std::to_string(port);
  place.keeper = "the unique id's store";
  place.keeper_rank = Rank{};  // Not known: any process may have made the id.
  return place;
}

constinit std::mutex id_mutex;
const HeldAcrossFork id_held(ForkOrder::kUniqueIds, []() -> std::mutex& { return id_mutex; });

/// The servers of all ids of a process. No job is ever removed from them, so they stay.
struct IdServers {
  std::map<std::string, std::shared_ptr<TcpServer>> by_addresses;  // "": everywhere.
  pid_t owner = 0;  // The process that started them: a forked child has none.
};

/// Under id_mutex.
IdServers& id_servers() {
  static IdServers of_this_process;
  return of_this_process;
}

/// The one of this process that listens at these addresses, or everywhere if there are none; the
/// first time, and after a fork, it is started.
Result<std::shared_ptr<TcpServer>> started_id_server(std::span<const SocketAddress> addresses) {
  std::string key;
  for (const SocketAddress& address : addresses) key += address.ip_text() + " ";
  const std::lock_guard lock(id_mutex);
  auto& [servers, owner] = id_servers();
  if (owner != getpid()) servers.clear();
  owner = getpid();
  std::shared_ptr<TcpServer>& server = servers[key];
  if (server == nullptr) {
    TUTTI_TRY(auto listening, addresses.empty()
                                  ? listen_at("", 0, Deadline::after(std::chrono::seconds(0)))
                                  : listen_at(addresses));
    TUTTI_TRY(server, TcpServer::start(std::move(listening), "unique ids"));
  }
  return server;
}

/// Whether this process made the id that has the secret.
bool made_here(const Secret& secret) {
  const std::lock_guard lock(id_mutex);
  const auto& [servers, owner] = id_servers();
  return owner == getpid() && std::ranges::any_of(servers, [&](const auto& entry) {
           return entry.second != nullptr && entry.second->serves(secret);
         });
}

}  // namespace
}  // namespace bootstrap

Result<UniqueId> make_unique_id(std::string_view interfaces) {
  std::vector<SocketAddress> addresses;
  if (!interfaces.empty()) {
    TUTTI_TRY(addresses, bootstrap::addresses_of(interfaces));
  }
  TUTTI_TRY(const auto server, bootstrap::started_id_server(addresses));
  TUTTI_TRY(const bootstrap::Secret secret, tcp::random_bytes());
  TUTTI_RETURN_IF_ERROR(server->add(secret, std::make_shared<bootstrap::Store>()));
  if (addresses.empty()) addresses = bootstrap::all_addresses();
  return bootstrap::encode(server->port(), addresses, secret);
}

Result<std::unique_ptr<Rendezvous>> unique_id_rendezvous(const UniqueId& id, Deadline deadline) {
  TUTTI_TRY(auto place, bootstrap::decode(id));
  place.kept_here = bootstrap::made_here(place.secret);
  return bootstrap::TcpClient::connect(std::move(place), deadline);
}

}  // namespace tutti
