// How HostExecutor finds calls that differ between ranks, by tags and by records of the latest
// calls, and how it describes a difference.
//
// A rank that reads a line sees from its tag whether the writer has made the same calls
// (call_digest.h). Three kinds of ranks read no line that would show a difference:
//
//   givers: the root of a small broadcast, the other ranks of a small reduce
//       At their next call they look at lines that stay empty if all ranks make the same call.
//   waiting ranks: the awaited rank is in another call and will not write the line
//       They compare records: with the awaited rank when they begin to wait, with all ranks now
//       and then.
//   ranks that run ahead
//       They compare all records once in kCalls calls.
//
// The records also show the first call that differs, and which rank is the odd one.
#include <algorithm>

#include "exec/host_executor.h"

namespace tutti::exec {
namespace {

constexpr std::chrono::milliseconds kLongestPause{50};  // Between two comparisons while waiting.

constexpr const char* kSameOrder = "; all ranks must make the same calls in the same order";

std::string name_of(int rank) { return "rank " + std::to_string(rank); }

bool same_request(const CallSeen& a, const CallSeen& b) {
  return ((a.what ^ b.what) & ~kWayBits) == 0 && a.count == b.count;
}

}  // namespace

std::string describe_latest(const CallRecord& record, std::string_view kind) {
  std::string text(kind);
  std::uint64_t number = 0;
  for (int looks = 0; looks < 8; ++looks) {  // The rank may go on meanwhile: then once more.
    number = record.number.load(std::memory_order_acquire);  // acquire: pairs with note's release.
    const auto call = record.look_up(number);
    if (call)
      return "whose latest " + text + " is " + std::to_string(number) + ", " +
             describe_call(call->what, call->count);
  }
  return number == 0 ? "which has made no " + text + " yet"
                     : "whose latest " + text + " is " + std::to_string(number);
}

/// The first of the recorded calls that differs from that rank's; empty: none does.
std::optional<HostExecutor::Difference> HostExecutor::difference_with(int rank) const {
  const CallRecord& theirs = region_.record(rank);
  // acquire: pairs with the release in note: entries up to this one are there. relaxed: our own.
  const std::uint64_t latest = std::min(theirs.number.load(std::memory_order_acquire),
                                        record_->number.load(std::memory_order_relaxed));
  std::optional<Difference> found;
  for (std::uint64_t number = latest; number != 0 && latest - number < kCalls; --number) {
    const auto mine = record_->look_up(number), other = theirs.look_up(number);
    if (!mine || !other) continue;  // Ranks on other hosts do not show all.
    if (mine->digest == other->digest) {
      if (found) found->first = found->number == number + 1;
      return found;
    }
    found = {number, *mine, *other, number == 1};
  }
  return found;
}

/// The rank whose call differs from that of most ranks; without a majority, `rank`.
int HostExecutor::odd_one(int rank, std::uint64_t number) const {
  std::vector<std::uint64_t> digests(static_cast<std::size_t>(ranks_));  // 0: not known.
  for (int r = 0; r < ranks_; ++r) {
    const CallRecord& record = region_.record(r);
    if (record.number.load(std::memory_order_acquire) < number) continue;  // acquire: as above.
    const auto call = record.look_up(number);
    if (call) digests[static_cast<std::size_t>(r)] = call->digest;
  }
  for (const std::uint64_t digest : digests) {
    const auto same = std::count(digests.begin(), digests.end(), digest);
    if (digest == 0 || 2 * same <= ranks_) continue;
    return digests[static_cast<std::size_t>(me_)] == digest ? rank : me_;
  }
  return rank;
}

Error HostExecutor::mismatch(int rank, const Difference& found) const {
  const std::string mine = describe_call(found.mine.what, found.mine.count);
  const std::string both = name_of(me_) + " and " + name_of(rank);
  const std::string as = "call " + std::to_string(found.number);
  std::string text;
  if (!same_request(found.mine, found.theirs)) {
    text = name_of(me_) + " called " + mine + ", " + name_of(rank) + " called " +
           describe_call(found.theirs.what, found.theirs.count) + ", as " + as +
           (found.first ? "" : ", and the calls before it differ") + kSameOrder;
  } else if (!found.first) {
    text = "the calls of " + both + " before " + as + ", " + mine + ", differ" + kSameOrder;
  } else if (call_.uneven) {
    text = mine + ", " + as + ": " + both + " were given different counts for its blocks";
  } else {
    text =
        mine + ", " + as + ": of " + both + " one would go by packets, one by a plan" + kBuiltAlike;
  }
  return {Code::kMismatch, std::move(text), Rank{me_}, Rank{odd_one(rank, found.number)}};
}

/// Whether that rank's calls are this one's. False: the call has failed.
bool HostExecutor::agrees(int rank) {
  const auto found = difference_with(rank);
  if (found) fail(mismatch(rank, *found));
  return !found;
}

/// The same with all other ranks.
bool HostExecutor::calls_agree() {
  next_compare_ = number_ + kCalls;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank != me_ && !agrees(rank)) return false;
  }
  return true;
}

