// A rank that did its part and left is no failure of those still in the call; one that left before
// a call is, by name and at once. Every transport.
#include <array>
#include <atomic>
#include <optional>
#include <string>
#include <thread>

#include "support/catch.h"
#include "support/cluster.h"
#include "support/said_aside.h"
#include "support/transports.h"
#include "transport/transport.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

constexpr auto kF32 = DataType::kFloat32;
// Longer than the time after which a waiting rank looks at its peers.
constexpr auto kSkew = 120ms;

/// Communicators that each rank destroys on its own.
std::vector<std::optional<Communicator>> ranks_on(const Transport& transport, int count,
                                                  std::chrono::milliseconds timeout = 20s) {
  Settings settings;
  settings.transport = transport.name;
  settings.timeout = timeout;
  auto comms = Communicator::in_process(count, settings);
  if (!comms) FAIL(comms.error().to_string());
  std::vector<std::optional<Communicator>> ranks;
  for (Communicator& comm : *comms) ranks.emplace_back(std::move(comm));
  return ranks;
}

using Ranks = std::vector<std::optional<Communicator>>;
using Body = std::function<std::string(Communicator&)>;

/// Runs `body` on a thread for each rank, which destroys its communicator when that returns, rank
/// `late` after a while. All complaints.
std::string run_and_leave(Ranks ranks, int late, const Body& body) {
  std::vector<std::string> complaints(ranks.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      threads.emplace_back([&, rank] {
        if (static_cast<int>(rank) == late) std::this_thread::sleep_for(kSkew);
        complaints[rank] = body(*ranks[rank]);
        ranks[rank].reset();
      });
    }
  }
  std::string all;
  for (const std::string& complaint : complaints) {
    if (!complaint.empty()) all += complaint + "\n";
  }
  return all;
}

TEST_CASE("a rank that did its part of the last call may leave while others wait for a late rank") {
  for (const Transport* transport : transports_here()) {
    for (const Collective collective :
         {Collective::kReduce, Collective::kGather, Collective::kAllReduce}) {
      for (const std::size_t count : {4U, 2000U, 20000U}) {
        const Case test{.collective = collective, .count = count, .ranks = 3};
        INFO(transport->name << ": " << test.to_string());
        CHECK(run_and_leave(ranks_on(*transport, 3), 2,
                            [&](Communicator& comm) { return run_case(comm, test, 1); }) == "");
      }
    }
  }
}

TEST_CASE("what a rank sent before it left is received") {
  for (const Transport* transport : transports_here()) {
    for (const std::size_t count : {4U, 600U}) {
      INFO(transport->name << ": " << count);
      std::vector<float> sent(count, 7), got(count);
      CHECK(run_and_leave(ranks_on(*transport, 3), 2, [&](Communicator& comm) -> std::string {
              const int me = comm.rank().value;
              Status status;
              if (me == 0) status = comm.send(sent.data(), count, kF32, Rank{2});
              if (me == 2) status = comm.recv(got.data(), count, kF32, Rank{0});
              return status ? "" : status.error().to_string();
            }) == "");
      CHECK(got == sent);
    }
  }
}

/// "" if it fails soon, because rank 1 has left.
std::string is_missed(const std::function<Status()>& call) {
  const auto start = std::chrono::steady_clock::now();
  const Status status = call();
  if (status) return "no error";
  const Error& error = status.error();
  const bool named = error.what.find("rank 1 left before this call") != std::string::npos;
  if (error.code != Code::kPeerFailed || !named || error.what.find("killed") != std::string::npos)
    return error.to_string();
  return std::chrono::steady_clock::now() - start < 10s ? "" : "late: " + error.to_string();
}

/// A barrier of three ranks. Returns once all are past it: the error of a call that follows may end
/// a barrier in which a slow rank still is.
std::string pass_barrier(Communicator& comm, std::atomic<int>& past) {
  const Status status = comm.barrier();
  past += status ? 1 : comm.rank_count();
  while (past < comm.rank_count()) std::this_thread::yield();
  return status ? "" : status.error().to_string();
}

TEST_CASE("a rank that left before a call is missed at once, and said to have left") {
  for (const Transport* transport : transports_here()) {
    for (const std::size_t count : {4U, 20000U}) {
      INFO(transport->name << ": " << count);
      std::atomic<int> past{0};
      CHECK(run_and_leave(ranks_on(*transport, 3), -1, [&](Communicator& comm) -> std::string {
              if (auto error = pass_barrier(comm, past); !error.empty()) return error;
              if (comm.rank().value == 1) return "";
              std::vector<float> data(count);
              return is_missed([&] {
                return comm.all_reduce(data.data(), data.data(), count, kF32, ReduceOp::kSum);
              });
            }) == "");
    }
  }
}

TEST_CASE("last calls that differ are told when ranks leave, though none of them waited") {
  Ranks ranks = ranks_on(shared_memory_transport, 3);
  std::atomic<int> past{0};
  const std::string said = said_aside([&] {
    CHECK(run_and_leave(std::move(ranks), -1, [&](Communicator& comm) -> std::string {
            std::vector<float> data(64);
            const Rank root{comm.rank().value == 1 ? 1 : 0};
            auto sent = comm.broadcast(data.data(), data.data(), data.size(), kF32, root);
            ++past;
            while (past < 3) std::this_thread::yield();
            return sent ? "" : sent.error().to_string();
          }) == "");
  });
  INFO(said);
  CHECK(said.find("broadcast of 64 float32 from rank 0") != std::string::npos);
  CHECK(said.find("broadcast of 64 float32 from rank 1") != std::string::npos);
}

