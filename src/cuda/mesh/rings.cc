#include "cuda/mesh/rings.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <string>

#include "cuda/mesh/tag.h"
#include "kernels/cuda/messages.h"
#include "transport/transport.h"

namespace tutti::exec {
namespace {

using cuda::NoteEnds;
using cuda::RingEnd;
using cuda::SignalEnd;

Error invalid(const std::string& what) { return {Code::kInvalidArgument, "a CUDA mesh: " + what}; }

static_assert(sizeof(Note) == cuda::kNoteBytes && offsetof(Note, version) == 0 &&
                  offsetof(Note, words) == cuda::kNoteHead,
              "kernels write notes");

template <class T>
std::size_t bytes_in(const std::vector<T>& list) {
  return list.size() * sizeof(T);
}

}  // namespace

CudaMeshLayout::CudaMeshLayout(const CudaMeshOptions& options)
    : ranks(options.devices.size()),
      lanes(options.lanes),
      ring_bytes(options.slot_count * options.slot_bytes) {
  std::size_t at = 0;
  const auto take = [&at](std::size_t bytes) {
    const std::size_t here = at;
    at += whole_lines(bytes);
    return here;
  };
  const std::size_t ends = lanes * ranks;
  heads = take(ends * kCudaMeshLine);
  tails = take(ends * kCudaMeshLine);
  signals = take(ends * kCudaMeshLine);
  inboxes = take(ends * sizeof(RingEnd));
  outboxes = take(ends * sizeof(RingEnd));
  signal_ends = take(ends * sizeof(SignalEnd));
  notes = take(ranks * sizeof(NoteEnds));
  areas = take(2 * ends * options.area_bytes);
  const std::size_t most_blocks = std::max(options.blocks(), cuda::kMostQueues);
  states = take(most_blocks * sizeof(cuda::BlockState));
  counts = take(2 * ranks * sizeof(std::uint64_t));
  board = take(cuda::board_bytes(ranks, options.lanes));
  for (const cuda::RingSet& set : options.more) {
    const std::size_t own_ends = set.lanes * ranks;
    More& own = more.emplace_back();
    own.ring_bytes = options.slot_count * set.slot_bytes;
    own.tails = take(own_ends * kCudaMeshLine);
    own.inboxes = take(own_ends * sizeof(RingEnd));
    own.outboxes = take(own_ends * sizeof(RingEnd));
    own.slots = take(own_ends * own.ring_bytes);
  }
  slots = at;
}

/// By lane and rank, of those that are there.
std::size_t CudaMeshLayout::slots_at(CudaRanks with, std::size_t lane, std::size_t peer) const {
  const CudaRanks before = with & ((CudaRanks{1} << peer) - 1);
  const auto count = [](CudaRanks some) { return static_cast<std::size_t>(std::popcount(some)); };
  return slots + (lane * count(with) + count(before)) * ring_bytes;
}

CudaRings::CudaRings(CudaMeshOptions options, int only)
    : options_(std::move(options)), layout_(options_), only_(only) {
  const std::size_t ranks = options_.devices.size();
  memories_.resize(ranks);
  bases_.resize(ranks);
  mapped_.resize(ranks);
  staged_.resize(ranks);
  staged_bases_.resize(ranks);
}

Status CudaRings::allocate() {
  const std::size_t ranks = bases_.size();
  TUTTI_TRY(reports_, CudaHostMemory::allocate(ranks * kCudaMeshLine));
  if (only_ >= 0 && is_here(lowest_here())) {
    constexpr std::size_t kBytes = kStreamCounters * sizeof(std::uint64_t);
    TUTTI_TRY(own_counters_, CudaSharedWords::allocate(ranks * ranks * kBytes));
    counters_ = own_counters_.data();
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (!is_here(rank)) continue;
    for (std::size_t peer = 0; peer < ranks; ++peer) {
      if (peer == rank || is_remote(peer)) continue;
      (is_staged(peer) ? staged_ : mapped_)[rank] |= CudaRanks{1} << peer;
    }
    TUTTI_TRY(memories_[rank],
              CudaMemory::allocate_for_peers(options_.devices[rank],
                                             layout_.slots_at(mapped_[rank], layout_.lanes, 0)));
    bases_[rank] = memories_[rank].data();
    if (staged_[rank] == 0) continue;
    TUTTI_TRY(staging_, CudaStaging::allocate(staged_bytes()));
  }
  return ok();
}

std::size_t CudaRings::staged_bytes() const {
  if (only_ < 0 || staged_[static_cast<std::size_t>(only_)] == 0) return 0;
  return layout_.slots_at(staged_[static_cast<std::size_t>(only_)], layout_.lanes, 0);
}

std::size_t CudaRings::lowest_here() const {
  std::size_t rank = 0;
  while (is_remote(rank)) ++rank;
  return rank;
}

bool CudaRings::has_remote() const {
  const auto& remote = options_.remote;
  return std::find(remote.begin(), remote.end(), true) != remote.end();
}

Status CudaRings::open_to_all() {
  for (std::size_t rank = 0; rank < memories_.size(); ++rank) {
    TUTTI_TRY(const CudaExport exported,
              CudaExport::of(options_.devices[rank], bases_[rank], memories_[rank].size()));
    for (const int device : options_.devices) {
      TUTTI_TRY([[maybe_unused]] const CudaImport opened,
                CudaImport::open(device, exported.name(), Deadline::after(options_.timeout)));
    }
  }
  for (std::size_t rank = 0; rank < bases_.size(); ++rank) TUTTI_RETURN_IF_ERROR(connect(rank));
  return ok();
}

Result<CudaMeshHandle> CudaRings::handle() {
  if (only_ < 0) return invalid("all its ranks are of this process");
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
  if (counters_ != nullptr) {
    TUTTI_TRY(handle.counters, own_counters_.name());
  }
  return handle;
}

Status CudaRings::join_counters(std::span<const CudaMeshHandle> handles, Deadline deadline) {
  const std::size_t owner = lowest_here();
  if (is_here(owner)) return ok();
  const CudaMeshHandle& other = handles[owner];
  counters_ = other.counters.data;
  const Peer self = this_process();
  if (std::equal(std::begin(self.process), std::end(self.process), other.memory.process))
    return ok();
  TUTTI_TRY(counters_, CudaSharedWords::open(other.counters, deadline));
  return ok();
}

Status CudaRings::join(std::span<const CudaMeshHandle> handles) {
  if (only_ < 0 || handles.size() != bases_.size()) return invalid("join takes a handle per rank");
  const int device = options_.devices[static_cast<std::size_t>(only_)];
  const Peer self = this_process();
  const Deadline deadline = Deadline::after(options_.timeout);
  const OnDevice on(device);
  TUTTI_RETURN_IF_ERROR(join_counters(handles, deadline));
  for (std::size_t rank = 0; rank < handles.size(); ++rank) {
    const CudaMeshHandle& other = handles[rank];
    if (is_here(rank) || is_remote(rank)) continue;
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

std::vector<CudaImport> CudaRings::take_imports_by_ipc() {
  std::vector<CudaImport> taken;
  for (CudaImport& one : opened_) {
    if (one.by_ipc()) taken.push_back(std::move(one));
  }
  return taken;
}

/// The ends of rings that the network carries from here to another host, and back.
CudaRings::Ends CudaRings::remote_ends(std::size_t me, std::size_t peer, std::size_t lane) const {
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
CudaRings::Ends CudaRings::ends_of(std::size_t me, std::size_t peer, std::size_t lane) const {
  const CudaMeshLayout& at = layout_;
  const auto counter = [](std::byte* base, std::size_t start, std::size_t number) {
    return reinterpret_cast<std::uint64_t*>(base + start + number * kCudaMeshLine);
  };
  const std::vector<CudaRanks>& rings = is_staged(peer) ? staged_ : mapped_;
  std::byte* const mine = is_staged(peer) ? staging_.data() : bases_[me];
  std::byte* const other = is_staged(peer) ? staged_bases_[peer] : bases_[peer];
  const std::size_t here = layout_.index(lane, peer), there = layout_.index(lane, me);
  return {RingEnd{mine + layout_.slots_at(rings[me], lane, peer), counter(mine, at.heads, here),
                  counter(other, at.tails, there)},
          RingEnd{other + layout_.slots_at(rings[peer], lane, me), counter(other, at.heads, there),
                  counter(mine, at.tails, here)},
          SignalEnd{counter(other, at.signals, there), counter(mine, at.signals, here)}};
}

/// Tells a rank where its rings are.
Status CudaRings::connect(std::size_t me) {
  const CudaMeshLayout& at = layout_;
  std::vector<RingEnd> inboxes(layout_.ranks * layout_.lanes),
      outboxes(layout_.ranks * layout_.lanes);
  std::vector<SignalEnd> signals(layout_.ranks * layout_.lanes);
  std::vector<NoteEnds> notes(layout_.ranks);
  for (std::size_t peer = 0; peer < bases_.size(); ++peer) {
    if (peer == me || !is_remote(peer)) continue;
    const int own = static_cast<int>(me), other = static_cast<int>(peer);
    notes[peer] = {reinterpret_cast<std::byte*>(options_.network.note(own, other)),
                   reinterpret_cast<std::byte*>(options_.network.note(other, own))};
  }
  for (std::size_t lane = 0; lane < options_.lanes; ++lane) {
    for (std::size_t peer = 0; peer < bases_.size(); ++peer) {
      if (peer == me) continue;
      const Ends both = is_remote(peer) ? remote_ends(me, peer, lane) : ends_of(me, peer, lane);
      inboxes[layout_.index(lane, peer)] = both.inbox;
      outboxes[layout_.index(lane, peer)] = both.outbox;
      signals[layout_.index(lane, peer)] = both.signal;
    }
  }
  CudaMemory& memory = memories_[me];
  for (std::size_t set = 0; set < options_.more.size(); ++set)
    TUTTI_RETURN_IF_ERROR(connect_more(me, set));
  TUTTI_RETURN_IF_ERROR(memory.write(at.inboxes, inboxes.data(), bytes_in(inboxes)));
  TUTTI_RETURN_IF_ERROR(memory.write(at.outboxes, outboxes.data(), bytes_in(outboxes)));
  TUTTI_RETURN_IF_ERROR(memory.write(at.notes, notes.data(), bytes_in(notes)));
  return memory.write(at.signal_ends, signals.data(), bytes_in(signals));
}

Status CudaRings::connect_more(std::size_t me, std::size_t set) {
  const CudaMeshLayout::More& at = layout_.more[set];
  const std::size_t lanes = options_.more[set].lanes, ranks = layout_.ranks;
  std::vector<RingEnd> inboxes(ranks * lanes), outboxes(inboxes.size());
  const auto tail = [&](std::byte* base, std::size_t number) {
    return reinterpret_cast<std::uint64_t*>(base + at.tails + number * kCudaMeshLine);
  };
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    for (std::size_t peer = 0; peer < ranks; ++peer) {
      if (peer == me) continue;
      const std::size_t here = layout_.index(lane, peer), there = layout_.index(lane, me);
      inboxes[here] = {bases_[me] + at.slots + here * at.ring_bytes, nullptr,
                       tail(bases_[peer], there)};
      outboxes[here] = {bases_[peer] + at.slots + there * at.ring_bytes, nullptr,
                        tail(bases_[me], here)};
    }
  }
  CudaMemory& memory = memories_[me];
  TUTTI_RETURN_IF_ERROR(memory.write(at.inboxes, inboxes.data(), bytes_in(inboxes)));
  return memory.write(at.outboxes, outboxes.data(), bytes_in(outboxes));
}

void CudaRings::take(std::size_t set, int rank, cuda::Arguments& arguments) const {
  const CudaMeshLayout::More& at = layout_.more[set];
  std::byte* const mine = memories_[static_cast<std::size_t>(rank)].data();
  arguments.inboxes = reinterpret_cast<RingEnd*>(mine + at.inboxes);
  arguments.outboxes = reinterpret_cast<RingEnd*>(mine + at.outboxes);
  arguments.slot_bytes = options_.more[set].slot_bytes;
  arguments.format = options_.more[set].format;
}

/// The part that does not depend on a call: the rank and its rings.
cuda::Arguments CudaRings::arguments(int rank) const {
  const CudaMeshLayout& at = layout_;
  std::byte* mine = memories_[static_cast<std::size_t>(rank)].data();
  cuda::Arguments arguments;
  arguments.inboxes = reinterpret_cast<RingEnd*>(mine + at.inboxes);
  arguments.outboxes = reinterpret_cast<RingEnd*>(mine + at.outboxes);
  arguments.signals = reinterpret_cast<SignalEnd*>(mine + at.signal_ends);
  if (has_remote()) arguments.notes = reinterpret_cast<const NoteEnds*>(mine + at.notes);
  arguments.slot_bytes = options_.slot_bytes;
  arguments.slot_count = options_.slot_count;
  arguments.format = options_.format;
  arguments.report = report_of(rank);
  arguments.progress = progress_of(rank);
  arguments.states = reinterpret_cast<cuda::BlockState*>(mine + at.states);
  add_boards(static_cast<std::size_t>(rank), arguments);
  arguments.timeout_ns = static_cast<std::uint64_t>(options_.timeout.count());
  arguments.ranks = static_cast<std::uint32_t>(options_.devices.size());
  arguments.rank = static_cast<std::uint32_t>(rank);
  return arguments;
}

/// Where ranks post what they call.
void CudaRings::add_boards(std::size_t rank, cuda::Arguments& arguments) const {
  const std::size_t board = layout_.board;
  arguments.board_lanes = options_.lanes;
  if (staging_.data() != nullptr) arguments.staged_board = staging_.data() + board;
  for (std::size_t peer = 0; peer < bases_.size(); ++peer) {
    if (peer != rank && is_remote(peer)) continue;
    const bool staged = peer != rank && is_staged(peer);
    arguments.boards[peer] = (staged ? staged_bases_[peer] : bases_[peer]) + board;
    if (staged) arguments.staged_peers |= std::uint64_t{1} << peer;
  }
}

cuda::Report* CudaRings::report_of(int rank) const {
  return reinterpret_cast<cuda::Report*>(reports_.data() +
                                         static_cast<std::size_t>(rank) * kCudaMeshLine);
}

/// Behind the report, in its line.
cuda::Progress* CudaRings::progress_of(int rank) const {
  constexpr std::size_t kReport = 64;
  static_assert(sizeof(cuda::Report) <= kReport &&
                kReport + sizeof(cuda::Progress) <= kCudaMeshLine);
  return reinterpret_cast<cuda::Progress*>(reinterpret_cast<std::byte*>(report_of(rank)) + kReport);
}

CudaRings::LongWait CudaRings::take_wait(int rank) {
  // relaxed: the word says all there is to know.
  const std::uint64_t word =
      std::atomic_ref(progress_of(rank)->waiting).exchange(0, std::memory_order_relaxed);
  return {word >> 16, static_cast<int>(word & 0xffff)};
}

std::uint64_t CudaRings::ended(int rank) const {
  // relaxed: the caller knows by CUDA or by `check` that what it asks about has been written.
  return std::atomic_ref(progress_of(rank)->ended).load(std::memory_order_relaxed);
}

Status CudaRings::check(int rank) const {
  cuda::Report* const report = report_of(rank);
  // acquire: pairs with the release of the kernel that wrote the rest before.
  const std::uint64_t why = std::atomic_ref(report->why).load(std::memory_order_acquire);
  if (why == 0) return ok();
  cuda::Report copy;
  copy.why = why;
  // Beside an abort, a kernel may be writing its calls.
  if (static_cast<cuda::Why>(why & 255) != cuda::Why::kAborted) {
    copy.own = report->own;
    copy.other = report->other;
  }
  return error_of(copy, rank);
}

void CudaRings::abort(int rank) {
  std::uint64_t none = 0;
  // relaxed: nothing else is written. What a kernel said before stays.
  std::atomic_ref(report_of(rank)->why)
      .compare_exchange_strong(none,
                               cuda::report_word(cuda::Why::kAborted, static_cast<unsigned>(rank),
                                                 static_cast<unsigned>(rank)),
                               std::memory_order_relaxed);
}

std::size_t CudaRings::bytes() const {
  std::size_t sum = 0;
  for (const CudaMemory& memory : memories_) sum += memory.size();
  return sum;
}

}  // namespace tutti::exec
