#include "transport/local/peer_process.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <map>
#include <mutex>

#include "base/fork.h"

namespace tutti {
namespace {

/// Descriptors by the process's random number, which no other process has.
struct Known {
  std::mutex mutex;
  std::map<std::array<std::uint64_t, 2>, std::weak_ptr<const Fd>> descriptors;
};
Known& known() {
  static auto* const instance = new Known();  // Never destroyed: threads may outlive main.
  return *instance;
}

const HeldAcrossFork known_held(ForkOrder::kPeerProcesses,
                                []() -> std::mutex& { return known().mutex; });

}  // namespace

std::uint64_t own_pid_namespace() {
  struct stat file {};
  return ::stat("/proc/self/ns/pid", &file) == 0 ? file.st_ino : 0;
}

PeerProcess PeerProcess::open(const Peer& peer, std::uint64_t pid_namespace) {
  PeerProcess process;
  if (peer.pid == getpid() || pid_namespace == 0 || pid_namespace != own_pid_namespace())
    return process;
  const std::lock_guard lock(known().mutex);
  std::erase_if(known().descriptors, [](const auto& one) { return one.second.expired(); });
  auto& descriptor = known().descriptors[{peer.process[0], peer.process[1]}];
  process.descriptor_ = descriptor.lock();
  if (process.descriptor_ != nullptr) return process;
  Fd fd(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
  if (!fd) return process;  // Before Linux 5.3, or no descriptor is left: deaths show otherwise.
  process.descriptor_ = std::make_shared<const Fd>(std::move(fd));
  descriptor = process.descriptor_;
  return process;
}

bool PeerProcess::ended() const {
  if (descriptor_ == nullptr) return false;
  pollfd ended{descriptor_->get(), POLLIN, 0};
  return ::poll(&ended, 1, 0) == 1 && (ended.revents & POLLIN) != 0;
}

}  // namespace tutti
