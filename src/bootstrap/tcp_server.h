// File: bootstrap/tcp_server.h: serves stores over TCP, on a thread of its own.
//
// A server has some listening sockets and any number of jobs, told apart by their secrets; a client
// proves that it knows one of them (base/net/handshake.h) and from then on sees only that store,
// over a sealed connection (secure_link.h). A connection that does not prove this within kJoinTime
// is closed. If there are too many such connections, one is closed at once (base/net/evict.h):
// there may be kMostStrangers, and at most an eighth of the descriptors that the process may have.
//
// Life: a server listens while it has a job. After the last job was removed it only serves the
// clients that it still has (they may not have read everything yet), and then its thread ends. A
// process that ends waits a moment for them too.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/fork.h"
#include "bootstrap/secure_link.h"
#include "bootstrap/sockets.h"
#include "bootstrap/store.h"
#include "bootstrap/wire.h"

namespace tutti::bootstrap {

/// It has more than 20 functions: one for each request of a client and each event of the loop.
class TcpServer : public std::enable_shared_from_this<TcpServer> {
 public:
  static constexpr std::chrono::seconds kJoinTime{10};
  static constexpr std::size_t kMostUnauthenticated = 128;
  /// How long the end of the process is put off for clients that are still connected.
  static constexpr std::chrono::seconds kLingerTime{1};
  /// How long rank 0 waits after a failure until all joining ranks have learnt of it.
  static constexpr std::chrono::seconds kTellTime{3};
  /// For how long late ranks learn why a job has failed.
  static constexpr std::chrono::minutes kVerdictTime{5};

  /// Starts the thread. `place` is what find_server looks for.
  static Result<std::shared_ptr<TcpServer>> start(Listening listening, std::string place);

  ~TcpServer();

  int port() const { return port_; }
  const std::string& place() const { return place_; }

  // These may be called from any thread.
  /// Serves `store` to peers that know the secret. kInvalidArgument if a job has it already,
  /// kPeerFailed if the server has stopped listening.
  Status add(const Secret& secret, const std::shared_ptr<Store>& store);
  /// Whether a job has the secret.
  bool serves(const Secret& secret) const { return find_job(secret) != nullptr; }
  /// Lets no client join that job any more. A job that has failed is still served for kVerdictTime,
  /// or until the same job is added again, so that late ranks learn why.
  void remove(const Secret& secret);
  /// Waits until all clients of the job have asked and got their answers, and all joining ones have
  /// left or heard of the failure.
  void answer_all(const Secret& secret, Deadline deadline) const;
  /// Clients that have joined and not left.
  std::size_t clients() const;

 private:
  struct Job;
  struct Connection;
  using Time = std::chrono::steady_clock::time_point;
  using Timer = std::pair<Time, std::uint64_t>;

  TcpServer(Listening listening, std::string place);
  Status prepare();
  void wake();
  std::shared_ptr<Job> find_job(const Secret& secret) const;

  // On the server's thread only.
  void serve();
  void accept_all(int listener);
  /// Closes a connection that has not proved itself, if there is one.
  void evict(const char* why);
  void watch_listeners(bool watched);
  void stop_listening();
  void on_event(std::uint64_t id, std::uint32_t events);
  // These say false when the connection is to be closed.
  bool read(Connection& connection);
  bool read_hello(Connection& connection);
  bool read_handshake(Connection& connection, std::span<const std::byte> bytes);
  bool shake(Connection& connection, std::span<const std::byte> bytes);
  bool let_in(Connection& connection);
  bool read_requests(Connection& connection);
  bool handle(Connection& connection, std::span<const std::byte> frame);
  bool serve_request(Connection& connection, const wire::Message& message);
  bool handle_get(Connection& connection, const wire::Message& message);
  bool reply(Connection& connection, const wire::Message& message, SharedBytes body = nullptr);
  bool seal_next(Connection& connection);
  bool flush(Connection& connection);
  bool handle_enter(Connection& connection, const wire::Message& message);
  void note_spoken(Connection& connection);
  void note_left(Connection& connection);
  void note_asked(Connection& connection, bool asked);
  void end_verdicts();
  int milliseconds_to_next() const;
  void answer_changes();
  void answer_waiter(std::uint64_t id);
  void end_timers();
  void set_timer(Connection& connection, Time at);
  void clear_timer(Connection& connection);
  void stop_waiting(Connection& connection);
  void close(std::uint64_t id);

  const std::string place_;
  int port_ = 0;
  Fd epoll_, wake_;

  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Job>> jobs_;
  std::vector<std::pair<std::weak_ptr<Job>, std::string>> changes_;
  bool listening_ = true;    // Until the last job is removed.
  std::size_t clients_ = 0;  // Joined connections.

  std::vector<Fd> listeners_;
  std::vector<std::unique_ptr<ClosedInChild>> listeners_closed_in_child_;
  std::map<std::uint64_t, std::unique_ptr<Connection>> connections_;
  std::set<Timer> timers_;
  std::uint64_t next_id_ = 1;
  std::size_t most_unauthenticated_ = 0,
              unauthenticated_ = 0;  // Connections that have not proved themselves.
  bool starved_ = false;             // No descriptor was left, and the log says so.
  // When a verdict ends next, and when to listen again; Time::max(): not at all.
  Time next_verdict_end_ = Time::max(), listen_again_ = Time::max();
};

/// The server of this process that listens at `place`, or null.
std::shared_ptr<TcpServer> find_server(const std::string& place);

}  // namespace tutti::bootstrap
