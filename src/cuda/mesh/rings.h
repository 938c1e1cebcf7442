// File: cuda/mesh/rings.h: the rings between ranks' devices, and the memory that they are in.
//
// Between any two ranks there is a ring of slots for each lane and direction. It lies in the
// reader's device; or in memory of the host, where the two devices do not reach each other's
// (`staged`); or, between hosts (`remote`), in both hosts, with a network that carries slots from
// one to the other (network.h). Where all ranks reach each other's memory there may be more sets of
// rings, of short slots of other formats: a plan takes one set, as a slot with flags must hold
// nothing but data of its format from its first use on. A rank's memory also has what its kernels
// and its peers' kernels share besides: counters, areas of the one-shot kernel, boards and states
// (CudaMeshLayout).
//
// All ranks are of this process; or one is, which joins the others by their handles.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cuda/driver/memory.h"
#include "cuda/driver/share.h"
#include "cuda/driver/staging.h"
#include "kernels/cuda/interpreter.h"
#include "transport/region.h"
#include "tutti/result.h"

namespace tutti::exec {

/// How a mesh is made.
struct CudaMeshOptions {
  std::vector<int> devices;  // By rank.
  /// By rank, where one rank is here: which ranks' rings with it are in the host's memory. Empty:
  /// none.
  std::vector<bool> staged;
  /// By rank, where one rank is here: which ranks are on another host. Rings with them are those of
  /// `network`, which has the mesh's lanes and slots and is carried (network.h). Empty: none.
  std::vector<bool> remote;
  Region network;
  std::uint32_t lanes = 1;  // The most that a plan may have.
  /// Queues of messages in a launch, at most, each with a block of its own
  /// (kernels/cuda/messages.h). 0: as many as lanes.
  std::uint32_t queues = 0;
  /// Blocks that the queues of a launch share, if more than lanes.
  std::uint32_t message_blocks = 0;
  std::uint32_t slot_count = 8;
  std::size_t slot_bytes = std::size_t{128} << 10;
  cuda::SlotFormat format = cuda::SlotFormat::kSimple;
  /// More rings, of as many slots each and of no more lanes: a set for each of some formats.
  std::vector<cuda::RingSet> more;
  /// For a rank's contribution to a one-shot all-reduce, in each lane: half of it is data.
  std::size_t area_bytes = std::size_t{8} << 10;
  unsigned threads = 512;                                       // In a block: whole warps.
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);  // How long a kernel waits.
  /// Blocks of a rank at a time, at most.
  std::uint32_t blocks() const { return std::max({lanes, queues, message_blocks}); }
};

/// Counters of a rank for each peer, which the peer's streams write (stream_signals.h),
inline constexpr int kStreamSignals = 64;                   // of which so many count signals,
inline constexpr int kStreamCounters = kStreamSignals + 2;  // and two are flags.

/// Some of a mesh's ranks, a bit for each.
using CudaRanks = std::uint64_t;
static_assert(cuda::kMostDeviceRanks <= 64);

/// Bytes between counters in a rank's memory, and what everything there begins at.
inline constexpr std::size_t kCudaMeshLine = 128;
constexpr std::size_t whole_lines(std::size_t bytes) {
  return (bytes + kCudaMeshLine - 1) / kCudaMeshLine * kCudaMeshLine;
}

/// Where things are in a rank's memory, in bytes; the same for all ranks, but that slots come last
/// and are of some ranks only. It has more than 15 fields: one for each thing.
struct CudaMeshLayout {
  explicit CudaMeshLayout(const CudaMeshOptions& options);
  /// By lane and peer, of what has a place for each.
  std::size_t index(std::size_t lane, std::size_t peer) const { return lane * ranks + peer; }
  /// Where the slots of a ring are, in memory that has those of the ranks `with`.
  std::size_t slots_at(CudaRanks with, std::size_t lane, std::size_t peer) const;

  std::size_t ranks, lanes, ring_bytes;
  std::size_t heads, tails, signals, inboxes, outboxes, signal_ends, notes, areas, states, counts,
      board, slots;
  /// A set of CudaMeshOptions::more. Its rings have no heads: data say themselves that they are
  /// there.
  struct More {
    std::size_t tails, inboxes, outboxes, slots, ring_bytes;
  };
  std::vector<More> more;
};

/// A rank's message to the others; plain bytes.
struct CudaMeshHandle {
  CudaName memory;
  CudaRanks mapped = 0;             // The peers with which its rings are in its device's memory,
  CudaRanks staged = 0;             // and those with which they are in the host's.
  CudaStaging::Name staging = {};   // If some rings are in the host's memory.
  CudaStaging::Name counters = {};  // If it is the lowest rank of a host.
};

/// It has more than 20 functions: how rings are made, joined and found, for ranks of one process
/// and of several.
class CudaRings {
 public:
  /// `only`: the rank of this process; -1: all are.
  CudaRings(CudaMeshOptions options, int only);
  CudaRings(const CudaRings&) = delete;
  CudaRings& operator=(const CudaRings&) = delete;

