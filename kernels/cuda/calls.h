// File: kernels/cuda/calls.h: how ranks notice that their calls differ, or that one of them failed.
//
// The board. Each rank has a board in its memory, on which its peers post (board_bytes). A block
// posts, for its lane, its call's number, its words, and a hash of it and of all calls before (the
// chain). It posts before it sends anything. A block that waits for a peer compares what that peer
// posted: once, when the peer's first data or signal has come, and now and then until then. No
// block waits for a post, so a call costs no additional round trip.
//
// Between hosts there are no boards. There a slot carries the chain of the call that wrote it (its
// stamp), and the reader compares that with its own when the peer's first slot has come. A thread
// that has waited for kLongWaitNs also writes a note to all peers on other hosts (note_calls): the
// latest calls of block 0, and the message that it waits in. It compares their notes with these. So
// ranks that wait for each other and send nothing find out too, and short waits cost nothing.
//
// A line keeps the last kBoardEntries calls. A peer that is further ahead has overwritten them;
// then the chain shows the difference at a later call.
//
// The host. A thread of a block's first warp that has waited for kLongWaitNs tells it for which
// rank, at each look that it takes anyway (Progress): one store that nothing waits for, and none in
// short waits. So a host knows which rank its device waits for without asking the driver, which may
// hold such a question up.
//
// Failures. A thread that gives up reports it at the end of its kernel (`tell`): to its host, with
// both calls in words, and on the boards of all peers, whose kernels then end too.
#pragma once
#include <cstring>

#include "kernels/cuda/interpreter.h"
#include "tutti/detail/prim.h"
#include "tutti/detail/tell.h"

