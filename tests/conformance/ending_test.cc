// How calls end before their time: by abort, or at the deadline. After that no call succeeds on any
// rank, whether it has to wait or not, and nobody writes into a buffer that was given back. Every
// transport.
#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <span>
#include <string>
#include <thread>

#include "support/catch.h"
#include "support/cluster.h"
#include "support/transports.h"
#include "transport/transport.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

constexpr auto kF32 = DataType::kFloat32;

std::vector<Communicator> ranks_on(const Transport& transport, int count,
                                   std::chrono::milliseconds timeout = 30s) {
  Settings settings;
  settings.transport = transport.name;
  settings.timeout = timeout;
  auto comms = Communicator::in_process(count, settings);
  if (!comms) FAIL(comms.error().to_string());
  return *std::move(comms);
}

Status all_reduce(Communicator& comm, std::vector<float>& data) {
  return comm.all_reduce(data.data(), data.data(), data.size(), kF32, ReduceOp::kSum);
}

/// "" if it says that rank `by` ended the communicator.
std::string is_aborted(const Status& status, int by) {
  if (status) return "ok";
  const Error& error = status.error();
  const bool right = error.code == Code::kAborted && error.peer.value == by &&
                     error.rank.value >= 0 &&
                     error.what.find("out of patience") != std::string::npos;
  return right ? "" : error.to_string();
}

TEST_CASE("after an abort no call succeeds, also one that need not wait") {
  for (const Transport* transport : transports_here()) {
    INFO(transport->name);
    auto comms = ranks_on(*transport, 3);
    // Many calls between two looks of a rank that repeats itself.
    CHECK(on_all_ranks(comms, [](Communicator& comm) -> std::string {
            std::vector<float> data(2);
            for (int i = 0; i < 100; ++i) {
              if (auto status = all_reduce(comm, data); !status) return status.error().to_string();
            }
            return "";
          }) == "");
    comms[1].abort("out of patience");
    CHECK(on_all_ranks(comms, [](Communicator& comm) -> std::string {
            std::vector<float> data(2);
            std::string said = is_aborted(all_reduce(comm, data), 1);
            // All that a rank does alone: of a root, of a sender, of nobody.
            said += is_aborted(comm.broadcast(data.data(), data.data(), 2, kF32, comm.rank()), 1);
            said +=
                is_aborted(comm.send(data.data(), 2, kF32, Rank{(comm.rank().value + 1) % 3}), 1);
            said +=
                is_aborted(comm.all_reduce(data.data(), data.data(), 0, kF32, ReduceOp::kSum), 1);
            auto work = comm.start_all_reduce(data.data(), data.data(), 2, kF32, ReduceOp::kSum);
            return said + (work ? is_aborted(work->wait(), 1) : work.error().to_string());
          }) == "");
  }
}

TEST_CASE("a communicator of one rank can be aborted") {
  Settings settings;
  auto comms = Communicator::in_process(1, settings);
  REQUIRE(comms);
  std::vector<float> data(2);
  CHECK(all_reduce(comms->front(), data));
  comms->front().abort("out of patience");
  CHECK(is_aborted(all_reduce(comms->front(), data), 0) == "");
}

TEST_CASE("a rank that comes after the others have given up gets their error, not a result") {
  for (const Transport* transport : transports_here()) {
    for (const bool repeats : {false, true}) {
      INFO(transport->name << (repeats ? ", a call like the one before" : ""));
      auto comms = ranks_on(*transport, 3, 500ms);
      std::atomic<int> given_up{0};
      CHECK(on_all_ranks(comms, [&](Communicator& comm) -> std::string {
              std::vector<float> data(2);
              if (repeats) {
                if (auto status = all_reduce(comm, data); !status)
                  return status.error().to_string();
              }
              while (comm.rank().value == 2 && given_up < 2) std::this_thread::sleep_for(1ms);
              for (int i = 0; i < 2; ++i) {
                const Status status = all_reduce(comm, data);
                if (status) ++given_up;
                if (status) return "rank " + std::to_string(comm.rank().value) + ": ok";
                if (i == 0) ++given_up;
                if (status.error().code != Code::kTimeout || status.error().peer != Rank{2})
                  return status.error().to_string();
              }
              return "";
            }) == "");
      leave(comms);
    }
  }
}

