// Windows: what is put, got and accumulated, behind signals and without; ranks that go, and calls
// that can't be. Every transport: on those of a network, ranks are served by messages.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.h"
#include "support/cluster.h"
#include "support/transports.h"
#include "transport/transport.h"
#include "tutti/window.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

/// The `round`-th bytes that a rank puts.
Buffer content(int from, std::size_t round, std::size_t bytes) {
  std::mt19937_64 random(static_cast<std::uint64_t>(from) * 1000003 + round);
  Buffer data(bytes);
  for (std::byte& byte : data) byte = static_cast<std::byte>(random());
  return data;
}

std::string said(const Status& status) { return status ? "" : status.error().to_string(); }

/// The first complaint of some steps, which are not taken behind one.
class Steps {
 public:
  Steps& operator<<(const Status& status) {
    if (first_.empty()) first_ = said(status);
    return *this;
  }
  Steps& expect(bool holds, const std::string& otherwise) {
    if (first_.empty() && !holds) first_ = otherwise;
    return *this;
  }
  bool fine() const { return first_.empty(); }
  std::string result() const { return first_; }

 private:
  std::string first_;
};

/// Runs `body` on so many ranks of each transport; what it returns is wrong.
template <class Body>
void on_each_transport(int ranks, const Body& body, std::chrono::milliseconds timeout = 60s) {
  if (too_many(ranks)) return;
  for (const Transport* transport : transports_here()) {
    INFO(transport->name << ", " << ranks << " ranks");
    Settings settings;
    settings.transport = transport->name;
    settings.timeout = timeout;
    auto comms = Communicator::in_process(ranks, settings);
    REQUIRE(comms);
    CHECK(on_all_ranks(*comms, body) == "");
    leave(*comms);
  }
}

constexpr std::size_t kSizes[] = {1, 8, 32, 33, 1000, 70000, 3000000};
constexpr std::size_t kOffset = 24;
constexpr std::size_t kMost = 3000000 + kOffset;

/// Each rank puts to the next and gets that back, all sizes, in turns that signals make.
std::string pass_on(Communicator& comm) {
  const int me = comm.rank().value, ranks = comm.rank_count();
  const Rank next{(me + 1) % ranks}, last{(me + ranks - 1) % ranks};
  auto window = Window::create(comm, kMost + static_cast<std::size_t>(me));
  if (!window) return window.error().to_string();
  Steps steps;
  steps.expect(window->bytes(next) == kMost + static_cast<std::size_t>(next.value), "wrong size");
  std::size_t round = 0;
  for (const std::size_t bytes : kSizes) {
    Buffer data = content(me, ++round, bytes), got(bytes);
    const Buffer sent = data;
    if (!steps.fine()) break;
    steps << window->put(data.data(), bytes, next, kOffset);
    std::ranges::fill(data, std::byte{0});  // Ours again.
    steps << window->get(got.data(), bytes, next, kOffset) << window->signal(next, 5)
          << window->wait_signal(last, 5);
    steps.expect(got == sent, "what was put is not got back");
    const Buffer wanted = content(last.value, round, bytes);
    steps.expect(std::memcmp(window->data() + kOffset, wanted.data(), bytes) == 0,
                 "behind the signal, something else is there");
    // The place is free again.
    steps << window->signal(last, 6) << window->wait_signal(next, 6);
  }
  steps << window->close();
  return steps.result();
}

TEST_CASE("what a rank puts is there behind its signal, and for itself at once") {
  for (const int ranks : {1, 2, 3, 5}) on_each_transport(ranks, pass_on);
}

/// All ranks add to the same numbers of rank 0 at once: none is lost.
std::string add_up(Communicator& comm, std::size_t count) {
  const auto ranks = static_cast<std::size_t>(comm.rank_count());
  const auto me = static_cast<std::int64_t>(comm.rank().value);
  constexpr int kTimes = 20;
  auto window = Window::create(comm, me == 0 ? 8 + count * 8 : 0);
  if (!window) return window.error().to_string();
  std::vector<std::int64_t> mine(count);
  for (std::size_t i = 0; i < count; ++i) mine[i] = static_cast<std::int64_t>(i) + me;
  Steps steps;
  steps.expect((window->data() == nullptr) == (me != 0), "memory of 0 bytes");
  for (int i = 0; i < kTimes; ++i)
    steps << window->accumulate(mine.data(), count, DataType::kInt64, ReduceOp::kSum, Rank{0}, 8);
  steps << window->accumulate(&me, 1, DataType::kInt64, ReduceOp::kMax, Rank{0}, 0);
  steps << window->flush(Rank{0}) << comm.barrier();
  std::vector<std::int64_t> got(count + 1);
  steps << window->get(got.data(), got.size() * 8, Rank{0}, 0) << window->close();
  steps.expect(got[0] == static_cast<std::int64_t>(ranks) - 1, "not the highest");
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t sum = kTimes * (ranks * i + ranks * (ranks - 1) / 2);
    steps.expect(got[i + 1] == static_cast<std::int64_t>(sum),
                 "sum " + std::to_string(i) + " is " + std::to_string(got[i + 1]));
  }
  return steps.result();
}

