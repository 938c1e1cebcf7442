#include "exec/flight/reader.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>

#include <fmt/format.h>

#include "base/clock.h"
#include "exec/calls/call.h"
#include "exec/flight/recorder.h"
#include "tutti/result.h"

namespace tutti::exec::flight {
namespace {

using Plain = Track<std::uint64_t>;

// In a communicator that is younger all began when it was made: two looks at the clocks are too
// near to each other to say more.
constexpr std::int64_t kLeastAgeNs = 1'000'000;
// Nobody makes so many: numbers of calls are products of it.
constexpr std::uint64_t kMostEntries = UINT64_MAX / kEntryCalls;
// Looks at sums that are being written.
constexpr int kLooks = 64;

template <class Value>
bool copy_value(const Copy& copy, std::uint64_t offset, Value& to) {
  return copy(offset, std::as_writable_bytes(std::span(&to, 1)));
}

/// Ended by its first zero.
template <std::size_t words>
std::string text_of(const std::array<std::uint64_t, words>& packed) {
  std::array<char, sizeof(packed)> bytes{};
  std::memcpy(bytes.data(), packed.data(), sizeof(packed));
  return printable({bytes.data(), strnlen(bytes.data(), bytes.size())});
}

/// Turns the ticks of a track into nanoseconds.
class Times {
 public:
  Times(const Head<std::uint64_t>& head, const Now& now)
      : made_ticks_(head.made_ticks), made_ns_(static_cast<std::int64_t>(head.made_ns)), now_(now) {
    has_made_ = made_ns_ > 0 && made_ns_ <= now.ns && made_ticks_ < now.ticks;
    known_ = has_made_ && now.ns - made_ns_ >= kLeastAgeNs;
    if (known_)
      ns_per_tick_ =
          static_cast<double>(now.ns - made_ns_) / static_cast<double>(now.ticks - made_ticks_);
  }
  std::int64_t made_ns() const { return has_made_ ? made_ns_ : 0; }
  /// How long so many ticks are.
  std::int64_t length_ns(std::uint64_t ticks) const {
    const double all = static_cast<double>(now_.ticks - made_ticks_);
    return known_
               ? static_cast<std::int64_t>(std::min(static_cast<double>(ticks), all) * ns_per_tick_)
               : 0;
  }
  std::int64_t ns(std::uint64_t ticks) const {
    if (!has_made_ || ticks < made_ticks_ || ticks > now_.ticks) return 0;
    // A young one has ns_per_tick_ 0.
    return made_ns_ +
           static_cast<std::int64_t>(static_cast<double>(ticks - made_ticks_) * ns_per_tick_);
  }

