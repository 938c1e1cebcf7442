// File: exec/flight/recorder.h: notes the calls and messages of one rank on one communicator, so
// that others can read them while they run, and once they hang.
//
// An entry is one cache line. Writing it takes nine stores and no locked instruction. An eager call
// like the one before is one more of that entry: one store at its end, to a line that is near.
// Until then, or until it waits long or fails, the entry does not show it. Every store counts:
// while a call's lines are on their way to its peers, the next calls' stores wait in the CPU's
// store buffer, and few calls fill it. The clock is read in each call by a plan and in one of
// kStampCalls eager calls that differ or kEntryCalls alike: it takes 8 ns to 16 ns, a third of an
// eager call. A call that has waited so long that it checks the health of its peers has an entry of
// its own with the time. The end of a call that did not wait is the next entry's begin.
//
// Totals cost a call that repeats the one before nothing: its run is counted when another begins.
// Waits are counted in calls that wait, at most one look at the clock each.
//
// All functions but set_state and those behind it are for the thread that executes the
// communicator's calls.
#pragma once
#include <atomic>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/mapped_memory.h"
#include "exec/flight/layout.h"

namespace tutti::exec::flight {

using Word = std::atomic<std::uint64_t>;
static_assert(sizeof(Word) == sizeof(std::uint64_t) && Word::is_always_lock_free);

/// The rank and communicator whose calls a track records.
struct About {
  std::array<std::uint64_t, 2> communicator{};
  int rank = 0, ranks = 1, local_ranks = 1;
  bool devices = false;
  std::string transport, host, job;
  // Not shown:
  std::string folder;  // Where the record is written after an error; empty: nowhere.
  std::string trace;   // The file to which it is added at the end; empty: none.
};

/// It has more than 20 functions: most are a few stores of the path of a small call or a message.
class Recorder {
 public:
  explicit Recorder(const About& about);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Begins a call that is not like the one before, in its first round: `kind` as Sums counts,
  /// `bytes` of the call, and whether it is eager.
  void begin_run(std::uint64_t number, std::size_t kind, std::uint64_t bytes, bool eager);
  /// Begins a round of a call: its number on the communicator, and what it is.
  void begin(std::uint64_t call, std::uint64_t what, std::uint64_t count, bool eager) {
    const bool stamped = !eager || call % kStampCalls == 0;
    timed_ = !eager, open_ = eager;
    first_ = call;
    current_ = &append(call, what, count, stamped ? ticks() : 0, 0);
  }
  /// Whether a round like the one before is one more of its entry. False: it needs one of its own,
  /// by `begin`.
  bool takes(std::uint64_t call) const { return open_ && call % kEntryCalls != 0; }
  /// The call goes by a plan, whose hash is `hash`.
  void set_plan(std::uint64_t hash, std::string_view name) {
    // relaxed: a reader that gets the old value shows no plan.
    current_->plan.store(place_of(hash, name), std::memory_order_relaxed);
  }
  /// The call of that number waits so long that a look at the clock is nothing.
  void wait(std::uint64_t call, At at, int awaited, std::size_t tile) {
    if (!has_current()) return;
    if (!timed_ && call != first_) take_own_entry(call);
    timed_ = true, open_ = false;
    // relaxed, all three: only this thread writes them, and each says something by itself.
    if (current_->begin.load(std::memory_order_relaxed) == 0)
      current_->begin.store(ticks(), std::memory_order_relaxed);
    const State state{0, at, awaited, static_cast<std::uint32_t>(tile)};
    current_->state.store(state.packed(), std::memory_order_relaxed);
  }
  /// All ranks have come to a round of a call by a plan, or to its first; `last`: the last one for
  /// which this rank waited, -1: none.
  void gathered(int last, bool first) {
    if (last >= 0) note_wait(last, ticks(), first);
  }
  /// The call of that number, or a round of it, is over. `last`: of an eager call, the last rank
  /// for which this one waited, if it did.
  void end_ok(std::uint64_t call, int last = -1) {
    // relaxed, here and in end_timed: a reader may see the state without the end; then it shows
    // no end.
    if (timed_) return end_timed(last);
    const State state{.outcome = static_cast<std::uint8_t>(Outcome::kOk),
                      .tile = static_cast<std::uint32_t>(call - first_)};
    current_->state.store(state.packed(), std::memory_order_relaxed);
  }
  /// The call of that number, the latest that began, has failed, with that value of Code. It keeps
  /// what it waited for.
  void end_failed(std::uint64_t call, int code);

