// File: transport/region.h: the memory that the ranks of a node share for one communicator.
//
// Layout (every part on cache lines of its own, every rank's section on pages of its own, which
// that rank touches first, so that they lie on its NUMA node):
//
//   header      magic, configuration, abort word
//   section r   doorbell, record of the latest calls, count of finished calls, whether it has left,
//               board (what r tells all others when calls are no longer possible),
//               tables of blocks, call lines       for each of kCalls calls kCallLines lines of
//               {tag, 56 bytes}:
//                                rank r tells all others
//               packets          packet_slots slots for messages that outgrow a line
//               multicast rings  one per lane, rank r writes, all others read
//               channels         per (sender, lane): the ring from that sender to r; its slots may
//                                be apart (gpudirect_slots.h)
//               messages         per sender: the ring for messages from that sender to r
//               signals          per (sender, lane): the counter that r waits on
//               notes            per sender: its note to r, if there are any (note.h)
//
// Nothing in here is a pointer: every rank maps it at an address of its own. A value that a peer
// wrote is never used as an index or a length without a check.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/hash.h"
#include "base/wait.h"
#include "transport/gpudirect_slots.h"
#include "transport/note.h"
#include "transport/ring.h"
#include "tutti/result.h"

namespace tutti {

inline constexpr std::size_t kCacheLine = 64;
/// Parts of a section lie in different pairs of lines: Intel's CPUs fetch a line together with the
/// other one of its aligned pair, and so would take a line away from the rank that writes it.
inline constexpr std::size_t kLinePair = 2 * kCacheLine;
// That a rank may be ahead of the others, in rooted calls. Where ranks share CPUs that is how many
// are made between two switches: measured with 4 ranks on 2 CPUs, 128 bytes, 64 calls are 1.4
// to 1.8 times faster than 16. With a CPU each, fewer lines are found again sooner: a bare ring of
// 5 lines a call between 2 processes takes a third to two thirds of the time with 16 places, of one
// line as long or a little longer (2 cores of an EPYC, not quiet, 2026-11-22).
inline constexpr std::uint32_t kCalls = 64;
inline constexpr std::uint32_t kCallsIfCpuEach = 16;
inline constexpr std::size_t kCallLines = 10;  // 512 bytes fit: 8 in line, 2 for the tags.
inline constexpr std::size_t kLinePayload = 56;
inline constexpr std::size_t kCallPayload = kCallLines * kLinePayload;

/// Sizes that all ranks agree on. It has more than 15 fields: one for each size and number.
struct RegionConfig {
  std::uint32_t rank_count = 1;
  std::uint32_t lanes = 1;
  std::uint32_t slot_count = 2;       // Per channel.
  std::uint32_t multicast_slots = 2;  // Per multicast ring.
  std::uint32_t packet_slots = 4;     // Per rank.
  std::uint32_t calls = kCalls;       // That a rank may be ahead; at most kCalls.
  std::uint32_t fence = 0;            // 1: some rank has no heavy barrier, see notify.
  std::uint64_t slot_bytes = 32768;
  std::uint64_t packet_bytes = 32768;
  std::uint64_t long_packet_bytes = 0;  // In the memory of the others; 0: there are none.
  std::uint32_t long_packet_slots = 0;
  std::uint64_t message_bytes = 4096;  // Per slot of a ring for messages.
  std::uint32_t message_slots = 2;
  std::uint32_t replica = 0;    // 1: a replica of one rank's own, see remote_link.h.
  std::uint32_t gpudirect = 0;  // 1: no channel has its slots in here, see gpudirect_slots.h.
  std::uint32_t notes = 0;      // 1: each rank has a note for each other, see note.h.
  friend bool operator==(const RegionConfig&, const RegionConfig&) = default;
};

/// A rank's message to the others at the start of a call, in as many cache lines as needed. Every
/// line has the tag, so that each is complete once its tag is seen and all travel at the same time.
/// The tag is the call's number and a digest of all calls up to it (exec/calls/call_digest.h):
/// ranks whose calls differ, now or before, have different tags.
struct alignas(kCacheLine) CallLine {
  std::atomic<std::uint64_t> tag{0};
  std::array<std::byte, kLinePayload> payload{};
};

/// One call of a rank, or the first of a run of alike calls. Number 0: none yet.
struct CallEntry {
  std::atomic<std::uint64_t> number{0};
  std::atomic<std::uint64_t> what{0};  // Packed: collective, type, operation, root.
  std::atomic<std::uint64_t> count{0};
  std::atomic<std::uint64_t> digest{0};  // Digest of all calls up to this one.
};

/// A copy of an entry, without its number.
struct CallSeen {
  std::uint64_t what = 0, count = 0, digest = 0;
};

/// The latest calls of a rank, and its CPU. Peers read it only if they have waited long or have
/// found a call that differs. It holds at least as many calls as ranks may be apart, so that ranks
/// can also compare a call that one is in and the other has left.
///
/// The rank itself writes an entry for a run of calls, each like the one before, and in each
/// further call of the run one word: stores that wait behind a line on its way to a peer delay the
/// next calls. A link that writes the record of a rank on another host does not see all calls, so
/// it writes an entry for each that it sees.
struct alignas(kCacheLine) CallRecord {
  /// By how much the digest of a call that repeats the one before is larger.
  static constexpr std::uint64_t kDigestStep = kGoldenRatio;