 private:
  std::uint64_t made_ticks_;
  std::int64_t made_ns_;
  Now now_;
  double ns_per_tick_ = 0;
  bool has_made_ = false;  // When the communicator was made is known,
  bool known_ = false;     // and how long a tick is.
};

/// How many calls an entry has besides its first.
std::uint64_t more_calls(const Entry<std::uint64_t>& entry) {
  const bool eager = entry.call != 0 && (entry.what & kEager) != 0;
  return eager ? std::min<std::uint64_t>(State::of(entry.state).tile, kEntryCalls - 1) : 0;
}

/// What the tile of a call of a device says; it has no other.
void place_device_times(Seen& seen, const Times& times) {
  const std::int64_t length_ns = times.length_ns(seen.state.tile * kTileTicks);
  if (seen.running() && seen.state.at != At::kLaunched && seen.begin_ns != 0)
    seen.reached_ns = seen.begin_ns + length_ns;
  if (!seen.running() && seen.end_ns != 0) seen.end_after_ns = seen.end_ns - length_ns;
  seen.state.tile = 0;
}

/// An entry's call of that index.
Seen seen(const Entry<std::uint64_t>& entry, std::uint64_t index, const SeenTrack& track,
          const Times& times, std::span<const std::string> plans) {
  const std::uint64_t more = more_calls(entry);
  Seen seen{.number = (entry.number - 1) * kEntryCalls + index + 1,
            .call = entry.call + index,
            .what = entry.what,
            .count = entry.count,
            .begin_ns = index == 0 ? times.ns(entry.begin) : 0,
            .end_ns = index == more ? times.ns(entry.end) : 0,
            .reached_ns = 0,
            .end_after_ns = 0,
            .state = State::of(entry.state),
            .plan = {}};
  if (more != 0) seen.state.tile = 0;
  if (of_device(seen.state.at)) place_device_times(seen, times);
  if (index != more) seen.state = {static_cast<std::uint8_t>(Outcome::kOk), At::kCredit, -1, 0};
  make_sound(seen, track.ranks);
  if (entry.plan != 0 && entry.plan <= plans.size()) seen.plan = plans[entry.plan - 1];
  return seen;
}

/// The latest kEntries calls and messages of whole entries, oldest first.
std::vector<Seen> calls_of(std::span<const Entry<std::uint64_t>> entries, const SeenTrack& track,
                           const Times& times, std::span<const std::string> plans) {
  std::vector<Seen> calls;
  std::uint64_t next = 0;  // The earliest call so far. A file that says one twice is not trusted.
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    for (std::uint64_t left = more_calls(*entry) + 1; left != 0 && calls.size() < kEntries;
         --left) {
      Seen call = seen(*entry, left - 1, track, times, plans);
      if (!call.message() && next != 0 && call.call >= next) continue;
      if (!call.message()) next = call.call;
      calls.push_back(std::move(call));
    }
  }
  std::ranges::reverse(calls);
  return calls;
}

/// What sums say once the latest run is added, of which `latest` is the last round that was seen.
SeenTotals with_run(const Sums<std::uint64_t>& sums, std::uint64_t latest) {
  SeenTotals totals;
  totals.calls = sums.calls;
  totals.bytes = sums.bytes;
  const Run<std::uint64_t>& run = sums.run;
  if (run.begin == 0 || run.kind >= kKinds) return totals;
  const std::uint64_t calls = run.eager != 0 && latest > run.begin ? latest - run.begin + 1 : 1;
  totals.calls[run.kind] += calls;
  totals.bytes[run.kind] += calls * run.bytes;
  return totals;
}

/// To be read after the entries, so that no round is counted twice.
SeenTotals read_totals(const Copy& copy, std::uint64_t track, const SeenTrack& seen,
                       const Totals<std::uint64_t>& rest, const Times& times) {
  const std::uint64_t at = track + offsetof(Plain, totals);
  Sums<std::uint64_t> sums;
  std::uint64_t before = 0, after = 1;
  for (int looks = 0; looks < kLooks && (before != after || before % 2 != 0); ++looks) {
    if (!copy_value(copy, at, before) || !copy_value(copy, at, sums) ||
        !copy_value(copy, at, after))
      return {};
  }
  // Read once more: an entry may have been taken while the track was copied.
  std::uint64_t latest = 0;
  if (!copy_value(copy, at + offsetof(Totals<std::uint64_t>, latest_call), latest)) return {};
  for (const Seen& entry : seen.entries) latest = std::max(latest, entry.call);
  SeenTotals totals = with_run(sums, latest);
  totals.messages = rest.messages;
  totals.message_bytes = rest.message_bytes;
  totals.call_ns = times.length_ns(rest.call_ticks);
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(seen.ranks); ++rank)
    totals.waits.push_back({rest.wait_calls[rank], times.length_ns(rest.wait_ticks[rank])});
  return totals;
}

std::optional<SeenTrack> read_at(const Copy& copy, std::uint64_t offset, const Now& now) {
  std::uint64_t serial = 0;
  if (!copy_value(copy, offset, serial) || serial == 0) return std::nullopt;
  std::array<std::unique_ptr<Plain>, 3> copies;
  for (auto& one : copies) {
    one = std::make_unique<Plain>();
    if (!copy_value(copy, offset, *one)) return std::nullopt;
    // seq_cst: what one copy has loaded it has loaded before the next one begins.
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  const Head<std::uint64_t>& head = copies[1]->head;
  for (const auto& one : copies) {
    if (one->head.serial != serial) return std::nullopt;  // It is another communicator's now.
  }
  SeenTrack track;
  track.communicator = head.communicator;
  track.devices = head.devices != 0;
  track.transport = text_of(head.transport);
  track.host = text_of(head.host);
  track.job = text_of(head.job);
  if (head.ranks == 0 || head.ranks > kMostRanks || head.rank >= head.ranks) return std::nullopt;
  track.rank = static_cast<int>(head.rank);
  track.ranks = static_cast<int>(head.ranks);
  track.local_ranks = static_cast<int>(std::clamp<std::uint64_t>(head.local_ranks, 1, head.ranks));
  const Times times(head, now);
  track.made_ns = times.made_ns();
  track.seen_ns = now.ns;
  track.ahead_ns = now.ahead_ns;
  std::vector<std::string> plans;
  // A name is there before it is counted: the first copy's count, the second one's names.
  for (std::size_t i = 0; i < std::min<std::uint64_t>(copies[0]->head.plan_count, kPlans); ++i)
    plans.push_back(text_of(head.plans[i]));
  std::vector<Entry<std::uint64_t>> entries;
  for (std::size_t i = 0; i < kEntries; ++i) {
    const std::uint64_t number = copies[0]->entries[i].number;
    if (number == 0 || number != copies[2]->entries[i].number) continue;
    const Entry<std::uint64_t>& entry = copies[1]->entries[i];
    const bool possible = (number - 1) % kEntries == i && number <= kMostEntries;
    if (entry.number == number && possible) entries.push_back(entry);
  }
  std::ranges::sort(entries, {}, &Entry<std::uint64_t>::number);
  track.entries = calls_of(entries, track, times, plans);
  track.totals = read_totals(copy, offset, track, copies[2]->totals, times);
  return track;
}

}  // namespace

