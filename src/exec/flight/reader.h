// File: exec/flight/reader.h: reads flight records, of other processes as well.
//
// What it reads may be changed while it reads, and may be anything: it is copied first, then
// checked. An entry is shown only if it is whole. The writer (Recorder::append) sets an entry's
// number to 0, writes the other words, then writes the new number; numbers only grow. The reader
// copies a track three times. If the first and the third copy have the same number in an entry, the
// entry was not written anew between them, so the second copy of it is whole. Its state may change
// meanwhile: each state says something by itself.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exec/flight/layout.h"

namespace tutti::exec::flight {

/// A call or message as a reader sees it. Times are of monotonic_ns; 0: not known.
struct Seen {
  std::uint64_t number = 0;  // Grows from one to the next.
  std::uint64_t call = 0;    // The communicator's number; 0: a message.
  std::uint64_t what = 0, count = 0;
  std::int64_t begin_ns = 0, end_ns = 0;
  /// For devices: while it runs, when it was first seen at state.at; once it is over, the moment
  /// after which it ended. The host learns of the end later: that is end_ns.
  std::int64_t reached_ns = 0, end_after_ns = 0;
  State state;
  std::string plan;

  bool running() const { return state.outcome == static_cast<std::uint8_t>(Outcome::kRunning); }
  bool message() const { return call == 0; }
  /// The rank at the other end of a message; -1: any.
  int peer() const { return static_cast<std::int16_t>(what); }
};

/// What a rank has done since its communicator was made.
struct SeenTotals {
  std::array<std::uint64_t, kKinds> calls{}, bytes{};
  std::uint64_t messages = 0, message_bytes = 0;
  std::int64_t call_ns = 0;
  struct Wait {
    std::uint64_t calls = 0;
    std::int64_t ns = 0;
  };
  std::vector<Wait> waits;  // By the rank that came last.
};

struct SeenTrack {
  std::uint64_t pid = 0;
  std::array<std::uint64_t, 2> communicator{};
  int rank = 0, ranks = 1, local_ranks = 1;
  bool devices = false;
  std::int64_t made_ns = 0, seen_ns = 0;  // The second is when it was read;
  std::int64_t ahead_ns = 0;              // then Now::ahead_ns was this.
  std::string transport, host, job;
  std::vector<Seen> entries;  // The latest kEntries, oldest first. Numbers may be missing.
  SeenTotals totals;
};

/// The same moment by both clocks of base/clock.h, and by how much the clock on which hosts agree
/// is ahead of the second one.
struct Now {
  std::uint64_t ticks = 0;
  std::int64_t ns = 0, ahead_ns = 0;
  static Now look();
};

/// Copies bytes of a file from an offset; false: it has fewer.
using Copy = std::function<bool(std::uint64_t offset, std::span<std::byte> to)>;

/// The tracks in use; empty if this is no file of flight records of this layout.
std::vector<SeenTrack> read_file(const Copy& copy, const Now& now);
/// One track, of which `copy` has nothing else.
std::optional<SeenTrack> read_track(const Copy& copy, const Now& now);
class Recorder;
/// That of a rank of this process. Any thread, while the recorder lives. Some 0.1 ms.
std::optional<SeenTrack> read_own(const Recorder& recorder);

/// The bytes of one block (see Collective), or of a message.
std::uint64_t bytes_of(const Seen& seen);
/// "all_reduce of 1024 float32 (sum)", "recv of 3 float32 from rank 1".
std::string describe(const Seen& seen);
/// "all_reduce", "barrier", "send".
std::string_view name_of(const Seen& seen);
/// The name of a kind of calls, as Sums counts them.
std::string_view kind_name(std::size_t kind);
/// With ? in place of all that a terminal might not show.
std::string printable(std::string_view text);
/// Corrects what an entry can't have said: ranks that there aren't, an end before its begin.
void make_sound(Seen& seen, int ranks);
/// "waits for ranks to come", "runs its plan".
std::string_view to_string(At at);
/// "ok", "running", "timeout".
std::string_view outcome_name(const State& state);

}  // namespace tutti::exec::flight
