// What the API promises beside the collectives themselves: asynchronous work, groups, splits,
// several communicators at once, registered memory, bad input.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <deque>

#include "support/catch.h"
#include "support/cluster.h"
#include "support/transports.h"
#include "transport/transport.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

constexpr auto kF32 = DataType::kFloat32;

std::vector<Communicator> ranks_on(std::string_view transport, int count,
                                   std::chrono::milliseconds timeout = 30s) {
  Settings settings;
  settings.transport = transport;
  settings.timeout = timeout;
  auto comms = Communicator::in_process(count, settings);
  if (!comms) FAIL(comms.error().to_string());
  return *std::move(comms);
}

TEST_CASE("asynchronous calls take place in order and mix with blocking ones") {
  for (const Transport* transport : transports_here()) {
    auto comms = ranks_on(transport->name, 3);
    CHECK(on_all_ranks(comms, [](Communicator& comm) -> std::string {
            for (int round = 0; round < 20; ++round) {
              std::vector<std::vector<float>> data(6);
              std::vector<Work> works;
              for (std::size_t i = 0; i < data.size(); ++i) {
                data[i].assign(i % 2 == 0 ? 3 : 30000, static_cast<float>(i + 1));
                auto work = comm.start_all_reduce(data[i].data(), data[i].data(), data[i].size(),
                                                  kF32, ReduceOp::kSum);
                if (!work) return work.error().to_string();
                works.push_back(*work);
              }
              float last = static_cast<float>(comm.rank().value);
              if (auto status = comm.all_reduce(&last, &last, 1, kF32, ReduceOp::kMax); !status) {
                return status.error().to_string();
              }
              if (last != 2) return "the blocking call's result is wrong";
              for (std::size_t i = 0; i < works.size(); ++i) {
                if (!works[i].test()) return "a blocking call overtook an asynchronous one";
                if (auto status = works[i].wait(); !status) return status.error().to_string();
                for (const float x : data[i]) {
                  if (x != 3 * static_cast<float>(i + 1)) return "an asynchronous result is wrong";
                }
              }
            }
            return "";
          }) == "");
  }
}

TEST_CASE("then runs once, whether work is done or not") {
  auto comms = ranks_on("in_process", 2);
  std::atomic<int> calls{0};
  CHECK(on_all_ranks(comms, [&](Communicator& comm) -> std::string {
          float value = 1;
          auto work = comm.start_all_reduce(&value, &value, 1, kF32, ReduceOp::kSum);
          if (!work) return work.error().to_string();
          work->then([&](const Status& status) { calls += status ? 1 : 100; });
          if (auto status = work->wait(20s); !status) return status.error().to_string();
          work->then([&](const Status& status) { calls += status ? 1 : 100; });
          return value == 2 ? "" : "wrong sum";
        }) == "");
  for (int i = 0; i < 1000 && calls < 4; ++i) std::this_thread::sleep_for(1ms);
  CHECK(calls == 4);
}

TEST_CASE("a wait that times out leaves the work running") {
  auto comms = ranks_on("in_process", 2);
  float values[2] = {1, 2};
  auto early = comms[0].start_all_reduce(&values[0], &values[0], 1, kF32, ReduceOp::kSum);
  REQUIRE(early);
  const Status first = early->wait(20ms);
  REQUIRE_FALSE(first);
  CHECK(first.error().code == Code::kTimeout);
  CHECK_FALSE(early->test());
  auto late = comms[1].start_all_reduce(&values[1], &values[1], 1, kF32, ReduceOp::kSum);
  REQUIRE(late);
  CHECK(early->wait());
  CHECK(late->wait());
  CHECK(values[0] == 3);
  CHECK(values[1] == 3);
}

TEST_CASE("one thread drives all ranks through a group") {
  for (const Transport* transport : transports_here()) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{50000}}) {
      auto comms = ranks_on(transport->name, 4);
      std::vector<std::vector<float>> data(4, std::vector<float>(count, 1));
      Group group;
      for (std::size_t r = 0; r < 4; ++r) {
        CHECK(comms[r].all_reduce(data[r].data(), data[r].data(), count, kF32, ReduceOp::kSum));
        CHECK(comms[r].broadcast(data[r].data(), data[r].data(), count, kF32, Rank{2}));
      }
      CHECK(group.end());
      for (const auto& values : data)
        CHECK(std::all_of(values.begin(), values.end(), [](float x) { return x == 4; }));
    }
  }
}

