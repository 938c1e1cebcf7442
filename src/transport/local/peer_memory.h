// File: transport/local/peer_memory.h: reads and writes memory of another process as it is, with
// one copy by the kernel (process_vm_readv, process_vm_writev).
//
// The model. Every process has a mark: its random number (Peer::process), kept at an address that
// it tells its peers. Each read fetches the mark as well, in the same system call, so bytes are
// never taken for a peer's that come from a process which has got the number of one that ended.
// A write looks at the mark right before: numbers are given in turn, so all others would have to be
// used up in between.
//
// The kernel decides which process may access which (same user, Yama's ptrace_scope, seccomp,
// namespaces of process numbers). A read of the mark and a write behind it find out.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "transport/transport.h"
#include "tutti/result.h"

namespace tutti {

/// The address of this process's mark, for its peers. Any thread.
std::uint64_t own_mark();

/// Another process's memory. Plain data; holds nothing.
class PeerMemory {
 public:
  PeerMemory(const Peer& peer, std::uint64_t mark)
      : process_{peer.process[0], peer.process[1]}, mark_(mark), pid_(peer.pid) {}

  /// Whether that memory can be read and written. Errors as of read.
  Status try_out() const;

  /// Copies `bytes` from the address `from` there to `to` here; with 0 bytes it only looks whether
  /// that is possible. kPeerFailed if the process has ended, kSystem if it has no such memory or
  /// the kernel forbids it; then `to` may be written in part. The text follows "rank 3". Any
  /// thread.
  Status read(std::uint64_t from, std::byte* to, std::size_t bytes) const;
  /// Copies `bytes` from `from` here to the address `to` there. Errors as of read; then `to` may be
  /// written in part. Any thread.
  Status write(const std::byte* from, std::uint64_t to, std::size_t bytes) const;

 private:
  std::array<std::uint64_t, 2> process_;
  std::uint64_t mark_;
  std::int32_t pid_;
};

}  // namespace tutti
