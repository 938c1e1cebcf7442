// File: exec/calls/call_digest.h: what a call line's tag says of its rank: the call's number, and a
// digest of all calls that the rank has made up to it.
//
// Ranks that make the same calls have the same digests. A digest depends on the one before, so a
// call that differs is seen in the tag of every later line of that rank as well. That matters
// where a rank that only gives, the root of a small broadcast, waits for nobody in the call that
// differs.
#pragma once
#include <cstdint>

#include "base/check.h"
#include "base/hash.h"
#include "exec/calls/call.h"
#include "exec/flight/recorder.h"
#include "transport/region.h"

namespace tutti::exec {

/// Bits of a tag that hold the call's number; the others hold the digest. Ranks are at most kCalls
/// calls apart, so few bits would do, but the lines of large calls may be old. A rank that finds
/// the number it looks for with another digest consults the other rank's record, which has whole
/// numbers.
inline constexpr int kNumberBits = 24;
inline constexpr std::uint64_t kNumberMask = (std::uint64_t{1} << kNumberBits) - 1;

/// The digest after a call of `what` (pack, and its way) and `count`; `before` is the digest before
/// the call. Two calls that differ in the count alone never have the same digest, as mix is a
/// bijection.
constexpr std::uint64_t next_digest(std::uint64_t before, std::uint64_t what, std::uint64_t count) {
  return mix(mix(before ^ count) + what);
}

/// The digest after a call that repeats the one before. Most calls do, so it is an addition: the
/// digest of any call of a run follows from the first one's.
/// Two orders of calls still have the same digest only by chance: the next call that differs is
/// mixed with the number of repeats.
constexpr std::uint64_t same_again(std::uint64_t before) {
  return before + CallRecord::kDigestStep;
}

constexpr std::uint64_t tag_of(std::uint64_t number, std::uint64_t digest) {
  return (digest & ~kNumberMask) | (number & kNumberMask);
}
/// Whether two tags are of calls with the same number, as far as tags say that.
constexpr bool same_number(std::uint64_t a, std::uint64_t b) {
  return ((a ^ b) & kNumberMask) == 0;
}

/// RankStatus::waits_for and CallRecord::blocked_on: the call, and the rank that is waited for.
constexpr std::uint64_t wait_of(std::uint64_t number, int rank) {
  return number << 16 | (static_cast<std::uint64_t>(rank) + 1);
}
/// The rank that is waited for; -1: none.
constexpr int awaited_in(std::uint64_t wait) { return static_cast<int>(wait & 0xffff) - 1; }
constexpr std::uint64_t call_in(std::uint64_t wait) { return wait >> 16; }
/// In place of the call's number: kAnyCall where the wait is for a message, which the peer may send
/// in whatever call it is; kProcess where it is for an answer of the peer's process, so that it
/// does not matter what the peer waits for itself.
inline constexpr std::uint64_t kAnyCall = ~std::uint64_t{0} >> 16, kProcess = kAnyCall - 1;

/// While it lives, the other ranks see that this one waits for an answer of a peer's process. The
/// thread does nothing else meanwhile.
class ProcessWait {
 public:
  ProcessWait(const Region& region, int me, int peer)
      // relaxed, here and below: for the text of errors only.
      : shown_(region.status(me).waits_for), before_(shown_.load(std::memory_order_relaxed)) {
    shown_.store(wait_of(kProcess, peer), std::memory_order_relaxed);
  }
  ~ProcessWait() { shown_.store(before_, std::memory_order_relaxed); }
  ProcessWait(const ProcessWait&) = delete;
  ProcessWait& operator=(const ProcessWait&) = delete;

 private:
  std::atomic<std::uint64_t>& shown_;
  std::uint64_t before_;
};

/// Counts, digests and records the rounds of this rank's calls. A round is a call of its own here.
/// Recording is a step of its own: stores become visible in their order, so a record that is
/// written before a line would hold up the line. A round that repeats the one before changes
/// `number_` alone: its digest follows from that.
class CallLog {
 public:
  CallLog(CallRecord& record, flight::Recorder& flight) : record_(&record), flight_(&flight) {}
  std::uint64_t number() const { return number_; }  // Counts up alike on every rank.
  std::uint64_t tag() const { return tag_of(number_, digest()); }
  /// The latest round that `show` was called for.
  std::uint64_t shown() const {
    return record_->number.load(std::memory_order_relaxed);  // relaxed: only this thread writes it.
  }
  CallRecord& record() const { return *record_; }
  flight::Recorder& flight() const { return *flight_; }

  /// The next one: `word` is its call and path, `sizes` its count or a hash of its counts.
  void note(std::uint64_t word, std::uint64_t count, std::uint64_t sizes) {
    const bool again = word == word_ && sizes == sizes_;
    alike_ = again && count == count_ && shown() == number_;
    if (!again)
      base_ = next_digest(digest(), word, sizes) - (number_ + 1) * CallRecord::kDigestStep;
    word_ = word, sizes_ = sizes, count_ = count;
    ++number_;
  }
  /// The same for one that repeats the one before.
  void repeat() { ++number_; }
  /// Shows the round to the other ranks. Once or more, as soon as it has written its lines or
  /// waits.
  void show() {
    if (shown() == number_) return;
    if (alike_) {
      record_->go_on(number_);
      if (flight_->takes(number_)) return;
    } else {
      TUTTI_DCHECK(shown() + 1 == number_);
      record_->begin_run(number_, {word_, count_, digest()});
      alike_ = true;
    }
    flight_->begin(number_, word_, count_, (word_ & kEager) != 0);
  }

 private:
  /// Each call that repeats the one before adds a step, see same_again.
  std::uint64_t digest() const { return base_ + number_ * CallRecord::kDigestStep; }

  CallRecord* record_;
  flight::Recorder* flight_;
  bool alike_ = false;  // The round is like the latest shown; so is each that `repeat` begins.
  std::uint64_t number_ = 0;
  std::uint64_t base_ = 0;                          // The digest, less a step for each call.
  std::uint64_t word_ = 0, count_ = 0, sizes_ = 0;  // What went into the digest last.
};

}  // namespace tutti::exec
