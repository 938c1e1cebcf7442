// File: exec/flight/layout.h: the flight record of a process, as it lies in memory.
//
// A process has one memfd, kFileName, with a head and kTracks tracks. A track belongs to one rank
// of one communicator, and has a head, totals and a ring of kEntries entries: messages and calls.
// `tutti status` finds the memfd in /proc/PID/fd and reads it there: the memory is gone when the
// process is, and nothing has to be cleaned up. With TUTTI_FLIGHT it is a file in that folder,
// which a process removes when it ends, and leaves if it is killed (place.h).
//
// Everything is a word of 64 bits. The writer (recorder.h) stores words one by one; a reader
// (reader.h) in another process copies the file by pread. Both use these templates, with atomic
// words and with plain ones. A reader trusts no word: it checks numbers and makes texts printable.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tutti/types.h"

namespace tutti::exec::flight {

inline constexpr const char* kFileName = "tutti-flight";
inline constexpr const char* kFileEnd = ".record";  // In a folder.
/// "tuttifl", and a number that changes whenever the layout does.
inline constexpr std::uint64_t kMagic = 0x7475747469666c06ULL;
inline constexpr std::size_t kTracks = 1024;
inline constexpr std::size_t kEntries = 4096;
/// Eager calls that may share an entry.
inline constexpr std::size_t kEntryCalls = 64;
/// An entry of eager calls has a time if this divides the number of the first.
inline constexpr std::size_t kStampCalls = 16;
inline constexpr std::size_t kPlans = 32;
inline constexpr std::size_t kPage = 4096;
inline constexpr std::size_t kMostRanks = 4096;

/// What a call is at, or how it ended; see State.
enum class Outcome : std::uint8_t { kRunning, kOk, kFailed };  // From kFailed on: kFailed + Code.
/// The phases of a call (HostExecutor), and kMessage for an entry that is no call.
enum class At : std::uint8_t {
  kCredit,
  kGather,
  kLanes,
  kLeave,
  kStopping,  // It failed; ranks that write into its buffers have to stop first.
  kDone,
  kMessage,
  // Those of calls and messages of devices (cuda/comm/call_record.h), which keep them when they are
  // over.
  kLaunched,  // It is on its stream.
  kOnDevice,  // It was the first that was not known to be over, when somebody looked.
  kBegun      // Its kernel has said that it waits for a rank.
};
/// Whether it is a call or a message of a device.
constexpr bool of_device(At at) { return at >= At::kLaunched; }
/// State::tile counts so many ticks, of a call of a device.
inline constexpr std::uint64_t kTileTicks = 1024;

/// The word `state` of an entry.
struct State {
  std::uint8_t outcome = 0;
  At at = At::kCredit;
  int awaited = -1;  // The rank that it waits for; -1: none.
  // At kLanes the plan's. An entry of eager calls says how many it has besides the first; all but
  // the last one have ended well. In a call of a device, in kTileTicks: while it runs, from its
  // begin to when it was first seen at `at`; once it is over, by how much it may have ended before
  // the entry's end.
  std::uint32_t tile = 0;

  constexpr std::uint64_t packed() const {
    return std::uint64_t{tile} << 32 | static_cast<std::uint64_t>(awaited + 1) << 16 |
           static_cast<std::uint64_t>(at) << 8 | outcome;
  }
  static constexpr State of(std::uint64_t word) {
    return {static_cast<std::uint8_t>(word), static_cast<At>(word >> 8 & 0xff),
            static_cast<int>(word >> 16 & 0xffff) - 1, static_cast<std::uint32_t>(word >> 32)};
  }
};

/// The word `what` of a message: a call's has bit 63 set (exec::pack).
inline constexpr std::uint64_t kMessage = std::uint64_t{1} << 62, kSends = std::uint64_t{1} << 61;

/// A call, or a round of one in which ranks agree on a plan; or eager calls; or a message.
template <class Word>
struct alignas(64) Entry {
  Word number{0};  // Counts the entries of a track from 1; 0: it is being written.
  Word call{0};    // The communicator's number of the round, or the first call's; 0: a message.
  Word what{0};    // exec::pack, and how it goes; of a message kMessage, type from bit 40, peer.
  Word count{0};   // Elements.
  Word begin{0};   // ticks(), of eager calls the first one's; 0: not looked up.
  Word end{0};     // The same, of eager calls the last one's; of devices, when the host saw it.
  Word state{0};   // State.
  Word plan{0};    // 1 + its place in Track::plans; 0: none.
};

template <class Word, std::size_t bytes>
using Text = std::array<Word, bytes / sizeof(std::uint64_t)>;

/// The head of a track. All but `serial`, `plan_count` and `plans` stays as it is.
template <class Word>
struct alignas(kPage) Head {
  Word serial{0};                      // No other track of this process has it; 0: not in use.
  std::array<Word, 2> communicator{};  // Alike on all its ranks, and of no other communicator.
  Word rank{0}, ranks{0}, local_ranks{0};
  Word devices{0};                 // 1: it serves a communicator of devices.
  Word made_ticks{0}, made_ns{0};  // The same moment by both clocks.
  Word plan_count{0};
  Text<Word, 16> transport{};
  Text<Word, 64> host{}, job{};
  std::array<Text<Word, 56>, kPlans> plans{};  // Names.
};

/// Totals count calls by collective; barriers come last.
inline constexpr std::size_t kBarrier = kCollectiveCount, kKinds = kCollectiveCount + 1;

/// Calls that are alike and follow each other.
template <class Word>
struct Run {
  Word begin{0};  // The number of its first round; 0: there is none.
  Word kind{0};
  Word bytes{0};  // Per call.
  Word eager{0};  // 1: each further round is one more call. 0: the run is one call.
};

/// Calls by kind. The latest run is not in the sums: it goes on without a store.
template <class Word>
struct alignas(64) Sums {
  Word version{0};  // Odd: it is being written.
  std::array<Word, kKinds> calls{}, bytes{};
  Run<Word> run;
};

/// What a rank has done and waited for since its communicator was made. Each word of the rest says
/// something by itself.
template <class Word>
struct alignas(kPage) Totals {
  Sums<Word> sums;
  Word messages{0}, message_bytes{0};
  Word call_ticks{0};   // In calls by a plan, and in those that waited long.
  Word latest_call{0};  // The latest call, once a message has overwritten its entry; 0: none has.
  /// By the rank that came last to a call: how often and how long this rank waited for it.
  std::array<Word, kMostRanks> wait_calls{}, wait_ticks{};
};

template <class Word>
struct Track {
  Head<Word> head;
  Totals<Word> totals;
  std::array<Entry<Word>, kEntries> entries;
};

template <class Word>
struct alignas(kPage) FileHead {
  Word magic{0};
  Word pid{0};     // In its own namespace.
  Word tracks{0};  // No track from here on was ever used.
};

inline constexpr std::size_t kTrackBytes = sizeof(Track<std::uint64_t>);
inline constexpr std::size_t track_at(std::size_t index) {
  return sizeof(FileHead<std::uint64_t>) + index * kTrackBytes;
}
inline constexpr std::size_t kFileBytes = track_at(kTracks);

}  // namespace tutti::exec::flight