namespace tutti::cuda {

/// The hash of all calls up to this one. Different calls after alike ones have different chains if
/// their digests differ.
TUTTI_DEVICE std::uint32_t chained(std::uint32_t chain, std::uint32_t digest) {
  const std::uint32_t mixed = ((chain << 5 | chain >> 27) ^ digest) * 0x9e3779b1U;
  return mixed ^ mixed >> 15;
}

/// The number of the call after `number`; 0 is no call's number.
TUTTI_DEVICE std::uint32_t next_number(std::uint32_t number) {
  return number + 1 == 0 ? 1 : number + 1;
}

/// The board on which `peer` posts for this rank; null: the peer does not reach its memory.
TUTTI_DEVICE std::byte* board_from(const Arguments& arguments, unsigned peer) {
  if (arguments.boards[peer] == nullptr) return nullptr;
  return (arguments.staged_peers >> peer & 1) != 0 ? arguments.staged_board
                                                   : arguments.boards[arguments.rank];
}

/// A rank's post; number 0: nothing, or the post is being written.
struct Posted {
  std::uint32_t number, chain;
  KnownCall call;
};

TUTTI_DEVICE void post(std::byte* line, std::uint32_t number, std::uint32_t chain,
                       const std::uint32_t (&words)[3]) {
  std::byte* const at = line + number % kBoardEntries * kEntryBytes;
  store_packed(at, chain, words[0], number, number);
  store_packed(at + 16, words[1], words[2], number, number);
}

TUTTI_DEVICE Posted posted(const std::byte* line, unsigned entry) {
  const Vector16 first = load_halves(line + entry * kEntryBytes);
  const Vector16 second = load_halves(line + entry * kEntryBytes + 16);
  const bool whole = first.word[1] == first.word[3] && first.word[1] == second.word[1] &&
                     first.word[1] == second.word[3];
  if (!whole) return {};
  return {first.word[1],
          first.word[0],
          {first.word[1], {first.word[2], second.word[0], second.word[2]}}};
}

/// The latest post of a line.
TUTTI_DEVICE Posted latest(const std::byte* line) {
  Posted last = {};
#pragma unroll 1  // This is rare; fewer registers matter more than its speed.
  for (unsigned entry = 0; entry < kBoardEntries; ++entry) {
    const Posted one = posted(line, entry);
    if (one.number == 0) continue;
    if (last.number == 0 || static_cast<std::int32_t>(one.number - last.number) > 0) last = one;
  }
  return last;
}

/// The line of a note with calls (-1), or with the messages of a direction, as Watch counts them.
TUTTI_DEVICE std::byte* note_line(std::byte* note, int direction) {
  return note + kNoteHead + static_cast<unsigned>(direction + 1) * kBoardLine;
}
TUTTI_DEVICE const std::byte* note_line(const std::byte* note, int direction) {
  return note + kNoteHead + static_cast<unsigned>(direction + 1) * kBoardLine;
}

/// Whether the two lines have a call of the same number that differs, or that follows one.
TUTTI_DEVICE bool lines_differ(const std::byte* one, const std::byte* other) {
  bool differ = false;
#pragma unroll 1
  for (unsigned entry = 0; entry < kBoardEntries; ++entry) {
    const Posted a = posted(one, entry), b = posted(other, entry);
    differ |= a.number != 0 && a.number == b.number && a.chain != b.chain;
  }
  return differ;
}

enum class Heard { kNothing, kSame, kOther, kLater };

/// A line's news about call `number`.
TUTTI_DEVICE Heard heard(const std::byte* line, std::uint32_t number, std::uint32_t chain) {
  const Vector16 first = load_halves(line + number % kBoardEntries * kEntryBytes);
  if (first.word[1] == number && first.word[3] == number)
    return first.word[0] == chain ? Heard::kSame : Heard::kOther;
  const bool later = first.word[1] != 0 && static_cast<std::int32_t>(first.word[1] - number) > 0;
  return later ? Heard::kLater : Heard::kNothing;
}

/// A wait is long if it lasts longer: the wait for a rank on another host that is only late is not
/// to cost anything. Then a thread looks at what other hosts do, and tells them what it does.
inline constexpr std::uint64_t kLongWaitNs = 20'000'000;

/// Ends a wait when a rank has aborted or failed, when the peer is in another call, or at the
/// deadline. Each wait has the whole time limit for itself. Short waits read neither the clock nor
/// the boards and reports, some of which are in the host's memory.
struct Watch {
  const Arguments* arguments;
  unsigned lane;
  int direction = -1;        // A message from the peer: 1, to it: 0; any other call: -1.
  std::uint32_t number = 0;  // The call's or message's number; 0: calls are not compared.
  std::uint32_t chain = 0;   // The chain that peers must have posted with that number.
  Why why = Why::kNothing;   // Why this thread gave up,
  std::uint32_t peer = 0;    // and the peer for which it waited then.
  unsigned polls = 0;
  std::uint64_t begin_ns = 0;  // When this wait first read the clock; 0: not yet.
  std::uint64_t compared = 0;  // A bit for each peer whose call was compared.
  KnownCall message = {};      // The message that is under way.
  bool was_ahead = false;      // Whether the peer was ahead in collectives at the look before.

  /// The line on which `from` posts, on this rank's board or on one with the same layout.
  TUTTI_DEVICE std::byte* line(std::byte* board, unsigned from) const {
    const std::uint32_t ranks = arguments->ranks;
    if (direction < 0) return board + board_calls(ranks) + (lane * ranks + from) * kBoardLine;
    return board + board_messages(ranks, arguments->board_lanes) +
           (from * 2 + static_cast<unsigned>(direction)) * kBoardLine;
  }

  TUTTI_DEVICE bool fail(Why reason, unsigned whom) {
    why = reason;
    peer = whom;
    return true;
  }

