// A unique id: where the store of one job is, and the secret to join it, in 128 bytes.
//
//   mark "tui2" (4) · port u16 · count u8 · secret (32) · count addresses: 4 and an IPv4 address,
//   or 6 and an IPv6 address · zeros
//
// One server per process serves all its ids; each has a store and a secret of its own.
#include <arpa/inet.h>

#include <array>

#include "base/bytes.h"
#include "base/fork.h"
#include "bootstrap/limits.h"
#include "bootstrap/tcp_client.h"
#include "bootstrap/tcp_server.h"

namespace tutti {
namespace bootstrap {
namespace {

constexpr std::array<std::byte, 4> kMark{std::byte{'t'}, std::byte{'u'}, std::byte{'i'},
                                         std::byte{'2'}};
constexpr std::uint8_t kIpv4 = 4, kIpv6 = 6;

/// The addresses that fit. Loopback comes first: right on this host, refused at once on others, and
/// the handshake tells an unauthenticated peer's store that happens to listen there.
UniqueId encode(const TcpServer& server, const Secret& secret) {
  auto addresses = own_addresses();
  addresses.insert(addresses.begin(), ipv4_address({htonl(INADDR_LOOPBACK)}, 0));
  UniqueId id;
  ByteWriter writer(id.bytes);
  writer.copy(kMark);
  writer.number(htons(static_cast<std::uint16_t>(server.port())));
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
    place.candidates.emplace_back(ip_address(ip, 0).ip_text(), port);
  }
  // Named by an address that means something to people.
  const auto& named = place.candidates.back();
  place.name = place.candidates.size() > 1 ? place.candidates[1].first : named.first;
  place.name += ":" + std::to_string(named.second);
  place.keeper = "the unique id's store";
  place.keeper_rank = Rank{};  // Not known: any process may have made the id.
  return place;
}

constinit std::mutex id_mutex;
const HeldAcrossFork id_held(ForkOrder::kUniqueIds, []() -> std::mutex& { return id_mutex; });

/// The server of all ids of a process. No job is ever removed from it, so it stays.
struct IdServer {
  std::shared_ptr<TcpServer> server;
  pid_t owner = 0;  // The process that started it: a forked child has none.
};

/// Under id_mutex.
IdServer& id_server() {
  static IdServer of_this_process;
  return of_this_process;
}

/// The one of this process; the first time, and after a fork, it is started.
Result<std::shared_ptr<TcpServer>> started_id_server() {
  const std::lock_guard lock(id_mutex);
  auto& [server, owner] = id_server();
  if (owner != getpid()) {
    TUTTI_TRY(auto listening, listen_at("", 0, Deadline::after(std::chrono::seconds(0))));
    TUTTI_TRY(server, TcpServer::start(std::move(listening), "unique ids"));
    owner = getpid();
  }
  return server;
}

/// Whether this process made the id that has the secret.
bool made_here(const Secret& secret) {
  const std::lock_guard lock(id_mutex);
  const auto& [server, owner] = id_server();
  return owner == getpid() && server->serves(secret);
}

}  // namespace
}  // namespace bootstrap

Result<UniqueId> make_unique_id() {
  TUTTI_TRY(const auto server, bootstrap::started_id_server());
  TUTTI_TRY(const bootstrap::Secret secret, tcp::random_bytes());
  TUTTI_RETURN_IF_ERROR(server->add(secret, std::make_shared<bootstrap::Store>()));
  return bootstrap::encode(*server, secret);
}

Result<std::unique_ptr<Rendezvous>> unique_id_rendezvous(const UniqueId& id, Deadline deadline) {
  TUTTI_TRY(auto place, bootstrap::decode(id));
  place.kept_here = bootstrap::made_here(place.secret);
  return bootstrap::TcpClient::connect(std::move(place), deadline);
}

}  // namespace tutti