  std::atomic<std::uint64_t> number{0};  // The latest call's.
  std::atomic<std::int32_t> cpu{0};      // 1 + the CPU on which that call began; 0: not known.
  // As RankStatus::waits_for, but set at once, and only while the caller's thread waits for that
  // rank's lines and sends nothing. Never cleared: it has no meaning once that rank's lines are
  // there.
  std::atomic<std::uint64_t> blocked_on{0};
  std::atomic<std::uint64_t> runs{0};  // So far; 0: there is an entry for each call.
  alignas(kCacheLine) std::array<CallEntry, kCalls> calls{};

  /// Notes a call that begins a run: the one after the latest, as a run has no gaps. The rank
  /// itself does so.
  void begin_run(std::uint64_t of, const CallSeen& call) {
    // relaxed: only this thread writes it.
    const std::uint64_t run = runs.load(std::memory_order_relaxed) + 1;
    write(calls[run % kCalls], of, call);
    // release: see look_up.
    runs.store(run, std::memory_order_release);
    go_on(of);
  }
  /// Notes a call that repeats the latest, which has the number before.
  void go_on(std::uint64_t of) {
    // release: a reader that sees the number sees the entry.
    number.store(of, std::memory_order_release);
  }
  /// Notes a call on behalf of a rank on another host. Numbers may be left out.
  void note(std::uint64_t of, const CallSeen& call) {
    put(of, call);
    go_on(of);
  }
  /// The same for a call that is not the latest.
  void put(std::uint64_t of, const CallSeen& call) { write(calls[of % kCalls], of, call); }

  /// The call of that number, which the caller has seen in `number`, or a later one; empty: the
  /// record does not have it.
  std::optional<CallSeen> look_up(std::uint64_t of) const {
    if (of == 0) return std::nullopt;
    // acquire: with a newer run than the caller's number, that run's entry is there.
    const std::uint64_t latest = runs.load(std::memory_order_acquire);
    if (latest == 0) return read(calls[of % kCalls], of, of);
    // From the latest run back. If a run is gone, those before it are gone too, and as the numbers
    // are loaded with acquire, they show it.
    for (std::uint64_t run = latest; run != 0 && latest - run < kCalls; --run) {
      const CallEntry& entry = calls[run % kCalls];
      const std::uint64_t first = entry.number.load(std::memory_order_acquire);
      if (first <= of) return read(entry, first, of);
    }
    return std::nullopt;
  }

