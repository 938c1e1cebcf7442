// What a communicator counts: calls and bytes by kind, messages, and waits for the rank that comes
// late.
#include <nlohmann/json.hpp>
#include <thread>

#include "support/catch.h"
#include "tutti/communicator.h"
#include "tutti/tutti.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

constexpr auto kF32 = DataType::kFloat32;

/// One thread for each rank; the number of calls that failed.
int on_ranks(std::vector<Communicator>& comms, const std::function<int(int, Communicator&)>& body) {
  std::atomic<int> failed{0};
  {
    std::vector<std::jthread> threads;
    for (Communicator& comm : comms)
      threads.emplace_back([&] { failed += body(comm.rank().value, comm); });
  }
  return failed;
}

TEST_CASE("calls are counted by collective, runs of small ones and calls by a plan alike") {
  auto comms = Communicator::in_process(3);
  REQUIRE(comms);
  const int repeats = GENERATE(1, 2, 5000);
  const int failed = on_ranks(*comms, [&](int rank, Communicator& comm) {
    std::vector<float> data(300'000);
    const auto sum = [&](std::size_t count) {
      return !comm.all_reduce(data.data(), data.data(), count, kF32, ReduceOp::kSum);
    };
    int wrong = 0;
    for (int i = 0; i < repeats; ++i) wrong += sum(2);
    wrong += sum(300'000) + sum(300'000);
    wrong += !comm.barrier();
    for (int i = 0; i < repeats; ++i) wrong += sum(2);
    wrong += sum(0);  // Not a call.
    wrong += !comm.all_gather(data.data(), data.data(), 10, kF32);
    auto work = comm.start_all_reduce(data.data(), data.data(), 4, kF32, ReduceOp::kSum);
    wrong += !work || !work->wait();
    if (rank == 0) wrong += !comm.send(data.data(), 7, kF32, Rank{1});
    if (rank == 1) wrong += !comm.recv(data.data(), 7, kF32, Rank{0});
    return wrong;
  });
  REQUIRE(failed == 0);
  std::this_thread::sleep_for(2ms);  // Younger records have no times.
  for (const Communicator& comm : *comms) {
    const auto counters = comm.counters();
    REQUIRE(counters);
    const auto calls = static_cast<std::uint64_t>(repeats);
    CHECK(counters->of(Collective::kAllReduce).calls == 2 * calls + 3);
    CHECK(counters->of(Collective::kAllReduce).bytes == 2 * calls * 8 + 2 * 1'200'000 + 16);
    CHECK(counters->of(Collective::kAllGather).calls == 1);
    CHECK(counters->of(Collective::kAllGather).bytes == 3 * 40);
    CHECK(counters->of(Collective::kReduce).calls == 0);
    CHECK(counters->barriers == 1);
    CHECK(counters->calls() == 2 * calls + 5);
    CHECK(counters->messages.calls == (comm.rank().value == 2 ? 0 : 1));
    CHECK(counters->messages.bytes == (comm.rank().value == 2 ? 0 : 28));
    CHECK(counters->waits.size() == 3);
    CHECK(counters->waits[static_cast<std::size_t>(comm.rank().value)].calls == 0);
    CHECK(counters->in_calls > 0ns);
    CHECK(counters->in_calls <= counters->age);
  }
}

nlohmann::json latest_call(const Communicator& comm) {
  const auto record = comm.flight_record();
  const auto calls = record ? nlohmann::json::parse(*record)["calls"] : nlohmann::json();
  return calls.empty() ? nlohmann::json{{"call", 0}, {"state", "none"}} : calls.back();
}

/// Whether that rank waits for rank 1 in a call that rank 1 has not begun, so long that it noted
/// it.
bool waits_for(const Communicator& one, const Communicator& comm) {
  const nlohmann::json call = latest_call(comm);
  return call["state"] == "running" && call.value("waits_for", -1) == 1 &&
         call["call"] > latest_call(one)["call"];
}

TEST_CASE("ranks say for which of them they waited") {
  auto comms = Communicator::in_process(3);
  REQUIRE(comms);
  const std::size_t count = GENERATE(2, 300'000);
  constexpr int kCalls = 3;
  const int failed = on_ranks(*comms, [&](int rank, Communicator& comm) {
    std::vector<float> data(count);
    int wrong = 0;
    for (int i = 0; i < kCalls; ++i) {
      const auto end = std::chrono::steady_clock::now() + 30s;
      while (rank == 1 && std::chrono::steady_clock::now() < end &&
             !(waits_for(comm, (*comms)[0]) && waits_for(comm, (*comms)[2])))
        std::this_thread::sleep_for(1ms);
      if (rank == 1) std::this_thread::sleep_for(20ms);
      wrong += !comm.all_reduce(data.data(), data.data(), count, kF32, ReduceOp::kSum);
    }
    return wrong;
  });
  REQUIRE(failed == 0);
  for (const int rank : {0, 2}) {
    const auto counters = (*comms)[static_cast<std::size_t>(rank)].counters();
    REQUIRE(counters);
    CHECK(counters->slowest() == Rank{1});
    CHECK(counters->waits[1].calls == kCalls);
    CHECK(counters->waits[1].time >= kCalls * 15ms);
    CHECK(counters->waited() <= counters->in_calls);
  }
  const auto late = (*comms)[1].counters();
  REQUIRE(late);
  CHECK(late->waited() < (*comms)[0].counters()->waited());
}

TEST_CASE("a program in C sees the counters and the record") {
  tutti_comm_t ranks[1];
  REQUIRE(tutti_comm_init_all(ranks, 1) == TUTTI_OK);
  float data[8] = {};
  for (int i = 0; i < 3; ++i)
    REQUIRE(tutti_all_reduce(ranks[0], data, data, 8, TUTTI_FLOAT32, TUTTI_SUM) == TUTTI_OK);
  REQUIRE(tutti_broadcast(ranks[0], data, data, 4, TUTTI_FLOAT32, 0) == TUTTI_OK);
  tutti_counters_t counters;
  REQUIRE(tutti_comm_counters(ranks[0], &counters) == TUTTI_OK);
  CHECK(counters.all_reduces == 3);
  CHECK(counters.broadcasts == 1);
  CHECK(counters.collective_bytes == 3 * 32 + 16);
  CHECK(counters.slowest_rank == -1);
  CHECK(tutti_comm_counters(ranks[0], nullptr) == TUTTI_INVALID_ARGUMENT);
  std::size_t needed = 0;
  REQUIRE(tutti_comm_flight_record(ranks[0], nullptr, 0, &needed) == TUTTI_OK);
  std::string text(needed + 4096, 'x');  // Times that were not known may be now.
  REQUIRE(tutti_comm_flight_record(ranks[0], text.data(), text.size(), nullptr) == TUTTI_OK);
  const auto record = nlohmann::json::parse(text.c_str());
  REQUIRE(record["calls"].size() == 4);
  CHECK(record["calls"][0]["name"] == "all_reduce");
  CHECK(record["calls"][0]["count"] == 8);
  CHECK(record["calls"][3]["what"] == "broadcast of 4 float32 from rank 0");
  CHECK(tutti_comm_destroy(ranks[0]) == TUTTI_OK);
}

}  // namespace
}  // namespace tutti
