// The flight record: what a rank notes, and what a reader makes of it, torn entries and bytes of no
// sense included.
#include <fcntl.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/fd.h"
#include "exec/calls/call.h"
#include "exec/flight/json.h"
#include "exec/flight/reader.h"
#include "exec/flight/recorder.h"
#include "support/catch.h"
#include "support/processes.h"
#include "tutti/communicator.h"

namespace tutti::exec::flight {
namespace {

using namespace std::chrono_literals;

/// Copies a track as another process would, word by word.
Copy copy_of(const Recorder& recorder) {
  return [&recorder](std::uint64_t offset, std::span<std::byte> to) {
    const auto* words = reinterpret_cast<const Word*>(&recorder.track()) + offset / sizeof(Word);
    for (std::size_t i = 0; i * sizeof(Word) < to.size(); ++i) {
      // acquire: as the copies of pread, later loads come later.
      const std::uint64_t word = words[i].load(std::memory_order_acquire);
      std::memcpy(to.data() + i * sizeof(Word), &word, sizeof(Word));
    }
    return true;
  };
}

About some_rank() {
  return {.communicator = {7, 8},
          .rank = 1,
          .ranks = 3,
          .transport = "tcp",
          .host = "node1",
          .job = "j",
          .folder = "",
          .trace = ""};
}

/// The tracks of this process, read through its descriptor.
std::vector<SeenTrack> own_tracks() {
  for (const auto& at : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto name = std::filesystem::read_symlink(at.path(), gone).string();
    if (!name.starts_with("/memfd:tutti-flight")) continue;
    const Fd file(::open(at.path().c_str(), O_RDONLY | O_CLOEXEC));
    return read_file(
        [&](std::uint64_t offset, std::span<std::byte> to) {
          return pread(file.get(), to.data(), to.size(), static_cast<off_t>(offset)) ==
                 static_cast<ssize_t>(to.size());
        },
        Now::look());
  }
  return {};
}

TEST_CASE("a record has the latest calls, also when its ring was gone round") {
  Recorder recorder(some_rank());
  const std::uint64_t calls = GENERATE(1, 4095, 4096, 4097, 10'000);
  for (std::uint64_t call = 1; call <= calls; ++call) {
    recorder.begin(call, call * 3, call * 7, true);
    if (call != calls) recorder.end_ok(call);
  }
  const auto track = read_track(copy_of(recorder), Now::look());
  REQUIRE(track);
  CHECK(track->rank == 1);
  CHECK(track->ranks == 3);
  CHECK(track->transport == "tcp");
  CHECK(track->host == "node1");
  REQUIRE(track->entries.size() == std::min<std::uint64_t>(calls, kEntries));
  bool right = true;
  std::uint64_t call = calls - track->entries.size();
  for (const Seen& seen : track->entries) {
    ++call;
    right = right && seen.call == call && seen.what == call * 3 && seen.count == call * 7 &&
            seen.running() == (call == calls);
  }
  CHECK(right);
}

constexpr std::uint64_t kSmall = std::uint64_t{1} << 63 | kEager;

/// A small call, which may be what the one before was.
void begin_small(Recorder& recorder, std::uint64_t call, std::uint64_t what, std::uint64_t count,
                 bool alike) {
  if (!alike || !recorder.takes(call)) recorder.begin(call, what, count, true);
}

TEST_CASE("eager calls that are alike share entries, and are all seen once over or waiting") {
  Recorder recorder(some_rank());
  const std::uint64_t calls = GENERATE(2, 63, 64, 65, 100, 10'000);
  const bool over = GENERATE(true, false);  // The last one.
  std::this_thread::sleep_for(2ms);
  for (std::uint64_t call = 1; call <= calls; ++call) {
    begin_small(recorder, call, kSmall, 5, call > 1);
    if (call != calls || over) recorder.end_ok(call);
  }
  if (!over) recorder.wait(calls, At::kGather, 2, 0);
  const auto track = read_track(copy_of(recorder), Now::look());
  REQUIRE(track);
  REQUIRE(track->entries.size() == std::min<std::uint64_t>(calls, kEntries));
  bool right = true;
  std::uint64_t call = calls - track->entries.size(), number = 0;
  for (const Seen& seen : track->entries) {
    ++call;
    right = right && seen.call == call && seen.what == kSmall && seen.count == 5 &&
            seen.number > number && seen.running() == (call == calls && !over) &&
            seen.state.tile == 0 &&
            (seen.begin_ns != 0) == (call % kEntryCalls == 0 || seen.running());
    number = seen.number;
  }
  CHECK(right);
  // The first 63, then 64 at a time; and the one that waits, if it is not the first of those.
  const Entry<Word>& second = recorder.track().entries[1];
  CHECK(second.call.load() == (calls >= 64 ? 64 : over ? 0 : calls));
}

TEST_CASE("calls that differ, a message and a wait begin an entry") {
  Recorder recorder(some_rank());
  std::this_thread::sleep_for(2ms);
  const auto make = [&](std::uint64_t call, std::uint64_t count) {
    begin_small(recorder, call, kSmall, count, call != 1 && call != 3);
  };
  for (const std::uint64_t call : {1, 2}) make(call, 5), recorder.end_ok(call);
  make(3, 6), recorder.end_ok(3);
  const std::uint64_t sent = recorder.begin_message(true, 0, 0, 1);
  make(4, 6), recorder.end_ok(4);
  make(5, 6);
  recorder.wait(5, At::kGather, 2, 0);
  const auto waiting = read_track(copy_of(recorder), Now::look());
  std::this_thread::sleep_for(3ms);
  recorder.end_ok(5, 2);
  for (const std::uint64_t call : {6, 7}) make(call, 6), recorder.end_ok(call);
  recorder.end_message(sent, 0, Outcome::kOk, false);
  make(8, 6);
  recorder.end_failed(8, static_cast<int>(Code::kTimeout));
  recorder.end_failed(8, static_cast<int>(Code::kInternal));  // It has failed already.
  const auto track = read_track(copy_of(recorder), Now::look());
  REQUIRE((waiting && track));
  REQUIRE(waiting->entries.size() == 6);
  CHECK(waiting->entries[4].call == 4);
  CHECK(!waiting->entries[4].running());
  CHECK(waiting->entries[5].call == 5);
  CHECK(waiting->entries[5].running());
  CHECK(waiting->entries[5].begin_ns != 0);
  CHECK(waiting->entries[5].state.awaited == 2);
  std::vector<std::uint64_t> order;
  for (const Seen& seen : track->entries) order.push_back(seen.call);
  CHECK(order == std::vector<std::uint64_t>{1, 2, 3, 0, 4, 5, 6, 7, 8});
  CHECK(track->entries[2].count == 6);
  const Seen& waited = track->entries[5];
  CHECK(outcome_name(waited.state) == "ok");
  CHECK(waited.state.awaited == 2);
  CHECK(waited.end_ns - waited.begin_ns >= 2'000'000);
  CHECK(track->totals.waits[2].calls == 1);
  for (const std::size_t ended : {6, 7}) CHECK(outcome_name(track->entries[ended].state) == "ok");
  CHECK(outcome_name(track->entries[8].state) == "timeout");
}

TEST_CASE("a failure that comes after a small call ended is not that call's") {
  Recorder recorder(some_rank());
  for (const std::uint64_t call : {1, 2}) {
    begin_small(recorder, call, kSmall, 5, call > 1);
    recorder.end_ok(call);
  }
  recorder.end_failed(2, static_cast<int>(Code::kTimeout));
  const auto track = read_track(copy_of(recorder), Now::look());
  REQUIRE(track);
  REQUIRE(track->entries.size() == 2);
  for (const Seen& seen : track->entries) CHECK(outcome_name(seen.state) == "ok");
}

TEST_CASE("a failure after more messages than the ring holds is none of theirs") {
  Recorder recorder(some_rank());
  begin_small(recorder, 1, kSmall, 5, false);
  recorder.end_ok(1);
  for (std::size_t i = 0; i < kEntries; ++i)
    recorder.end_message(recorder.begin_message(true, 0, 0, 1), 0, Outcome::kOk, false);
  recorder.wait(2, At::kGather, 2, 0);
  recorder.end_failed(2, static_cast<int>(Code::kTimeout));
  const auto track = read_track(copy_of(recorder), Now::look());
  REQUIRE(track);
  REQUIRE(track->entries.size() == kEntries);
  for (const Seen& seen : track->entries)
    if (!seen.message() || outcome_name(seen.state) != "ok") FAIL("entry " << seen.number);
}

TEST_CASE("calls stay counted when messages have pushed them out of the ring") {
  Recorder recorder(some_rank());
  const std::size_t kind = static_cast<std::size_t>(Collective::kAllReduce);
  recorder.begin_run(1, kind, 20, true);
  const bool waits = GENERATE(false, true), during = GENERATE(false, true);  // The last call.
  const std::size_t messages = GENERATE(0, 1, 4094, 4095, 4096, 5000);
  std::size_t made = 0;
  const auto message = [&] {
    recorder.end_message(recorder.begin_message(true, 0, 0, 1), 0, Outcome::kOk, false);
    ++made;
  };
  for (std::uint64_t call = 1; call <= 100; ++call) {
    begin_small(recorder, call, kSmall, 5, call > 1);
    if (call == 100 && waits) recorder.wait(call, At::kGather, 2, 0);
    if (call == 100 && during && messages != 0) message();
    recorder.end_ok(call);
  }
  while (made < messages) message();
  const auto track = read_track(copy_of(recorder), Now::look());
  REQUIRE(track);
  CHECK(track->totals.calls[kind] == 100);
  CHECK(track->totals.bytes[kind] == 2000);
  CHECK(track->totals.messages == messages);
}

TEST_CASE("a call that two entries have is shown once") {
  Recorder recorder(some_rank());
  for (const std::uint64_t call : {1, 2, 3}) {
    begin_small(recorder, call, kSmall, 5, call > 1);
    if (call != 3) recorder.end_ok(call);
  }
  recorder.wait(3, At::kGather, 2, 0);
  const Copy plain = copy_of(recorder);
  const std::uint64_t both =
      State{.outcome = static_cast<std::uint8_t>(Outcome::kOk), .tile = 2}.packed();
  const auto track = read_track(
      [&](std::uint64_t offset, std::span<std::byte> to) {
        if (!plain(offset, to)) return false;
        const std::size_t at =
            offsetof(Track<std::uint64_t>, entries) + offsetof(Entry<std::uint64_t>, state);
        if (to.size() == kTrackBytes) std::memcpy(to.data() + at, &both, sizeof(both));
        return true;
      },
      Now::look());
  REQUIRE(track);
  REQUIRE(track->entries.size() == 3);
  CHECK(track->entries[1].call == 2);
  CHECK(track->entries[2].call == 3);
  CHECK(track->entries[2].state.awaited == 2);
}

TEST_CASE("a reader beside the writer shows no torn entry") {
  Recorder recorder(some_rank());
  std::atomic<bool> stop{false};
  // Rows of 1 to 40 calls are alike.
  const auto what_of = [](std::uint64_t call) { return kSmall | call / (1 + call / 512 % 40); };
  std::jthread writer([&] {
    for (std::uint64_t call = 1; !stop.load(std::memory_order_relaxed); ++call) {
      const std::uint64_t what = what_of(call);
      begin_small(recorder, call, what, what * 7, call > 1 && what == what_of(call - 1));
      if (call % 100 == 0) recorder.wait(call, At::kGather, 0, 0);
      recorder.end_ok(call);
    }
  });
  std::size_t seen_entries = 0, torn = 0;
  for (int looks = 0; looks < 200 || seen_entries == 0; ++looks) {
    const auto track = read_track(copy_of(recorder), Now::look());
    if (!track) continue;
    std::uint64_t before = 0;
    for (const Seen& seen : track->entries) {
      ++seen_entries;
      torn += seen.call <= before || seen.what != what_of(seen.call) || seen.count != seen.what * 7;
      before = seen.call;
    }
  }
  stop.store(true, std::memory_order_relaxed);
  CHECK(torn == 0);
}

TEST_CASE("an entry that changes between the copies is not shown") {
  Recorder recorder(some_rank());
  recorder.begin(1, 3, 7, true);
  recorder.begin(2, 6, 14, true);
  int copies = 0;
  const Copy plain = copy_of(recorder);
  const int changed_in = GENERATE(1, 2, 3);  // Which of the three copies of the track.
  const std::uint64_t number = GENERATE(0ULL, 1ULL + kEntries);
  const auto track = read_track(
      [&](std::uint64_t offset, std::span<std::byte> to) {
        if (!plain(offset, to)) return false;
        if (to.size() < kTrackBytes || ++copies != changed_in) return true;
        std::memcpy(to.data() + offsetof(Track<std::uint64_t>, entries), &number, sizeof(number));
        return true;
      },
      Now::look());
  REQUIRE(track);
  REQUIRE(track->entries.size() == 1);
  CHECK(track->entries.front().call == 2);
}

TEST_CASE("a communicator that is another one at the end of reading is not shown") {
  const Recorder recorder(some_rank());
  int copies = 0;
  const Copy plain = copy_of(recorder);
  const auto track = read_track(
      [&](std::uint64_t offset, std::span<std::byte> to) {
        if (!plain(offset, to)) return false;
        const std::uint64_t serial = 1234567;
        if (to.size() == kTrackBytes && ++copies == 3)
          std::memcpy(to.data(), &serial, sizeof(serial));
        return true;
      },
      Now::look());
  CHECK(!track);
}

TEST_CASE("waits, ends, failures, plans and times are seen") {
  Recorder recorder(some_rank());
  std::this_thread::sleep_for(2ms);
  const std::int64_t before = monotonic_ns();
  recorder.begin(1, std::uint64_t{1} << 63, 5, false);
  recorder.set_plan(99, "two_shot");
  recorder.wait(1, At::kLanes, 2, 17);
  const auto waiting = read_track(copy_of(recorder), Now::look());
  REQUIRE(waiting);
  REQUIRE(waiting->entries.size() == 1);
  CHECK(waiting->entries[0].running());
  CHECK(waiting->entries[0].state.awaited == 2);
  CHECK(waiting->entries[0].state.tile == 17);
  CHECK(waiting->entries[0].plan == "two_shot");
  std::this_thread::sleep_for(3ms);
  recorder.end_ok(1);
  recorder.begin(2, std::uint64_t{1} << 63, 5, true);
  recorder.wait(2, At::kGather, 0, 0);
  recorder.end_failed(2, static_cast<int>(Code::kTimeout));
  const auto track = read_track(copy_of(recorder), Now::look());
  REQUIRE(track);
  REQUIRE(track->entries.size() == 2);
  const Seen& first = track->entries[0];
  CHECK(!first.running());
  CHECK(outcome_name(first.state) == "ok");
  CHECK(first.state.awaited == 2);  // It has waited for that rank.
  CHECK(first.begin_ns >= before - 1'000'000);
  CHECK(first.end_ns - first.begin_ns >= 2'000'000);
  CHECK(first.end_ns <= monotonic_ns() + 1'000'000);
  CHECK(outcome_name(track->entries[1].state) == "timeout");
  CHECK(track->entries[1].begin_ns != 0);  // It waited.
}

TEST_CASE("calls of devices have bounds of their end, and when they were reached") {
  Recorder recorder(some_rank());
  std::this_thread::sleep_for(5ms);  // In a younger track all began when it was made.
  std::array<std::uint64_t, 4> at{};
  for (std::uint64_t number = 1; number <= 4; ++number) {
    recorder.begin(number, pack(Collective::kAllReduce, DataType::kFloat32, ReduceOp::kSum, 0),
                   3000, false);
    at[number - 1] = ticks();
    std::this_thread::sleep_for(5ms);
  }
  const std::uint64_t now = ticks();
  const auto state = [](Outcome outcome, At where, int awaited) {
    return State{static_cast<std::uint8_t>(outcome), where, awaited, 0};
  };
  recorder.set_device_state(1, state(Outcome::kOk, At::kLaunched, -1), 0, now);
  recorder.set_device_state(2, state(Outcome::kOk, At::kBegun, 2), at[3], now);
  recorder.set_device_state(3, state(Outcome::kRunning, At::kBegun, 0), at[3], now);
  recorder.set_device_state(4, state(Outcome::kRunning, At::kLaunched, -1), 0, now);
  recorder.set_device_state(5, state(Outcome::kOk, At::kLaunched, -1), 0, now);  // Not there.
  CHECK(recorder.what_of(5) == 0);
  CHECK(recorder.call_at(3) == 3);
  const auto track = read_track(copy_of(recorder), Now::look());
  REQUIRE(track);
  // As it was, and from a file.
  const auto saved = track_of(to_json(*track));
  REQUIRE(saved);
  for (const SeenTrack& one : {*track, *saved}) {
    REQUIRE(one.entries.size() == 4);
    const auto& entries = one.entries;
    // Nothing is known of when it ended, but that it was not before its launch.
    CHECK(entries[0].end_ns > entries[3].begin_ns);
    CHECK(std::abs(entries[0].end_after_ns - entries[0].begin_ns) < 100'000);
    CHECK(std::abs(entries[1].end_after_ns - entries[3].begin_ns) < 1'000'000);
    CHECK(entries[1].end_after_ns < entries[1].end_ns);
    CHECK(entries[1].state.awaited == 2);
    CHECK(entries[1].reached_ns == 0);
    CHECK(entries[2].running());
    CHECK(entries[2].end_ns == 0);
    CHECK(std::abs(entries[2].reached_ns - entries[3].begin_ns) < 1'000'000);
    CHECK(to_string(entries[2].state.at) == "begun on the device");
    CHECK(entries[3].reached_ns == 0);
    CHECK(entries[3].end_after_ns == 0);
  }
}

TEST_CASE("more plans than have names leave the others without one") {
  Recorder recorder(some_rank());
  for (std::uint64_t plan = 0; plan < 2 * kPlans; ++plan) {
    recorder.begin(plan + 1, std::uint64_t{1} << 63, 5, false);
    recorder.set_plan(1000 + plan, "plan" + std::to_string(plan));
    recorder.end_ok(plan + 1);
  }
  const auto track = read_track(copy_of(recorder), Now::look());
  REQUIRE(track);
  CHECK(track->entries.front().plan == "plan0");
  CHECK(track->entries[kPlans - 1].plan == "plan" + std::to_string(kPlans - 1));
  CHECK(track->entries.back().plan.empty());
}

TEST_CASE("calls, messages and started work of several communicators are in the process's file") {
  auto first = Communicator::in_process(3);
  auto second = Communicator::in_process(2);
  REQUIRE(first);
  REQUIRE(second);
  const auto ranks = [](std::vector<Communicator>& comms, const auto& body) {
    std::vector<std::jthread> threads;
    for (Communicator& comm : comms) threads.emplace_back([&] { body(comm); });
  };
  std::atomic<int> failed{0};
  ranks(*first, [&](Communicator& comm) {
    std::vector<float> data(300'000);
    void* const registered = *mem_alloc(data.size() * sizeof(float));
    for (void* const buffer : {static_cast<void*>(data.data()), registered})
      failed += !comm.all_reduce(buffer, buffer, data.size(), DataType::kFloat32, ReduceOp::kSum);
    auto work =
        comm.start_all_reduce(data.data(), data.data(), 2, DataType::kFloat32, ReduceOp::kSum);
    failed += !work || !work->wait();
    failed += !mem_free(registered);
  });
  ranks(*second, [&](Communicator& comm) {
    float value = 1;
    if (comm.rank() == Rank{0})
      failed += !comm.send(&value, 1, DataType::kFloat32, Rank{1});
    else
      failed += !comm.recv(&value, 1, DataType::kFloat32, Rank{0});
  });
  CHECK(failed == 0);
  std::size_t large = 0, small = 0, sends = 0, receives = 0, of_first = 0, open = 0;
  for (const SeenTrack& track : own_tracks()) {
    CHECK(track.pid == static_cast<std::uint64_t>(getpid()));
    CHECK(track.transport == "in_process");
    of_first += track.ranks == 3;
    for (const Seen& seen : track.entries) {
      const std::string text = describe(seen);
      large +=
          text == "all_reduce of 300000 float32 (sum)" && seen.end_ns != 0 && !seen.plan.empty();
      small += text == "all_reduce of 2 float32 (sum)";
      sends += text == "send of 1 float32 to rank 1";
      receives += text == "recv of 1 float32 from rank 0";
      open += seen.running();
    }
  }
  CHECK(of_first == 3);
  CHECK(large >= 6);
  CHECK(small == 3);
  CHECK(sends == 1);
  CHECK(receives == 1);
  CHECK(open == 0);
  first = Error{};
  CHECK(own_tracks().size() == 2);
  second = Error{};
  CHECK(own_tracks().empty());
}

TEST_CASE("a forked child that ends a communicator of its parent leaves the parent's record") {
  auto comms = Communicator::in_process(1);
  REQUIRE(comms);
  CHECK(comms->front().barrier());
  REQUIRE(own_tracks().size() == 1);
  test::Processes child(1, [&](int) -> std::string {
    if (!own_tracks().empty()) return "the child has its parent's record";
    comms = Error{};
    auto own = Communicator::in_process(2);
    return own && own_tracks().size() == 2 ? "" : "the child has no record of its own";
  });
  CHECK(child.wait(0) == 0);
  const auto tracks = own_tracks();
  REQUIRE(tracks.size() == 1);
  CHECK(tracks.front().entries.size() == 1);
}

TEST_CASE("a file of other bytes has no tracks") {
  std::vector<std::byte> bytes(kFileBytes / 64, std::byte{0xff});
  const Copy copy = [&](std::uint64_t offset, std::span<std::byte> to) {
    if (offset + to.size() > bytes.size()) return false;
    std::memcpy(to.data(), bytes.data() + offset, to.size());
    return true;
  };
  CHECK(read_file(copy, Now::look()).empty());
  std::memcpy(bytes.data(), &kMagic, sizeof(kMagic));  // The rest is of no sense.
  CHECK(read_file(copy, Now::look()).empty());
}

}  // namespace
}  // namespace tutti::exec::flight
