// File: exec/calls/call_board.h: the mailbox slots of a communicator, in which ranks tell each
// other what a call needs.
//
// A call consists of rounds. In a round each rank waits for credit, announces a payload in its call
// lines, and gathers the lines of the others. An eager call is one round, and its payload is the
// message. A call by a plan has one to three rounds before its lanes run: where the buffers are,
// and, if that is new, whether they could be mapped and which plan it is.
//
// The places of lines are used in turn. Credit bounds how far a rank may be ahead of the others, so
// that it never overwrites what they may still read. In a symmetric round the lines of a rank
// also show that it has finished the round before. In other rounds a rank says so, but not each
// time: that would cost reader and writer a cache miss a call.
#pragma once
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "exec/calls/call_digest.h"
#include "transport/transport.h"

namespace tutti::exec {

/// Copies a few bytes, for calls that take as long as a call of memcpy. What fits a line goes by
/// two copies that may overlap, from both ends.
inline void copy_few(std::byte* to, const std::byte* from, std::size_t bytes) {
  constexpr std::size_t kFew = 64;
  const auto from_both_ends = [&]<class Part>(Part first, Part last) {
    std::memcpy(&first, from, sizeof(Part));
    std::memcpy(&last, from + bytes - sizeof(Part), sizeof(Part));
    std::memcpy(to, &first, sizeof(Part));
    std::memcpy(to + bytes - sizeof(Part), &last, sizeof(Part));
  };
  using Four = std::array<std::uint64_t, 4>;
  using Two = std::array<std::uint64_t, 2>;
  if (bytes > kFew)
    std::memcpy(to, from, bytes);
  else if (bytes >= sizeof(Four))
    from_both_ends(Four{}, Four{});
  else if (bytes >= sizeof(Two))
    from_both_ends(Two{}, Two{});
  else if (bytes >= sizeof(std::uint64_t))
    from_both_ends(std::uint64_t{}, std::uint64_t{});
  else if (bytes >= sizeof(std::uint32_t))
    from_both_ends(std::uint32_t{}, std::uint32_t{});
  else if (bytes >= sizeof(std::uint16_t))
    from_both_ends(std::uint16_t{}, std::uint16_t{});
  else if (bytes == 1)
    *to = *from;
}

/// The ranks of a communicator, as this one sees them.
struct Team {
  Endpoint& endpoint;
  Region region;
  RemoteLink* remote_link;  // Null: all ranks see each other's memory.
  int me, ranks;
  bool fence;
};

/// Packets of a round, besides the lines. Short and long ones share their memory.
enum class Packet : std::uint8_t { kNone, kShort, kLong };

/// How ranks use their lines in a round.
struct Round {
  std::uint32_t lines = 1;           // That each rank writes.
  std::uint32_t first = 0, end = 1;  // Those that this rank reads.
  std::uint32_t credit = 0;          // Rounds that a rank may be ahead of the others.
  std::uint32_t slot_bytes = 0;      // In this rank's packet slot.
  Packet packet = Packet::kNone;     // That this rank or another one writes.
  // The ranks from `from` to below `from_end` are those whose lines this rank reads, itself apart.
  int from = 0, from_end = std::numeric_limits<int>::max();
  int quiet = 0, quiet_end = 0;  // These write no lines, itself apart.
  int only_to = -1;              // The one rank that reads; -1: several do.
  bool writes = true;            // Some rank reads this one's lines.
  bool gives = false;            // This rank only writes, and waits for nobody.
  bool blocks = false;           // The table of blocks belongs to it.

  /// All write and read: no rank can be ahead by more than a round.
  bool symmetric() const { return quiet_end == 0; }
};

/// It has more than 20 functions: most are one line of the path of a small call, or a look at the
/// lines by one of the other parts.
class CallBoard {
 public:
  CallBoard(Endpoint& endpoint, int me, flight::Recorder& flight);

  const Team& team() const { return team_; }
  const Region& region() const { return team_.region; }
  const CallLog& log() const { return log_; }
  flight::Recorder& flight() const { return log_.flight(); }
  std::uint64_t number() const { return log_.number(); }
  const Round& round() const { return round_; }

  /// The credit of the next round if it has such packets. Those of the other length lie in the same
  /// memory, so the latest of them must have been read.
  std::uint32_t packet_credit(Packet packet) const {
    if (packet == Packet::kNone) return line_credit();
    const bool is_long = packet == Packet::kLong;
    const std::uint64_t since = number() + 1 - (is_long ? last_short_ : last_long_);
    const std::uint32_t slots = std::min(line_credit(), region().packet_slots(is_long));
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(slots, since));
  }
  std::uint32_t line_credit() const { return config().calls - 1; }  // See next_place.

