// File: bootstrap/tcp_rendezvous.h: a TCP rendezvous among several candidate ports.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/secure_link.h"
#include "tutti/rendezvous.h"

namespace tutti::bootstrap {

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