  /// Makes the memory of the ranks here. Before anything else.
  Status allocate();
  /// Where all ranks are here: gives them access to each other's memory.
  Status open_to_all();
  /// Where one rank is here: its handle, and the rings with those whose handles these are, by rank.
  Result<CudaMeshHandle> handle();
  Status join(std::span<const CudaMeshHandle> handles);
  /// Once no kernel of this process uses the rings any more: what others have to see closed before
  /// they free their memory.
  std::vector<CudaImport> take_imports_by_ipc();

  const CudaMeshOptions& options() const { return options_; }
  bool is_here(std::size_t rank) const {
    return only_ < 0 || rank == static_cast<std::size_t>(only_);
  }
  /// Whether all ranks reach each other's memory.
  bool is_mapped() const { return staging_.data() == nullptr && !has_remote(); }
  /// The data about the rings that kernels of a rank here need, in any call.
  cuda::Arguments arguments(int rank) const;
  /// Lets a kernel take a set of CudaMeshOptions::more.
  void take(std::size_t set, int rank, cuda::Arguments& arguments) const;
  /// A rank's areas for the one-shot kernel. Only where all are mapped.
  std::byte* areas(std::size_t rank) const { return bases_[rank] + layout_.areas; }
  /// How many messages a rank here has sent to each other one and received from it.
  std::uint64_t* counts(int rank) const {
    return reinterpret_cast<std::uint64_t*>(memories_[static_cast<std::size_t>(rank)].data() +
                                            layout_.counts);
  }

  /// Where the rings between the rank here and another one are.
  enum class Place : std::uint8_t { kMapped, kStaged, kRemote };
  Place place_of(std::size_t peer) const {
    if (is_remote(peer)) return Place::kRemote;
    return is_staged(peer) ? Place::kStaged : Place::kMapped;
  }
  /// What `writer`'s streams write and `owner`'s wait for, where one rank is here, which has
  /// joined. Both are on its host, and the counter is in that host's memory: a thread that ends a
  /// wait writes it without asking the driver.
  std::uint64_t* stream_counter(int owner, int writer, int number) const {
    const auto pair =
        static_cast<std::size_t>(owner) * bases_.size() + static_cast<std::size_t>(writer);
    return reinterpret_cast<std::uint64_t*>(counters_) + pair * kStreamCounters +
           static_cast<std::size_t>(number);
  }
  /// A peer's streams may still write counters: nobody gets them after this.
  void retire_counters() { own_counters_.retire(); }

  /// What a kernel of the rank that waits long has said since this was asked last. Any thread.
  struct LongWait {
    std::uint64_t entry = 0;  // In the flight record; 0: none has said anything.
    int peer = 0;             // For which it waits.
  };
  LongWait take_wait(int rank);
  /// Progress::ended of the rank's kernels, once these have run. Any thread.
  std::uint64_t ended(int rank) const;

  /// Ok, or why the rank's calls ended early. Then no more can be run here. Any thread.
  Status check(int rank) const;
  /// Ends all that waits in the rank's kernels, now and from now on; their streams go on. Any
  /// thread.
  void abort(int rank);

  /// The memory that was taken on all devices, and on the host for rings that are staged.
  std::size_t bytes() const;
  std::size_t staged_bytes() const;

 private:
  struct Ends {
    cuda::RingEnd inbox, outbox;
    cuda::SignalEnd signal;
  };
  Ends remote_ends(std::size_t me, std::size_t peer, std::size_t lane) const;
  Ends ends_of(std::size_t me, std::size_t peer, std::size_t lane) const;
  Status connect_more(std::size_t rank, std::size_t set);
  Status connect(std::size_t rank);
  bool is_staged(std::size_t peer) const {
    return peer < options_.staged.size() && options_.staged[peer];
  }
  bool is_remote(std::size_t peer) const {
    return peer < options_.remote.size() && options_.remote[peer];
  }
  bool has_remote() const;
  /// The lowest rank of this rank's host, which makes the counters.
  std::size_t lowest_here() const;
  Status join_counters(std::span<const CudaMeshHandle> handles, Deadline deadline);
  void add_boards(std::size_t rank, cuda::Arguments& arguments) const;
  cuda::Report* report_of(int rank) const;
  cuda::Progress* progress_of(int rank) const;

  const CudaMeshOptions options_;
  const CudaMeshLayout layout_;
  const int only_;
  std::vector<CudaMemory> memories_;        // By rank; empty where a rank is elsewhere,
  std::vector<std::byte*> bases_;           // and how this process sees all of them.
  std::vector<CudaRanks> mapped_, staged_;  // By rank: whose rings are there.
  CudaExport exported_;                     // Where one rank is here: its memory,
  std::vector<CudaImport> opened_;          // and that of the others.
  CudaStaging staging_;                     // Laid out like memories_, for rings that are staged,
  std::vector<std::byte*> staged_bases_;    // and where this process sees those of others.
  std::vector<CudaStaging> staged_elsewhere_;
  CudaHostMemory reports_;         // A line for each rank.
  CudaSharedWords own_counters_;   // If this rank has made its host's counters,
  std::byte* counters_ = nullptr;  // and where they are.
};

}  // namespace tutti::exec
