#include "transport/local/peer_memory.h"

#include <sys/uio.h>

#include <algorithm>
#include <mutex>
#include <string_view>

#include <fmt/format.h>

#include "base/fork.h"

namespace tutti {
namespace {

using Mark = std::array<std::uint64_t, 2>;
/// A mark, and behind it a word that nobody reads: peers try out on it whether they may write.
struct Marked {
  Mark mark{};
  std::uint64_t written = 0;
};

constinit std::mutex mark_mutex;
const HeldAcrossFork mark_held(ForkOrder::kMark, []() -> std::mutex& { return mark_mutex; });

/// The kernel moves at most 2 GiB less a page in one call.
constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;

void* address(std::uint64_t at) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(at)); }

/// `done`: "read" or "written".
Error why_not(int error, std::uint64_t at, std::size_t bytes, std::string_view done) {
  if (error == ESRCH)
    return {Code::kPeerFailed, fmt::format("has ended, so its memory can't be {}", done)};
  return {Code::kSystem,
          fmt::format("has {} bytes at {:#x} that can't be {}: {}; buffers must stay until the "
                      "call is over",
                      bytes, at, done, std::generic_category().message(error))};
}

}  // namespace

std::uint64_t own_mark() {
  static constinit Marked marked;
  const Peer self = this_process();
  const std::lock_guard lock(mark_mutex);
  marked.mark = {self.process[0], self.process[1]};  // Another one after a fork.
  return reinterpret_cast<std::uintptr_t>(&marked);
}

Status PeerMemory::try_out() const {
  const std::uint64_t nothing = 0;
  return write(reinterpret_cast<const std::byte*>(&nothing), mark_ + offsetof(Marked, written),
               sizeof(nothing));
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
    if (moved < 0) return why_not(errno, from, bytes, "read");
    if (moved < static_cast<ssize_t>(sizeof(seen)) || seen != process_)
      return why_not(ESRCH, from, bytes, "read");
    if (moved != static_cast<ssize_t>(sizeof(seen) + part))
      return why_not(EFAULT, from, bytes, "read");
    from += part;
    to += part;
    bytes -= part;
  } while (bytes > 0);
  return ok();
}

Status PeerMemory::write(const std::byte* from, std::uint64_t to, std::size_t bytes) const {
  while (bytes > 0) {
    if (auto same = read(0, nullptr, 0); !same) return same;
    const std::size_t part = std::min(bytes, kMostAtOnce);
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): an iovec's, which is only read.
    const iovec local{const_cast<std::byte*>(from), part}, remote{address(to), part};
    const ssize_t moved = process_vm_writev(pid_, &local, 1, &remote, 1, 0);
    if (moved < 0) return why_not(errno, to, bytes, "written");
    if (moved != static_cast<ssize_t>(part)) return why_not(EFAULT, to, bytes, "written");
    from += part;
    to += part;
    bytes -= part;
  }
  return ok();
}

}  // namespace tutti