  /// Whether the peer has posted another call than this one.
  TUTTI_DEVICE bool differs(std::byte* board, unsigned whom) {
    return differs(line(board, whom), board + board_calls(arguments->ranks) + whom * kBoardLine);
  }
  /// By the line for this wait, and the one with the calls of the peer's block 0.
  TUTTI_DEVICE bool differs(const std::byte* posts, const std::byte* its_calls) {
    const Heard what = heard(posts, number, chain);
    if (direction < 0 || what != Heard::kNothing) return what == Heard::kOther;
    // The peer has not come to this message. If it has begun a collective that this rank has not
    // begun, it never will: both make their calls in order. Two looks have to show this, as the
    // peer may have posted the message just before the first one.
    const std::uint32_t last = latest(its_calls).number;
    const std::uint32_t own = load<BlockState::Calls>(&arguments->states[0].calls).number;
    const bool is_ahead = last != 0 && static_cast<std::int32_t>(last - own) > 0;
    const bool twice = is_ahead && was_ahead;
    was_ahead = is_ahead;
    return twice;
  }

  /// The line with the calls of this rank's block 0.
  TUTTI_DEVICE const std::byte* own_calls() const {
    return arguments->boards[arguments->rank] + board_calls(arguments->ranks) +
           arguments->rank * kBoardLine;
  }

  /// Tells peers on other hosts what this rank does, and `whom` in which message it waits for it.
  TUTTI_DEVICE void note_calls(unsigned whom, std::uint64_t now) const {
    const std::byte* const calls = own_calls();
#pragma unroll 1
    for (unsigned other = 0; other < arguments->ranks; ++other) {
      std::byte* const note = arguments->notes[other].outgoing;
      if (note == nullptr) continue;
#pragma unroll 1
      for (unsigned entry = 0; entry < kBoardEntries; ++entry) {
        const Posted one = posted(calls, entry);
        if (one.number != 0) post(note_line(note, -1), one.number, one.chain, one.call.words);
      }
      if (direction >= 0 && other == whom)  // To the peer it has the other direction.
        post(note_line(note, 1 - direction), number, chain, message.words);
      // release: a reader of this version sees the lines. What this rank sent before was released
      // by its own counters.
      store_release(reinterpret_cast<std::uint64_t*>(note), now);
    }
  }

  /// In a long wait: whether a rank on another host is in another call. Then `whom` is that rank.
  TUTTI_DEVICE bool differs_elsewhere(unsigned& whom, std::uint64_t now) {
    const bool notes = (polls & (polls - 1)) == 0;  // Less and less often.
    if (notes) note_calls(whom, now);
    const std::byte* const calls = own_calls();
#pragma unroll 1
    for (unsigned other = 0; other < arguments->ranks; ++other) {
      const std::byte* const note = arguments->notes[other].incoming;
      if (note == nullptr || (other != whom && !notes)) continue;
      const bool differ = lines_differ(calls, note_line(note, -1)) ||
                          (direction >= 0 && other == whom &&
                           differs(note_line(note, direction), note_line(note, -1)));
      if (!differ) continue;
      whom = other;
      return true;
    }
    return false;
  }

  /// Tells the host that this launch waits for `whom`.
  TUTTI_DEVICE void tell_host(unsigned whom) const {
    if (threadIdx.x >= kWarpLanes || arguments->mark.entry == 0) return;
    // relaxed: the word says all there is to know.
    store_relaxed(&arguments->progress->waiting, waiting_word(arguments->mark.entry, whom));
  }

  /// Call it after each poll in vain. True: give up. Most calls only count.
  TUTTI_DEVICE bool gives_up(unsigned whom) {
    constexpr unsigned kPollsPerLook = 256;
    if (++polls % kPollsPerLook != 0) return false;
    if (why != Why::kNothing) return true;
    if (load_relaxed(&arguments->report->why) != 0) return fail(Why::kAborted, whom);
    std::byte* const board = board_from(*arguments, whom);
    if (board != nullptr) {
      if (load_relaxed(told_on(board)) != 0) return fail(Why::kTold, whom);
      if (number != 0 && differs(board, whom)) return fail(Why::kDiffers, whom);
    }
    const std::uint64_t now = now_ns();
    if (begin_ns == 0) begin_ns = now;
    if (now - begin_ns >= kLongWaitNs) {
      tell_host(whom);
      if (arguments->notes != nullptr && number != 0 && differs_elsewhere(whom, now))
        return fail(Why::kDiffers, whom);
    }
    if (now - begin_ns < arguments->timeout_ns) return false;
    return fail(Why::kTimedOut, whom);
  }

