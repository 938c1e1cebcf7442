// The TCP store under a flood of unauthenticated peers.
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include "bootstrap/secure_link.h"
#include "bootstrap/sockets.h"
#include "bootstrap/tcp_server.h"
#include "support/catch.h"
#include "tutti/rendezvous.h"

namespace tutti::bootstrap {
namespace {

using namespace std::chrono_literals;

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

TEST_CASE(
    "a flood of silent strangers takes a bounded number of descriptors, and keeps nobody out") {
  constexpr std::size_t kFlood = 400;
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 1024);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  const auto address = [](int at) {
    return ipv4_address({htonl(INADDR_LOOPBACK)}, static_cast<std::uint16_t>(at));
  };
  int free_port = 0;
  {
    const auto other = listen_at("127.0.0.1", 0, Deadline::after(10s));
    REQUIRE(other);
    free_port = other->port;
  }
  const auto host = tcp_rendezvous("127.0.0.1", free_port, Rank{0}, Deadline::after(10s), "secret");
  REQUIRE(host);
  const std::size_t before = open_descriptors();
  std::vector<Fd> unauthenticated;
  for (std::size_t i = 0; i < kFlood; ++i) {
    auto one = connect_to(address(free_port), Deadline::after(10s));
    REQUIRE(one);
    unauthenticated.push_back(*std::move(one));
    if (i % 100 == 99) {
      const auto client =
          tcp_rendezvous("127.0.0.1", free_port, Rank{1}, Deadline::after(20s), "secret");
      REQUIRE(client);
      REQUIRE((*client)->put("k", {}));
    }
  }
  // The unauthenticated peers' own ends, and those that the store keeps; clients that left may
  // still be there.
  CHECK(open_descriptors() <= before + kFlood + TcpServer::kMostUnauthenticated + 8);
}

}  // namespace
}  // namespace tutti::bootstrap
