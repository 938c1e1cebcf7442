// File: cuda/mesh/network.h: slots between devices on different hosts.
//
// Model. The rings of such ranks are those of a transport's region (transport/region.h), pinned, so
// that kernels write and read them as any others: the writer a ring at its side, the reader one at
// its own. Their slots may lie apart, in the device's memory (gpudirect_memory.h). A thread of each
// rank, the proxy, carries what has changed from side to side: it drives the transport's link
// (transport/remote_link.h), which compares heads, tails and signals with what it has sent. It
// knows no plans, calls or streams; so whatever runs in slots runs between hosts, captured or not,
// with the same bits, and what is in one slot is under way while a kernel fills the next.
//
// The host does not learn when a kernel has filled a slot. So while slots move, the proxy polls;
// then its naps grow from kShortNap to kLongNap. A launch of a kernel ends the nap by `wake`.
//
// A connection that breaks ends nothing by itself: its rank may have left for good. Kernels that
// wait for it end at their deadline, and `why_unreachable` then says what is known. An abort of any
// rank reaches all.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cuda/driver/memory.h"
#include "transport/transport.h"

namespace tutti::exec {

struct CudaNetworkOptions {
  const Transport* transport = nullptr;  // One that joins hosts.
  Opening opening;                       // Its `config`: lanes and slots of the mesh; `gpudirect`.
  std::vector<bool> remote;              // By rank: which are on another host.
  int device = 0;                        // This rank's.
};

class CudaNetwork {
 public:
  /// Collective, over all ranks. kSystem: memory that can't be pinned; or as the transport's
  /// `open`.
  static Result<std::unique_ptr<CudaNetwork>> open(CudaNetworkOptions options);
  /// What a region has to have besides lanes and slots: as little as possible.
  static RegionConfig config(std::size_t ranks, std::uint32_t lanes, std::uint32_t slot_count,
                             std::size_t slot_bytes);
  /// Ends the proxy. What peers' kernels may still need has to be over by then.
  ~CudaNetwork();
  CudaNetwork(const CudaNetwork&) = delete;
  CudaNetwork& operator=(const CudaNetwork&) = delete;

  /// Begins to carry. `on_abort` is called by the proxy, once, when a rank has aborted. kSystem: no
  /// thread can be had for it.
  Status start(std::function<void()> on_abort);

  const Region& region() const { return endpoint_->region(); }
  /// As Endpoint::nics.
  NicsUsed nics() const { return endpoint_->nics(); }
  /// Memory of the host that is pinned.
  std::size_t pinned_bytes() const;
  /// Kernels may have begun. Any thread; cheap.
  void wake();
  /// Waits until what ended kernels wrote has been given to the network, or the time is over.
  void drain(Deadline deadline);
  /// On all ranks. Any thread, twice too: the first stays.
  void abort(const Error& error);
  bool aborted() const { return region().aborted(); }
  Error abort_error() const { return region().abort_error(); }
  /// Empty, or why that rank can't be reached any more, in words that follow "rank 3 ". Any thread.
  std::string why_unreachable(int peer) const;

 private:
  using Range = std::span<std::byte>;
  explicit CudaNetwork(CudaNetworkOptions options) : options_(std::move(options)) {}
  Status pin();
  std::vector<Range> rings() const;
  void run();
  void look();

  CudaNetworkOptions options_;
  std::function<void()> on_abort_;
  std::unique_ptr<Endpoint> endpoint_;
  std::vector<Range> pinned_;
  std::atomic<bool> stop_{false}, napping_{false};
  std::atomic<std::uint64_t> drains_{0}, drained_{0};
  mutable std::mutex mutex_;
  std::vector<std::string> why_unreachable_;  // By rank. Guarded by mutex_.
  bool abort_seen_ = false;                   // The proxy's.
  std::thread proxy_;
};

}  // namespace tutti::exec
