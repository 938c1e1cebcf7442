// How a mesh of one rank gets at the memory of the others.
#include <algorithm>
#include <string>

#include "cuda/mesh/mesh.h"
#include "transport/transport.h"

namespace tutti::exec {
namespace {

using cuda::RingEnd;
using cuda::SignalEnd;

Error invalid(const std::string& what) { return {Code::kInvalidArgument, "a CUDA mesh: " + what}; }

template <class T>
std::size_t bytes_in(const std::vector<T>& list) {
  return list.size() * sizeof(T);
}

}  // namespace

/// Of a mesh of all ranks: each device gets access to all ranks' memory.
Status CudaMesh::open_to_all() {
  for (std::size_t rank = 0; rank < memories_.size(); ++rank) {
    TUTTI_TRY(const CudaExport exported,
              CudaExport::of(options_.devices[rank], bases_[rank], memories_[rank].size()));
    for (const int device : options_.devices) {
      TUTTI_TRY([[maybe_unused]] const CudaImport opened,
                CudaImport::open(device, exported.name(), Deadline::after(options_.timeout)));
    }
  }
  return ok();
}

Result<CudaMeshHandle> CudaMesh::handle() {
  if (only_ < 0) return invalid("all its ranks are of one mesh");
  const auto me = static_cast<std::size_t>(only_);
  TUTTI_TRY(exported_,
            CudaExport::of(options_.devices[me], memories_[me].data(), memories_[me].size()));
  CudaMeshHandle handle;
  handle.memory = exported_.name();
  handle.mapped = mapped_[me];
  handle.staged = staged_[me];
  if (staging_.data() != nullptr) {
    TUTTI_TRY(handle.staging, staging_.name());
  }
  return handle;
}

Status CudaMesh::join(std::span<const CudaMeshHandle> handles) {
  if (only_ < 0 || handles.size() != bases_.size()) return invalid("join takes a handle per rank");
  const int device = options_.devices[static_cast<std::size_t>(only_)];
  const Peer self = this_process();
  const Deadline deadline = Deadline::after(options_.timeout);
  const OnDevice on(device);
  for (std::size_t rank = 0; rank < handles.size(); ++rank) {
    const CudaMeshHandle& other = handles[rank];
    if (is_here(rank) || is_away(rank)) continue;
    const std::string what = "mapping the memory of rank " + std::to_string(rank);
    mapped_[rank] = other.mapped;
    staged_[rank] = other.staged;
    const CudaRanks rings = is_staged(rank) ? other.staged : other.mapped;
    if ((rings >> only_ & 1) == 0) {
      return Error{Code::kMismatch, what + ": it has no rings there with this one"};
    }
    if (is_staged(rank)) {
      staged_bases_[rank] = other.staging.data;
      if (std::equal(std::begin(self.process), std::end(self.process), other.memory.process))
        continue;
      TUTTI_TRY(auto staging, CudaStaging::open(other.staging, deadline));
      staged_bases_[rank] = staged_elsewhere_.emplace_back(std::move(staging)).data();
      continue;
    }
    auto opened = CudaImport::open(device, other.memory, deadline);
    if (!opened) return Error{opened.error().code, what + ": " + opened.error().what};
    bases_[rank] = opened_.emplace_back(std::move(*opened)).data();
  }
  return connect(static_cast<std::size_t>(only_));
}

/// Those that somebody carries from here to another host, and back.
CudaMesh::Ends CudaMesh::ends_away(std::size_t me, std::size_t peer, std::size_t lane) const {
  const int own = static_cast<int>(me), other = static_cast<int>(peer);
  const int number = static_cast<int>(lane);
  const auto word = [](Counter& counter) { return reinterpret_cast<std::uint64_t*>(&counter); };
  const auto end = [&](const Ring& ring) {
    return RingEnd{ring.slots, word(*ring.head), word(*ring.tails), 0, ring.used, ring.stamps};
  };
  const Region& network = options_.network;
  return {end(network.channel(other, own, number)), end(network.channel(own, other, number)),
          SignalEnd{word(network.signal(own, other, number)),
                    word(network.signal(other, own, number))}};
}

/// Each rank has, by lane and peer: slots and a head that the peer writes, a tail and a signal that
/// the peer writes.
CudaMesh::Ends CudaMesh::ends_of(std::size_t me, std::size_t peer, std::size_t lane) const {
  const Layout at = layout();
  const auto counter = [](std::byte* base, std::size_t start, std::size_t number) {
    return reinterpret_cast<std::uint64_t*>(base + start + number * kCudaMeshLine);
  };
  const std::vector<CudaRanks>& rings = is_staged(peer) ? staged_ : mapped_;
  std::byte* const mine = is_staged(peer) ? staging_.data() : bases_[me];
  std::byte* const other = is_staged(peer) ? staged_bases_[peer] : bases_[peer];
  const std::size_t here = index(lane, peer), there = index(lane, me);
  return {RingEnd{mine + slots_at(rings[me], lane, peer), counter(mine, at.heads, here),
                  counter(other, at.tails, there)},
          RingEnd{other + slots_at(rings[peer], lane, me), counter(other, at.heads, there),
                  counter(mine, at.tails, here)},
          SignalEnd{counter(other, at.signals, there), counter(mine, at.signals, here)}};
}

/// Tells a rank where its rings are.
Status CudaMesh::connect(std::size_t me) {
  const Layout at = layout();
  std::vector<RingEnd> inboxes(ends()), outboxes(ends());
  std::vector<SignalEnd> signals(ends());
  for (std::size_t lane = 0; lane < options_.lanes; ++lane) {
    for (std::size_t peer = 0; peer < bases_.size(); ++peer) {
      if (peer == me) continue;
      const Ends both = is_away(peer) ? ends_away(me, peer, lane) : ends_of(me, peer, lane);
      inboxes[index(lane, peer)] = both.inbox;
      outboxes[index(lane, peer)] = both.outbox;
      signals[index(lane, peer)] = both.signal;
    }
  }
  CudaMemory& memory = memories_[me];
  TUTTI_CHECK_OK(memory.write(at.inboxes, inboxes.data(), bytes_in(inboxes)));
  TUTTI_CHECK_OK(memory.write(at.outboxes, outboxes.data(), bytes_in(outboxes)));
  return memory.write(at.signal_ends, signals.data(), bytes_in(signals));
}

}  // namespace tutti::exec