TEST_CASE("messages do not put off the deadline of a call") {
  for (const Transport* transport : transports_here()) {
    INFO(transport->name);
    auto comms = ranks_on(*transport, 3, 1s);
    CHECK(on_all_ranks(comms, [](Communicator& comm) -> std::string {
            const int me = comm.rank().value;
            if (me == 2) return "";
            const int other = 1 - me;
            std::array<float, 4> data{}, in{}, out{};
            auto work = comm.start_all_reduce(data.data(), data.data(), 4, kF32, ReduceOp::kSum);
            if (!work) return work.error().to_string();
            const auto start = std::chrono::steady_clock::now();
            const auto since = [&] { return std::chrono::steady_clock::now() - start; };
            while (!work->test() && since() < 20s) {
              Group group;
              (void)comm.send(out.data(), 4, kF32, Rank{other});
              (void)comm.recv(in.data(), 4, kF32, Rank{other});
              (void)group.end();
            }
            if (since() >= 15s) return "the all-reduce is still pending";
            const Status status = work->wait();
            return !status && status.error().code == Code::kTimeout ? "" : "no timeout";
          }) == "");
    leave(comms);
  }
}

TEST_CASE("all ranks blame the one that does not come, also those that wait for others") {
  for (const Transport* transport : transports_here()) {
    for (const std::size_t count : {4U, 30000U}) {
      INFO(transport->name << ", " << count);
      auto comms = ranks_on(*transport, 4, 800ms);
      CHECK(on_all_ranks(comms, [&](Communicator& comm) -> std::string {
              if (comm.rank().value == 3) return "";
              std::vector<float> data(count);
              const Status status = all_reduce(comm, data);
              if (status) return "ok";
              const Error& error = status.error();
              const bool right = error.peer == Rank{3} && error.rank == comm.rank() &&
                                 error.what.find("rank 3 is pid " + std::to_string(getpid()) +
                                                 " on ") != std::string::npos;
              return right ? "" : error.to_string() + " peer " + std::to_string(error.peer.value);
            }) == "");
      leave(comms);
    }
  }
}

constexpr std::size_t kPage = 4096 / sizeof(float);

/// Its user does something else with a buffer that was given back.
void mark(std::span<float> buffer) {
  for (std::size_t at = 0; at < buffer.size(); at += kPage) buffer[at] = -5;
}
std::size_t lost_marks(std::span<const float> buffer) {
  std::size_t lost = 0;
  for (std::size_t at = 0; at < buffer.size(); at += kPage) lost += buffer[at] == -5 ? 0 : 1;
  return lost;
}

/// An all-reduce of all ranks into `buffers`, which one of them aborts in the middle. False: too
/// late.
bool abort_in_the_middle(const Transport& transport, std::span<const std::span<float>> buffers,
                         std::chrono::milliseconds when) {
  auto comms = ranks_on(transport, static_cast<int>(buffers.size()));
  for (const std::span<float> buffer : buffers) std::ranges::fill(buffer, 1.0F);
  std::atomic<int> aborted{0};
  std::jthread ends([&] {
    std::this_thread::sleep_for(when);
    comms.back().abort("out of patience");
  });
  CHECK(on_all_ranks(comms, [&](Communicator& comm) -> std::string {
          const std::span<float> mine = buffers[static_cast<std::size_t>(comm.rank().value)];
          const Status status =
              comm.all_reduce(mine.data(), mine.data(), mine.size(), kF32, ReduceOp::kSum);
          // Those that said ok have it back as well.
          mark(mine);
          aborted += status ? 0 : 1;
          return "";
        }) == "");
  ends.join();
  std::this_thread::sleep_for(20ms);
  for (const std::span<float> buffer : buffers) CHECK(lost_marks(buffer) == 0);
  return aborted > 0;
}