  /// Begins a round of a call: its word with its path, and its counts as `sizes` hashes them.
  void begin(const Round& round, std::uint64_t word, std::uint64_t count, std::uint64_t sizes) {
    next_place();
    log_.note(word, count, sizes);
    round_ = round;
    round_.from_end = std::min(round.from_end, team_.ranks);
    note_packet();
    next_peer_ = round.from;
    next_line_ = round.first;
    last_peer_ = -1;
    if (!round.writes) log_.show();
  }
  /// Begins a round that is like the one before.
  void repeat() {
    next_place();
    if (round_.packet != Packet::kNone) round_.credit = packet_credit(round_.packet);
    log_.repeat();
    note_packet();
    next_peer_ = round_.from;
    next_line_ = round_.first;
    if (!round_.writes) log_.show();
  }
  /// Whether this rank may write its lines, as far as it has looked.
  bool has_credit() const { return number() <= everyone_finished_ + round_.credit; }
  /// Looks how far the others are.
  bool look_for_credit();

  /// Writes this rank's lines of a round. It holds by value what each line needs: behind a store of
  /// bytes the members of a board would have to be loaded again.
  struct LineWriter {
    CallLine* lines;
    std::uint64_t tag;
    /// Writes a line whole before the next one: if a reader looks at it in between, the line has to
    /// be fetched again.
    void write(std::size_t which, const std::byte* from, std::size_t bytes) const {
      CallLine& line = lines[which];
      copy_few(line.payload.data(), from, bytes);
      // release: the line's payload, and the packet slot, are there when the tag is.
      line.tag.store(tag, std::memory_order_release);
    }
  };
  LineWriter writer() const { return {region().lines(team_.me, place_), log_.tag()}; }
  /// Tells the others that this rank's lines of this round are there.
  void publish() {
    ring_others();
    log_.show();
    if (team_.remote_link != nullptr) publish_on_link();
  }
  /// Writes a payload that fits one line, and publishes it.
  template <class Payload>
  void announce(const Payload& mine) {
    static_assert(sizeof(Payload) <= kLinePayload);
    writer().write(0, std::as_bytes(std::span(&mine, 1)).data(), sizeof(mine));
    publish();
  }
  template <class Payload>
  Payload announced_by(int rank) const {
    Payload theirs;
    std::memcpy(&theirs, region().lines(rank, place_)->payload.data(), sizeof(theirs));
    return theirs;
  }

  /// Whether all lines that this rank reads are there. False may also mean a `suspect`.
  bool gathered() {
    for (; next_peer_ < round_.from_end; ++next_peer_) {
      if (next_peer_ == team_.me) continue;
      if (!seen(next_peer_)) {
        last_peer_ = next_peer_;
        return false;
      }
    }
    // A rank that starts a round has finished the one before.
    if (round_.symmetric()) everyone_finished_ = std::max(everyone_finished_, number() - 1);
    return true;
  }
  /// The rank that came last to a round that waited, as far as this one saw. -1, or an earlier
  /// round's if the round repeats one: it found all lines there.
  int last_peer() const { return last_peer_; }
  /// A rank whose line has this round's number and another digest, once; -1: none. The line may
  /// be of an old call whose number ends alike: the rank's record decides.
  int take_suspect() { return suspect_ < 0 ? -1 : std::exchange(suspect_, -1); }
  /// For a rank that gave in the last round: whether a rank has written a line, though ranks that
  /// make this call write none. If all agree, nobody has written these lines, so they are still in
  /// this CPU's cache.
  bool has_stray() const {
    for (int rank = round_.quiet; rank < round_.quiet_end; ++rank) {
      if (rank != team_.me && is_stray(rank)) return true;
    }
    return false;
  }
  /// The first such rank from `rank` on; Round::quiet_end if there is none.
  int stray_writer(int rank) const;
  /// A rank's payload, once gathered.
  const std::byte* payload(int rank) const {
    if (round_.lines == 1 && rank != team_.me) return region().lines(rank, place_)->payload.data();
    return gathered_.data() + static_cast<std::size_t>(rank) * kGatheredStride;
  }
  /// Room for what this rank prepares for its own lines; `payload` of this rank.
  std::byte* own_payload() {
    return gathered_.data() + static_cast<std::size_t>(team_.me) * kGatheredStride;
  }

  /// This rank is done with the call's lines and slots.
  void finish() {
    // Only a rank that runs ahead, in a rooted call, can be short of credit. In all other calls a
    // peer's own line shows that it has finished the one before.
    if (round_.symmetric() || !finished_due(number())) return;
    say_finished(number());
    ring_others();
  }

  /// Whether a line of this round is there, be it what it should be or not.
  bool is_there(int rank, std::size_t line) const {
    // relaxed: a caller that goes on from this looks again.
    const std::uint64_t tag =
        region().lines(rank, place_)[line].tag.load(std::memory_order_relaxed);
    return same_number(tag, log_.tag());
  }
  /// The next rank whose lines are gathered, and whether that rank's next line is there.
  int next_peer() const { return next_peer_; }
  bool has_news() const {
    return next_peer_ >= round_.from_end || is_there(next_peer_, next_line_);
  }
  bool waits_for_credit_of(int rank) const {
    // relaxed: this only tells which rank is missing; the call itself looks again.
    return region().finished(rank).value.load(std::memory_order_relaxed) + round_.credit < number();
  }
  bool waits_for_lines_of(int rank) const {
    if (rank < next_peer_ || rank >= round_.from_end) return false;
    return !is_there(rank, rank == next_peer_ ? next_line_ : round_.end - 1);
  }

