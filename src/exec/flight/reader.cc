#include "exec/flight/reader.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "base/clock.h"
#include "exec/calls/call.h"
#include "tutti/result.h"

namespace tutti::exec::flight {
namespace {

using Plain = Track<std::uint64_t>;

// A communicator that is younger has no times: two looks at the clocks are too near to each other.
constexpr std::int64_t kLeastAgeNs = 1'000'000;
constexpr std::uint64_t kMostRanks = 4096;

template <class Value>
bool copy_value(const Copy& copy, std::uint64_t offset, Value& to) {
  return copy(offset, std::as_writable_bytes(std::span(&to, 1)));
}

/// Printable, and ended by its first zero.
template <std::size_t words>
std::string text_of(const std::array<std::uint64_t, words>& packed) {
  std::array<char, sizeof(packed)> bytes{};
  std::memcpy(bytes.data(), packed.data(), sizeof(packed));
  std::string text(bytes.data(), strnlen(bytes.data(), bytes.size()));
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

/// Turns the ticks of a track into nanoseconds.
class Times {
 public:
  Times(const Head<std::uint64_t>& head, const Now& now)
      : made_ticks_(head.made_ticks), made_ns_(static_cast<std::int64_t>(head.made_ns)), now_(now) {
    known_ = made_ns_ > 0 && made_ns_ <= now.ns && now.ns - made_ns_ >= kLeastAgeNs &&
             made_ticks_ < now.ticks;
    if (known_)
      ns_per_tick_ =
          static_cast<double>(now.ns - made_ns_) / static_cast<double>(now.ticks - made_ticks_);
  }
  std::int64_t made_ns() const { return known_ ? made_ns_ : 0; }
  std::int64_t ns(std::uint64_t ticks) const {
    if (!known_ || ticks < made_ticks_ || ticks > now_.ticks) return 0;
    return made_ns_ +
           static_cast<std::int64_t>(static_cast<double>(ticks - made_ticks_) * ns_per_tick_);
  }

 private:
  std::uint64_t made_ticks_;
  std::int64_t made_ns_;
  Now now_;
  double ns_per_tick_ = 0;
  bool known_ = false;
};

Seen seen(const Entry<std::uint64_t>& entry, const SeenTrack& track, const Times& times,
          std::span<const std::string> plans) {
  Seen seen{.number = entry.number,
            .call = entry.call,
            .what = entry.what,
            .count = entry.count,
            .begin_ns = times.ns(entry.begin),
            .end_ns = times.ns(entry.end),
            .state = State::of(entry.state),
            .plan = {}};
  if (seen.end_ns < seen.begin_ns) seen.end_ns = 0;
  if (seen.state.awaited >= track.ranks) seen.state.awaited = -1;
  if (seen.state.at > At::kMessage) seen.state.at = At::kDone;
  if (entry.plan != 0 && entry.plan <= plans.size()) seen.plan = plans[entry.plan - 1];
  return seen;
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
  std::vector<std::string> plans;
  // A name is there before it is counted: the first copy's count, the second one's names.
  for (std::size_t i = 0; i < std::min<std::uint64_t>(copies[0]->head.plan_count, kPlans); ++i)
    plans.push_back(text_of(head.plans[i]));
  for (std::size_t i = 0; i < kEntries; ++i) {
    const std::uint64_t number = copies[0]->entries[i].number;
    if (number == 0 || number != copies[2]->entries[i].number) continue;
    const Entry<std::uint64_t>& entry = copies[1]->entries[i];
    if (entry.number != number || (number - 1) % kEntries != i) continue;
    track.entries.push_back(seen(entry, track, times, plans));
  }
  std::sort(track.entries.begin(), track.entries.end(),
            [](const Seen& a, const Seen& b) { return a.number < b.number; });
  return track;
}

}  // namespace

Now Now::look() { return {tutti::ticks(), monotonic_ns()}; }

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

nlohmann::ordered_json to_json(const Seen& seen) {
  nlohmann::ordered_json json{
      {"call", seen.call}, {"what", describe(seen)}, {"state", outcome_name(seen.state)}};
  if (seen.begin_ns != 0) json["begin_ns"] = seen.begin_ns;
  if (seen.end_ns != 0) json["end_ns"] = seen.end_ns;
  if (!seen.plan.empty()) json["plan"] = seen.plan;
  if (seen.running()) json["at"] = to_string(seen.state.at);
  if (seen.running()) json["tile"] = seen.state.tile;
  if (seen.state.awaited >= 0) json["waits_for"] = seen.state.awaited;
  return json;
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
