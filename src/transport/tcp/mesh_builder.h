// File: transport/tcp/mesh_builder.h: the state while a mesh is being made, and for connections
// that are made anew.
//
// Its files are mesh.cc (set-up, the loop, missing ranks at the end), mesh_calls.cc (outgoing
// connections) and mesh_pending.cc (incoming connections). One thread at a time.
#pragma once
#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "transport/tcp/mesh.h"

namespace tutti::tcp {

/// How long things take: while all join, and later, when each end looks only now and then.
struct MeshTimes {
  std::chrono::milliseconds pending;
  // For one attempt at one address, doubled while nobody answers. An address that leads nowhere
  // must not use up the time, and a rank that is busy must get its chance.
  std::chrono::milliseconds first_patience, longest_patience;
  // After all addresses of a peer have failed; doubled likewise.
  std::chrono::milliseconds first_pause, longest_pause;
};

/// It has more than 20 functions: one for each event of a connection that is being made.
class MeshBuilder {
 public:
  explicit MeshBuilder(const Joining& joining);
  /// Once.
  Result<Mesh> run();
  /// After it has failed: the connections that it has made since the last time.
  Mesh reached();
  /// After that, for a connection that both ends know to be lost: moves on what is under way, and
  /// never waits. The new one, once there is one. To be called again and again, by both.
  std::optional<Connection> again(int peer, int index);
  /// A connection that again() has begun, or would give, is of no use to the peer any more.
  void drop(int peer, int index);

 private:
  using Time = std::chrono::steady_clock::time_point;

  /// A connection, by place in mesh_.
  struct Wanted {
    bool wanted = true;
    std::string own;  // This rank's address, once it is known.
  };
  struct Listener {
    Fd socket;
    InterfaceAddress address;  // With its port.
  };
  /// An incoming connection that has not passed the handshake.
  struct PendingConnection {
    Fd socket;
    Handshake handshake;
    std::string name, source;  // Its address, with the port and without.
    Time until;
  };
  /// A connection that this rank has to make.
  struct Call {
    int peer = 0, index = 0;
    std::vector<Candidate> candidates;
    std::size_t candidate = 0;  // Which one is tried.
    Fd socket;                  // None: pausing, or done.
    bool connected = false;     // As far as TCP is concerned.
    std::optional<Handshake> handshake;
    std::chrono::milliseconds patience{0}, pause{0};
    Time next;         // When to start the next attempt, or to give up this one.
    int failures = 0;  // In a row.
    std::string last;  // The last error.
  };

  // mesh.cc
  Status open_listeners();
  void expect_peers();
  Status exchange_endpoint_info();
  Status make_calls();
  Status loop();
  Status await_all();
  Status round(int longest_ms);
  int milliseconds_to_next() const;
  bool complete() const {
    return std::none_of(wanted_.begin(), wanted_.end(),
                        [](const Wanted& one) { return one.wanted; });
  }
  std::size_t slot(int peer, int index) const;
  void keep(int peer, int index, Fd socket);
  static Connection take(Connection& connection);
  Mesh take_all();
  Error missing() const;
  std::string missing_peer(int peer) const;
  std::vector<int> missing_ranks() const;
  std::string describe_missing(const std::vector<int>& ranks) const;
  std::string name(int peer) const;  // "rank 3 (node7)".
  std::string interface_of(const SocketAddress& own) const;

  // mesh_calls.cc
  void start(Call& call);
  void on_call(Call& call);
  void fail(Call& call, const std::string& what);
  void begin(Call& call, Time when);
  Call* call_of(int peer, int index);
  bool bind_own(const Call& call) const;
  void end_calls(Time now);

  // mesh_pending.cc
  void on_listener(const Listener& listener);
  void watch_listeners(bool watched);
  void on_pending(std::uint64_t id);
  /// Lets a proven pending connection in; false if it may not come in.
  bool admit(PendingConnection& pending);
  void send_away(std::uint64_t id, const std::string& why);
  /// Closes one unauthenticated connection when there are too many.
  void evict(const std::string& why);
  void end_pending(Time now);

  Joining joining_;
  const std::chrono::milliseconds silence_;
  const std::chrono::milliseconds host_timeout_;  // See Connection.
  const Time start_;
  Fd epoll_;
  std::vector<Listener> listeners_;
  std::optional<Time> listeners_paused_until_;  // Nobody looks at them before.
  std::vector<EndpointInfo> endpoints_;         // By rank.
  std::vector<Call> calls_;
  std::map<std::uint64_t, PendingConnection> pending_;  // Ids grow: the first one is the oldest.
  std::uint64_t next_pending_ = 0;
  std::size_t most_pending_ = 0;
  std::vector<int> slots_;  // By rank: where its connections begin in mesh_, or -1.
  MeshTimes times_;
  Mesh mesh_;  // Keeps the facts about connections that were handed out.
  std::vector<Wanted> wanted_;
};

// An event's subject, in the upper bits of its number.
enum class About : std::uint64_t { kListener = 0, kCall = 1, kPending = 2, kStop = 3 };
inline constexpr int kAboutShift = 62;
constexpr std::uint64_t event_number(About about, std::uint64_t index) {
  return static_cast<std::uint64_t>(about) << kAboutShift | index;
}

/// Adds, changes or removes what epoll watches.
Status watch(int epoll, int operation, int descriptor, std::uint32_t events, std::uint64_t number);

/// Carries the messages of a handshake as far as the socket goes without waiting. An error says
/// why the connection is of no use.
Status talk(int socket, Handshake& handshake);

}  // namespace tutti::tcp
