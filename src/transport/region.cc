#include "transport/region.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <new>
#include <thread>

#include "base/check.h"
#include "base/cpus.h"
#include "base/one_line.h"

#ifdef TUTTI_HAVE_HWLOC
#include <hwloc.h>
#endif

namespace tutti {
namespace {

constexpr std::uint64_t kMagic = 0x747574746930330bULL;  // Changes whenever the layout does.
constexpr std::size_t kPage = 4096;

constexpr std::size_t round_up(std::size_t bytes, std::size_t to) {
  return (bytes + to - 1) / to * to;
}

/// The number of `from`'s ring among the rings to a rank: no rank sends to itself.
std::size_t place_among_peers(int from, int to) {
  TUTTI_DCHECK(from != to);
  return static_cast<std::size_t>(from < to ? from : from - 1);
}

#ifdef TUTTI_HAVE_HWLOC
/// The machine as hwloc sees it, loaded once; null if it can't be. Without I/O devices: this is
/// about memory, and looking for devices is what takes time.
hwloc_topology_t machine() {
  static const hwloc_topology_t topology = [] {
    hwloc_topology_t made = nullptr;
    if (hwloc_topology_init(&made) != 0) return hwloc_topology_t{};
    hwloc_topology_set_io_types_filter(made, HWLOC_TYPE_FILTER_KEEP_NONE);
    if (hwloc_topology_load(made) == 0) return made;
    hwloc_topology_destroy(made);
    return hwloc_topology_t{};
  }();
  return topology;
}

/// Calls `use` with the NUMA nodes near the CPU that this thread last ran on.
template <class Use>
void with_local_nodes(Use use) {
  const hwloc_cpuset_t cpus = hwloc_bitmap_alloc();
  const hwloc_nodeset_t nodes = hwloc_bitmap_alloc();
  if (hwloc_get_last_cpu_location(machine(), cpus, HWLOC_CPUBIND_THREAD) == 0 &&
      hwloc_cpuset_to_nodeset(machine(), cpus, nodes) == 0 && !hwloc_bitmap_iszero(nodes)) {
    use(nodes);
  }
  hwloc_bitmap_free(cpus);
  hwloc_bitmap_free(nodes);
}
#endif

/// Binds pages that nobody has touched yet to the calling thread's NUMA node. Best effort: without
/// hwloc, or on a machine with one node, the first touch decides, which comes to the same for a
/// pinned rank.
void place_near_this_thread([[maybe_unused]] void* data, [[maybe_unused]] std::size_t bytes) {
#ifdef TUTTI_HAVE_HWLOC
  if (numa_nodes() <= 1 || machine() == nullptr) return;
  with_local_nodes([&](hwloc_const_nodeset_t nodes) {
    hwloc_set_area_membind(machine(), data, bytes, nodes, HWLOC_MEMBIND_BIND,
                           HWLOC_MEMBIND_BYNODESET);
  });
#endif
}

}  // namespace

Region::Region(std::byte* base, const RegionConfig& config) : base_(base), config_(config) {
  const std::size_t ranks = config.rank_count, lanes = config.lanes;
  multicast_bytes_ = ring_bytes(ranks, config.slot_bytes, config.multicast_slots);
  channel_bytes_ = ring_bytes(1, config.slot_bytes, config.slot_count);
  if (config.gpudirect != 0) channel_bytes_ -= config.slot_count * config.slot_bytes;
  message_bytes_ = ring_bytes(1, config.message_bytes, config.message_slots);
  std::size_t offset = 0;
  const auto place = [&offset](std::size_t bytes) {
    const std::size_t here = offset;
    offset = round_up(offset + bytes, kLinePair);
    return here;
  };
  doorbell_ = place(sizeof(Doorbell));
  record_ = place(sizeof(CallRecord));
  finished_ = place(sizeof(Counter));
  status_ = place(sizeof(RankStatus));
  board_ = place(sizeof(Note));
  lines_ = place(kCalls * kCallLines * sizeof(CallLine));
  blocks_ = place(kBlockTables * ranks * sizeof(BlockView));
  signals_ = place(ranks * lanes * sizeof(Counter));
  notes_ = place(config.notes != 0 ? ranks * sizeof(Note) : 0);
  packets_ = place(std::max(config.packet_slots * config.packet_bytes,
                            config.long_packet_slots * config.long_packet_bytes));
  multicast_ = place(lanes * multicast_bytes_);
  channels_ = place((ranks - 1) * lanes * channel_bytes_);
  messages_ = place((ranks - 1) * message_bytes_);
  sections_ = round_up(sizeof(RegionHeader), kPage);
  section_bytes_ = round_up(offset, kPage);
}

std::size_t Region::bytes_for(const RegionConfig& config) {
  const Region region(nullptr, config);
  return region.sections_ + config.rank_count * region.section_bytes_;
}

RegionConfig Region::default_config(int rank_count) {
  RegionConfig config;
  config.rank_count = static_cast<std::uint32_t>(rank_count);
  // Rings are deep: a slot that is used again while it still lies in the second-level cache of the
  // reader, or read while it lies in the writer's, costs a transfer from one core's cache to the
  // other's. Once as much as these caches hold (1 MiB each) has passed since, the third level
  // answers instead. Measured on 2 cores of an EPYC, 2 ranks, 512 KiB: 78 us with 2 slots of
  // 32 KiB, 67 with 8, 37 with 16, 32 with 32; packets of 16 KiB: 2.4 us with 4 slots, 1.5 with 64;
  // on a Xeon 2.3 us with 64, 2.1 with 32 and 1.7 with 16.
  // More ranks share what 8 MiB of memory allow. Up to 4 do better with fewer, longer slots, as
  // they wait for each other once for each: 128 KiB instead of 32 take 0.7 to 0.95 of the time
  // (docs/decisions/0007-deep-rings.md).
  if (rank_count <= 2) {
    config.slot_bytes = 32768, config.slot_count = 8, config.multicast_slots = 32;
    config.packet_bytes = 16384, config.packet_slots = 64;
    config.long_packet_bytes = 65536, config.long_packet_slots = 32;
    config.message_bytes = 16384, config.message_slots = 8;
  } else if (rank_count <= 4) {
    config.slot_bytes = 131072, config.slot_count = 2, config.multicast_slots = 4;
    config.packet_bytes = 16384, config.packet_slots = 32;
    config.long_packet_bytes = 65536, config.long_packet_slots = 8;
    config.message_bytes = 8192, config.message_slots = 4;
  } else if (rank_count <= 8) {
    config.slot_bytes = 32768, config.slot_count = 2, config.multicast_slots = 8;
    config.packet_bytes = 8192, config.packet_slots = 27;
    config.long_packet_bytes = 65536, config.long_packet_slots = 3;
    config.message_bytes = 2560, config.message_slots = 2;
  } else {
    config.slot_bytes = rank_count <= 16 ? 16384 : 4096;
    config.slot_count = 2, config.multicast_slots = 8;
    config.packet_bytes = 4096, config.packet_slots = 16;
    config.message_bytes = 2048, config.message_slots = 2;
  }
  return config;
}

RegionConfig Region::network_config(int rank_count, std::size_t longest_slot) {
  RegionConfig config = default_config(rank_count);
  // Not measured over a network: a packet is sent to each of the others.
  config.long_packet_bytes = config.long_packet_slots = 0;
  // A slot is a round of messages between the two, so it takes long ones to fill a network. No more
  // than so much is kept for what peers send to a rank. Measured over TCP, 2 ranks, 512 KiB, 4 MiB
  // and 64 MiB: 2 slots of 512 KiB take 0.80, 0.82 and 0.87 of the time of 4 of 256 KiB; 4 of them
  // 0.92, 0.95, 1.11; 2 of 1 MiB 0.86, 0.91, 1.06: rings that are longer leave the cache.
  constexpr std::size_t kLongest = std::size_t{512} << 10, kAll = std::size_t{64} << 20;
  constexpr std::uint32_t kSlots = 2;
  const std::size_t fits = kAll / (static_cast<std::size_t>(rank_count) * kSlots);
  const std::size_t ring = kSlots * std::bit_floor(std::clamp<std::size_t>(fits, 1, kLongest));
  // Where a slot has to be shorter there are more of them.
  const std::size_t longest = longest_slot == 0 ? kLongest : longest_slot / kCacheLine * kCacheLine;
  const std::size_t slot = std::min(ring / kSlots, longest);
  if (slot <= config.slot_bytes) return config;
  config.slot_bytes = slot;
  config.slot_count = config.multicast_slots = static_cast<std::uint32_t>(ring / slot);
  return config;
}

void Region::format() {
  // The memory is zero, which is the right initial value of everything but the header.
  new (base_) RegionHeader();
  header().config = config_;
  header().magic = kMagic;
}

Result<RegionConfig> Region::inspect(const std::byte* base, std::size_t bytes) {
  const auto* header = reinterpret_cast<const RegionHeader*>(base);
  if (bytes < sizeof(RegionHeader) || header->magic != kMagic) {
    return Error{Code::kMismatch,
                 "the shared memory of rank 0 has another layout: all ranks must "
                 "use the same version of Tutti"};
  }
  const RegionConfig config = header->config;
  if (config.rank_count == 0 || config.rank_count > 4096 || config.lanes == 0 ||
      config.lanes > 64 || config.slot_count == 0 || config.slot_count > 1024 ||
      config.multicast_slots == 0 || config.multicast_slots > 1024 || config.packet_slots == 0 ||
      config.packet_slots > 1024 || config.calls < 2 || config.calls > kCalls ||
      config.calls % 2 != 0 || config.slot_bytes % kCacheLine != 0 || config.slot_bytes == 0 ||
      config.slot_bytes > (std::uint64_t{1} << 30) || config.packet_bytes % kCacheLine != 0 ||
      config.packet_bytes > (std::uint64_t{1} << 30) ||
      config.long_packet_bytes % kCacheLine != 0 ||
      config.long_packet_bytes > (std::uint64_t{1} << 30) || config.long_packet_slots > 1024 ||
      (config.long_packet_bytes == 0) != (config.long_packet_slots == 0) ||
      config.message_slots == 0 || config.message_slots > 1024 ||
      config.message_bytes % kCacheLine != 0 || config.message_bytes < 2 * kCacheLine ||
      config.message_bytes > (std::uint64_t{1} << 30) || bytes_for(config) > bytes) {
    return Error{Code::kMismatch, "the shared memory of rank 0 has impossible sizes in its header"};
  }
  return config;
}

void Region::touch(int rank) const {
  std::byte* section = at<std::byte>(rank, 0);
  place_near_this_thread(section, section_bytes_);
  make_resident(section, packets_);
}

/// Makes the pages resident that begin in it.
void Region::make_resident(std::byte* data, std::size_t bytes) {
  const std::size_t skip = -reinterpret_cast<std::uintptr_t>(data) % kPage;
  if (skip >= bytes) return;
  data += skip, bytes -= skip;
  if (madvise(data, bytes, MADV_POPULATE_WRITE) == 0) return;
  for (std::size_t at_byte = 0; at_byte < bytes; at_byte += kPage) {
    // fetch_add 0 writes to the page without changing what a peer may have put there already.
    reinterpret_cast<std::atomic<std::uint64_t>*>(data + at_byte)
        ->fetch_add(0, std::memory_order_relaxed);
  }
}

// Head, tails, slots; where slots are carried, also how much of each is used, and their stamps.
Ring Region::ring_at(std::byte* base, std::size_t readers, std::size_t slot_bytes,
                     std::uint32_t slots) const {
  auto* counters = reinterpret_cast<Counter*>(base);
  std::byte* first = base + (1 + readers) * sizeof(Counter);
  auto* used = reinterpret_cast<std::uint32_t*>(first + slots * slot_bytes);
  Ring ring{first, &counters[0], &counters[1], slot_bytes, slots};
  if (config_.replica != 0) ring.used = used, ring.stamps = used + slots;
  return ring;
}

std::size_t Region::ring_bytes(std::size_t readers, std::size_t slot_bytes,
                               std::uint32_t slots) const {
  const std::size_t said =
      config_.replica != 0 ? std::size_t{2} * slots * sizeof(std::uint32_t) : 0;
  return (1 + readers) * sizeof(Counter) + slots * slot_bytes + round_up(said, kCacheLine);
}

Ring Region::channel(int from, int to, int lane) const {
  const auto index = place_among_peers(from, to) * config_.lanes + static_cast<std::size_t>(lane);
  Ring ring = ring_at(at<std::byte>(to, channels_) + index * channel_bytes_, 1, config_.slot_bytes,
                      config_.slot_count);
  if (config_.gpudirect == 0) return ring;
  if (ring.used != nullptr) {
    ring.used = reinterpret_cast<std::uint32_t*>(ring.slots);
    ring.stamps = ring.used + ring.slot_count;
  }
  ring.slots = gpudirect_slots(from, to, lane);
  return ring;
}

/// Null: that channel has none.
std::byte* Region::gpudirect_slots(int from, int to, int lane) const {
  if (gpudirect_ == nullptr || (from != me_ && to != me_)) return nullptr;
  const bool out = from == me_;
  const GpuDirectRanges at = gpudirect_ranges(config_, gpudirect_->hosts, me_, out ? to : from);
  if (at.bytes == 0) return nullptr;
  return gpudirect_->memory.data() + (out ? at.out : at.in) +
         static_cast<std::size_t>(lane) * config_.slot_count * config_.slot_bytes;
}

Ring Region::multicast(int from, int lane) const {
  return ring_at(
      at<std::byte>(from, multicast_) + static_cast<std::size_t>(lane) * multicast_bytes_,
      config_.rank_count, config_.slot_bytes, config_.multicast_slots);
}

Ring Region::messages(int from, int to) const {
  return ring_at(at<std::byte>(to, messages_) + place_among_peers(from, to) * message_bytes_, 1,
                 config_.message_bytes, config_.message_slots);
}

bool Region::abort(const Error& error) const {
  RegionHeader& head = header();
  std::uint32_t expected = 0;
  // seq_cst: only one rank gets to write the text. After this, either this rank sees that a rank is
  // busy, or a rank that becomes busy sees this (exec::PlanPath::start).
  const bool first =
      head.abort_state.compare_exchange_strong(expected, 1, std::memory_order_seq_cst);
  if (first) {
    head.abort_code = static_cast<int>(error.code);
    head.abort_rank = error.rank.value;
    head.abort_peer = error.peer.value;
    const std::size_t length = std::min(error.what.size(), head.abort_text.size() - 1);
    std::memcpy(head.abort_text.data(), error.what.data(), length);
    head.abort_text[length] = 0;
    head.abort_state.store(2, std::memory_order_release);  // release: publishes the text.
  }
  for (std::uint32_t rank = 0; rank < config_.rank_count; ++rank)
    ring(doorbell(static_cast<int>(rank)));
  return first;
}

Error Region::abort_error() const {
  constexpr std::chrono::milliseconds kPatience{100}, kNap{1};
  const RegionHeader& head = header();
  for (auto waited = kNap; !aborted() && waited < kPatience; waited += kNap)
    std::this_thread::sleep_for(kNap);
  if (!aborted()) return {Code::kAborted, "the rank that ended it was stopped before it said why"};
  const auto end = std::find(head.abort_text.begin(), head.abort_text.end(), '\0');
  const bool known = head.abort_code > 0 && head.abort_code <= static_cast<int>(kLastCode);
  const Code code = known ? static_cast<Code>(head.abort_code) : Code::kAborted;
  // A rank that aborts is to blame itself; for other errors the reporting rank is not.
  const int blamed =
      head.abort_peer < 0 && code == Code::kAborted ? head.abort_rank : head.abort_peer;
  // A peer wrote these, and a program may give any reason: the text has to stay one line.
  std::string text = one_line({head.abort_text.begin(), end});
  const auto known_rank = [this](int rank) {
    return Rank{rank >= 0 && static_cast<std::uint32_t>(rank) < config_.rank_count ? rank : -1};
  };
  return {code, text.empty() ? "no reason was given" : std::move(text), known_rank(head.abort_rank),
          known_rank(blamed)};
}

}  // namespace tutti
