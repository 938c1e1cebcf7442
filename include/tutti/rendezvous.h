// File: tutti/rendezvous.h: how ranks that know nothing of each other meet.
//
// A rendezvous is the only thing that a job must provide: three verbs over a store that all ranks
// see. Everything a communicator needs to know of its peers goes through `exchange`.
#pragma once
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tutti/export.h"
#include "tutti/result.h"

namespace tutti {

using Bytes = std::vector<std::byte>;

/// The moment at which a wait gives up.
struct Deadline {
  std::chrono::steady_clock::time_point at;
  /// A span of more than a year is a year: "as long as possible" must not overflow into the past.
  template <class Count, class Period>
  static Deadline after(std::chrono::duration<Count, Period> span) {
    using Span = std::common_type_t<decltype(span), std::chrono::hours>;
    constexpr std::chrono::hours kYear{24 * 365};
    return {std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::nanoseconds>(
                                                   std::clamp<Span>(span, -kYear, kYear))};
  }
  bool passed() const { return std::chrono::steady_clock::now() >= at; }
};

/// Keys are at most 256 bytes, values at most 16 MiB. All verbs may be called from any thread.
class TUTTI_API Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  /// Stores a value under a key, once; a second put of the same key replaces it.
  virtual Status put(std::string_view key, std::span<const std::byte> value) = 0;
  /// Waits until somebody has put the key. kTimeout at the deadline; whatever `fail` said once
  /// called.
  virtual Result<Bytes> get(std::string_view key, Deadline deadline) = 0;
  /// Wakes every present and future waiter with this error.
  virtual Status fail(const Error& error) = 0;
  /// `enter`: this process begins to join as rank `me`. `leave`: it has joined or given up. If the
  /// process ends in between, a rendezvous that notices it fails with an error that names the rank.
  /// Calls come in pairs; the default does nothing.
  virtual void enter(Rank /*me*/) {}
  virtual void leave() {}
  /// Whether this process keeps the store, which ends with it. False, too, where an error of the
  /// store names the rank to blame.
  virtual bool kept_here() const { return false; }
  /// That rank keeps the store: errors about the loss of the store name it from now on.
  virtual void kept_by(Rank /*keeper*/) {}
};

/// Names a job to be joined; made by one rank, carried to the others by any means (MPI, a store, a
/// command line). Holds the address and the secret of a TCP rendezvous that its maker serves.
struct UniqueId {
  std::array<std::byte, 128> bytes{};
};

/// A store in this process, for ranks that are threads. Copies share it.
TUTTI_API std::shared_ptr<Rendezvous> memory_rendezvous();
/// A store in a directory that all ranks see; it is made if it is missing. `job` keeps apart the
/// jobs that use the same directory, so it has to differ from run to run.
TUTTI_API Result<std::unique_ptr<Rendezvous>> file_rendezvous(const std::string& directory,
                                                              std::string_view job);
/// A store served over TCP by rank 0 at host:port; the others connect, and try until the deadline.
/// Both sides prove that they know `secret`, the same random text on all ranks, without sending it,
/// and their messages are encrypted. Empty: TUTTI_SECRET; if that is not set either, a warning: any
/// process that reaches the port can join. Jobs of different names may share a port of one process.
TUTTI_API Result<std::unique_ptr<Rendezvous>> tcp_rendezvous(
    const std::string& host, int port, Rank me, Deadline deadline, std::string_view secret = {},
    std::string_view job = "tcp_rendezvous");
/// Starts a TCP store in this process and returns its id. The store lives until the process ends.
/// `interfaces`: where it listens, as Settings::net_interfaces; empty: at all addresses.
/// kInvalidArgument: none of this host fits that.
TUTTI_API Result<UniqueId> make_unique_id(std::string_view interfaces = {});
/// Connects to the store that a unique id names.
TUTTI_API Result<std::unique_ptr<Rendezvous>> unique_id_rendezvous(const UniqueId& id,
                                                                   Deadline deadline);

/// Where this process stands in a job, as its launcher says in the environment: torchrun, Open MPI,
/// MPICH/Hydra (PMI), Slurm, `tutti run`.
struct LaunchInfo {
  std::string launcher;  // "torchrun", "openmpi", "mpich", "slurm", "tutti"; empty: started alone.
  Rank rank{0};
  int rank_count = 1;
  int local_rank = 0;
  int local_rank_count = 1;
  std::string master_address;  // Empty where the launcher gives none.
  int master_port = 0;
  std::string job;  // The launcher's name of the job, to keep apart jobs that share a directory.
  std::string rendezvous;  // TUTTI_RENDEZVOUS, "/directory" or "host:port": comes before all else.
  std::string secret;  // TUTTI_SECRET: any process that knows it can join over TCP. Never print it.
};
TUTTI_API Result<LaunchInfo> detect_launch();
/// The rendezvous that fits what the launcher said: TCP at the master's address, else a directory.
TUTTI_API Result<std::unique_ptr<Rendezvous>> launch_rendezvous(const LaunchInfo& info,
                                                                Deadline deadline);

/// The one all-gather of set-up: every rank gives `mine` and gets all. `phase` names the exchange,
/// and is used once per rendezvous; in "world/hello" the first part is the communicator's name. At
/// the deadline, all ranks get an error that names the ranks that have not come.
TUTTI_API Result<std::vector<Bytes>> exchange(Rendezvous& rendezvous, Rank me, int rank_count,
                                              std::string_view phase,
                                              std::span<const std::byte> mine, Deadline deadline);

}  // namespace tutti