TEST_CASE("a message that a rank did not send before it left is missed at once") {
  for (const Transport* transport : transports_here()) {
    INFO(transport->name);
    std::atomic<int> past{0};
    CHECK(run_and_leave(ranks_on(*transport, 3), -1, [&](Communicator& comm) -> std::string {
            if (auto error = pass_barrier(comm, past); !error.empty()) return error;
            if (comm.rank().value != 2) return "";
            float got = 0;
            return is_missed([&] { return comm.recv(&got, 1, kF32, Rank{1}); });
          }) == "");
  }
}

// Rank 1 waits long for rank 2, which comes. Then rank 1 itself does not come, and is to blame.
TEST_CASE("what a rank waited for before is no reason to blame that one") {
  for (const Transport* transport : transports_here()) {
    INFO(transport->name);
    auto ranks = ranks_on(*transport, 3, 2s);
    std::atomic<int> failed{0};
    std::array<Status, 2> last;
    {
      std::jthread second([&] {
        CHECK(ranks[1]->barrier());
        while (failed < 2) std::this_thread::sleep_for(1ms);
      });
      std::jthread third([&] {
        std::this_thread::sleep_for(1200ms);
        CHECK(ranks[2]->barrier());
        std::this_thread::sleep_for(300ms);  // Rank 0 judges, which also waited for this one.
        last[1] = ranks[2]->barrier();
        ++failed;
      });
      CHECK(ranks[0]->barrier());
      last[0] = ranks[0]->barrier();
      ++failed;
    }
    for (const Status& status : last) {
      REQUIRE_FALSE(status);
      INFO(status.error().to_string());
      CHECK(status.error().code == Code::kTimeout);
      CHECK(status.error().peer == Rank{1});
    }
  }
}

// Rank 1 waits for the data of rank 0, which waits for a message of rank 2, which sends none.
TEST_CASE("a rank that waits for a message is not to blame for the call that it has not made") {
  for (const Transport* transport : transports_here()) {
    INFO(transport->name);
    auto ranks = ranks_on(*transport, 3, 2s);
    std::atomic<bool> over{false};
    Status own, other;
    float data = 0, message = 0;
    {
      std::jthread silent([&] {
        while (!over) std::this_thread::sleep_for(1ms);
      });
      std::jthread receives([&] {
        std::this_thread::sleep_for(300ms);  // So that rank 1 judges.
        other = ranks[0]->recv(&message, 1, kF32, Rank{2});
      });
      own = ranks[1]->broadcast(&data, &data, 1, kF32, Rank{0});
      over = true;
    }
    for (const Status* status : {&own, &other}) {
      REQUIRE_FALSE(*status);
      INFO(status->error().to_string());
      CHECK(status->error().code == Code::kTimeout);
      CHECK(status->error().peer == Rank{2});
    }
  }
}

// Rank 0 waits for a message of rank 1, which waits for one of rank 2, which sends none.
TEST_CASE("a rank that waits for a message is not to blame for one that it has not sent") {
  for (const Transport* transport : transports_here()) {
    INFO(transport->name);
    auto ranks = ranks_on(*transport, 3, 2s);
    std::atomic<bool> over{false};
    std::array<Status, 2> got;
    float first = 0, second = 0;
    {
      std::jthread silent([&] {
        while (!over) std::this_thread::sleep_for(1ms);
      });
      std::jthread receives([&] {
        std::this_thread::sleep_for(300ms);  // So that rank 0 judges.
        got[1] = ranks[1]->recv(&second, 1, kF32, Rank{2});
      });
      got[0] = ranks[0]->recv(&first, 1, kF32, Rank{1});
      over = true;
    }
    for (const Status& status : got) {
      REQUIRE_FALSE(status);
      INFO(status.error().to_string());
      CHECK(status.error().code == Code::kTimeout);
      CHECK(status.error().peer == Rank{2});
    }
  }
}

// Rank 1 waits long for a message of rank 2, which comes. Then it does not send to rank 0.
TEST_CASE("a message that a rank waited for before is no reason to blame its sender") {
  for (const Transport* transport : transports_here()) {
    INFO(transport->name);
    auto ranks = ranks_on(*transport, 3, 2s);
    std::atomic<bool> over{false};
    Status sent, between, got;
    float first = 0, second = 0, third = 0;
    {
      std::jthread sends([&] {
        std::this_thread::sleep_for(1200ms);
        sent = ranks[2]->send(&third, 1, kF32, Rank{1});
        while (!over) std::this_thread::sleep_for(1ms);
      });
      std::jthread receives([&] {
        between = ranks[1]->recv(&second, 1, kF32, Rank{2});
        while (!over) std::this_thread::sleep_for(1ms);
      });
      got = ranks[0]->recv(&first, 1, kF32, Rank{1});
      over = true;
    }
    CHECK(sent);
    CHECK(between);
    REQUIRE_FALSE(got);
    INFO(got.error().to_string());
    CHECK(got.error().code == Code::kTimeout);
    CHECK(got.error().peer == Rank{1});
  }
}

}  // namespace
}  // namespace tutti::test
