// Connections between all ranks: complete, authenticated, and made in spite of unauthenticated
// peers.
#include <arpa/inet.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <random>

#include "support/catch.h"
#include "support/net/streams.h"
#include "support/net/tcp_mesh.h"
#include "transport/tcp/endpoint_info.h"
#include "transport/tcp/mesh_builder.h"
#include "transport/tcp/network.h"

namespace tutti::tcp {
namespace {

using namespace std::chrono_literals;

/// Sends `mine` and receives as many bytes; empty if that fails.
std::string swap(const Connection& connection, const std::string& mine) {
  if (::send(connection.socket.get(), mine.data(), mine.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(mine.size())) {
    return "";
  }
  std::string theirs;
  while (theirs.size() < mine.size()) {
    pollfd polled{connection.socket.get(), POLLIN, 0};
    if (::poll(&polled, 1, 10'000) != 1) return "";
    std::array<char, 64> buffer{};
    const ssize_t got = ::recv(connection.socket.get(), buffer.data(),
                               std::min(buffer.size(), mine.size() - theirs.size()), 0);
    if (got <= 0) return "";
    theirs.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return theirs;
}

/// The rank at this end of the connection, its peer and the connection's index, in few bytes.
std::string signature(int rank, int peer, int index) {
  return std::string{static_cast<char>('a' + rank), static_cast<char>('a' + peer),
                     static_cast<char>('0' + index)};
}

/// What is wrong with the meshes of all ranks; empty: nothing.
std::string check_all(std::vector<Result<Mesh>>& meshes, int connections) {
  const int ranks = static_cast<int>(meshes.size());
  for (auto& mesh : meshes) {
    if (!mesh) return mesh.error().what;
  }
  std::vector<std::string> wrong(meshes.size());
  std::vector<std::thread> threads;
  for (int me = 0; me < ranks; ++me) {
    threads.emplace_back([&, me] {
      std::string& complaint = wrong[static_cast<std::size_t>(me)];
      const auto& all = meshes[static_cast<std::size_t>(me)]->connections;
      std::size_t next = 0;
      for (int peer = 0; peer < ranks; ++peer) {
        for (int index = 0; peer != me && index < connections; ++index, ++next) {
          if (next >= all.size() || all[next].peer != peer || all[next].index != index) {
            complaint = "connections are missing or out of order";
            return;
          }
          if (swap(all[next], signature(me, peer, index)) != signature(peer, me, index))
            complaint = "the other end of " + all[next].where + " is not who it should be";
          if (all[next].where.find("rank " + std::to_string(peer) + " (host" +
                                   std::to_string(peer) + ") over lo, 127.0.0.1:") != 0)
            complaint = "'" + all[next].where + "' does not say where it goes";
        }
      }
      if (next != all.size()) complaint = "there are connections that nobody wanted";
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& complaint : wrong) {
    if (!complaint.empty()) return complaint;
  }
  return "";
}

TEST_CASE("every two ranks are connected, each connection with its counterpart") {
  for (const int ranks : {1, 2, 3, 7}) {
    for (const int connections : {1, 3}) {
      INFO(ranks << " ranks, " << connections << " connections");
      auto meshes = test::join_mesh(ranks, [&](Joining& one) { one.connections = connections; });
      CHECK(check_all(meshes, connections) == "");
      for (auto& mesh : meshes) CHECK(mesh->unauthenticated == 0);
    }
  }
}

TEST_CASE("a rank whose exchange fails takes or refuses those that come, and no more") {
  // An all-gather can end well on one rank and fail on another, if a third one dies meanwhile.
  const auto meeting = memory_rendezvous();
  Joining one = test::joining(meeting, 0, 3);
  one.exchange = [whole = one.exchange](
                     std::string_view phase,
                     std::span<const std::byte> mine) -> Result<std::vector<Bytes>> {
    TUTTI_TRY(const auto all, whole(phase, mine));
    return Error{Code::kPeerFailed, "rank 2 has died", Rank{0}, Rank{2}};
  };
  std::atomic<bool> given_up{false};
  std::thread dying([&] {
    (void)test::joining(meeting, 2, 3).exchange("tcp", encode({"host2", {}}));
  });
  std::thread peer([&] {
    Joining other = test::joining(meeting, 1, 3);
    other.look = [&]() -> Status {
      return given_up ? Status(Error{Code::kPeerFailed, "rank 0 has given up"}) : ok();
    };
    (void)connect_mesh(other);
  });
  MeshBuilder builder(one);
  const auto made = builder.run();
  REQUIRE(!made);
  CHECK(made.error().peer.value == 2);
  Mesh reached;
  const auto end = std::chrono::steady_clock::now() + 30s;
  while (reached.connections.empty() && std::chrono::steady_clock::now() < end)
    reached = builder.reached();
  CHECK(reached.connections.size() == 1);
  given_up = true;
  peer.join();
  dying.join();
}

/// Connected sockets of this process over loopback.
std::vector<int> connected_sockets() {
  std::vector<int> found;
  for (int socket = 0; socket < 1024; ++socket) {
    if (far_end(socket).family() == AF_INET) found.push_back(socket);
  }
  return found;
}

TEST_CASE("connections that were lost are made anew while frames go on") {
  const std::uint32_t seed = Catch::rngSeed();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  auto meshes = test::join_mesh(2, [](Joining& one) { one.connections = 2; });
  for (const auto& mesh : meshes) REQUIRE(mesh);
  auto first = TcpNetwork::open(std::move(*meshes[0]), *Wakers::make(2), 2, {});
  auto second = TcpNetwork::open(std::move(*meshes[1]), *Wakers::make(2), 2, {});
  REQUIRE((first && second));
  TcpNetwork* const networks[] = {first->get(), second->get()};
  auto* const a = dynamic_cast<net::Rails*>(networks[0]->carrier(1));
  auto* const b = dynamic_cast<net::Rails*>(networks[1]->carrier(0));
  REQUIRE((a != nullptr && b != nullptr));
  const auto end = std::chrono::steady_clock::now() + 60s;
  for (int times = 0; times < 2; ++times) {
    const std::vector<int> sockets = connected_sockets();
    REQUIRE(sockets.size() == 4);
    ::shutdown(sockets[random() % sockets.size()], SHUT_RDWR);
    bool lost = false;
    const auto look = [&] { lost = lost || a->alive() + b->alive() < 4; };
    do {
      REQUIRE(exchange(*a, *b, random_load(random(), 30, 100'000),
                       random_load(random(), 30, 50'000), look) == "");
      REQUIRE(std::chrono::steady_clock::now() < end);
    } while (!lost || a->alive() + b->alive() < 4);
  }
}

/// How often this thread went to sleep.
long sleeps() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

TEST_CASE("who is out of descriptors does not wait for some, and goes on once there are") {
  auto meshes = test::join_mesh(2, [](Joining& one) { one.connections = 2; });
  for (const auto& mesh : meshes) REQUIRE(mesh);
  MeshBuilder& host = *meshes[0]->builder;
  MeshBuilder& pending = *meshes[1]->builder;
  CHECK_FALSE(host.again(1, 0));
  CHECK_FALSE(pending.again(0, 0));  // It stands at the listener.
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const rlimit none{0, limit.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  const long before = sleeps();
  for (int i = 0; i < 3; ++i) CHECK_FALSE(host.again(1, 0));
  const long after = sleeps();
  REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  CHECK(after == before);
  const auto end = std::chrono::steady_clock::now() + 60s;
  std::optional<Connection> here, there;
  while ((!here || !there) && std::chrono::steady_clock::now() < end) {
    if (!here) here = host.again(1, 0);
    if (!there) there = pending.again(0, 0);
  }
  CHECK((here && there));
}

TEST_CASE("over IPv6, and over all addresses of this machine") {
  const auto facts = probe_interfaces();
  REQUIRE(facts);
  const auto chosen = choose_addresses(*facts, {.one_host = true});
  REQUIRE(chosen);
  auto meshes = test::join_mesh(3, [&](Joining& one) { one.addresses = chosen->addresses; });
  for (auto& mesh : meshes) {
    REQUIRE(mesh);
    CHECK(mesh->connections.size() == 2);
  }
  const bool has_ipv6 = std::any_of(facts->begin(), facts->end(), [](const auto& fact) {
    return fact.address.length != 0 && fact.address.ip_text() == "::1";
  });
  if (!has_ipv6) return;
  auto over_ipv6 = test::join_mesh(3, [&](Joining& one) {
    one.addresses.front().address = ipv6_address(in6addr_loopback, 0);
    one.addresses.front().prefix_bits = 128;
  });
  for (auto& mesh : over_ipv6) {
    REQUIRE(mesh);
    CHECK(mesh->connections.front().where.find("over lo, [::1]:") != std::string::npos);
  }
}

TEST_CASE("only those who are named as peers are connected") {
  // Ranks 0 and 1 are on one host, 2 and 3 on another.
  auto meshes = test::join_mesh(4, [](Joining& one) {
    one.peers = one.me < 2 ? std::vector{3, 2} : std::vector{1, 0};
  });
  for (int me = 0; me < 4; ++me) {
    const auto& mesh = meshes[static_cast<std::size_t>(me)];
    REQUIRE(mesh);
    REQUIRE(mesh->connections.size() == 2);
    CHECK(mesh->connections[0].peer == (me < 2 ? 2 : 0));
    CHECK(mesh->connections[1].peer == (me < 2 ? 3 : 1));
  }
}

// Unauthenticated peers.

Fd connect_to(const SocketAddress& address) {
  Fd socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(socket.get(), address.get(), address.length) != 0) socket.reset();
  return socket;
}

/// Rank 1's end of a connection with rank 0; none: it was not let in.
Fd come_as_rank_1(const SocketAddress& listener, const Secret& secret, int index) {
  Fd socket = connect_to(listener);
  const timeval patience{.tv_sec = 10, .tv_usec = 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  auto handshake = Handshake::connector(secret, {.from = 1, .to = 0, .index = index});
  if (!socket || !handshake || !talk(socket.get(), *handshake) || !handshake->done()) return {};
  return socket;
}

TEST_CASE("a connection that is lost while other ranks still join is made anew") {
  Joining one = test::joining(nullptr, 0, 2);
  one.connections = 2;
  std::array<Fd, 2> first;
  Fd again;
  std::thread rank_1;
  SocketAddress listener;
  one.exchange = [&](std::string_view phase, std::span<const std::byte> mine) {
    const Bytes own(mine.begin(), mine.end());
    if (phase == "tcp") {
      listener = parse_endpoint_info(own)->addresses.front().address;
      rank_1 = std::thread([&] {
        for (int i = 0; i < 2; ++i)
          first[static_cast<std::size_t>(i)] = come_as_rank_1(listener, one.secret, i);
      });
    } else {  // Rank 0 has all its connections.
      rank_1.join();
      const linger reset{.l_onoff = 1, .l_linger = 0};
      setsockopt(first[1].get(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
      first[1].reset();
      again = come_as_rank_1(listener, one.secret, 1);
    }
    return Result<std::vector<Bytes>>(std::vector{own, own});
  };
  const auto mesh = connect_mesh(one);
  if (rank_1.joinable()) rank_1.join();
  REQUIRE(mesh);
  REQUIRE(again);
  REQUIRE(::send(again.get(), "rank 1", 6, MSG_NOSIGNAL) == 6);
  CHECK(swap(mesh->connections[1], "rank 0") == "rank 1");
}

/// Comes to a listener in all the ways that a scanner or a wrong client may; keeps what stays open.
void annoy(const SocketAddress& listener, std::vector<Fd>& open, std::uint32_t seed) {
  std::mt19937 random(seed);
  for (int i = 0; i < 150; ++i) {
    Fd socket = connect_to(listener);
    if (!socket) return;
    Secret wrong;
    wrong.fill(std::byte{7});
    const auto liar = Handshake::connector(wrong, {.from = 1, .to = 0});
    std::vector<std::byte> bytes;
    switch (random() % 5) {
      case 0: break;                                // Says nothing and stays.
      case 1: socket.reset(); continue;             // Says nothing and goes.
      case 2: bytes.resize(random() % 200); break;  // Zeros.
      case 3:                                       // A hello, or a part of it, without the secret.
        bytes.assign(liar->to_send().begin(), liar->to_send().end());
        bytes.resize(random() % bytes.size() + 1);
        break;
      default:
        for (std::uint32_t n = random() % 200; n > 0; --n)
          bytes.push_back(static_cast<std::byte>(random() % 256));
    }
    (void)::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    open.push_back(std::move(socket));
  }
}

TEST_CASE("unauthenticated peers neither get in nor hold up the ranks") {
  const std::uint32_t seed = Catch::rngSeed();
  INFO("seed " << seed);
  std::vector<std::vector<Fd>> open(3);
  auto meshes = test::join_mesh(3, [&](Joining& one) {
    one.connections = 2;
    const auto plain = one.exchange;
    one.exchange = [&, plain, me = one.me](std::string_view phase,
                                           std::span<const std::byte> mine) {
      auto infos = plain(phase, mine);
      // Between the exchange and the connecting: the listeners are open and nobody else has come.
      for (int rank = 0; infos && phase == "tcp" && me == 2 && rank < 3; ++rank) {
        const auto info = parse_endpoint_info((*infos)[static_cast<std::size_t>(rank)]);
        annoy(info->addresses.front().address, open[static_cast<std::size_t>(rank)],
              seed + static_cast<std::uint32_t>(rank));
      }
      return infos;
    };
  });
  CHECK(check_all(meshes, 2) == "");
  CHECK(meshes[0]->unauthenticated > 0);
}

TEST_CASE("silent unauthenticated peers are bounded in number: the oldest ones go") {
  constexpr int kUnauthenticated = 300;
  std::vector<Fd> open;
  auto meshes = test::join_mesh(2, [&](Joining& one) {
    const auto plain = one.exchange;
    one.exchange = [&, plain, me = one.me](std::string_view phase,
                                           std::span<const std::byte> mine) {
      auto infos = plain(phase, mine);
      // They stand before rank 1 in the queue of rank 0's listener.
      for (int i = 0; infos && me == 1 && i < kUnauthenticated; ++i)
        open.push_back(connect_to(parse_endpoint_info((*infos)[0])->addresses.front().address));
      return infos;
    };
  });
  CHECK(check_all(meshes, 1) == "");
  CHECK(meshes[0]->unauthenticated >=
        kUnauthenticated - 65);  // 64, and the one rank that is expected.
}

TEST_CASE("an address that leads nowhere, or to somebody else, is passed over") {
  // A server of somebody else: it accepts (the kernel does) and never says a word.
  const Fd silent(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  SocketAddress there = test::loopback_address().address;
  REQUIRE(::bind(silent.get(), there.get(), there.length) == 0);
  REQUIRE(::listen(silent.get(), 8) == 0);
  auto meshes = test::join_mesh(2, [&](Joining& one) {
    const auto plain = one.exchange;
    one.exchange = [&, plain](std::string_view phase, std::span<const std::byte> mine) {
      auto info = parse_endpoint_info(mine);
      const InterfaceAddress real = info->addresses.front();
      InterfaceAddress closed = real, foreign = real;
      closed.address.set_port(1);
      foreign.address.set_port(own_end(silent.get()).port());
      info->addresses = {closed, foreign, real};
      return plain(phase, encode(*info));
    };
  });
  CHECK(check_all(meshes, 1) == "");
}

// Failures.

/// Rank `absent` exchanges its card and is never seen again; what the others say.
std::vector<std::string> without(int absent, int ranks) {
  std::vector<std::string> said(static_cast<std::size_t>(ranks));
  auto meshes = test::join_mesh(
      ranks,
      [&](Joining& one) {
        if (one.me != absent) return;
        const auto plain = one.exchange;
        one.exchange = [plain](std::string_view phase, std::span<const std::byte> mine) {
          (void)plain(phase, mine);
          return Result<std::vector<Bytes>>(Error{Code::kAborted, "gone"});
        };
      },
      4s);
  for (std::size_t rank = 0; rank < said.size(); ++rank) {
    if (meshes[rank]) continue;
    said[rank] = meshes[rank].error().what;
    if (static_cast<int>(rank) == absent) continue;
    CHECK(meshes[rank].error().code == Code::kTimeout);
    CHECK(meshes[rank].error().peer == Rank{absent});
  }
  return said;
}

bool has(const std::string& text, std::string_view part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

TEST_CASE("a rank that never connects is named, with host, interface, address and remedy") {
  const auto said = without(1, 3);
  CHECK(said[1] == "gone");
  CHECK(has(said[0], "tcp: rank 0 (host0) waited "));
  CHECK(has(said[0], " s for rank 1: rank 1 (host1) did not come to lo 127.0.0.1:"));
  CHECK(has(said[2], " s for rank 1: rank 1 (host1) at lo 127.0.0.1:"));
  CHECK(has(said[2], "Connection refused"));
  for (const int rank : {0, 2}) {
    CHECK(has(said[static_cast<std::size_t>(rank)], "firewall"));
    CHECK(has(said[static_cast<std::size_t>(rank)], "TUTTI_NET_INTERFACES"));
  }
}

TEST_CASE("no rank accepts a rank with another secret") {
  auto meshes = test::join_mesh(
      3,
      [](Joining& one) {
        if (one.me == 1) one.secret.fill(std::byte{9});
      },
      4s);
  for (auto& mesh : meshes) {
    REQUIRE_FALSE(mesh);
    CHECK(mesh.error().code == Code::kTimeout);
  }
  CHECK(has(meshes[0].error().what, "for rank 1:"));
  CHECK(has(meshes[2].error().what, "for rank 1:"));
  CHECK(has(meshes[1].error().what, "for ranks 0, 2:"));
}

TEST_CASE("what makes no sense is refused before anything is opened") {
  const auto refused = [](const std::function<void(Joining&)>& change) {
    auto one = test::joining(memory_rendezvous(), 0, 2, 1s);
    change(one);
    const auto mesh = connect_mesh(one);
    REQUIRE_FALSE(mesh);
    CHECK(mesh.error().code == Code::kInvalidArgument);
    return mesh.error().what;
  };
  CHECK(has(refused([](Joining& one) { one.connections = 0; }), "it takes 1 to 64"));
  CHECK(has(refused([](Joining& one) { one.connections = 65; }), "it takes 1 to 64"));
  CHECK(has(refused([](Joining& one) { one.addresses.clear(); }), "no address"));
  CHECK(has(refused([](Joining& one) { one.peers = {1, 1}; }), "a peer twice"));
  CHECK(has(refused([](Joining& one) { one.peers = {0}; }), "rank 0 as a peer of rank 0"));
  CHECK(has(refused([](Joining& one) { one.peers = {2}; }), "rank 2 as a peer"));
}

TEST_CASE("addresses that can't be bound are left out, and named if there is no other") {
  auto one = test::joining(memory_rendezvous(), 0, 1, 1s);
  one.addresses.front().address = ipv4_address({htonl(0x08080808)}, 0);
  one.addresses.front().loopback = false;
  const auto none = connect_mesh(one);
  REQUIRE_FALSE(none);
  CHECK(none.error().code == Code::kSystem);
  CHECK(has(none.error().what, "lo 8.8.8.8"));
  one.addresses.push_back(test::loopback_address());
  CHECK(static_cast<bool>(connect_mesh(one)));
}

}  // namespace
}  // namespace tutti::tcp