TEST_CASE("nobody writes into a buffer after its call was aborted") {
  constexpr std::size_t kCount = std::size_t{16} << 20;
  for (const Transport* transport : transports_here()) {
    if (transport->network != NetworkCost{}) continue;  // A buffer is its own rank's alone.
    INFO(transport->name);
    std::array<std::span<float>, 3> buffers;
    for (auto& buffer : buffers) {
      auto made = mem_alloc(kCount * sizeof(float));
      REQUIRE(made);
      buffer = {static_cast<float*>(*made), kCount};
    }
    int aborted = 0;
    for (int round = 0; round < 40 && aborted < 4; ++round) {
      if (abort_in_the_middle(*transport, buffers, std::chrono::milliseconds(1 + round * 7 % 40)))
        ++aborted;
    }
    CHECK(aborted > 0);
    for (const auto& buffer : buffers) CHECK(mem_free(buffer.data()));
  }
}

std::atomic<bool> is_held{false}, holds{false};
/// Holds the thread that gets the signal wherever it is.
void hold(int) {
  // seq_cst: the test alone; nothing hangs on their cost.
  is_held.store(true);
  while (holds.load()) {
  }
  is_held.store(false);
}

TEST_CASE("no rank reads a message's buffer after its send has failed") {
  constexpr std::size_t kCount = std::size_t{256} << 20;
  constexpr std::byte kSent{1}, kReused{2};
  for (const Transport* transport : transports_here()) {
    if (transport->network != NetworkCost{}) continue;  // A buffer is its own rank's alone.
    INFO(transport->name);
    auto comms = ranks_on(*transport, 2);
    auto made = mem_alloc(kCount);
    REQUIRE(made);
    const std::span<std::byte> from(static_cast<std::byte*>(*made), kCount);
    std::fill(from.begin(), from.end(), kSent);
    std::vector<std::byte> to(kCount);
    struct sigaction action {
    }, before{};
    action.sa_handler = hold;
    REQUIRE(sigaction(SIGUSR1, &action, &before) == 0);
    holds = true;
    Status sent, received;
    std::thread receiver(
        [&] { received = comms[1].recv(to.data(), kCount, DataType::kUint8, Rank{0}); });
    std::thread sender([&] {
      sent = comms[0].send(from.data(), kCount, DataType::kUint8, Rank{1});
      std::fill(from.begin(), from.end(), kReused);
    });
    volatile std::byte* const first = to.data();
    while (*first != kSent) {
    }
    REQUIRE(pthread_kill(receiver.native_handle(), SIGUSR1) == 0);
    while (!is_held) std::this_thread::yield();
    comms[0].abort("out of patience");
    std::this_thread::sleep_for(200ms);  // A sender that does not wait reuses its buffer now.
    holds = false;
    sender.join();
    receiver.join();
    CHECK(is_aborted(sent, 0) == "");
    CHECK(is_aborted(received, 0) == "");
    CHECK(std::find(to.begin(), to.end(), kReused) == to.end());
    CHECK(std::find(to.begin(), to.end(), std::byte{0}) != to.end());
    CHECK(sigaction(SIGUSR1, &before, nullptr) == 0);
    CHECK(mem_free(from.data()));
  }
}

TEST_CASE("messages end with a call that fails, and later ones touch nothing") {
  for (const Transport* transport : transports_here()) {
    INFO(transport->name);
    auto comms = ranks_on(*transport, 2);
    Communicator& comm = comms[0];
    std::vector<float> in(20'000, 1), out(20'000), got(20'000, -1);
    const auto start = [&](Result<Work> work) {
      if (!work) FAIL(work.error().to_string());
      return *std::move(work);
    };
    for (int round = 0; round < 3; ++round) {
      auto receive = start(comm.start_recv(got.data(), got.size(), kF32, Rank{1}));
      auto call =
          start(comm.start_all_reduce(in.data(), out.data(), in.size(), kF32, ReduceOp::kSum));
      if (round == 0) {
        std::this_thread::sleep_for(20ms);  // Both are under way.
        comms[1].abort("out of patience");
      }
      CHECK(is_aborted(call.wait(), 1) == "");
      CHECK(is_aborted(receive.wait(), 1) == "");
    }
    CHECK(std::count(got.begin(), got.end(), -1.0F) == 20'000);
  }
}

}  // namespace
}  // namespace tutti::test
