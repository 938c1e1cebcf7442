// The options that connections are made with: which congestion control they take.
#include <netinet/tcp.h>

#include <array>
#include <string>

#include "support/net/streams.h"

namespace tutti::tcp {
namespace {

std::string congestion_control(int socket) {
  std::array<char, 17> name{};
  socklen_t size = name.size() - 1;
  REQUIRE(getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(), &size) == 0);
  return name.data();
}

/// A socket that has `name` as if the system had chosen it; closed if it is not allowed here.
Fd socket_with(const std::string& name) {
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int set = setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(),
                             static_cast<socklen_t>(name.size()));
  return set == 0 ? std::move(socket) : Fd();
}

TEST_CASE("what paces is replaced, and nothing else") {
  bool any = false;
  for (const std::string name : {"bbr", "bbr2", "cubic", "reno", "dctcp"}) {
    const Fd socket = socket_with(name);
    if (!socket) continue;
    any = true;
    set_options(socket.get(), std::chrono::seconds(5), std::chrono::seconds(5));
    INFO(name);
    CHECK(congestion_control(socket.get()) == (name.starts_with("bbr") ? "reno" : name));
  }
  CHECK(any);  // Reno is everywhere.
}

TEST_CASE("who is accepted has it of the door") {
  const Fd listener = socket_with("bbr");
  if (!listener) {
    WARN("not tested: this system has no bbr");
    return;
  }
  set_options(listener.get(), std::chrono::seconds(5), std::chrono::seconds(5));
  SocketAddress address = ipv4_address({htonl(INADDR_LOOPBACK)}, 0);
  REQUIRE(::bind(listener.get(), address.get(), address.length) == 0);
  REQUIRE(::listen(listener.get(), 1) == 0);
  address = own_end(listener.get());
  const Fd there(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::connect(there.get(), address.get(), address.length) == 0);
  const Fd here(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  CHECK(congestion_control(here.get()) == "reno");
}

}  // namespace
}  // namespace tutti::tcp