/// The same for a rank that waits, at every look of its patrol.
bool HostExecutor::calls_agree(std::chrono::steady_clock::time_point now) {
  const int who = gathering() ? next_peer_ : awaited();
  if (wait_start_ == now) {
    comparison_pause_ = std::chrono::milliseconds(1);
    next_comparison_ = now + comparison_pause_;
    return who < 0 || who == me_ || agrees(who);
  }
  if (now < next_comparison_) return true;
  comparison_pause_ = std::min(2 * comparison_pause_, kLongestPause);
  next_comparison_ = now + comparison_pause_;
  // A rank on another host sees only calls with lines: now it is worth a message of their own.
  if (wire_ != nullptr && who >= 0 && who != me_ && shown_ != number_) {
    shown_ = number_;
    wire_->show_calls(who);
  }
  return calls_agree();
}

/// For a rank that only gave in its last call: looks at the lines of the ranks that write none in
/// such a call. A rank that wrote a line made another call. If all agree, nobody has written these
/// lines, so they are still in this CPU's cache. False: the call has failed.
bool HostExecutor::only_givers_gave() {
  const bool root = me_ == call_.root;
  const int first = root ? 0 : call_.root, end = root ? ranks_ : first + 1;
  for (int rank = first; rank < end; ++rank) {
    if (rank == me_) continue;
    // acquire: pairs with the release in write_line: the rank's record is there as well.
    const std::uint64_t tag = region_.lines(rank, place_)->tag.load(std::memory_order_acquire);
    if (same_number(tag, tag_) && tag != tag_ && !agrees(rank)) return false;
  }
  return true;
}

/// patrol, for a call on the caller's own thread: while it waits, this rank does nothing else.
bool HostExecutor::patrol_alone() {
  // release: what this rank has sent before is there for whoever sees this.
  if (gathering())
    record_->blocked_on.store(wait_of(number_, next_peer_), std::memory_order_release);
  return patrol();
}

/// Whether that rank can't go on before this one has made another call.
bool HostExecutor::waits_for_this(int rank) const {
  for (int hops = 0; hops < ranks_; ++hops) {
    const CallRecord& record = region_.record(rank);
    // acquire: pairs with the releases in patrol_alone and note.
    const std::uint64_t wait = record.blocked_on.load(std::memory_order_acquire);
    const std::uint64_t number = record.number.load(std::memory_order_acquire);
    const int next = awaited_in(wait);
    // A wait in an older call is over, and so is one for a rank that has come.
    if (next < 0 || next >= ranks_ || wait != wait_of(number, next)) return false;
    if (region_.record(next).number.load(std::memory_order_acquire) >= number) return false;
    if (next == me_) return true;
    rank = next;
  }
  return false;
}

/// For a thread that waits for messages: whether the other end of one waits for a call of this
/// rank, so that neither can go on. True: the messages have failed.
bool HostExecutor::messages_stuck() {
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank == me_ || !messages_.waits_for(rank) || !waits_for_this(rank)) continue;
    if (poll_messages()) return false;  // It may have sent the message before it began to wait.
    end_messages(messages_.stuck(
        rank, name_of(rank) + ", " + describe_latest(region_.record(rank), "call") +
                  ", waits there for " + name_of(me_) +
                  "; ranks must make their calls and messages in an order in which each can go "
                  "on"));
    return true;
  }
  return false;
}

}  // namespace tutti::exec