 private:
  static void write(CallEntry& entry, std::uint64_t of, const CallSeen& call) {
    // relaxed, then a release fence: a reader that sees any later store sees the new number.
    entry.number.store(of, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    entry.what.store(call.what, std::memory_order_relaxed);
    entry.count.store(call.count, std::memory_order_relaxed);
    entry.digest.store(call.digest, std::memory_order_relaxed);
  }
  /// Call `of` by the entry of the run that began with `first`; empty: the entry is another run's.
  static std::optional<CallSeen> read(const CallEntry& entry, std::uint64_t first,
                                      std::uint64_t of) {
    if (first == 0 || entry.number.load(std::memory_order_acquire) != first) return std::nullopt;
    // relaxed: the fence keeps these loads before the second look at the number, which shows
    // whether they belong together.
    const CallSeen seen{entry.what.load(std::memory_order_relaxed),
                        entry.count.load(std::memory_order_relaxed),
                        entry.digest.load(std::memory_order_relaxed) + (of - first) * kDigestStep};
    std::atomic_thread_fence(std::memory_order_acquire);
    if (entry.number.load(std::memory_order_relaxed) != first) return std::nullopt;
    return seen;
  }
};

/// Whether a rank still takes part, and in what. Peers read it only to end a call early.
struct alignas(kCacheLine) RankStatus {
  /// 1 + the last call that the rank finished before it destroyed its communicator; 0: it has not
  /// done so. A peer that sees it sees all that the rank wrote for others.
  std::atomic<std::uint64_t> left{0};
  /// The call in which the rank may write into its peers' buffers now; 0: none.
  std::atomic<std::uint64_t> busy{0};
  /// 1 + the rank from whose memory this one may copy a message now; 0: none.
  std::atomic<std::uint64_t> reads_from{0};
  /// 1 + the rank for which the rank has waited long, or whose process it asks now, and from bit 16
  /// on the call (exec/calls/call_digest.h); 0: none.
  std::atomic<std::uint64_t> waits_for{0};
};

/// The blocks that a rank gives one rank and gets from it, in elements.
struct BlockView {
  std::uint64_t gives = 0, gets = 0;
  std::uint64_t input_at = 0, output_at = 0;  // From the start of its buffers.
};
/// Tables that a rank writes in turn: as many as there may be calls between two of which it says
/// that it has finished them (exec::CallBoard).
inline constexpr std::uint32_t kBlockTables = kCalls / 4;

/// Bytes of the text of an error that ends a communicator, with a final zero. The text fits one
/// short frame.
inline constexpr std::size_t kAbortText = 900;

struct RegionHeader {
  std::uint64_t magic = 0;
  RegionConfig config;
  alignas(kCacheLine) std::atomic<std::uint32_t> abort_state{0};  // 0 no, 1 being written, 2 set.
  std::int32_t abort_code = 0;
  std::int32_t abort_rank = -1;  // The rank that reports it.
  std::int32_t abort_peer = -1;  // The rank to blame.
  std::array<char, kAbortText> abort_text{};
};

/// A view of the shared memory; cheap to copy, owns nothing.
/// It has more than 20 functions: one for each part of the memory.
class Region {
 public:
  Region() = default;
  Region(std::byte* base, const RegionConfig& config);
  /// The same region with sections in several places: `bases` has, by rank, the base of the region
  /// or replica in which that rank's section lies, and has to stay where it is. The header is
  /// `base`'s.
  Region(std::byte* base, const RegionConfig& config, std::byte* const* bases)
      : Region(base, config) {
    bases_ = bases;
  }
  /// For a region with config.apart: where the slots of `me`'s channels are. That object has to
  /// outlive the region. Other channels have no slots.
  void use_gpudirect_slots(int me, const GpuDirectSlots& gpudirect) {
    me_ = me;
    gpudirect_ = &gpudirect;
  }

  static std::size_t bytes_for(const RegionConfig& config);
  /// Sizes for `rank_count` ranks: within 8 MiB up to 8 ranks, all ranks together.
  static RegionConfig default_config(int rank_count);
  /// The same where some ranks are on other hosts: longer slots, of at most so many bytes; 0: any.
  static RegionConfig network_config(int rank_count, std::size_t longest_slot = 0);

  /// Writes the header into zeroed memory; the leader does this before anybody attaches.
  void format();
  /// Reads the configuration of a formatted region of `bytes` bytes. kMismatch if it is not ours.
  static Result<RegionConfig> inspect(const std::byte* base, std::size_t bytes);
  /// Places `rank`'s section near this thread, which is that rank's, and makes resident what every
  /// call needs. Packets become resident with the first call that needs one, and rings page by page
  /// when they are used, because many communicators are hardly used.
  void touch(int rank) const;
  /// Makes all of `rank`'s packets resident at once. Calls take packets in turn, so page by page
  /// some 64 calls would be delayed.
  void touch_packets(int rank) const {
    make_resident(at<std::byte>(rank, packets_), multicast_ - packets_);
  }