TEST_CASE("what all accumulate in one place at once is all there behind their flushes") {
  for (const int ranks : {1, 2, 4}) {
    for (const std::size_t count : {1U, 3U, 1000U}) {
      INFO(count);
      on_each_transport(ranks, [count](Communicator& comm) { return add_up(comm, count); });
    }
  }
}

/// What an exchange gives; -1 behind a failure.
std::int64_t before(Steps& steps, Result<std::int64_t> number) {
  steps << (number ? ok() : Status(std::move(number.error())));
  return number ? *number : -1;
}

/// Whether all ranks are on this host. Then they exchange so often that several do it at a time,
/// though they share CPUs.
bool all_near(const Window& window, Rank last) {
  return window.address_of(Rank{0}) != nullptr && window.address_of(last) != nullptr;
}

/// All ranks draw tickets of one counter, as fast as they can.
std::string draw_tickets(Communicator& comm) {
  const Rank last{comm.rank_count() - 1};
  auto window = Window::create(comm, 8);
  if (!window) return window.error().to_string();
  const std::size_t each = all_near(*window, last) ? 500'000 : 500;
  const std::size_t all = static_cast<std::size_t>(comm.rank_count()) * each;
  Steps steps;
  std::vector<std::int64_t> mine(each), drawn(all);
  steps << comm.barrier();
  for (std::int64_t& ticket : mine) ticket = before(steps, window->fetch_add(1, last, 0));
  steps << comm.all_gather(mine.data(), drawn.data(), each, DataType::kInt64);
  std::ranges::sort(drawn);
  for (std::size_t i = 0; i < all; ++i)
    steps.expect(drawn[i] == static_cast<std::int64_t>(i), "a ticket was drawn twice");
  return (steps << window->close()).result();
}

/// All ranks take turns at a lock of compare_swap, whose holder changes bytes that nothing else
/// guards.
std::string take_turns(Communicator& comm) {
  constexpr std::size_t kLock = 8, kGuarded = 16;
  const Rank last{comm.rank_count() - 1};
  auto window = Window::create(comm, kGuarded + 8);
  if (!window) return window.error().to_string();
  const int times = all_near(*window, last) ? 50'000 : 50;
  Steps steps;
  const std::int64_t mine = comm.rank().value + 1;
  for (int i = 0; i < times && steps.fine(); ++i) {
    while (steps.fine() && before(steps, window->compare_swap(0, mine, last, kLock)) != 0)
      std::this_thread::yield();
    std::int64_t guarded = 0;
    steps << window->get(&guarded, sizeof guarded, last, kGuarded);
    ++guarded;
    steps << window->put(&guarded, sizeof guarded, last, kGuarded);
    steps.expect(before(steps, window->compare_swap(mine, 0, last, kLock)) == mine,
                 "another rank has opened the lock");
  }
  steps.expect(before(steps, window->compare_swap(-7, 9, last, 0)) == 0, "it was another number");
  steps << comm.barrier();
  steps.expect(before(steps, window->fetch_add(0, last, kGuarded)) == comm.rank_count() * times,
               "the lock let two in");
  steps.expect(before(steps, window->fetch_add(0, last, 0)) == 0, "it was exchanged all the same");
  return (steps << window->close()).result();
}

TEST_CASE("numbers that all exchange at once make counters and locks") {
  for (const int ranks : {1, 2, 4}) {
    on_each_transport(ranks, draw_tickets);
    on_each_transport(ranks, take_turns);
  }
}

