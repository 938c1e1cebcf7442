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

#include "base/fork.h"
#include "bootstrap/secure_link.h"
#include "bootstrap/tcp_server.h"
#include "bootstrap/wire.h"

namespace tutti::bootstrap {

struct TcpServer::Job {
  Secret secret{};
  std::uint64_t number = 0;  // The job's number in a hello: job_of(secret).
  std::shared_ptr<Store> store;
  // The connections that wait, and their keys.
  std::unordered_map<std::string, std::vector<std::uint64_t>> waiting;
  // Clients that join, and clients that have asked and not yet got their whole answer.
  // relaxed: a thread that reads it only sleeps a little longer or shorter.
  std::atomic<int> owed{0};
  // Set once the job has failed and its maker has left; under the server's mutex.
  std::optional<std::chrono::steady_clock::time_point> verdict_until;
  std::set<int> clients;  // The ranks that have joined; on the server's thread.
};

/// It has more than 15 fields: buffers, time limits and pending requests of one client.
struct TcpServer::Connection {
  std::uint64_t id = 0;
  Fd socket;
  ClosedInChild closed_in_child{socket};  // Else the client would not see this process's end.
  std::string peer, source;               // Its address, with the port and without.
  // Its first message, until it is complete: it says which job, and so which secret.
  Bytes hello;
  std::shared_ptr<Job> sought;
  std::optional<tcp::Handshake> handshake;
  std::shared_ptr<Job> job;  // Set once the client has proved that it knows the secret.
  std::optional<Opener> opener;
  std::optional<Sealer> sealer;
  wire::FrameReader reader{wire::kMostFrameBytes};
  std::string key;      // The key for which its get waits; empty: none waits.
  bool asked = false;   // It has asked, and the job's `owed` counts it.
  bool silent = false;  // It has not asked since it was let in; `owed` counts that, too.
  // The rank that joins a communicator, and its process; empty: none. If the connection ends, this
  // rank has ended.
  std::optional<Rank> joining;
  std::string process;
  std::chrono::steady_clock::time_point timer{};
  // The answer on its way: a head, then a body that others may be sent too.
  Bytes head;
  SharedBytes body;
  std::size_t sealed = 0;  // Bytes of head and body that are sealed.
  Bytes record;            // The record that was sealed last,
  std::size_t sent = 0;    // and how many bytes of it were sent.
  bool blocked = false;    // The socket takes no more for now; epoll says when it does.

  bool answering() const { return !head.empty(); }
};

/// epoll_ctl, with an Error.
Status watch(int epoll, int operation, int descriptor, std::uint32_t events, std::uint64_t id);

}  // namespace tutti::bootstrap