TEST_CASE("a message of an open group is not waited for: it has not begun") {
  auto comms = ranks_on("in_process", 2);
  const float sent = 3;
  float got = 0;
  Group group;
  auto work = comms[0].start_send(&sent, 1, kF32, Rank{1});
  REQUIRE(work);
  const Status early = work->wait();
  REQUIRE_FALSE(early);
  CHECK(early.error().code == Code::kInvalidArgument);
  CHECK(comms[1].recv(&got, 1, kF32, Rank{0}));
  CHECK(group.end());
  CHECK(work->wait());
  CHECK(got == 3);
}

TEST_CASE("a call that nobody joins ends at its deadline, also while others are busy") {
  Settings settings;
  settings.timeout = 500ms;
  auto lonely = Communicator::in_process(2, settings);
  REQUIRE(lonely);
  auto busy = ranks_on("in_process", 2);
  float value = 1;
  auto alone = (*lonely)[0].start_all_reduce(&value, &value, 1, kF32, ReduceOp::kSum);
  REQUIRE(alone);
  std::vector<std::vector<float>> data(2, std::vector<float>(std::size_t{1} << 20, 1));
  std::deque<Work> under_way;
  // Always some in the queue, so that the progress thread finds something to do at each look.
  const auto end = std::chrono::steady_clock::now() + 60s;
  while (!alone->test() && std::chrono::steady_clock::now() < end) {
    for (std::size_t rank = 0; rank < 2; ++rank) {
      auto work = busy[rank].start_all_reduce(data[rank].data(), data[rank].data(),
                                              data[rank].size(), kF32, ReduceOp::kMax);
      REQUIRE(work);
      under_way.push_back(*std::move(work));
    }
    for (; under_way.size() > 8; under_way.pop_front()) CHECK(under_way.front().wait());
  }
  const Status status = alone->wait(0ns);
  REQUIRE_FALSE(status);
  CHECK_THAT(status.error().what, Catch::Contains("waited 500 ms for rank 1"));
  for (Work& work : under_way) CHECK(work.wait());
}

TEST_CASE("slots that no frame between hosts can carry are refused when ranks join") {
  Settings settings;
  settings.transport = "tcp";
  settings.slot_bytes = std::size_t{17} << 20;
  const auto comms = Communicator::in_process(2, settings);
  REQUIRE_FALSE(comms);
  CHECK(comms.error().code == Code::kInvalidArgument);
  CHECK_THAT(comms.error().what, Catch::Contains("TUTTI_SLOT_BYTES is at most 16M"));
}

TEST_CASE("splits are communicators of their own, and several are used at once") {
  for (const Transport* transport : transports_here()) {
    auto comms = ranks_on(transport->name, 6);
    CHECK(on_all_ranks(comms, [](Communicator& comm) -> std::string {
            const int me = comm.rank().value;
            auto half = comm.split(me % 2, -me);  // Reversed order.
            if (!half) return half.error().to_string();
            if (half->rank_count() != 3 || half->rank().value != 2 - me / 2)
              return "wrong rank in the split";
            auto again = half->split(0, 0);
            if (!again) return again.error().to_string();
            for (int i = 0; i < 50; ++i) {
              float sum = static_cast<float>(me), of_half = sum, of_again = sum;
              auto background = comm.start_all_reduce(&sum, &sum, 1, kF32, ReduceOp::kSum);
              if (!background) return background.error().to_string();
              if (!half->all_reduce(&of_half, &of_half, 1, kF32, ReduceOp::kSum))
                return "half failed";
              if (!again->all_reduce(&of_again, &of_again, 1, kF32, ReduceOp::kSum))
                return "again failed";
              if (!background->wait()) return "background failed";
              const float mine = me % 2 == 0 ? 6 : 9;
              if (sum != 15 || of_half != mine || of_again != mine)
                return "a sum leaked between communicators";
            }
            return "";
          }) == "");
  }
}

