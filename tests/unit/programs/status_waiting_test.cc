// Which rank `tutti status` blames, by records that are made up.
#include "tools/status/waiting.h"

#include "base/clock.h"
#include "exec/flight/reader.h"
#include "exec/flight/recorder.h"
#include "support/catch.h"

namespace tutti::tools {
namespace {

using exec::flight::At;
using exec::flight::Outcome;
using exec::flight::Seen;
using exec::flight::State;

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kNow = 100 * kSecond;
constexpr std::uint64_t kBarrier = std::uint64_t{1} << 63 | std::uint64_t{1} << 56;

Seen call(std::uint64_t number, std::int64_t begin_ns, int awaited = -1, bool ended = false) {
  const auto outcome = ended ? Outcome::kOk : Outcome::kRunning;
  Seen seen;
  seen.number = seen.call = number;
  seen.what = kBarrier;
  seen.begin_ns = begin_ns;
  seen.state = State{static_cast<std::uint8_t>(outcome), At::kGather, awaited, 0};
  return seen;
}

/// A communicator of `ranks` ranks of this host.
class Job {
 public:
  explicit Job(int ranks) : ranks_(ranks) {}
  FoundTrack& add(int rank, std::vector<Seen> entries) {
    FoundTrack one;
    one.track.rank = rank;
    one.track.ranks = one.track.local_ranks = ranks_;
    one.track.entries = std::move(entries);
    one.pid = 100 + rank;
    found_.tracks.push_back(std::move(one));
    return found_.tracks.back();
  }
  CommStatus status() {
    found_.now.ns = kNow;
    auto all = find_waiting(found_);
    REQUIRE(all.size() == 1);
    return std::move(all.front());
  }