  /// This rank waits for the lines of `next_peer`, and its thread does nothing else meanwhile.
  void say_blocked() const {
    // release: what this rank has sent before is there for a rank that sees this.
    log_.record().blocked_on.store(wait_of(number(), next_peer_), std::memory_order_release);
  }
  /// One nap, until a peer has changed something, `ready` says so, or `longest` is over. True if
  /// ready.
  template <class Ready>
  bool sleep(Ready&& ready, std::chrono::nanoseconds longest) {
    if (team_.remote_link == nullptr)
      return sleep_on(region().doorbell(team_.me), ready, longest, team_.fence);
    if (ready()) return true;
    team_.remote_link->sleep(longest);
    return false;
  }
  /// Ends a nap. Any thread.
  void wake() const {
    if (team_.remote_link != nullptr)
      team_.remote_link->wake();
    else
      ring(region().doorbell(team_.me));
  }

 private:
  /// A writer waits until the others have said that they finished the round `credit` before this
  /// one. If the credit is shorter than it was, this rank may not have said that yet.
  void note_packet() {
    if (round_.packet == Packet::kShort) last_short_ = number();
    if (round_.packet == Packet::kLong) last_long_ = number();
    if (said_finished_ + round_.credit >= number()) return;
    say_finished(number() - 1);
    ring_others();
  }

  static constexpr std::size_t kGatheredStride =
      (kCallPayload + kCacheLine - 1) / kCacheLine * kCacheLine;

  const RegionConfig& config() const { return region().config(); }
  /// The place of lines that comes next in turn. No division: that would take as long as the rest
  /// of a small call's bookkeeping.
  std::uint64_t after(std::uint64_t place) const {
    return place + 1 == config().calls ? 0 : place + 1;
  }
  /// The places of lines are used in turn, but after a symmetric round two of them by turns: all
  /// others have finished what came before it, and lines that were written just now are still near.
  /// No place is used again within `calls` - 1 rounds unless a symmetric round lies between, of
  /// which this rank has seen everybody's lines. The kind of the new round must not decide where
  /// its lines are: ranks that disagree have to see that.
  void next_place() {
    if (team_.remote_link != nullptr) {
      place_ = number() + 1;  // What is on its way stays where it is.
    } else if (round_.symmetric()) {
      last_place_ = place_ | 1;
      place_ ^= 1;
    } else {
      place_ = last_place_ = after(last_place_);
    }
  }
  bool is_stray(int rank) const {
    // relaxed: a rank that finds one looks again, with acquire, in await_record.
    const std::uint64_t tag = region().lines(rank, place_)->tag.load(std::memory_order_relaxed);
    return same_number(tag, log_.tag()) && tag != log_.tag();
  }
  bool matches(int rank, const CallLine& line) {
    // acquire: pairs with the release in LineWriter::write.
    const std::uint64_t tag = line.tag.load(std::memory_order_acquire);
    if (tag == log_.tag()) [[likely]]
      return true;
    if (same_number(tag, log_.tag())) [[unlikely]]
      suspect_ = rank;
    return false;
  }
  /// Whether all lines of a rank that this one reads are there. Several lines are put together as
  /// they come.
  bool seen(int rank) {
    const CallLine* const line = region().lines(rank, place_);
    if (round_.lines != 1) return seen_all(rank, line);
    if (!matches(rank, *line)) return false;
    // A rank that only writes may be rounds ahead: its next line is there, as a rule.
    if (!round_.symmetric()) __builtin_prefetch(region().lines(rank, after(last_place_)));
    return true;
  }
  bool seen_all(int rank, const CallLine* line);
  void await_record(int rank) const;
  void ring_others() const {
    for (int rank = 0; rank < team_.ranks; ++rank) {
      if (rank != team_.me) notify(region().doorbell(rank), team_.fence);
    }
  }
  void publish_on_link();
  bool finished_due(std::uint64_t number) const {
    // After a quarter of the credit that there is: nobody waits in step.
    return number - said_finished_ >= 1 + round_.credit / 4;
  }
  void say_finished(std::uint64_t number) {
    said_finished_ = number;
    // release: our reads of lines, slots and peers' memory are over.
    region().finished(team_.me).value.store(number, std::memory_order_release);
  }

  Team team_;
  CallLog log_;
  Round round_;
  std::uint64_t place_ = 0;              // Where this round's lines are; alike on every rank.
  std::uint64_t last_place_ = 0;         // The latest of the places that are used in turn.
  std::uint64_t everyone_finished_ = 0;  // Every rank has finished at least this round.
  std::uint64_t said_finished_ = 0;      // The last that this rank has said it finished.
  std::uint64_t last_short_ = 0, last_long_ = 0;  // The latest rounds that had such packets.
  int next_peer_ = 0;                // The first rank whose lines have not all been seen,
  std::uint32_t next_line_ = 0;      // and which of them is next.
  int suspect_ = -1;                 // See take_suspect.
  int last_peer_ = -1;               // See last_peer.
  std::vector<std::byte> gathered_;  // By rank: payloads of several lines.
};

}  // namespace tutti::exec