TEST_CASE("a negative color takes part and belongs to none") {
  auto comms = ranks_on("in_process", 3);
  CHECK(on_all_ranks(comms, [](Communicator& comm) -> std::string {
          const int me = comm.rank().value;
          auto part = comm.split(me == 0 ? -1 : 5, 0);
          if (me == 0) return part ? "rank 0 got a communicator" : "";
          return part && part->rank_count() == 2 ? "" : "ranks 1 and 2 got no communicator of two";
        }) == "");
}

TEST_CASE("bad input is one line and starts nothing") {
  auto comms = ranks_on("in_process", 2);
  Communicator& comm = comms[0];
  float value = 1;
  const auto refused = [](const Status& status, std::string_view part) {
    INFO((status ? std::string("no error") : status.error().what));
    REQUIRE_FALSE(status);
    CHECK(status.error().code == Code::kInvalidArgument);
    CHECK(status.error().what.find(part) != std::string::npos);
    CHECK(status.error().what.find('\n') == std::string::npos);
  };
  refused(comm.all_reduce(nullptr, &value, 1, kF32, ReduceOp::kSum), "input buffer is null");
  refused(comm.all_reduce(&value, nullptr, 1, kF32, ReduceOp::kSum), "output buffer is null");
  refused(comm.all_reduce(&value, &value, SIZE_MAX / 2, kF32, ReduceOp::kSum),
          "more than memory can hold");
  refused(comm.all_gather(&value, &value, PTRDIFF_MAX / 5, kF32), "more than memory can hold");
  refused(comm.all_reduce(&value, &value, 1, static_cast<DataType>(77), ReduceOp::kSum),
          "no data type 77");
  refused(comm.all_reduce(&value, &value, 1, kF32, static_cast<ReduceOp>(99)), "no operation 99");
  refused(comm.all_reduce(&value, &value, 1, kF32, ReduceOp::kXor), "takes integers");
  refused(comm.broadcast(&value, &value, 1, kF32, Rank{2}), "root 2");
  refused(comm.broadcast(&value, &value, 1, kF32, Rank{-1}), "root -1");
  const Request scaled{.input = &value,
                       .output = &value,
                       .count = 1,
                       .type = kF32,
                       .reduction = Reduction::pre_mul_sum(1),
                       .device_scale = &value};
  refused(comm.call(scaled), "device_scale is for communicators of devices");
  refused(comm.start(scaled).error(), "device_scale is for communicators of devices");
  CHECK(comm.all_reduce(nullptr, nullptr, 0, kF32, ReduceOp::kSum));
  // Nothing was started: the two still agree on what comes next.
  CHECK(on_all_ranks(comms, [](Communicator& each) -> std::string {
          return each.barrier() ? "" : "the barrier failed";
        }) == "");
}

TEST_CASE("unknown settings are errors that say what there is") {
  const auto refused = [](const Settings& settings, std::string_view part) {
    const auto comms = Communicator::in_process(2, settings);
    REQUIRE_FALSE(comms);
    INFO(comms.error().to_string());
    CHECK(comms.error().what.find(part) != std::string::npos);
  };
  Settings settings;
  settings.algorithm = "quantum";
  refused(settings, "'quantum'");
  settings.algorithm = "all_reduce=quantum";
  refused(settings, "two_shot");
  settings.algorithm = "all_produce=ring";
  refused(settings, "all_produce");
  settings.algorithm = "";
  settings.transport = "pigeon";
  refused(settings, "shared_memory");
}

