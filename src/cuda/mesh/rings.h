// File: cuda/mesh/rings.h: the rings between ranks' devices, and the memory that they are in.
//
// Between any two ranks there is a ring of slots for each lane and direction. It lies in the
// reader's device; or in memory of the host, where the two devices do not reach each other's
// (`staged`); or, between hosts (`remote`), in both hosts, with a network that carries slots from
// one to the other (network.h). A rank's memory also has what its kernels and its peers' kernels
// share besides: counters, areas of the one-shot kernel, boards and states (layout.h).
//
// All ranks are of this process; or one is, which joins the others by their handles.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cuda/driver/memory.h"
#include "cuda/driver/share.h"
#include "cuda/driver/staging.h"
#include "cuda/mesh/layout.h"
#include "kernels/cuda/interpreter.h"
#include "tutti/result.h"

namespace tutti::exec {

/// A rank's message to the others; plain bytes.
struct CudaMeshHandle {
  CudaName memory;
  CudaRanks mapped = 0;            // The peers with which its rings are in its device's memory,
  CudaRanks staged = 0;            // and those with which they are in the host's.
  CudaStaging::Name staging = {};  // If some rings are in the host's memory.
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

  const CudaMeshOptions& options() const { return options_; }
  bool is_here(std::size_t rank) const {
    return only_ < 0 || rank == static_cast<std::size_t>(only_);
  }
  /// Whether all ranks reach each other's memory.
  bool is_mapped() const;
  /// The data about the rings that kernels of a rank here need, in any call.
  cuda::Arguments arguments(int rank) const;
  /// A rank's areas for the one-shot kernel. Only where all are mapped.
  std::byte* areas(std::size_t rank) const { return bases_[rank] + layout_.areas; }
  /// How many messages a rank here has sent to each other one and received from it.
  std::uint64_t* counts(int rank) const {
    return reinterpret_cast<std::uint64_t*>(memories_[static_cast<std::size_t>(rank)].data() +
                                            layout_.counts);
  }

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
  Status connect(std::size_t rank);
  bool is_staged(std::size_t peer) const {
    return peer < options_.staged.size() && options_.staged[peer];
  }
  bool is_remote(std::size_t peer) const {
    return peer < options_.remote.size() && options_.remote[peer];
  }
  bool has_remote() const;
  void add_boards(std::size_t rank, cuda::Arguments& arguments) const;
  cuda::Report* report_of(int rank) const;

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
  CudaHostMemory reports_;  // A line for each rank.
};

}  // namespace tutti::exec
