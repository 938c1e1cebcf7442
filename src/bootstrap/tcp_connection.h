// File: bootstrap/tcp_connection.h: what a TcpServer holds for every job and every client.
//
// Only for the two files of the server: tcp_server.cc (life, events, time) and tcp_requests.cc
// (bytes in, answers out). On the server's thread only.
#pragma once
#include <atomic>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "bootstrap/secure_link.h"
#include "bootstrap/tcp_server.h"
#include "bootstrap/wire.h"

namespace tutti::bootstrap {

struct TcpServer::Job {
  Secret secret{};
  std::uint64_t number = 0;  // That hellos have: job_of(secret).
  std::shared_ptr<Store> store;
  // Who waits for which key.
  std::unordered_map<std::string, std::vector<std::uint64_t>> waiting;
  // Clients that join, and those that have asked and not got all of their answer.
  // relaxed: who looks at it only sleeps a little longer or shorter.
  std::atomic<int> owed{0};
  // It has failed, and its maker has left; under the server's mutex.
  std::optional<std::chrono::steady_clock::time_point> verdict_until;
  std::set<int> clients;  // That have joined, by their ranks; on the server's thread.
};

struct TcpServer::Connection {
  std::uint64_t id = 0;
  Fd socket;
  std::string peer, source;  // Its address, with the port and without.
  // Its first message, until it is complete: it says which job, and so which secret.
  Bytes hello;
  std::shared_ptr<Job> sought;
  std::optional<tcp::Handshake> handshake;
  std::shared_ptr<Job> job;  // Once it has proved that it knows the secret.
  std::optional<Opener> opener;
  std::optional<Sealer> sealer;
  wire::FrameReader reader{wire::kMostFrameBytes};
  std::string key;      // What its get waits for; empty: it does not.
  bool asked = false;   // Counted in the job's `owed`.
  bool silent = false;  // Since it was let in; counted there, too.
  // The rank that joins a communicator, and its process; empty: none. The connection's end is its.
  std::optional<Rank> joining;
  std::string process;
  std::chrono::steady_clock::time_point timer{};
  // The answer on its way: a head, then a body that others may be sent too.
  Bytes head;
  SharedBytes body;
  std::size_t sealed = 0;  // Of both.
  Bytes record;            // What was sealed last,
  std::size_t sent = 0;    // and how much of that is on its way.
  bool blocked = false;    // The socket takes no more for now; epoll says when it does.

  bool answering() const { return !head.empty(); }
};

/// epoll_ctl, with an Error.
Status watch(int epoll, int operation, int descriptor, std::uint32_t events, std::uint64_t id);

}  // namespace tutti::bootstrap
