// The record of a rank's calls that its peers read: what it says of a call is what the rank made,
// whether it wrote an entry for the call, one for a run of calls, or just its number.
#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "exec/calls/call.h"
#include "exec/calls/call_digest.h"
#include "support/catch.h"

namespace tutti::exec {
namespace {

constexpr std::uint64_t kWord = std::uint64_t{1} << 63 | kEager;

bool same(const CallSeen& a, const CallSeen& b) {
  return a.what == b.what && a.count == b.count && a.digest == b.digest;
}

/// A call of a sequence in which runs of 1 to 100 calls are alike.
struct Made {
  std::uint64_t word, count, sizes;
  friend bool operator==(const Made&, const Made&) = default;
};
Made call_at(std::uint64_t number) {
  const std::uint64_t kind = mix(number / (1 + mix(number / 512) % 100));
  // Counts of blocks may differ though the sizes that are hashed are alike, and the other way.
  return {kWord | kind % 3, 8 + (kind >> 8) % 2, 8 + (kind >> 16) % 2};
}
/// What a rank has in mind before it makes the call of that number: what the calls so far digest
/// to.
CallSeen seen_after(const CallSeen& before, std::uint64_t number) {
  const Made call = call_at(number);
  const bool again = number > 1 && call.word == call_at(number - 1).word &&
                     call.sizes == call_at(number - 1).sizes;
  return {call.word, call.count,
          again ? same_again(before.digest) : next_digest(before.digest, call.word, call.sizes)};
}

void make(CallLog& log, std::uint64_t number) {
  const Made call = call_at(number);
  if (number > 1 && call == call_at(number - 1) && number % 3 != 0)
    log.repeat();
  else
    log.note(call.word, call.count, call.sizes);
}

TEST_CASE("a record has the latest calls, be they alike or not") {
  flight::Recorder flight{flight::About{}};
  const auto record = std::make_unique<CallRecord>();
  CallLog log(*record, flight);
  std::vector<CallSeen> calls(1);
  constexpr std::uint64_t kMade = 20'000;
  std::uint64_t missing = 0, wrong = 0, known = 0, tags = 0;
  for (std::uint64_t number = 1; number <= kMade; ++number) {
    make(log, number);
    calls.push_back(seen_after(calls.back(), number));
    tags += log.tag() != tag_of(number, calls.back().digest);
    if (number % 5 == 0) log.show();  // A rank that waits shows its call before it publishes it.
    log.show();
    for (std::uint64_t of = number; of != 0 && number - of < 2 * kCalls; --of) {
      const auto seen = record->look_up(of);
      missing += !seen && number - of < kCalls;
      known += seen.has_value();
      wrong += seen && !same(*seen, calls[of]);
    }
  }
  CHECK(missing == 0);
  CHECK(wrong == 0);
  CHECK(tags == 0);
  CHECK(known > kMade * kCalls);
  CHECK(log.shown() == kMade);
  CHECK_FALSE(record->look_up(0));
}

TEST_CASE("a link's record has the calls that it was told of, and no others") {
  const auto record = std::make_unique<CallRecord>();
  std::vector<CallSeen> calls(1);
  std::uint64_t wrong = 0;
  for (std::uint64_t number = 1; number <= 1000; ++number) {
    calls.push_back(seen_after(calls.back(), number));
    if (number % 3 == 0) record->note(number, calls[number]);
    if (number % 9 == 0) record->put(number - 1, calls[number - 1]);
    for (std::uint64_t of = 1; of <= number; ++of) {
      const std::uint64_t told = number / 9 * 9;  // Numbers up to here have all been told.
      const bool there = number - of < kCalls && (of % 3 == 0 || (of % 9 == 8 && of < told));
      const auto seen = record->look_up(of);
      wrong += there ? !seen || !same(*seen, calls[of]) : seen && !same(*seen, calls[of]);
      wrong += !there && seen && of % 9 != 8 && of % 3 != 0;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("a peer that reads a record beside its rank gets the rank's calls") {
  flight::Recorder flight{flight::About{}};
  const auto record = std::make_unique<CallRecord>();
  constexpr std::uint64_t kMade = 300'000;
  std::vector<CallSeen> calls(1);
  for (std::uint64_t number = 1; number <= kMade; ++number)
    calls.push_back(seen_after(calls.back(), number));
  std::jthread rank([&] {
    CallLog log(*record, flight);
    for (std::uint64_t number = 1; number <= kMade; ++number) make(log, number), log.show();
  });
  std::uint64_t wrong = 0, known = 0, latest = 0;
  std::mt19937_64 random(Catch::rngSeed());
  while (latest != kMade) {
    latest = record->number.load(std::memory_order_acquire);
    if (latest == 0) continue;
    const std::uint64_t of = latest - random() % std::min<std::uint64_t>(latest, 2 * kCalls);
    const auto seen = record->look_up(of);
    known += seen.has_value();
    wrong += seen && !same(*seen, calls[of]);
  }
  CHECK(wrong == 0);
  CHECK(known != 0);
}

}  // namespace
}  // namespace tutti::exec
