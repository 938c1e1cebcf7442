// Ranks that meet at a TCP store: rank 0 serves it, the others connect.
#include <atomic>
#include <thread>

#include "base/log.h"
#include "bootstrap/launch/launch.h"
#include "bootstrap/limits.h"
#include "bootstrap/tcp_client.h"
#include "bootstrap/tcp_server.h"

namespace tutti {
namespace bootstrap {
namespace {

// A previous run may still have the port for a moment.
constexpr std::chrono::seconds kPortPatience{3};

/// Rank 0's own side: it uses its store directly.
class TcpHost : public LocalRendezvous {
 public:
  TcpHost(std::shared_ptr<Store> store, std::shared_ptr<TcpServer> server, const Secret& secret)
      : LocalRendezvous(std::move(store)), server_(std::move(server)), secret_(secret) {}
  ~TcpHost() override { server_->remove(secret_); }
  Status fail(const Error& error) override {
    TUTTI_RETURN_IF_ERROR(LocalRendezvous::fail(error));
    // This process may end right after this; waiting clients have to learn why first.
    server_->answer_all(secret_, Deadline::after(TcpServer::kTellTime));
    return ok();
  }
  TcpHost(const TcpHost&) = delete;
  TcpHost& operator=(const TcpHost&) = delete;

 private:
  std::shared_ptr<TcpServer> server_;
  Secret secret_;
};

Result<std::unique_ptr<Rendezvous>> host_at(const std::shared_ptr<TcpServer>& server,
                                            const Secret& secret) {
  auto store = std::make_shared<Store>();
  TUTTI_RETURN_IF_ERROR(server->add(secret, store));
  return std::unique_ptr<Rendezvous>(std::make_unique<TcpHost>(std::move(store), server, secret));
}

/// Rank 0 warns once in a process.
void warn_of_no_secret(const std::string& place) {
  static std::atomic<bool> warned{false};
  // relaxed: only that one thread is first matters.
  if (warned.exchange(true, std::memory_order_relaxed)) return;
  log::warn(
      log::Part::kJoin,
      "rendezvous: this job has no secret: any process that knows its name and reaches {} can join "
      "it; set TUTTI_SECRET to the same random text for all ranks (as tutti run does)",
      place);
}

std::string place_name(const std::string& host, int port) {
  return host + ":" + std::to_string(port);
}

Result<std::unique_ptr<Rendezvous>> host(const TcpMeeting& meeting, Deadline deadline) {
  const Deadline patience = Deadline::after(kPortPatience);
  for (;;) {
    Error last;
    for (const int port : meeting.ports) {
      const std::string place = place_name(meeting.host, port);
      if (const auto server = find_server(place)) {  // This process's own: one port, many jobs.
        auto hosted = host_at(server, meeting.secret);
        if (hosted || hosted.error().code == Code::kInvalidArgument) return hosted;
      }
      auto listening = listen_at(meeting.host, port, deadline);
      if (listening) {
        TUTTI_TRY(const auto server, TcpServer::start(*std::move(listening), place));
        return host_at(server, meeting.secret);
      }
      last = std::move(listening.error());
    }
    if (patience.passed() || deadline.passed()) return last;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace

Result<std::unique_ptr<Rendezvous>> meet(const TcpMeeting& meeting, Rank me, Deadline deadline) {
  if (me.value == 0) {
    if (meeting.guessable) warn_of_no_secret(place_name(meeting.host, meeting.ports.front()));
    return host(meeting, deadline);
  }
  StorePlace place;
  place.secret = meeting.secret;
  place.client = me.value;
  for (const int port : meeting.ports) place.candidates.emplace_back(meeting.host, port);
  place.name = place_name(meeting.host, meeting.ports.front());
  if (meeting.ports.size() > 1)
    place.name += " (and " + std::to_string(meeting.ports.size() - 1) + " other ports)";
  return TcpClient::connect(std::move(place), deadline);
}

}  // namespace bootstrap

Result<std::unique_ptr<Rendezvous>> tcp_rendezvous(const std::string& host, int port, Rank me,
                                                   Deadline deadline, std::string_view secret,
                                                   std::string_view job) {
  if (host.empty() || host.size() > 255 || port < 1 || port > 65535 || me.value < 0) {
    return Error{Code::kInvalidArgument,
                 "tcp_rendezvous: rank " + std::to_string(me.value) + " at '" +
                     host.substr(0, 255) + "' port " + std::to_string(port) +
                     ": it takes a rank from 0, a host name, and a port from 1 to 65535"};
  }
  const std::string known =
      secret.empty() ? bootstrap::secret_of_environment() : std::string(secret);
  return bootstrap::meet({.host = host,
                          .ports = {port},
                          .secret = bootstrap::key_of(known, job),
                          .guessable = known.empty()},
                         me, deadline);
}

}  // namespace tutti
