// Where the ranks of a launched job meet.
//
//   1. TUTTI_RENDEZVOUS, if it is set: that directory, or that host and port.
//   2. All ranks on this host: a directory of this user's. No port, no name to resolve.
//   3. The launcher names the host of rank 0: TCP there, at one of a few ports that all ranks
//      derive from the job's name. Never at torchrun's MASTER_PORT: torch's own store has it, or
//      will want it. Rank 0 takes the first port that is free, the others try them all; they know
//      the right store by the job's secret: TUTTI_SECRET, or without it the job's name.
//   4. Else the user has to say where.
//
// A process may come here several times (two communicators from the environment). Each time is a
// meeting of its own: rank by rank, the n-th time in one process meets the n-th in the others.
#include <fmt/format.h>

#include <atomic>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"
#include "bootstrap/file_rendezvous.h"
#include "bootstrap/launch/launch.h"
#include "bootstrap/store.h"
#include "bootstrap/tcp_client.h"

namespace tutti {
namespace {

// Below the ports that Linux hands out by itself (32768 and up), above the well-known ones.
constexpr int kFirstPort = 20000, kPortRange = 10000, kPortCount = 8;

std::vector<int> ports_of(const std::string& job) {
  std::vector<int> ports;
  for (int i = 0; i < kPortCount; ++i) {
    const auto hash = hash_text(job + "/" + std::to_string(i));
    ports.push_back(kFirstPort + static_cast<int>(hash % kPortRange));
  }
  return ports;
}

/// A name that is the same on all ranks, and different from that of any other job.
Result<std::string> job_of(const LaunchInfo& info) {
  if (!info.job.empty()) return info.job;
  if (info.launcher != "mpich") return std::string("default");
  if (info.secret.empty()) {
    return Error{
        Code::kUnsupported,
        "MPICH does not name a job of several hosts; set TUTTI_SECRET to a random text (in the "
        "environment of mpiexec, which passes it on), or TUTTI_JOB to a name that no other job has",
        info.rank};
  }
  const auto named = bootstrap::key_of(info.secret, "name of the job");
  return fmt::format("mpich-{:016x}", ByteReader(named).number<std::uint64_t>());
}

}  // namespace

Result<std::unique_ptr<Rendezvous>> launch_rendezvous(const LaunchInfo& info, Deadline deadline) {
  static std::atomic<int> meetings{0};
  const bool somewhere = !info.rendezvous.empty() || !info.master_address.empty() ||
                         info.local_rank_count == info.rank_count;
  if (!somewhere) {
    return Error{
        Code::kUnsupported,
        "launcher '" + info.launcher +
            "' does not say where ranks on several hosts can meet; set TUTTI_RENDEZVOUS to a "
            "directory that all hosts see, or to host:port of rank 0's host",
        info.rank};
  }
  TUTTI_TRY(const std::string job, job_of(info));
  // relaxed: only the count matters.
  const std::string meeting = bootstrap::shorten(
      job + "#" + std::to_string(meetings.fetch_add(1, std::memory_order_relaxed)));
  bootstrap::TcpMeeting over_tcp{.secret = bootstrap::key_of(info.secret, meeting),
                                 .guessable = info.secret.empty()};
  if (const auto place = bootstrap::parse_host_port(info.rendezvous); place) {
    over_tcp.host = place->first;
    over_tcp.ports = {place->second};
    return bootstrap::meet(over_tcp, info.rank, deadline);
  }
  if (!info.rendezvous.empty()) return file_rendezvous(info.rendezvous, meeting);
  if (info.rank_count == 1) {
    return std::unique_ptr<Rendezvous>(
        std::make_unique<bootstrap::LocalRendezvous>(std::make_shared<bootstrap::Store>()));
  }
  if (info.local_rank_count == info.rank_count) {
    TUTTI_TRY(const auto directory, bootstrap::user_directory());
    return file_rendezvous(directory, meeting);
  }
  over_tcp.host = info.master_address;
  over_tcp.ports = ports_of(job);
  return bootstrap::meet(over_tcp, info.rank, deadline);
}

}  // namespace tutti