 private:
  int ranks_;
  Found found_;
};

TEST_CASE("what a rank began as soon as it had joined was begun then, not long ago") {
  // Several, as now and then another thread comes between.
  for (int i = 0; i < 10; ++i) {
    const std::int64_t before = monotonic_ns();
    exec::flight::About about;
    about.ranks = 2;
    exec::flight::Recorder recorder(about);
    (void)recorder.begin_message(false, 1, 0, 4);
    const auto track = exec::flight::read_own(recorder);
    const std::int64_t after = monotonic_ns();
    REQUIRE(track);
    REQUIRE(track->entries.size() == 1);
    CHECK(track->entries[0].begin_ns >= before);
    CHECK(track->entries[0].begin_ns <= after);
  }
}

TEST_CASE("nobody is blamed where nobody waits") {
  Job job(2);
  job.add(0, {call(1, kSecond, 1, true)});
  job.add(1, {call(1, kSecond, -1, true), call(2, 2 * kSecond)});
  const CommStatus status = job.status();
  CHECK(status.blocker == -1);
  CHECK(status.blame.empty());
  CHECK(!status.by_rank.at(0).in_call);
  CHECK(status.by_rank.at(1).in_call);
}

TEST_CASE("the end of a chain is blamed, for as long as the first rank of it waits") {
  Job job(4);
  job.add(0, {call(7, 90 * kSecond, 1)});
  job.add(1, {call(7, 88 * kSecond, 2)});
  job.add(2, {call(6, 80 * kSecond, -1, true)});
  job.add(3, {call(7, 95 * kSecond, 2)});
  const CommStatus status = job.status();
  CHECK(status.blocker == 2);
  CHECK(status.waiting == std::vector{0, 1, 3});
  CHECK(status.waited_ns == 12 * kSecond);
  CHECK(status.blame == "rank 2 has not made call 7 (barrier)");
  CHECK(status.waits == "ranks 0, 1, 3 have waited for it for 12.0 s");
}

TEST_CASE("what the blamed rank does is said") {
  Job job(2);
  job.add(0, {call(7, 90 * kSecond, 1)});
  SECTION("it has ended") { CHECK(job.status().blame == "rank 1 has no process any more"); }
  SECTION("it is stopped") {
    job.add(1, {call(7, 90 * kSecond)}).stopped = true;
    CHECK(job.status().blame ==
          "rank 1 is stopped by a signal or a debugger (pid 101), before the end of call 7 "
          "(barrier)");
  }
  SECTION("it was stopped while it waited for the other, in the call before") {
    job.add(1, {call(6, 89 * kSecond, 0)}).stopped = true;
    CHECK(job.status().blocker == 1);
    CHECK(job.status().chain == std::vector{0, 1});
    CHECK_THAT(job.status().blame, Catch::StartsWith("rank 1 is stopped"));
  }
  SECTION("it is in the call and waits for nobody") {
    job.add(1, {call(7, 90 * kSecond)});
    CHECK(job.status().blame == "rank 1 is in call 7 (barrier)");
  }
  SECTION("it waits for the other in a message") {
    Seen recv = call(8, 95 * kSecond, 0);
    recv.call = 0;
    recv.what = exec::flight::kMessage;  // From rank 0.
    job.add(1, {recv});
    const CommStatus status = job.status();
    CHECK(status.blame == "rank 0 waits for rank 1 in call 7 (barrier)");
    CHECK(status.waiting == std::vector{1});
  }
  CHECK(job.status().blocker >= 0);
}

TEST_CASE("a rank that launches too few calls of devices is blamed") {
  const auto on_device = [](std::uint64_t number, std::int64_t begin_ns, At at, bool ended) {
    Seen seen = call(number, begin_ns, -1, ended);
    seen.state.at = at;
    return seen;
  };
  Job job(3);
  for (const int rank : {0, 2}) {
    job.add(rank, {on_device(6, 80 * kSecond, At::kOnDevice, true),
                   on_device(7, 90 * kSecond, At::kOnDevice, false),
                   on_device(8, 91 * kSecond, At::kLaunched, false)});
  }
  SECTION("it has not made the call that others have on their devices") {
    job.add(1, {on_device(6, 80 * kSecond, At::kOnDevice, true)});
    const CommStatus status = job.status();
    CHECK(status.blocker == 1);
    CHECK(status.waiting == std::vector{0, 2});
    CHECK(status.blame == "rank 1 has not made call 7 (barrier)");
    CHECK(status.waited_ns == 10 * kSecond);
    CHECK(status.compared == 0);  // Launches do not say which rank is late.
  }
  SECTION("all have made it") {
    job.add(1, {on_device(7, 80 * kSecond, At::kOnDevice, false)});
    CHECK(job.status().blocker == -1);
    CHECK(job.status().by_rank.at(0).last_call->call == 7);
  }
  SECTION("it may come yet") {
    job.add(1, {on_device(6, 80 * kSecond, At::kOnDevice, true)});
    Job soon(2);
    soon.add(0, {on_device(7, kNow - kSecond / 2, At::kOnDevice, false)});
    soon.add(1, {on_device(6, kNow - kSecond, At::kOnDevice, true)});
    CHECK(soon.status().blocker == -1);
  }
}

TEST_CASE("a device that says for which rank it waits is followed, since it was seen to wait") {
  const auto waits = [](std::uint64_t number, int awaited, std::int64_t reached_ns) {
    Seen seen = call(number, 80 * kSecond, awaited);
    seen.state.at = At::kBegun;
    seen.reached_ns = reached_ns;
    return seen;
  };
  const auto launched = [](std::uint64_t number, At at, bool ended) {
    Seen seen = call(number, 80 * kSecond, -1, ended);
    seen.state.at = at;
    return seen;
  };
  Job job(3);
  // Rank 2 has launched fewer calls than rank 0 waits in, but rank 0 waits for rank 1.
  job.add(0, {waits(7, 1, 94 * kSecond), launched(8, At::kLaunched, false)});
  SECTION("to the end of the chain") {
    job.add(1, {waits(7, 2, 97 * kSecond)});
    job.add(2, {launched(6, At::kBegun, true)});
    const CommStatus status = job.status();
    CHECK(status.blame == "rank 2 has not made call 7 (barrier)");
    CHECK(status.chain == std::vector{0, 1, 2});
    CHECK(status.waited_ns == 6 * kSecond);
  }
  SECTION("to one whose call stands behind other work") {
    job.add(1, {launched(7, At::kOnDevice, false)});
    job.add(2, {launched(7, At::kLaunched, true)});
    CHECK(job.status().blame == "rank 1 is in call 7 (barrier)");
  }
  SECTION("also through a message that is before the call") {
    Seen to_nobody = waits(5, -1, 0), message = waits(6, 2, 98 * kSecond);
    for (Seen* one : {&to_nobody, &message}) {
      one->call = 0;
      one->what = exec::flight::kMessage | exec::flight::kSends;
    }
    to_nobody.state.at = At::kLaunched;  // It shares the launch of the other one.
    message.what |= 2;                   // To rank 2.
    job.add(1, {to_nobody, message, launched(7, At::kLaunched, false)});
    job.add(2, {launched(7, At::kOnDevice, true)});
    const CommStatus status = job.status();
    CHECK(status.chain == std::vector{0, 1, 2});
    CHECK(!status.by_rank.at(1).in_call);
    CHECK(status.by_rank.at(1).message->number == 6);
    CHECK(status.by_rank.at(1).since_ns == 98 * kSecond);
  }
  CHECK(job.status().by_rank.at(0).awaited == 1);
}

TEST_CASE("a rank of another host is not said to have ended") {
  Job job(3);
  job.add(0, {call(7, 90 * kSecond, 2)}).track.local_ranks = 2;
  job.add(1, {call(7, 90 * kSecond, 2)}).track.local_ranks = 2;
  CHECK(job.status().blame == "rank 2 has no process on this host");
}

TEST_CASE("the rank that comes last to calls has lost the time of the others") {
  Job job(3);
  const auto rank = [](std::int64_t late_ns) {
    std::vector<Seen> calls;
    for (int n = 1; n <= 10; ++n)
      calls.push_back(
          call(static_cast<std::uint64_t>(n), n * kSecond + (n == 3 ? 5 : late_ns), -1, true));
    calls.push_back(call(11, 0, -1, true));  // The begin is not known.
    return calls;
  };
  job.add(0, rank(0));
  job.add(1, rank(1000));
  job.add(2, rank(300));
  const CommStatus status = job.status();
  CHECK(status.compared == 10);
  REQUIRE(status.lateness.count(1) == 1);
  CHECK(status.lateness.at(1).last == 9);
  CHECK(status.lateness.at(1).lost_ns == 9000);
}

}  // namespace
}  // namespace tutti::tools