TEST_CASE("a window and its communicator do not mix, and started calls go on beside it") {
  on_each_transport(3, [](Communicator& comm) {
    auto window = Window::create(comm, 4096);
    if (!window) return window.error().to_string();
    const Rank next{(comm.rank().value + 1) % 3}, last{(comm.rank().value + 2) % 3};
    std::vector<float> data(5000, 1), sum(5000);
    Steps steps;
    for (int i = 0; i < 10 && steps.fine(); ++i) {
      auto work = comm.start_all_reduce(data.data(), sum.data(), data.size(), DataType::kFloat32,
                                        ReduceOp::kSum);
      if (!work) return work.error().to_string();
      steps << window->put(&i, sizeof i, next, 0) << window->signal(next)
            << window->wait_signal(last) << work->wait();
      int there = -1;
      std::memcpy(&there, window->data(), sizeof there);
      steps.expect(there == i && sum[4999] == 3, "another value is there");
      steps << window->signal(last, 1) << window->wait_signal(next, 1);
    }
    return (steps << window->close()).result();
  });
}

TEST_CASE("one thread waits for a signal while another calls the communicator") {
  on_each_transport(2, [](Communicator& comm) {
    auto window = Window::create(comm, 8);
    if (!window) return window.error().to_string();
    const bool waits = comm.rank().value == 0;
    Status waited;
    std::optional<std::jthread> waiter;
    if (waits) waiter.emplace([&] { waited = window->wait_signal(Rank{1}); });
    Steps steps;
    // Long enough for some naps of the waiter, between which it looks whether all is well.
    std::vector<float> data(3000, 1);
    for (int i = 0; i < 1000 && steps.fine(); ++i)
      steps << comm.all_reduce(data.data(), data.data(), data.size(), DataType::kFloat32,
                               ReduceOp::kMax);
    if (!waits) steps << window->signal(Rank{0});
    waiter.reset();
    return (steps << waited << window->close()).result();
  });
}

TEST_CASE("a signal that does not come ends the wait alone, and names the rank") {
  std::atomic<bool> is_over = false;  // The wait; a barrier would time out as well.
  const auto body = [&](Communicator& comm) {
    auto window = Window::create(comm, 8);
    if (!window) return window.error().to_string();
    const Rank peer{1 - comm.rank().value};
    Steps steps;
    if (comm.rank().value == 0) {
      const Status late = window->wait_signal(peer, 3, 2);
      steps.expect(!late && late.error().code == Code::kTimeout && late.error().peer == peer &&
                       said(late).starts_with(
                           "rank 0: timeout: wait_signal: signal 3 of rank 1 has not come within "
                           "400 ms; TUTTI_TIMEOUT_MS sets the limit"),
                   "said: " + said(late));
      is_over = true;
      // The window goes on.
      steps << window->wait_signal(peer, 3, 2);
    } else {
      while (!is_over.exchange(false)) std::this_thread::sleep_for(1ms);  // For the next transport.
      steps << window->signal(peer, 3) << window->signal(peer, 3);
    }
    return (steps << window->close()).result();
  };
  on_each_transport(2, body, 400ms);
}

TEST_CASE("a rank that destroys its window is missed by those that wait for it") {
  on_each_transport(3, [](Communicator& comm) {
    auto window = Window::create(comm, 8);
    if (!window) return window.error().to_string();
    Steps steps;
    // Until then it may end the making of another.
    steps << comm.barrier();
    if (comm.rank().value == 1) {
      const Window gone = *std::move(window);
    } else {
      const auto start = std::chrono::steady_clock::now();
      const Status missed = window->wait_signal(Rank{1});
      const auto took = std::chrono::steady_clock::now() - start;
      if (missed) return std::string("a signal came from nowhere");
      const Error& error = missed.error();
      steps.expect(took < 5s, "it took the deadline");
      steps.expect((error.code == Code::kPeerFailed || error.code == Code::kAborted) &&
                       error.peer == Rank{1},
                   said(missed));
    }
    // Their communicator is as it was.
    return (steps << comm.barrier()).result();
  });
}

TEST_CASE("an abort or revoke of the communicator ends waits for signals of its windows") {
  on_each_transport(2, [](Communicator& comm) -> std::string {
    auto window = Window::create(comm, 8);
    if (!window) return window.error().to_string();
    if (comm.rank().value == 0) {
      std::this_thread::sleep_for(50ms);
      comm.revoke("a test");
    }
    const Status over = window->wait_signal(Rank{1 - comm.rank().value});
    return !over && over.error().code == Code::kRevoked ? "" : "said: " + said(over);
  });
}