  /// Begins a message; returns the entry's number.
  std::uint64_t begin_message(bool sends, int peer, std::uint8_t type, std::uint64_t count) {
    const std::uint64_t what = kMessage | (sends ? kSends : 0) | std::uint64_t{type} << 40 |
                               static_cast<std::uint16_t>(peer);
    open_ = false;
    append(0, what, count, ticks(), State{0, At::kMessage, peer, 0}.packed());
    add(track_->totals.messages, 1);
    add(track_->totals.message_bytes, count * size_of(static_cast<DataType>(type)));
    return number_;
  }
  /// A message has come to its end; its peer may be known only now. `waited`: it was not carried
  /// out at once.
  void end_message(std::uint64_t number, int peer, Outcome outcome, bool waited);

  /// Says what an entry is at, or how it ended, unless so many came since that it is gone. Any
  /// thread, one at a time for an entry; no whole ring of entries may be begun meanwhile.
  void set_state(std::uint64_t number, const State& state) {
    Entry<Word>& entry = track_->entries[(number - 1) % kEntries];
    // relaxed, both: the state says something by itself.
    if (entry.number.load(std::memory_order_relaxed) != number) return;
    entry.state.store(state.packed(), std::memory_order_relaxed);
  }

  /// The same for a call of a device, at `now` by ticks(). `since`: that it runs and was seen at
  /// state.at then; or, where it is over, that it was not over yet then; 0: not known.
  void set_device_state(std::uint64_t number, State state, std::uint64_t since, std::uint64_t now);
  /// An entry's word `what`; 0: so many came since that it is gone. As set_state.
  std::uint64_t what_of(std::uint64_t number) const;
  /// The communicator's number of the entry's call, or of the latest before it; 0: those are gone.
  /// As set_state.
  std::uint64_t call_at(std::uint64_t number) const;

  const Track<Word>& track() const { return *track_; }
  const std::string& folder() const { return folder_; }

 private:
  Entry<Word>& append(std::uint64_t call, std::uint64_t what, std::uint64_t count,
                      std::uint64_t begin, std::uint64_t state) {
    Entry<Word>& entry = track_->entries[number_ % kEntries];
    if (&entry == current_) [[unlikely]]
      keep_latest();
    // relaxed, then a release fence: a reader that sees any later store sees 0 here, or the new
    // number.
    entry.number.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    entry.call.store(call, std::memory_order_relaxed);
    entry.what.store(what, std::memory_order_relaxed);
    entry.count.store(count, std::memory_order_relaxed);
    entry.begin.store(begin, std::memory_order_relaxed);
    entry.end.store(0, std::memory_order_relaxed);
    entry.state.store(state, std::memory_order_relaxed);
    entry.plan.store(0, std::memory_order_relaxed);
    // release: a reader that sees the number sees the entry.
    entry.number.store(++number_, std::memory_order_release);
    // The next entry was written 4,095 entries ago: fetch its line while this call waits.
    __builtin_prefetch(&track_->entries[number_ % kEntries], 1);
    return entry;
  }
  friend struct Traced;
  static void add(Word& word, std::uint64_t more) {
    // relaxed, both: only this thread writes it, and it says something by itself.
    word.store(word.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  }
  /// Whether `current_` is still the call's: a ring of messages may have come since.
  bool has_current() const {
    // relaxed: only this thread writes it.
    return current_->call.load(std::memory_order_relaxed) == first_;
  }
  void take_own_entry(std::uint64_t call);
  void keep_latest();
  void end_timed(int last);
  void note_wait(int last, std::uint64_t now, bool first);
  std::uint64_t place_of(std::uint64_t hash, std::string_view name);

  Track<Word>* track_;
  Entry<Word>* current_;      // The call in progress, or the last one.
  std::uint64_t number_ = 0;  // Entries so far.
  bool timed_ = false;        // The call's end is worth a look at the clock.
  bool open_ = false;         // The latest entry takes calls that are like it.
  std::uint64_t first_ = 0;   // The first call of `current_`.
  int place_ = -1;            // The track's, in the file; -1: in none.
  int owner_;                 // The process that made it.
  std::array<std::uint64_t, kPlans> plan_hashes_{};
  std::string folder_, trace_;  // As About has them.
  MappedMemory memory_;
};

}  // namespace tutti::exec::flight