  /// By a thread behind the first warp, which compares calls for all: it learns the call, so that
  /// it gives up if a peer whose data it waits for is in another one.
  TUTTI_DEVICE void follow(std::uint32_t its_number, std::uint32_t its_chain) {
    number = its_number;
    chain = its_chain;
    compared = ~std::uint64_t{0};
  }

  /// Call it after a wait for data or a signal; it starts the next wait's time limit. False: what
  /// came belongs to another call.
  TUTTI_DEVICE bool met(unsigned whom) {
    got_room();
    if (number == 0 || (compared >> whom & 1) != 0) return true;
    std::byte* const board = board_from(*arguments, whom);
    if (board == nullptr) return true;
    compared |= std::uint64_t{1} << whom;
    const Heard what = heard(line(board, whom), number, chain);
    if (what == Heard::kSame || what == Heard::kLater) return true;
    return !fail(Why::kDiffers, whom);
  }
  /// The same for a slot from another host, which posts nothing here: its writer stamped the slot
  /// with the chain of its call.
  TUTTI_DEVICE bool met(unsigned whom, std::uint32_t stamp) {
    got_room();
    if (number == 0 || (compared >> whom & 1) != 0) return true;
    compared |= std::uint64_t{1} << whom;
    return stamp == chain || !fail(Why::kDiffers, whom);
  }
  /// Call it after a wait for room in a ring, whichever call left that room.
  TUTTI_DEVICE void got_room() {
    polls = 0;
    begin_ns = 0;
  }
};

/// Posts the call on the boards of all peers, and on this rank's own, where name_calls finds it.
/// `stride` threads share the work; `first` is the calling thread's number among them.
TUTTI_DEVICE void post_call(const Watch& watch, const CallTag& tag, unsigned first,
                            unsigned stride) {
  const Arguments& arguments = *watch.arguments;
#pragma unroll 1
  for (unsigned peer = first; peer < arguments.ranks; peer += stride) {
    std::byte* const board = arguments.boards[peer];
    if (board == nullptr) continue;
    post(watch.line(board, arguments.rank), watch.number, watch.chain, tag.words);
  }
}

/// The reason that keeps a block from beginning, if it is not 0.
struct Asked {
  std::uint64_t busy = 0, told = 0;
};
/// Takes the block's state, unless another kernel of the rank has it, and reads whether a peer has
/// failed before. One thread calls it. Its loads are under way at the same time.
TUTTI_DEVICE Asked take_block(const Arguments& arguments) {
  Asked asked;
  asked.busy = exchange(&arguments.states[blockIdx.x].busy, 1);
  if (arguments.boards[arguments.rank] != nullptr)
    asked.told = load_relaxed(told_on(arguments.boards[arguments.rank]));
  if (arguments.staged_board != nullptr)
    asked.told |= load_relaxed(told_on(arguments.staged_board));
  return asked;
}
/// True: the block gives up.
TUTTI_DEVICE bool is_refused(Watch& watch, const Asked& asked) {
  if (asked.busy != 0) return watch.fail(Why::kOverlaps, watch.arguments->rank);
  return asked.told != 0 && watch.fail(Why::kTold, watch.arguments->rank);
}

/// Posts the call, and gives up if it must not begin. All threads of the block call it; the first
/// warp does the work.
TUTTI_DEVICE void begin_call(Watch& watch) {
  const Arguments& arguments = *watch.arguments;
  if (threadIdx.x >= kWarpLanes || arguments.states == nullptr) return;
  Asked asked;
  if (threadIdx.x == 0) asked = take_block(arguments);
  const auto state = load<BlockState::Calls>(&arguments.states[blockIdx.x].calls);
  watch.number = next_number(state.number);
  watch.chain = chained(state.chain, arguments.tag.digest);
  post_call(watch, arguments.tag, threadIdx.x, kWarpLanes);
  // All threads of the warp give up together, so that none of them waits.
  is_refused(watch, asked);
  const auto why = static_cast<Why>(__shfl_sync(~0u, static_cast<int>(watch.why), 0));
  if (why != Why::kNothing) watch.fail(why, arguments.rank);
}

namespace detail {

TUTTI_DEVICE bool same_words(const KnownCall& a, const KnownCall& b) {
  return a.words[0] == b.words[0] && a.words[1] == b.words[1] && a.words[2] == b.words[2];
}

/// Puts the first call that differs into `report`: of the calls up to `number` that both lines
/// still have. False: there is none.
TUTTI_DEVICE bool find_difference(const std::byte* own, const std::byte* other,
                                  std::uint32_t number, Report& report) {
#pragma unroll 1
  for (unsigned back = kBoardEntries; back-- > 0;) {
    const unsigned entry = (number - back) % kBoardEntries;
    const Posted mine = posted(own, entry), theirs = posted(other, entry);
    if (mine.number != number - back || theirs.number != number - back) continue;
    if (back != 0 && same_words(mine.call, theirs.call)) continue;
    report.own = mine.call;
    report.other = theirs.call;
    if (back != 0 || mine.chain != theirs.chain) return true;
  }
  return false;
}

/// The same for a peer on another host: its call is known if it has written a note. If this rank
/// noticed a difference by a slot, the peer may be about to write it.
TUTTI_DEVICE void name_calls_elsewhere(const Watch& watch, Report& report) {
  constexpr std::uint64_t kPatienceNs = 100'000'000;
  const Arguments& arguments = *watch.arguments;
  const std::byte* const calls = watch.own_calls();
  report.own = watch.direction >= 0 ? watch.message : latest(calls).call;
  if (watch.why != Why::kDiffers || arguments.notes == nullptr) return;
  const std::byte* const note = arguments.notes[watch.peer].incoming;
  if (note == nullptr) return;
  const std::uint64_t begin = now_ns();
  watch.note_calls(watch.peer, begin);
  do {
    // acquire: pairs with the release of the host that put the note there. It is the poll.
    load_acquire(reinterpret_cast<const std::uint64_t*>(note));
    if (find_difference(calls, note_line(note, -1), latest(calls).number, report)) return;
    if (watch.direction < 0) continue;
    const Posted theirs = posted(note_line(note, watch.direction), watch.number % kBoardEntries);
    const Posted last = latest(note_line(note, -1));
    report.other = theirs.number == watch.number ? theirs.call : last.call;
  } while (report.other.number == 0 && now_ns() - begin < kPatienceNs);
}

/// Puts into `report` what the two ranks called, as far as the boards still have it.
TUTTI_DEVICE void name_calls(Watch watch, Report& report) {
  const Arguments& arguments = *watch.arguments;
  std::byte* const mine = arguments.boards[arguments.rank];
  std::byte* const board = board_from(arguments, watch.peer);
  if (mine == nullptr) return;
  if (board == nullptr) return name_calls_elsewhere(watch, report);
  if (watch.direction >= 0) {
    report.own = watch.message;
    const Posted theirs = posted(watch.line(board, watch.peer), watch.number % kBoardEntries);
    const std::byte* const its_calls =
        board + board_calls(arguments.ranks) + watch.peer * kBoardLine;
    report.other = theirs.number == watch.number ? theirs.call : latest(its_calls).call;
    return;
  }
  // Block 0 takes part in all calls, so its numbers are those of the calls.
  const unsigned lane = watch.lane;
  watch.lane = 0;
  const Posted own = latest(watch.line(mine, arguments.rank));
  report.own = own.call;
  if (watch.peer == arguments.rank) return;
  if (watch.why != Why::kDiffers) {
    report.other = latest(watch.line(board, watch.peer)).call;
    return;
  }
#pragma unroll 1
  for (unsigned i = 0; i < 2; ++i) {
    watch.lane = i == 0 ? 0 : lane;
    const std::byte* const line = watch.line(mine, arguments.rank);
    if (find_difference(line, watch.line(board, watch.peer), latest(line).number, report)) return;
  }
  report.other = latest(watch.line(board, watch.peer)).call;
}

TUTTI_DEVICE Report told_report(const Arguments& arguments) {
  std::byte* board = arguments.boards[arguments.rank];
  // acquire: pairs with the release in tell.
  std::uint64_t told = board == nullptr ? 0 : load_acquire(told_on(board));
  if (told == 0 && arguments.staged_board != nullptr) {
    board = arguments.staged_board;
    told = load_acquire(told_on(board));
  }
  if (told == 0) return {};
  ReportWords words;
  read_report(board, told, words);
  Report report;
  std::memcpy(&report, words, sizeof report);
  return report;
}

}  // namespace detail

/// Tells the host which launch of the rank is the first that ended early.
TUTTI_DEVICE void tell_end(const Arguments& arguments) {
  Progress* const progress = arguments.progress;
  // relaxed, both: all threads of a launch write the same, and the next launch begins after it.
  if (progress == nullptr || load_relaxed(&progress->ended) != 0) return;
  store_relaxed(&progress->ended,
                arguments.mark.replayed ? kEndedSomewhere : arguments.mark.collectives + 1);
}

/// Reports to the host and to all peers that this rank reaches why this thread gave up. A thread
/// that gave up calls it at the end of its kernel.
TUTTI_DEVICE void tell(const Watch& watch) {
  const Arguments& arguments = *watch.arguments;
  std::byte* const own = arguments.boards[arguments.rank];
  tell_end(arguments);
  if (own != nullptr && exchange(claimed_on(own), 1) != 0) return;  // Another thread reports.
  Report report;
  if (watch.why == Why::kTold) {
    report = detail::told_report(arguments);
  } else {
    detail::name_calls(watch, report);
    report.why = report_word(watch.why, arguments.rank, watch.peer);
  }
  detail::ReportWords words;
  std::memcpy(words, &report, sizeof words);
  if (load_relaxed(&arguments.report->why) == 0) detail::write_report(arguments.report, words);
  // If the host has ended the call, the host tells the peers where they are to know.
  if (own == nullptr || watch.why == Why::kTold || watch.why == Why::kAborted) return;
  detail::post_report(arguments.boards, arguments.ranks, arguments.rank, words);
}

/// Compares the calls of the peers for which no thread waited, notes the call as done, and reports
/// a failure. All threads call it, after all of the block's waits.
TUTTI_DEVICE void end_call(Watch& watch) {
  const Arguments& arguments = *watch.arguments;
  if (threadIdx.x < kWarpLanes && arguments.states != nullptr) {
    // Peers for which no thread waited may have posted, too.
    for (unsigned peer = threadIdx.x; peer < arguments.ranks && watch.why == Why::kNothing;
         peer += kWarpLanes) {
      std::byte* const board = board_from(arguments, peer);
      if (board == nullptr || (watch.compared >> peer & 1) != 0) continue;
      if (heard(watch.line(board, peer), watch.number, watch.chain) == Heard::kOther)
        watch.fail(Why::kDiffers, peer);
    }
    __syncwarp();  // All threads have read what the first one writes now.
    if (threadIdx.x == 0 && watch.why == Why::kNothing) {
      BlockState& state = arguments.states[blockIdx.x];
      store(&state.calls, BlockState::Calls{watch.number, watch.chain});
      store_relaxed(&state.busy, 0);
    }
  }
  if (watch.why != Why::kNothing) tell(watch);
}

/// Runs a block's part of a call: `steps(watch)` between begin_call and end_call.
template <class Steps>
TUTTI_DEVICE void run_call(const Arguments& arguments, Steps steps) {
  Watch watch{&arguments, blockIdx.x};
  begin_call(watch);
  steps(watch);
  end_call(watch);
}

}  // namespace tutti::cuda
