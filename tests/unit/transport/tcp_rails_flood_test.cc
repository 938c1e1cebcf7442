// A flood of strangers at the listener that stays open for lost rails.
#include <sys/socket.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "support/catch.h"
#include "support/net/tcp_mesh.h"
#include "transport/tcp/mesh_builder.h"

namespace tutti::tcp {
namespace {

using namespace std::chrono_literals;

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

TEST_CASE("a flood of silent strangers takes few descriptors, and a lost rail comes back in it") {
  constexpr std::size_t kFlood = 400, kKept = 64 + 2;  // With the two that are expected.
  SocketAddress listener;
  auto meshes = test::join_mesh(2, [&](Joining& one) {
    one.connections = 2;
    const auto plain = one.exchange;
    one.exchange = [&, plain, me = one.me](std::string_view phase,
                                           std::span<const std::byte> mine) {
      auto infos = plain(phase, mine);
      if (infos && phase == "tcp" && me == 1)
        listener = parse_endpoint_info((*infos)[0])->addresses.front().address;
      return infos;
    };
  });
  for (const auto& mesh : meshes) REQUIRE(mesh);
  MeshBuilder& host = *meshes[0]->builder;
  MeshBuilder& calling = *meshes[1]->builder;
  for (auto& mesh : meshes) mesh->connections.front().socket.reset();  // Rail 0 is lost.
  const std::size_t before = open_descriptors();
  std::vector<Fd> strangers;
  for (std::size_t i = 0; i < kFlood; ++i) {
    Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(socket.get(), listener.get(), listener.length) == 0);
    strangers.push_back(std::move(socket));
  }
  const auto end = std::chrono::steady_clock::now() + 60s;
  std::optional<Connection> here, there;
  std::size_t most = 0;
  while ((!here || !there) && std::chrono::steady_clock::now() < end) {
    if (!here) here = host.again(1, 0);
    if (!there) there = calling.again(0, 0);
    most = std::max(most, open_descriptors());
  }
  REQUIRE((here && there));
  CHECK(here->socket);
  // Those of the strangers themselves, those that are kept, and both ends of the rail.
  CHECK(most <= before + kFlood + kKept + 4);
}

}  // namespace
}  // namespace tutti::tcp
