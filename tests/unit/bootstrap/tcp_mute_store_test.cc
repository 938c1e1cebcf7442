// A store that lets a rank in, and then says nothing more: each request ends in time.
#include <poll.h>

#include <atomic>
#include <thread>

#include "bootstrap/secure_link.h"
#include "bootstrap/sockets.h"
#include "support/catch.h"
#include "transport/tcp/mesh_builder.h"
#include "tutti/rendezvous.h"

namespace tutti::bootstrap {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

/// Proves that it knows the secret, lets clients in, and never answers.
class MuteStore {
 public:
  explicit MuteStore(const Secret& secret) : secret_(secret) {
    auto listening = listen_at("127.0.0.1", 0, Deadline::after(10s));
    REQUIRE(listening);
    port = listening->port;
    listener_ = std::move(listening->sockets.front());
    thread_ = std::thread([this] { serve(); });
  }
  ~MuteStore() {
    stop_ = true;
    thread_.join();
  }
  MuteStore(const MuteStore&) = delete;
  MuteStore& operator=(const MuteStore&) = delete;

  int port = 0;

 private:
  void serve() {
    std::vector<Fd> clients;
    while (!stop_) {
      pollfd listening{listener_.get(), POLLIN, 0};
      if (::poll(&listening, 1, 10) != 1) continue;
      clients.emplace_back(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK));
      let_in(clients.back().get());
    }
  }
  void let_in(int client) const {
    auto handshake = tcp::Handshake::acceptor(secret_, kStoreEnd, kStoreProtocol);
    while (handshake && !handshake->done() && !stop_) {
      pollfd talking{client, POLLIN, 0};
      ::poll(&talking, 1, 10);
      if (!tcp::talk(client, *handshake)) return;
      if (!handshake->proven()) continue;
      handshake->welcome();
      (void)tcp::talk(client, *handshake);
      return;
    }
  }

  Secret secret_;
  Fd listener_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

TEST_CASE("a request to a store that never answers ends at the time limit, and names rank 0") {
  const MuteStore store(key_of("secret", "tcp_rendezvous"));
  constexpr auto kLimit = 2s;
  const auto client =
      tcp_rendezvous("127.0.0.1", store.port, Rank{1}, Deadline::after(kLimit), "secret");
  REQUIRE(client);
  const auto start = steady_clock::now();
  const Status put = (*client)->put("k", {});
  const auto took = steady_clock::now() - start;
  REQUIRE_FALSE(put);
  CHECK(put.error().code == Code::kPeerFailed);
  CHECK(put.error().peer == Rank{0});
  CHECK_THAT(put.error().what, Catch::Contains("rank 0's store at 127.0.0.1:"));
  CHECK(took > 1s);
  CHECK(took < 30s);
  // It is given up: to tell it of a failure takes no time.
  const auto then = steady_clock::now();
  CHECK_FALSE((*client)->fail({Code::kAborted, "over"}));
  CHECK(steady_clock::now() - then < 1s);
}

}  // namespace
}  // namespace tutti::bootstrap
