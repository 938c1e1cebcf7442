// Where the ranks of a launched job meet.
//
//   1. TUTTI_RENDEZVOUS, if it is set: that directory, or that host and port.
//   2. All ranks on this host: a directory of this user's. No port, no name to resolve.
//   3. The launcher names the host of rank 0: TCP there, at one of a few ports that all ranks
//      derive from the job's name. Never at torchrun's MASTER_PORT: torch's own store has it, or
//      will want it. Rank 0 takes the first port that is free, the others try them all; they know
//      the right store by the job's secret.
//   4. Else the user has to say where.
//
// A process may come here several times (two communicators from the environment). Each time is a
// meeting of its own: rank by rank, the n-th time in one process meets the n-th in the others.
#include <atomic>
#include <vector>

#include "bootstrap/file_rendezvous.h"
#include "bootstrap/hash.h"
#include "bootstrap/launch.h"
#include "bootstrap/store.h"
#include "bootstrap/tcp_rendezvous.h"

namespace tutti {
namespace {

// Below the ports that Linux hands out by itself (32768 and up), above the well-known ones.
constexpr int kFirstPort = 20000, kPortRange = 10000, kPortCount = 8;

std::vector<int> ports_of(const std::string& job) {
  std::vector<int> ports;
  for (int i = 0; i < kPortCount; ++i) {
    const auto hash = bootstrap::hash_of(job + "/" + std::to_string(i));
    ports.push_back(kFirstPort + static_cast<int>(hash % kPortRange));
  }
  return ports;
}

}  // namespace

Result<std::unique_ptr<Rendezvous>> launch_rendezvous(const LaunchInfo& info, Deadline deadline) {
  static std::atomic<int> meetings{0};
  const std::string job = info.job.empty() ? "default" : info.job;
  // relaxed: only the count matters.
  const std::string meeting = bootstrap::shorten(
      job + "#" + std::to_string(meetings.fetch_add(1, std::memory_order_relaxed)));
  const auto secret = bootstrap::secret_of(meeting);
  if (const auto place = bootstrap::parse_host_port(info.rendezvous); place)
    return bootstrap::meet({place->first, {place->second}, secret}, info.rank, deadline);
  if (!info.rendezvous.empty()) return file_rendezvous(info.rendezvous, meeting);
  if (info.rank_count == 1) {
    return std::unique_ptr<Rendezvous>(
        std::make_unique<bootstrap::LocalRendezvous>(std::make_shared<bootstrap::Store>()));
  }
  if (info.local_rank_count == info.rank_count) {
    TUTTI_TRY(const auto directory, bootstrap::user_directory());
    return file_rendezvous(directory, meeting);
  }
  if (!info.master_address.empty()) {
    return bootstrap::meet({info.master_address, ports_of(job), secret}, info.rank, deadline);
  }
  return Error{
      Code::kUnsupported,
      "launcher '" + info.launcher +
          "' does not say where ranks on several hosts can meet; set TUTTI_RENDEZVOUS to a "
          "directory that all hosts see, or to host:port of rank 0's host",
      info.rank};
}

}  // namespace tutti
