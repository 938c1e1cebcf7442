// File: transport/transport.h: how ranks reach each other, and nothing else.
//
// A transport gives every rank of a communicator an endpoint: rings to and from its peers, and its
// further capabilities (shared call lines, mapped buffers). The contents of slots are not its
// business.
//
// To add one: write `my_transport.cc` that defines `constinit const Transport my_transport{...}`,
// and add one line to transports.def. The conformance suite then covers it.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/cpus.h"
#include "base/link_cost.h"
#include "base/nic_path.h"
#include "transport/region.h"
#include "transport/remote_link.h"
#include "tutti/rendezvous.h"
#include "tutti/result.h"

namespace tutti {

/// A rank's description of itself at set-up. Plain data: it travels as bytes.
struct Peer {
  std::uint64_t host[2] =
      {};  // Same for ranks that can share memory: boot id and network namespace.
  std::uint64_t process[2] = {};  // Random, new in every process.
  std::uint32_t user = 0;
  std::int32_t pid = 0;
  std::int32_t quota = 0;           // CPUs that its cgroup allows; 0: no limit.
  std::uint32_t heavy_barrier = 0;  // 1: this process has it, see base/wait.h.
  std::uint32_t rdma = 0;           // The layers of its RDMA devices, as bits: verbs/ports.h.
  CpuSet cpus;                      // Its affinity mask.
  char host_name[64] = {};          // For people; may be cut off.
};
Peer this_process();

/// Whether they run on one machine, though they may see different networks of it.
bool on_one_machine(const Peer& a, const Peer& b);

/// CPUs that these processes share: on each machine the union of their affinity masks, cut by the
/// widest quota.
int shared_cpus(std::span<const Peer> peers);

/// Each rank's host, counted in the order of ranks, if a network joins the hosts: ranks of a host
/// share memory. If all ranks share memory, the user wants to see the network, and each rank is a
/// host of its own.
std::vector<int> hosts_of(std::span<const Peer> peers);

/// Names a buffer so that a peer can find it: an offset in a segment that its owner exports.
/// Segment 0 means that peers can't map it.
struct BufferName {
  std::uint64_t segment = 0;
  std::uint64_t offset = 0;
  friend bool operator==(const BufferName&, const BufferName&) = default;
};

/// Whether a rank takes part, as far as this rank knows.
struct Presence {
  enum class State {
    kHere,
    kLeft,  // It destroyed its communicator. Everything that it wrote for others before that has
            // arrived.
    kDead,  // Its process has ended, or can't be reached, and it did not leave before that.
  };
  State state = State::kHere;
  std::uint64_t finished = 0;  // The last call that a rank finished before it left.
};

class Endpoint {
 public:
  virtual ~Endpoint() = default;
  /// The memory that the ranks share.
  virtual const Region& region() const = 0;
  /// By rank, of which host it is: those of one host reach each other's memory. Empty: all do.
  virtual std::span<const int> hosts() const { return {}; }
  /// Whether two ranks reach each other's memory.
  bool near(int a, int b) const {
    const std::span<const int> of = hosts();
    return of.empty() || of[static_cast<std::size_t>(a)] == of[static_cast<std::size_t>(b)];
  }
  /// Names `bytes` bytes at `data` of this rank. Does not allocate unless memory was registered or
  /// freed since the last call.
  virtual BufferName name(const void* data, std::size_t bytes) = 0;
  /// Where the named buffer of `peer` lies in this process. kSystem if it can't be mapped. Slow the
  /// first time for a segment, a look-up after that.
  virtual Result<std::byte*> map(int peer, BufferName name, std::size_t bytes) = 0;
  /// Whether any memory of every peer can be read and written as it is, without being named or
  /// mapped: tried out at set-up, and alike on all ranks.
  virtual bool reads_peers() const { return false; }
  /// Copies `bytes` bytes that lie at `from` in `peer`'s address space, one copy by the kernel.
  /// Only where reads_peers(). kPeerFailed once the peer has ended, kSystem if it has no such
  /// memory (any more).
  virtual Status read(int, std::uint64_t, std::byte*, std::size_t) {
    return Error{Code::kUnsupported, "this transport can't read peers' memory"};
  }
  /// The same to `peer`: `bytes` bytes from `from` here to `to` there. They are there before what
  /// this thread stores with release after it.
  virtual Status write(int, const std::byte*, std::uint64_t, std::size_t) {
    return Error{Code::kUnsupported, "this transport can't write peers' memory"};
  }
  /// Whether the rank takes part, has left, or has died. Slow: for health checks.
  Presence presence(int peer) const;
  /// "rank 3 left before this call: ...".
  std::string why_gone(int peer, const Presence& there) const;
  /// False once the rank has left, or its process is known to have ended. Slow.
  virtual bool alive(int peer) const = 0;
  /// Why, in words that follow "rank 3 ".
  virtual std::string why_dead(int) const { return "has ended (killed or crashed)"; }
  /// Carries what this rank writes to those that don't see its memory; null if all do.
  virtual RemoteLink* remote_link() { return nullptr; }
  /// This rank can't join after all: ranks that have joined get `error` in their calls. Without it
  /// they would find that this rank has gone, and blame it. Takes a moment at most.
  void end_joining(Error error, Rank me);
  /// The cost of a hop over its network, as far as that was learnt when it was made, alike on all
  /// ranks; zero: not at all.
  virtual NetworkCost network_cost() const { return {}; }
  /// Which devices it goes by to other hosts, and why.
  virtual NicsUsed nics() const { return {}; }
  /// Bytes of memory shared with peers that this communicator holds.
  virtual std::size_t shared_bytes() const = 0;
};

/// By peer of this host and by RDMA device ("mlx5_0:1").
using NicPaths = std::function<std::vector<std::vector<NicPath>>(
    std::span<const int> peers, std::span<const std::string> cards)>;

/// How switches treat packets: Settings::rdma_traffic_class and rdma_service_level.
struct PacketMarks {
  int traffic_class = -1, service_level = -1;
};

/// All that opening an endpoint needs. `exchange` is the all-gather of set-up: every rank gives
/// bytes under a phase's name and gets everybody's.
struct Opening {
  int me = 0;  // In `peers`.
  std::span<const Peer> peers;
  std::span<const int> ranks{};  // By peer, its rank in errors; empty: its index in `peers`.
  /// The rank whose section of the region is this one's: `me`, unless others than the peers are
  /// joined as well, by another transport.
  int rank = 0;
  RegionConfig config;
  std::string_view net_interfaces{};  // Settings::net_interfaces.
  std::string_view rdma_devices{};    // Settings::rdma_devices.
  int rdma_gid_index = -1;            // Settings::rdma_gid_index.
  PacketMarks rdma_marks{};
  /// The only ones that this rank may use, as Transport::cards names them; empty: any.
  std::vector<std::string> only_cards = {};
  /// How near cards of this host are to peers there; by peer and card. Null: not known.
  NicPaths nic_paths = nullptr;
  std::function<Result<std::vector<Bytes>>(std::string_view phase, std::span<const std::byte> mine)>
      exchange;
  Deadline deadline;
  /// Called now and then while this rank waits for others outside of `exchange`. An error ends the
  /// wait. May be null.
  std::function<Status()> look = nullptr;
  /// Whether a rank that sleeps on the link also waits for ranks of this host, in memory.
  bool near_waits = true;
  /// Slots that are not in the region, on all ranks or on none, of a transport that can do that.
  /// Its memory outlives the endpoint; its descriptor is not needed once that is made.
  GpuDirectSlots gpudirect = {};
};

struct Transport {
  std::string_view name;
  /// The ranks it joins, in words that follow "it joins ": for the error if a user asks for it
  /// where it does not.
  std::string_view joins;
  /// Whether this transport joins the two. Pure; the same answer on both sides.
  bool (*reach)(const Peer& self, const Peer& peer);
  /// Collective over all of `opening.peers`.
  Result<std::unique_ptr<Endpoint>> (*open)(const Opening& opening);
  /// The cost of a hop between ranks that share no memory: usual figures, to choose plans by. All
  /// zero: it joins only ranks that share memory.
  NetworkCost network = {};
  /// Bytes of the longest slot that it still carries in one message; 0: any.
  std::size_t longest_slot = 0;
  /// Null: slots can't be apart (Opening::apart). Else, without memory for them, all cards
  /// ("mlx5_0:1") that are as good for this rank as its best one; with memory, those of
  /// only_cards that it would use, once each has taken it for a moment. Not collective.
  Result<std::vector<std::string>> (*cards)(const Opening& opening) = nullptr;
};

#define TUTTI_TRANSPORT(name) extern const Transport name;
#include "transport/transports.def"
#undef TUTTI_TRANSPORT

/// The same as this transport joins them; empty: they all share memory.
std::vector<int> hosts_of(std::span<const Peer> peers, const Transport& transport);

/// Every registered transport, best first.
std::span<const Transport* const> transports();

/// The first transport that joins all of them, of those that `rule` (Settings::transport) allows.
/// kUnsupported names the ranks that can't be joined.
Result<const Transport*> choose_transport(std::span<const Peer> peers, std::string_view rule);

}  // namespace tutti
