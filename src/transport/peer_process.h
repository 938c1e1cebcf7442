// File: transport/peer_process.h: whether another process of this machine still runs.
//
// A process descriptor (pidfd_open(2)) tells that whatever children of the process live on, and
// needs no right to trace it.
#pragma once
#include <cstdint>
#include <memory>

#include "base/fd.h"
#include "transport/transport.h"

namespace tutti {

/// The namespace of process numbers that this process is in; 0: not known.
std::uint64_t own_pid_namespace();

class PeerProcess {
 public:
  /// One of which nothing is known.
  PeerProcess() = default;
  /// `pid_namespace`: the peer's; in another one its number means nothing. To be opened soon after
  /// the peer has said who it is. Communicators share the descriptor. Any thread.
  static PeerProcess open(const Peer& peer, std::uint64_t pid_namespace);
  /// Whether it is known to have ended.
  bool ended() const;

 private:
  std::shared_ptr<const Fd> descriptor_;
};

}  // namespace tutti
