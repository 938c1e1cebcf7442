// File: transport/tcp/mesh_builder.h: the state while a mesh is being made.
//
// Only for its files: mesh.cc (set-up, the loop, what is missing at the end), mesh_calls.cc (our
// way to others) and mesh_guests.cc (who comes to us). One thread.
#pragma once
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "transport/tcp/mesh.h"

namespace tutti::tcp {

class MeshBuilder {
 public:
  explicit MeshBuilder(const Joining& joining);
  Result<Mesh> run();

 private:
  using Time = std::chrono::steady_clock::time_point;

  struct Door {
    Fd socket;
    InterfaceAddress address;  // With its port.
  };
  /// Somebody who came to a door and has not proved itself.
  struct Guest {
    Fd socket;
    Handshake handshake;
    std::string name;  // Its address.
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
    std::string last;  // What went wrong last.
  };

  // mesh.cc
  Status open_doors();
  Status exchange_cards();
  Status make_calls();
  Status loop();
  int milliseconds_to_next() const;
  bool complete() const;
  std::size_t slot(int peer, int index) const;
  void keep(int peer, int index, Fd socket);
  Error missing() const;
  std::string missing_peer(int peer) const;
  std::string name(int peer) const;  // "rank 3 (node7)".
  std::string interface_of(const SocketAddress& own) const;

  // mesh_calls.cc
  void start(Call& call);
  void on_call(Call& call);
  void fail(Call& call, const std::string& what);
  void end_calls(Time now);

  // mesh_guests.cc
  void on_door(const Door& door);
  void on_guest(std::uint64_t id);
  /// Lets a proven guest in; false if it may not come in.
  bool admit(Guest& guest);
  void send_away(std::uint64_t id, const std::string& why);
  void end_guests(Time now);

  const Joining& joining_;
  const std::chrono::milliseconds silence_;
  const Time start_;
  Fd epoll_;
  std::vector<Door> doors_;
  std::vector<Card> cards_;  // By rank.
  std::vector<Call> calls_;
  std::map<std::uint64_t, Guest> guests_;  // Ids grow: the first one is the oldest.
  std::uint64_t next_guest_ = 0;
  std::size_t most_guests_ = 0;
  std::vector<int> slots_;  // By rank: where its connections begin in mesh_, or -1.
  Mesh mesh_;
};

// What an event is about, in the upper bits of its number.
enum class About : std::uint64_t { kDoor = 0, kCall = 1, kGuest = 2 };
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