Now Now::look() {
  timespec real{};
  clock_gettime(CLOCK_REALTIME, &real);
  const std::int64_t ns = monotonic_ns();
  return {tutti::ticks(), ns, std::int64_t{real.tv_sec} * 1'000'000'000 + real.tv_nsec - ns};
}

std::string printable(std::string_view text) {
  std::string shown(text);
  for (char& c : shown) {
    if (c < ' ' || c > '~') c = '?';
  }
  return shown;
}

void make_sound(Seen& seen, int ranks) {
  if (seen.end_ns < seen.begin_ns) seen.end_ns = 0;
  if (seen.state.awaited >= ranks) seen.state.awaited = -1;
  if (seen.state.at > At::kBegun) seen.state.at = At::kDone;
  if (seen.end_after_ns > seen.end_ns || seen.end_after_ns < seen.begin_ns)
    seen.end_after_ns = seen.end_ns == 0 ? 0 : seen.begin_ns;
  if (seen.reached_ns < seen.begin_ns) seen.reached_ns = 0;
}

std::vector<SeenTrack> read_file(const Copy& copy, const Now& now) {
  FileHead<std::uint64_t> head;
  std::vector<SeenTrack> tracks;
  if (!copy_value(copy, 0, head) || head.magic != kMagic) return tracks;
  for (std::size_t i = 0; i < std::min<std::uint64_t>(head.tracks, kTracks); ++i) {
    auto track = read_at(copy, track_at(i), now);
    if (!track) continue;
    track->pid = head.pid;
    tracks.push_back(*std::move(track));
  }
  return tracks;
}

std::optional<SeenTrack> read_track(const Copy& copy, const Now& now) {
  return read_at(copy, 0, now);
}

std::optional<SeenTrack> read_own(const Recorder& recorder) {
  const auto* words = reinterpret_cast<const Word*>(&recorder.track());
  const Copy copy = [words](std::uint64_t offset, std::span<std::byte> to) {
    if (offset + to.size() > kTrackBytes) return false;
    const Word* from = words + offset / sizeof(Word);
    for (std::size_t i = 0; i < to.size() / sizeof(Word); ++i) {
      // acquire: a later load is later, as between two calls of pread.
      const std::uint64_t word = from[i].load(std::memory_order_acquire);
      std::memcpy(to.data() + i * sizeof(Word), &word, sizeof(Word));
    }
    return true;
  };
  auto track = read_track(copy, Now::look());
  if (track) track->pid = static_cast<std::uint64_t>(getpid());
  return track;
}

std::string_view kind_name(std::size_t kind) {
  return kind == kBarrier ? "barrier" : tutti::to_string(static_cast<Collective>(kind));
}

std::string_view name_of(const Seen& seen) {
  if (seen.message()) return (seen.what & kSends) != 0 ? "send" : "recv";
  const bool barrier = (seen.what >> 56 & 1) != 0;
  return kind_name(barrier ? kBarrier : seen.what >> 48 & 0xff);
}

std::uint64_t bytes_of(const Seen& seen) {
  return seen.count * size_of(static_cast<DataType>(seen.what >> 40 & 0xff));
}

std::string describe(const Seen& seen) {
  if (!seen.message()) return describe_call(seen.what, seen.count);
  const bool sends = (seen.what & kSends) != 0;
  const auto type = static_cast<DataType>(seen.what >> 40 & 0xff);
  return fmt::format("{} of {} {} {} {}", sends ? "send" : "recv", seen.count,
                     tutti::to_string(type), sends ? "to" : "from",
                     seen.peer() < 0 ? "any rank" : fmt::format("rank {}", seen.peer()));
}

std::string_view to_string(At at) {
  switch (at) {
    case At::kCredit: return "waits for ranks that are behind";
    case At::kGather: return "waits for ranks to come";
    case At::kLanes: return "runs its plan";
    case At::kLeave: return "sends what is left";
    case At::kStopping: return "stops after an error";
    case At::kDone: return "done";
    case At::kMessage: return "waits for a message's other end";
    case At::kLaunched: return "launched";
    case At::kOnDevice: return "on the device";
    case At::kBegun: return "begun on the device";
  }
  return "?";
}

std::string_view outcome_name(const State& state) {
  if (state.outcome == static_cast<std::uint8_t>(Outcome::kRunning)) return "running";
  if (state.outcome == static_cast<std::uint8_t>(Outcome::kOk)) return "ok";
  const int code = state.outcome - static_cast<int>(Outcome::kFailed);
  return code == 0 ? "failed" : tutti::to_string(static_cast<Code>(code));
}

}  // namespace tutti::exec::flight
