#include "exec/calls/agreement.h"

#include <algorithm>
#include <thread>

namespace tutti::exec {
namespace {

constexpr std::chrono::milliseconds kLongestPause{50};  // Between two comparisons while waiting.

constexpr const char* kSameOrder = "; all ranks must make the same calls in the same order";

std::string name_of(int rank) { return "rank " + std::to_string(rank); }

bool same_request(const CallSeen& a, const CallSeen& b) {
  return ((a.what ^ b.what) & ~kWayBits) == 0 && a.count == b.count;
}

}  // namespace

std::string describe_latest(const Endpoint& endpoint, Rank me, int rank, std::string_view kind) {
  const CallRecord& record = endpoint.region().record(rank);
  const bool near = endpoint.near(me.value, rank);
  const std::string latest = "whose latest " + std::string(kind) + (near ? "" : " known here");
  std::uint64_t number = 0;
  for (int looks = 0; looks < 8; ++looks) {  // The rank may go on meanwhile: then once more.
    number = record.number.load(std::memory_order_acquire);  // acquire: pairs with go_on's release.
    // relaxed: for the text only.
    const auto finished =
        near ? 0 : endpoint.region().finished(rank).value.load(std::memory_order_relaxed);
    if (finished > number) return latest + " is " + std::to_string(finished);
    const auto call = record.look_up(number);
    if (call)
      return latest + " is " + std::to_string(number) + ", " +
             describe_call(call->what, call->count);
  }
  if (number != 0) return latest + " is " + std::to_string(number);
  return near ? "which has made no " + std::string(kind) + " yet"
              : "of which no " + std::string(kind) + " is known here";
}

int follow_waits(const Region& region, int me, int awaited) {
  const int ranks = static_cast<int>(region.config().rank_count);
  int last = awaited;
  for (int links = 0; last >= 0 && links < ranks; ++links) {
    // relaxed: for the text of errors only.
    const std::uint64_t said = region.status(last).waits_for.load(std::memory_order_relaxed);
    const int next = awaited_in(said);
    // A wait in an earlier call is over.
    if (call_in(said) < region.record(last).number.load(std::memory_order_relaxed)) return last;
    if (next < 0 || next >= ranks || next == me) return last;
    // So is one for a rank that has begun a later call: it has done its part.
    if (call_in(said) < region.record(next).number.load(std::memory_order_relaxed)) return last;
    if (call_in(said) == kProcess) return next;
    last = next;
  }
  return awaited;
}

/// The first of the recorded calls that differs from that rank's; empty: none does.
std::optional<Agreement::Difference> Agreement::difference_with(int rank) const {
  const CallRecord& theirs = board_.region().record(rank);
  const CallRecord& ours = board_.log().record();
  // acquire: pairs with the release in go_on: entries up to this one are there. relaxed: our own.
  const std::uint64_t latest = std::min(theirs.number.load(std::memory_order_acquire),
                                        ours.number.load(std::memory_order_relaxed));
  std::optional<Difference> found;
  for (std::uint64_t number = latest; number != 0 && latest - number < kCalls; --number) {
    const auto mine = ours.look_up(number), other = theirs.look_up(number);
    if (!mine || !other) continue;  // Ranks on other hosts do not show all.
    if (mine->digest == other->digest) {
      if (found) found->first = found->number == number + 1;
      return found;
    }
    found = {number, *mine, *other, number == 1};
  }
  return found;
}

/// Waits a moment for the ranks of this host that have not made that call yet: with their calls
/// there may be a majority.
void Agreement::await_others(std::uint64_t number) const {
  const Team& team = board_.team();
  const auto last = std::chrono::steady_clock::now() + kLongestPause;
  for (int rank = 0; rank < team.ranks; ++rank) {
    const auto is_missing = [&] {
      // acquire: as above.
      return team.region.record(rank).number.load(std::memory_order_acquire) < number;
    };
    if (rank == team.me || !team.endpoint.near(team.me, rank)) continue;
    while (is_missing() && !team.region.ending() && std::chrono::steady_clock::now() < last)
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

/// The rank whose call differs from that of most ranks; without a majority, `rank`.
int Agreement::odd_one(int rank, std::uint64_t number) const {
  const auto [ranks, me] = std::pair(board_.team().ranks, board_.team().me);
  if (ranks > 2) await_others(number);  // Two ranks have no majority.
  std::vector<std::uint64_t> digests(static_cast<std::size_t>(ranks));  // 0: not known.
  for (int r = 0; r < ranks; ++r) {
    const CallRecord& record = board_.region().record(r);
    if (record.number.load(std::memory_order_acquire) < number) continue;  // acquire: as above.
    const auto call = record.look_up(number);
    if (call) digests[static_cast<std::size_t>(r)] = call->digest;
  }
  for (const std::uint64_t digest : digests) {
    const auto same = std::count(digests.begin(), digests.end(), digest);
    if (digest == 0 || 2 * same <= ranks) continue;
    return digests[static_cast<std::size_t>(me)] == digest ? rank : me;
  }
  return rank;
}

Error Agreement::mismatch(int rank, const Difference& found) const {
  const int me = board_.team().me;
  const std::string mine = describe_call(found.mine.what, found.mine.count);
  const std::string both = name_of(me) + " and " + name_of(rank);
  const std::string as = "call " + std::to_string(found.number);
  std::string text;
  if (!same_request(found.mine, found.theirs)) {
    text = name_of(me) + " called " + mine + ", " + name_of(rank) + " called " +
           describe_call(found.theirs.what, found.theirs.count) + ", as " + as +
           (found.first ? "" : ", and the calls before it differ") + kSameOrder;
  } else if (!found.first) {
    text = "the calls of " + both + " before " + as + ", " + mine + ", differ" + kSameOrder;
  } else if (call_.vector_variant) {
    text = mine + ", " + as + ": " + both + " were given different counts for its blocks";
  } else {
    text =
        mine + ", " + as + ": " + both + " chose different protocols (eager, plan)" + kBuiltAlike;
  }
  return {Code::kMismatch, std::move(text), Rank{me}, Rank{odd_one(rank, found.number)}};
}

std::optional<Error> Agreement::compare(int rank) const {
  const auto found = difference_with(rank);
  return found ? std::optional(mismatch(rank, *found)) : std::nullopt;
}

std::optional<Error> Agreement::compare_all() {
  next_compare_ = board_.number() + kCalls;
  for (int rank = 0; rank < board_.team().ranks; ++rank) {
    if (rank == board_.team().me) continue;
    if (auto differs = compare(rank)) return differs;
  }
  return std::nullopt;
}

std::optional<Error> Agreement::compare_waiting(Time now, bool begins, int awaited) {
  const bool other = awaited >= 0 && awaited != board_.team().me;
  if (begins) {
    pause_ = std::chrono::milliseconds(1);
    next_comparison_ = now + pause_;
    return other ? compare(awaited) : std::nullopt;
  }
  if (now < next_comparison_) return std::nullopt;
  pause_ = std::min(2 * pause_, kLongestPause);
  next_comparison_ = now + pause_;
  // A rank on another host sees only calls with lines: now it is worth a message of their own.
  if (board_.team().remote_link != nullptr && other && shown_ != board_.number()) {
    shown_ = board_.number();
    board_.team().remote_link->show_calls(awaited);
  }
  return compare_all();
}

bool Agreement::waits_for_this(int rank) const {
  const Team& team = board_.team();
  for (int hops = 0; hops < team.ranks; ++hops) {
    const CallRecord& record = team.region.record(rank);
    // acquire: pairs with the releases in CallBoard::say_blocked and CallRecord::go_on.
    const std::uint64_t wait = record.blocked_on.load(std::memory_order_acquire);
    const std::uint64_t number = record.number.load(std::memory_order_acquire);
    const int next = awaited_in(wait);
    // A wait in an older call is over, and so is one for a rank that has come.
    if (next < 0 || next >= team.ranks || wait != wait_of(number, next)) return false;
    if (team.region.record(next).number.load(std::memory_order_acquire) >= number) return false;
    if (next == team.me) return true;
    rank = next;
  }
  return false;
}

}  // namespace tutti::exec
