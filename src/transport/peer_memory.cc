#include "transport/peer_memory.h"

#include <sys/uio.h>

#include <algorithm>
#include <mutex>

#include <fmt/format.h>

namespace tutti {
namespace {

using Mark = std::array<std::uint64_t, 2>;

/// The kernel moves at most 2 GiB less a page in one call.
constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;

void* address(std::uint64_t at) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(at)); }

Error why_not(int error, std::uint64_t from, std::size_t bytes) {
  if (error == ESRCH) return {Code::kPeerFailed, "has ended, so its memory can't be read"};
  return {Code::kSystem,
          fmt::format("has {} bytes at {:#x} that can't be read: {}; buffers must stay until the "
                      "call is over",
                      bytes, from, std::generic_category().message(error))};
}

}  // namespace

std::uint64_t own_mark() {
  static std::mutex mutex;
  static Mark mark;
  const Peer self = this_process();
  const std::lock_guard lock(mutex);
  mark = {self.process[0], self.process[1]};  // Another one after a fork.
  return reinterpret_cast<std::uintptr_t>(mark.data());
}

Status PeerMemory::read(std::uint64_t from, std::byte* to, std::size_t bytes) const {
  do {
    const std::size_t part = std::min(bytes, kMostAtOnce);
    Mark seen{};
    // The mark first: in one call all is of one process.
    const std::array<iovec, 2> local{iovec{seen.data(), sizeof(seen)}, iovec{to, part}};
    const std::array<iovec, 2> remote{iovec{address(mark_), sizeof(seen)},
                                      iovec{address(from), part}};
    const ssize_t moved =
        process_vm_readv(pid_, local.data(), local.size(), remote.data(), remote.size(), 0);
    if (moved < 0) return why_not(errno, from, bytes);
    if (moved < static_cast<ssize_t>(sizeof(seen)) || seen != process_)
      return why_not(ESRCH, from, bytes);
    if (moved != static_cast<ssize_t>(sizeof(seen) + part)) return why_not(EFAULT, from, bytes);
    from += part;
    to += part;
    bytes -= part;
  } while (bytes > 0);
  return ok();
}

}  // namespace tutti