TEST_CASE("calls on a window that can't be are refused, one clear line each") {
  auto comms = Communicator::in_process(1);
  REQUIRE(comms);
  auto window = Window::create((*comms)[0], 100);
  REQUIRE(window);
  std::array<std::byte, 100> data{};
  const auto error = [](const Status& status) { return status ? "" : status.error().what; };
  CHECK(error(window->put(data.data(), 8, Rank{1}, 0)) == "put: rank 1 is not one of the 1 ranks");
  CHECK(error(window->put(data.data(), 8, Rank{-1}, 0)) ==
        "put: rank -1 is not one of the 1 ranks");
  CHECK(error(window->get(data.data(), 8, Rank{0}, 93)) ==
        "get: 8 bytes at 93 of the 100 bytes of rank 0");
  CHECK(error(window->put(data.data(), SIZE_MAX, Rank{0}, 1)) ==
        "put: 18446744073709551615 bytes at 1 of the 100 bytes of rank 0");
  CHECK(error(window->put(data.data(), 1, Rank{0}, SIZE_MAX)) ==
        "put: 1 bytes at 18446744073709551615 of the 100 bytes of rank 0");
  CHECK(error(window->put(nullptr, 1, Rank{0}, 0)) ==
        "put: the buffer is null, but the size is not 0");
  CHECK(error(window->put(nullptr, 0, Rank{0}, 100)) == "");
  CHECK(error(window->signal(Rank{0}, 64)) ==
        "signal: there is no signal 64; numbers are below 64");
  CHECK(error(window->wait_signal(Rank{0}, -1)) ==
        "wait_signal: there is no signal -1; numbers are below 64");
  CHECK(error(window->accumulate(data.data(), 1, DataType::kInt32, ReduceOp::kAvg, Rank{0}, 0)) ==
        "accumulate: avg of int32 can't be accumulated");
  CHECK(error(window->accumulate(data.data(), 1, DataType::kFloat32, ReduceOp::kXor, Rank{0}, 0)) ==
        "accumulate: xor of float32 can't be accumulated");
  CHECK(error(window->accumulate(data.data(), 1, DataType::kInt32, ReduceOp::kSum, Rank{0}, 2)) ==
        "accumulate: offset 2 is not a multiple of the 4 bytes of int32");
  CHECK(error(window->accumulate(data.data(), SIZE_MAX, DataType::kInt32, ReduceOp::kSum, Rank{0},
                                 0)) ==
        "accumulate: 18446744073709551615 elements are more than memory can hold");
  const auto exchanged = [&](std::size_t offset) {
    const auto added = window->fetch_add(1, Rank{0}, offset);
    const auto swapped = window->compare_swap(0, 1, Rank{0}, offset);
    return (added ? "" : added.error().what) + "; " + (swapped ? "" : swapped.error().what);
  };
  CHECK(exchanged(88) == "; ");
  CHECK(
      exchanged(4) ==
      "fetch_add: offset 4 is not a multiple of 8; compare_swap: offset 4 is not a multiple of 8");
  CHECK(exchanged(96) ==
        "fetch_add: 8 bytes at 96 of the 100 bytes of rank 0; "
        "compare_swap: 8 bytes at 96 of the 100 bytes of rank 0");
  // Sums wrap.
  CHECK(window->fetch_add(INT64_MAX, Rank{0}, 0).value() == 0);
  CHECK(window->fetch_add(2, Rank{0}, 0).value() == INT64_MAX);
  CHECK(window->fetch_add(0, Rank{0}, 0).value() == INT64_MIN + 1);
  {
    Group group;
    CHECK(error(window->flush(Rank{0})) == "flush: it can't be called in a group");
    CHECK(Window::create((*comms)[0], 8).error().what == "window: it can't be made in a group");
  }
  CHECK(window->data() == window->address_of(Rank{0}));
  CHECK(window->address_of(Rank{1}) == nullptr);
  CHECK(window->bytes(Rank{1}) == 0);
  Window other = *std::move(window);
  CHECK(error(window->flush(Rank{0})) == "flush: this window is closed, or was moved from");
  CHECK(window->data() == nullptr);
  CHECK(error(other.close()) == "");
  CHECK(error(other.close()) == "close: this window is closed, or was moved from");
}

TEST_CASE("memory that one rank can't have is an error on all, and no hang") {
  on_each_transport(2, [](Communicator& comm) -> std::string {
    const bool asks_too_much = comm.rank().value == 1;
    auto window = Window::create(comm, asks_too_much ? SIZE_MAX : 8);
    if (window) return "it was made";
    const std::string text = window.error().to_string();
    const std::string wanted =
        asks_too_much
            ? "rank 1: invalid argument: window: 18446744073709551615 bytes are more than "
              "memory can hold"
            : "rank 0: system error: window: rank 1 has no memory for it";
    return text == wanted ? "" : "said: " + text;
  });
}

}  // namespace
}  // namespace tutti::test
