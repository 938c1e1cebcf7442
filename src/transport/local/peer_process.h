// File: transport/local/peer_process.h: whether another process of this machine still runs.
//
// A process descriptor (pidfd_open(2)) shows this even if children of the process live on. It needs
// no right to trace the process.
#pragma once
#include <cstdint>
#include <memory>

#include "base/fd.h"
#include "transport/transport.h"

namespace tutti {

/// This process's namespace of process numbers; 0: not known.
std::uint64_t own_pid_namespace();

class PeerProcess {
 public:
  /// A process about which nothing is known.
  PeerProcess() = default;
  /// `pid_namespace` is the peer's; if this process has another one, nothing is known. Open it soon
  /// after the peer has sent its number. Communicators share the descriptor. Any thread.
  static PeerProcess open(const Peer& peer, std::uint64_t pid_namespace);
  /// Whether it is known to have ended.
  bool ended() const;

 private:
  std::shared_ptr<const Fd> descriptor_;
};

}  // namespace tutti
