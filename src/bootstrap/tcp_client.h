// File: bootstrap/tcp_client.h: a rendezvous whose store lives in another process.
//
// One request at a time per connection; a thread that asks while another one waits for its answer
// opens a connection of its own. Idle connections are kept. Any thread.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/secure_link.h"
#include "bootstrap/sockets.h"
#include "bootstrap/wire.h"

namespace tutti::bootstrap {

/// Where a store may be, and how to know that it is the right one.
struct StorePlace {
  /// Hosts and ports to try, in turn.
  std::vector<std::pair<std::string, int>> candidates;
  Secret secret{};
  int client = kAnyClient;  // This client's rank, if it is known.
  std::string name;         // For messages: "10.0.0.1:29500".
  std::string keeper = "rank 0's store";
  Rank keeper_rank{0};     // The rank to blame if the store does not answer; -1: not known yet.
  bool kept_here = false;  // The store is this process's.
};

class TcpClient : public Rendezvous {
 public:
  /// Connects, and tries again until the deadline, and gives later requests as much time for their
  /// answers: kTimeout, with what went wrong last; kMismatch
  /// at once if the only candidate is a Tutti of another version.
  /// From then on until it has joined for the first time, the end of this process is told to all.
  static Result<std::unique_ptr<Rendezvous>> connect(StorePlace place, Deadline deadline);
  ~TcpClient() override;
  TcpClient(const TcpClient&) = delete;
  TcpClient& operator=(const TcpClient&) = delete;

  Status put(std::string_view key, std::span<const std::byte> value) override;
  Result<Bytes> get(std::string_view key, Deadline deadline) override;
  Status fail(const Error& error) override;
  void enter(Rank me) override;
  void leave() override;
  bool kept_here() const override { return place_.kept_here; }
  void kept_by(Rank keeper) override {
    const std::lock_guard lock(mutex_);
    keeper_rank_ = keeper;
  }

 private:
  struct Link {
    SecureLink link;
    bool entered = false;  // The store takes the connection's end for the end of this rank.
  };

  TcpClient(StorePlace place, std::chrono::milliseconds patience)
      : place_(std::move(place)), patience_(patience), keeper_rank_(place_.keeper_rank) {}
  Result<Link> open(Deadline deadline);
  Result<SecureLink> open_one(const SocketAddress& address, Deadline deadline, bool& refused);
  bool was_at(const SocketAddress& address, bool now);
  Result<Link> borrow(Deadline deadline);
  void give_back(Link link);
  void say_entered(Link& link, Rank me);
  void say_left(Link& link);
  /// Sends one request; the answer lies in `answer`, and the message points into it.
  Result<wire::Message> ask(const wire::Message& request, Bytes& answer, Deadline deadline);

  const StorePlace place_;
  // How long the store may take to answer a request that does not wait: as long as for connecting.
  const std::chrono::milliseconds patience_;
  std::mutex mutex_;
  Rank keeper_rank_;  // As place_ has it, or as kept_by has said since.
  std::vector<Link> idle_;
  bool lost_ = false;  // The store has gone, or no longer answers: send it nothing more.
  std::string seen_;   // The address at which the store has let this process in; empty: not yet.
  bool came_ = true;   // It has connected, and enter was not called yet.
  int joining_ = 1;    // Calls of enter without their leave, and `came_`.
  pid_t owner_ = -1;   // A forked child must not use its parent's connections.
};

/// Where the ranks of one job meet.
struct TcpMeeting {
  std::string host{};
  /// Rank 0 serves at the first one that is free; the others try them all, and know the store by
  /// the secret.
  std::vector<int> ports{};
  Secret secret{};
  bool guessable = false;  // The secret is derived from the job's name alone.
};

/// Rank 0 serves, the others connect until the deadline.
Result<std::unique_ptr<Rendezvous>> meet(const TcpMeeting& meeting, Rank me, Deadline deadline);

}  // namespace tutti::bootstrap
