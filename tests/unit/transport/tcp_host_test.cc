// Ranks with the same boot and the same network namespace count as one host, whatever its name.
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <optional>

#include "support/catch.h"
#include "transport/transport.h"

namespace tutti {
namespace {

/// What a new process says of itself; with `away` from a network namespace of its own. Empty if the
/// system makes none for us.
std::optional<Peer> peer_in_child(bool away) {
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  const pid_t child = fork();
  if (child == 0) {
    // Root may; others may where they can be root in a user namespace.
    const bool moved =
        !away || unshare(CLONE_NEWNET) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
    const Peer peer = this_process();
    const bool said = moved && write(ends[1], &peer, sizeof(peer)) == sizeof(peer);
    _exit(said ? 0 : 1);
  }
  close(ends[1]);
  Peer peer;
  const bool got = read(ends[0], &peer, sizeof(peer)) == sizeof(peer);
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return got ? std::optional(peer) : std::nullopt;
}

bool same_host(const Peer& a, const Peer& b) {
  return a.host[0] == b.host[0] && a.host[1] == b.host[1];
}

TEST_CASE("processes of one network namespace are on one host") {
  const auto other = peer_in_child(false);
  REQUIRE(other);
  CHECK(same_host(this_process(), *other));
  CHECK(shared_memory_transport.reach(this_process(), *other));
}

TEST_CASE("two network namespaces of one machine are two hosts") {
  const auto a = peer_in_child(true), b = peer_in_child(true);
  if (!a || !b) {
    WARN("not tested: this system makes no network namespaces for this user");
    return;
  }
  CHECK_FALSE(same_host(this_process(), *a));
  CHECK_FALSE(same_host(this_process(), *b));
  CHECK(a->host[0] == this_process().host[0]);  // The boot is the same.
  for (const Peer& away : {*a, *b}) {
    CHECK_FALSE(shared_memory_transport.reach(this_process(), away));
    CHECK_FALSE(in_process_transport.reach(this_process(), away));
  }
}

}  // namespace
}  // namespace tutti