  const RegionConfig& config() const { return config_; }
  RegionHeader& header() const { return *reinterpret_cast<RegionHeader*>(base_); }
  Doorbell& doorbell(int rank) const { return *at<Doorbell>(rank, doorbell_); }
  CallRecord& record(int rank) const { return *at<CallRecord>(rank, record_); }
  Counter& finished(int rank) const { return *at<Counter>(rank, finished_); }
  RankStatus& status(int rank) const { return *at<RankStatus>(rank, status_); }
  /// What the rank tells all others outside of calls: exec/recovery_board.h.
  Note& board(int rank) const { return *at<Note>(rank, board_); }
  /// The first of the kCallLines lines at a place.
  CallLine* lines(int rank, std::uint64_t place) const {
    return at<CallLine>(rank, lines_) + place % kCalls * kCallLines;
  }
  /// Its blocks, by rank, in calls whose blocks differ in size.
  BlockView* blocks(int rank, std::uint64_t call) const {
    return at<BlockView>(rank, blocks_) + call % kBlockTables * config_.rank_count;
  }
  /// The packet of a call, of `packet_bytes` or of `long_packet_bytes`.
  std::byte* packet(int rank, std::uint64_t call, bool is_long = false) const {
    const std::size_t bytes = is_long ? config_.long_packet_bytes : config_.packet_bytes;
    return at<std::byte>(rank, packets_) + call % packet_slots(is_long) * bytes;
  }
  std::uint32_t packet_slots(bool is_long) const {
    return is_long ? config_.long_packet_slots : config_.packet_slots;
  }
  std::size_t longest_packet() const {
    return std::max(config_.packet_bytes, config_.long_packet_bytes);
  }
  Ring channel(int from, int to, int lane) const;
  Ring multicast(int from, int lane) const;
  Ring messages(int from, int to) const;
  Counter& signal(int from, int to, int lane) const {
    return at<Counter>(to, signals_)[static_cast<std::uint32_t>(from) * config_.lanes +
                                     static_cast<std::uint32_t>(lane)];
  }

  /// Null: there are none.
  Note* note(int from, int to) const {
    return config_.notes == 0 ? nullptr : at<Note>(to, notes_) + from;
  }

  /// Sets the abort word, once; the first error stays. Wakes every rank. True if it was the first.
  bool abort(const Error& error) const;
  /// Whether some rank has ended the communicator, or is about to. Costs one load, from a cache
  /// line that no rank writes until then.
  bool ending() const {
    // relaxed: abort_error() orders what is read then.
    return header().abort_state.load(std::memory_order_relaxed) != 0;
  }
  bool aborted() const {
    // acquire: a thread that sees 2 sees the text as well.
    return header().abort_state.load(std::memory_order_acquire) == 2;
  }
  /// The error that was given to `abort`, with the rank that reported it and the rank to blame.
  /// Waits a moment for its text.
  Error abort_error() const;

 private:
  static void make_resident(std::byte* data, std::size_t bytes);
  Ring ring_at(std::byte* base, std::size_t readers, std::size_t slot_bytes,
               std::uint32_t slots) const;
  std::size_t ring_bytes(std::size_t readers, std::size_t slot_bytes, std::uint32_t slots) const;
  std::byte* gpudirect_slots(int from, int to, int lane) const;

  template <class T>
  T* at(int rank, std::size_t offset) const {
    std::byte* const base = bases_ == nullptr ? base_ : bases_[rank];
    return reinterpret_cast<T*>(base + sections_ + static_cast<std::size_t>(rank) * section_bytes_ +
                                offset);
  }

  std::byte* base_ = nullptr;
  std::byte* const* bases_ = nullptr;  // By rank; null: all in one.
  const GpuDirectSlots* gpudirect_ = nullptr;
  int me_ = -1;  // The rank whose slots are in apart_.
  RegionConfig config_;
  std::size_t sections_ = 0, section_bytes_ = 0;  // Offset of the first section, size of each.
  // Offsets within a section.
  std::size_t doorbell_ = 0, record_ = 0, finished_ = 0, status_ = 0, board_ = 0, lines_ = 0,
              blocks_ = 0, notes_ = 0, packets_ = 0, multicast_ = 0, channels_ = 0, signals_ = 0,
              messages_ = 0;
  std::size_t multicast_bytes_ = 0, channel_bytes_ = 0, message_bytes_ = 0;
};

}  // namespace tutti