TEST_CASE("registered memory is mapped by peers; what was freed is not found again") {
  auto comms = ranks_on("shared_memory", 2);
  CHECK(on_all_ranks(comms, [](Communicator& comm) -> std::string {
          constexpr std::size_t kCount = 100000, kBytes = kCount * sizeof(float);
          for (int round = 0; round < 5; ++round) {
            const int fd = memfd_create("test", MFD_CLOEXEC);
            if (ftruncate(fd, static_cast<off_t>(2 * kBytes)) != 0) return "ftruncate";
            void* memory = mmap(nullptr, 2 * kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            if (auto status = comm.register_memory(memory, 2 * kBytes, fd, 0); !status)
              return status.error().to_string();
            if (comm.register_memory(memory, kBytes, fd, 0))
              return "the same memory was registered twice";
            auto* in = static_cast<float*>(memory);
            float* out = in + kCount;
            std::fill(in, in + kCount, static_cast<float>(comm.rank().value + round));
            if (auto status = comm.all_reduce(in, out, kCount, kF32, ReduceOp::kSum); !status)
              return status.error().to_string();
            const bool right = std::all_of(
                out, out + kCount, [&](float x) { return x == static_cast<float>(1 + 2 * round); });
            if (!comm.deregister_memory(memory)) return "could not deregister";
            if (comm.deregister_memory(memory)) return "deregistered twice";
            munmap(memory, 2 * kBytes);
            close(fd);
            if (!right) return "wrong sum in round " + std::to_string(round);
          }
          return "";
        }) == "");
  CHECK(comms[0].describe().find("direct") != std::string::npos);
}

TEST_CASE("mem_free refuses what mem_alloc did not return") {
  int local = 0;
  CHECK_FALSE(mem_free(&local));
  CHECK_FALSE(mem_free(nullptr));
  CHECK_FALSE(mem_alloc(0));
  auto memory = mem_alloc(100);
  REQUIRE(memory);
  CHECK(mem_free(*memory));
  CHECK_FALSE(mem_free(*memory));
}

TEST_CASE("a missing rank is named at the deadline, blocking and asynchronous alike") {
  for (const bool asynchronous : {false, true}) {
    auto comms = ranks_on("in_process", 3, 300ms);
    CHECK(on_all_ranks(comms, [&](Communicator& comm) -> std::string {
            if (comm.rank().value == 2) return "";
            std::vector<float> data(asynchronous ? 5 : 50000);
            Status status;
            if (asynchronous) {
              auto work = comm.start_all_reduce(data.data(), data.data(), data.size(), kF32,
                                                ReduceOp::kSum);
              if (!work) return work.error().to_string();
              status = work->wait();
            } else {
              status = comm.all_reduce(data.data(), data.data(), data.size(), kF32, ReduceOp::kSum);
            }
            if (status) return "no error";
            const std::string text = status.error().to_string();
            return text.find("rank 2, which has made no call yet") != std::string::npos ? "" : text;
          }) == "");
  }
}

TEST_CASE("a time-out does not say of a rank on another host what cannot be known here") {
  // The ranks that get a broadcast write no lines, and say now and then that they finished.
  for (const int calls : {0, 3, 1000}) {
    auto comms = ranks_on("tcp", 2, 300ms);
    std::string said;
    CHECK(on_all_ranks(comms, [&](Communicator& comm) -> std::string {
            float value = 1;
            for (int i = 0; i < calls; ++i) {
              const Status got = comm.broadcast(&value, &value, 1, kF32, Rank{0});
              if (!got) return got.error().to_string();
            }
            if (comm.rank().value == 1) return "";
            const Status status = comm.all_reduce(&value, &value, 1, kF32, ReduceOp::kSum);
            said = status ? "no error" : status.error().to_string();
            return "";
          }) == "");
    INFO(calls << " calls: " << said);
    const std::string none = "of which no call is known here",
                      some = "whose latest call known here is ";
    CHECK(said.find("for rank 1, " + (calls < 1000 ? none : some)) != std::string::npos);
    const auto at = said.find(some);
    if (at != std::string::npos) CHECK(std::stoi(said.substr(at + some.size())) >= calls / 2);
  }
}

TEST_CASE("the shared memory of up to 8 ranks stays within 8 MiB") {
  for (int ranks = 1; ranks <= 8; ++ranks)
    CHECK(Region::bytes_for(Region::default_config(ranks)) <= std::size_t{8} << 20);
}

}  // namespace
}  // namespace tutti::test
