// A unique id: where the store of one job is, and the secret to join it, in 128 bytes.
//
//   mark "tui2" (4) · port u16 · count u8 · secret (32) · count addresses: 4 and an IPv4 address,
//   or 6 and an IPv6 address · zeros
//
// One server per process serves all its ids; each has a store and a secret of its own.
#include <arpa/inet.h>

#include <array>
#include <cstring>

#include "base/fork.h"
#include "bootstrap/limits.h"
#include "bootstrap/tcp_client.h"
#include "bootstrap/tcp_server.h"

namespace tutti {
namespace bootstrap {
namespace {

constexpr std::array<std::byte, 4> kMark{std::byte{'t'}, std::byte{'u'}, std::byte{'i'},
                                         std::byte{'2'}};
constexpr std::byte kIpv4{4}, kIpv6{6};

/// Walks over the bytes of an id; past the end nothing is moved any more.
class Walk {
 public:
  explicit Walk(std::size_t size) : size_(size) {}
  /// Where the next `count` bytes lie, if they fit.
  std::optional<std::size_t> next(std::size_t count) {
    if (count > size_ - at_) return std::nullopt;
    return std::exchange(at_, at_ + count);
  }

 private:
  std::size_t size_, at_ = 0;
};

template <class Value>
bool write(UniqueId& id, Walk& walk, const Value& value) {
  const auto at = walk.next(sizeof(value));
  if (at) std::memcpy(id.bytes.data() + *at, &value, sizeof(value));
  return at.has_value();
}

template <class Value>
bool read(const UniqueId& id, Walk& walk, Value& value) {
  const auto at = walk.next(sizeof(value));
  if (at) std::memcpy(&value, id.bytes.data() + *at, sizeof(value));
  return at.has_value();
}

bool write_address(UniqueId& id, Walk& walk, const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET) {
    sockaddr_in plain{};
    std::memcpy(&plain, &address.storage, sizeof(plain));
    Walk look = walk;
    if (!look.next(1 + sizeof(plain.sin_addr))) return false;
    return write(id, walk, kIpv4) && write(id, walk, plain.sin_addr);
  }
  sockaddr_in6 plain{};
  std::memcpy(&plain, &address.storage, sizeof(plain));
  Walk look = walk;
  if (!look.next(1 + sizeof(plain.sin6_addr))) return false;
  return write(id, walk, kIpv6) && write(id, walk, plain.sin6_addr);
}

/// The addresses that fit. Loopback comes first: right on this host, refused at once on others, and
/// the handshake tells an unauthenticated peer's store that happens to listen there.
UniqueId encode(const TcpServer& server, const Secret& secret) {
  auto addresses = own_addresses();
  addresses.insert(addresses.begin(), ipv4_address({htonl(INADDR_LOOPBACK)}, 0));
  UniqueId id;
  Walk walk(id.bytes.size());
  std::uint8_t count = 0;
  write(id, walk, kMark);
  write(id, walk, htons(static_cast<std::uint16_t>(server.port())));
  const auto count_at = walk.next(1);
  write(id, walk, secret);
  for (const SocketAddress& address : addresses) {
    if (write_address(id, walk, address)) ++count;
  }
  id.bytes[*count_at] = static_cast<std::byte>(count);
  return id;
}

Result<StorePlace> decode(const UniqueId& id) {
  const Error malformed{Code::kInvalidArgument,
                        "unique id: these 128 bytes were not made by make_unique_id; were they "
                        "carried to this rank whole?"};
  Walk walk(id.bytes.size());
  std::array<std::byte, 4> mark{};
  std::uint16_t port = 0;
  std::uint8_t count = 0;
  StorePlace place;
  read(id, walk, mark);
  read(id, walk, port);
  read(id, walk, count);
  read(id, walk, place.secret);
  if (mark != kMark || port == 0 || count == 0) return malformed;
  for (int i = 0; i < count; ++i) {
    std::byte family{};
    std::array<char, INET6_ADDRSTRLEN> text{};
    in_addr ipv4{};
    in6_addr ipv6{};
    if (!read(id, walk, family)) return malformed;
    if (family == kIpv4 && read(id, walk, ipv4))
      inet_ntop(AF_INET, &ipv4, text.data(), text.size());
    else if (family == kIpv6 && read(id, walk, ipv6))
      inet_ntop(AF_INET6, &ipv6, text.data(), text.size());
    else
      return malformed;
    place.candidates.emplace_back(text.data(), ntohs(port));
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

/// The server of all ids of this process. No job is ever removed from it, so it stays.
Result<std::shared_ptr<TcpServer>> id_server() {
  static std::shared_ptr<TcpServer> server;
  static pid_t owner = 0;
  const std::lock_guard lock(id_mutex);
  if (owner != getpid()) {  // The first time, and after a fork.
    TUTTI_TRY(auto listening, listen_at("", 0, Deadline::after(std::chrono::seconds(0))));
    TUTTI_TRY(server, TcpServer::start(std::move(listening), "unique ids"));
    owner = getpid();
  }
  return server;
}

}  // namespace
}  // namespace bootstrap

Result<UniqueId> make_unique_id() {
  TUTTI_TRY(const auto server, bootstrap::id_server());
  TUTTI_TRY(const bootstrap::Secret secret, tcp::random_bytes());
  TUTTI_RETURN_IF_ERROR(server->add(secret, std::make_shared<bootstrap::Store>()));
  return bootstrap::encode(*server, secret);
}

Result<std::unique_ptr<Rendezvous>> unique_id_rendezvous(const UniqueId& id, Deadline deadline) {
  TUTTI_TRY(auto place, bootstrap::decode(id));
  return bootstrap::TcpClient::connect(std::move(place), deadline);
}

}  // namespace tutti
