// Collectives by copy engines (TUTTI_ALGORITHM=copy_engines): bits against the reference on the
// host, order among other calls, captures, and calls that do not come or differ.
#include <algorithm>
#include <barrier>
#include <chrono>
#include <functional>
#include <random>
#include <string>
#include <thread>

#include "simt/communicator/device_communicators.h"
#include "support/catch.h"
#if !defined(TUTTI_GPU)
#include "simt/runtime.h"
#endif

namespace tutti {
namespace {

using test::Case;
using test::DeviceCase;
using test::DeviceCluster;
using test::each;
using test::said;

constexpr Collective kCopied[] = {Collective::kAllGather, Collective::kAllToAll};

Settings copying(const std::string& algorithm = "copy_engines") {
  Settings settings = test::small_settings();
  settings.algorithm = algorithm;
  return settings;
}
bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
Code code_of(const Status& status) { return status ? Code::kOk : status.error().code; }

Case case_of(Collective collective, int ranks, std::size_t count, bool in_place = false) {
  Case test;
  test.collective = collective;
  test.ranks = ranks;
  test.count = count;
  test.in_place = in_place;
  return test;
}

/// A rank's buffers, registered while it lives. Collective.
class Registered {
 public:
  Registered(DeviceCommunicator& comm, const DeviceCase& mine) : comm_(comm) {
    for (const exec::CudaMemory* memory :
         {&mine.buffers().input_memory, &mine.buffers().output_memory}) {
      all_.push_back(memory->data());
      complaint += said(comm.register_memory(memory->data(), memory->size()));
    }
  }
  ~Registered() {
    for (std::byte* const data : all_) static_cast<void>(comm_.deregister_memory(data));
  }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;
  std::string complaint;

 private:
  DeviceCommunicator& comm_;
  std::vector<std::byte*> all_;
};

/// The case on registered memory, so many times; what is wrong.
std::string run(DeviceCommunicator& comm, cudaStream_t stream, const Case& test, int times,
                std::uint64_t seed) {
  const DeviceCase mine(test, static_cast<std::size_t>(comm.rank().value), comm.device(), seed);
  const Registered registered(comm, mine);
  std::string wrong = registered.complaint;
  for (int i = 0; i < times && wrong.empty(); ++i) wrong = mine.start(comm, stream);
  return wrong.empty() ? mine.finish(comm, stream) : wrong;
}

std::string line_of(const DeviceCommunicator& comm, Collective collective) {
  const std::string text = comm.describe();
  const auto at = text.find("  " + std::string(to_string(collective)) + " up to");
  return at == std::string::npos ? "none" : text.substr(at, text.find('\n', at) - at);
}

TEST_CASE("copy engines do all-gather and all-to-all, and kernels what is in place") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  for (const int ranks : {2, 3, 7}) {
    std::vector<int> devices;
    for (int rank = 0; rank < ranks; ++rank) devices.push_back(rank % 4);
    DeviceCluster cluster(devices, copying());
    REQUIRE(cluster.complaint == "");
    for (const Collective collective : kCopied) {
      for (const bool in_place : {false, true}) {
        Case test = case_of(collective, ranks, 1 + random() % 9000, in_place);
        test.type = random() % 2 == 0 ? DataType::kFloat16 : DataType::kFloat64;
        test.misalign = random() % 2 == 0 ? size_of(test.type) : 0;
        const std::uint64_t bits = random();
        const int times = in_place ? 1 : 3;  // In place the first call changes the input.
        test::idle_streams(random() % 2 == 0);
        const std::string wrong = each(cluster, [&](std::size_t rank) {
          return run(cluster.comms[rank], cluster.streams[rank], test, times, bits);
        });
        REQUIRE(wrong == "");
        // No input is registered by itself there.
        if (!in_place)
          CHECK(has(line_of(cluster.comms[0], collective), ": copy_engines, 1 times its lanes"));
      }
    }
  }
  test::idle_streams(false);
}

TEST_CASE("what copy engines can't do goes as ever") {
  for (const bool in_place : {false, true}) {
    DeviceCluster cluster({0, 1, 2}, copying());
    REQUIRE(cluster.complaint == "");
    for (int i = 0; i < kCollectiveCount; ++i) {
      const auto collective = static_cast<Collective>(i);
      const bool copied = std::ranges::find(kCopied, collective) != std::end(kCopied);
      if (in_place && !copied) continue;
      CAPTURE(to_string(collective), in_place);
      const std::string wrong = each(cluster, [&](std::size_t rank) {
        DeviceCommunicator& comm = cluster.comms[rank];
        const Case test = case_of(collective, 3, 5000, in_place);
        if (in_place || !copied) return run(comm, cluster.streams[rank], test, in_place ? 1 : 2, 1);
        const DeviceCase plain(test, rank, comm.device(), 1);  // Nothing is registered.
        const std::string error = plain.start(comm, cluster.streams[rank]);
        return error + plain.finish(comm, cluster.streams[rank]);
      });
      REQUIRE(wrong == "");
      const std::string line = line_of(cluster.comms[0], collective);
      CHECK(line != "none");
      CHECK_FALSE(has(line, "copy_engines"));
    }
  }
}

TEST_CASE("copy engines are asked for by collective, and refused for those that they can't do") {
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    const std::string name(to_string(collective));
    CAPTURE(name);
    DeviceCluster cluster({0, 1}, copying(name + "=copy_engines"));
    if (std::ranges::find(kCopied, collective) == std::end(kCopied)) {
      CAPTURE(cluster.complaint);
      CHECK(has(cluster.complaint, "copy engines do all_gather and all_to_all, not " + name));
      continue;
    }
    REQUIRE(cluster.complaint == "");
    for (const Collective called : kCopied) {
      const std::string wrong = each(cluster, [&](std::size_t rank) {
        return run(cluster.comms[rank], cluster.streams[rank], case_of(called, 2, 5000), 2, 1);
      });
      REQUIRE(wrong == "");
      CHECK(has(line_of(cluster.comms[0], called), ": copy_engines") == (called == collective));
    }
  }
}

TEST_CASE("no kernel is started, and what explains a call says so") {
  DeviceCluster asked({0, 1}, copying()), not_asked({0, 1});
  REQUIRE(asked.complaint + not_asked.complaint == "");
  for (DeviceCluster* const cluster : {&asked, &not_asked}) {
    std::vector<std::string> texts(2);
    const std::string wrong = each(*cluster, [&](std::size_t rank) -> std::string {
      DeviceCommunicator& comm = cluster->comms[rank];
      const DeviceCase mine(case_of(Collective::kAllGather, 2, 100000), rank, comm.device(), 1);
      const Registered registered(comm, mine);
      const auto text = comm.explain(mine.request());
      texts[rank] = text ? *text : text.error().to_string();
      return registered.complaint;
    });
    REQUIRE(wrong == "");
    CAPTURE(texts[0]);
    if (cluster == &asked) {
      CHECK(has(texts[0], " 1 copy_engines"));
      CHECK(has(texts[0], "forced"));
    } else {
      CHECK(has(texts[0], " - copy_engines"));
      CHECK(has(texts[0], "only on request; estimated"));
    }
  }
}

TEST_CASE("ranks that change their inputs right behind a call read each other's of that call") {
  constexpr std::size_t kCount = 3000, kBytes = kCount * sizeof(int);
  constexpr int kRounds = 20;
  DeviceCluster cluster({0, 1, 2}, copying());
  REQUIRE(cluster.complaint == "");
  test::idle_streams(true);
  const std::string wrong = each(cluster, [&](std::size_t rank) {
    DeviceCommunicator& comm = cluster.comms[rank];
    const cudaStream_t stream = cluster.streams[rank];
    Case test = case_of(Collective::kAllGather, 3, kCount);
    test.type = DataType::kInt32;
    const DeviceCase mine(test, rank, comm.device(), 1);
    const Registered registered(comm, mine);
    std::string error = registered.complaint;
    std::vector<std::vector<int>> outputs(kRounds, std::vector<int>(3 * kCount));
    test::PinnedCopies copies;
    for (int round = 0; round < kRounds && error.empty(); ++round) {
      const auto at = static_cast<std::size_t>(round);
      const std::vector<int> input(kCount, 10 * round + static_cast<int>(rank));
      copies.in(mine.buffers().input, input.data(), kBytes, stream);
      error += mine.start(comm, stream);
      copies.out(outputs[at].data(), mine.buffers().output, 3 * kBytes, stream);
    }
    error += said(cudaStreamSynchronize(stream));
    error += said(comm.check());
    error += copies.finish();
    for (int round = 0; round < kRounds && error.empty(); ++round) {
      for (std::size_t i = 0; i < 3 * kCount && error.empty(); ++i) {
        if (outputs[static_cast<std::size_t>(round)][i] !=
            10 * round + static_cast<int>(i / kCount))
          error = "another call's data in round " + std::to_string(round);
      }
    }
    return error;
  });
  test::idle_streams(false);
  CHECK(wrong == "");
}

TEST_CASE("two communicators copy beside each other, among calls by kernels") {
  DeviceCluster one({0, 1, 2}, copying()), two({0, 1, 2}, copying());
  REQUIRE(one.complaint + two.complaint == "");
  test::idle_streams(true);
  const std::string wrong = each(one, [&](std::size_t rank) {
    const auto live = [rank](DeviceCluster& cluster, std::uint64_t seed) {
      std::string error;
      for (int i = 0; i < 3; ++i) {
        for (const Collective collective :
             {Collective::kAllGather, Collective::kAllReduce, Collective::kAllToAll}) {
          error += run(cluster.comms[rank], cluster.streams[rank], case_of(collective, 3, 3000), 2,
                       seed++);
        }
      }
      return error;
    };
    std::string other;
    std::jthread thread([&] { other = live(two, 100); });
    const std::string mine = live(one, 1);
    thread.join();
    return mine + other;
  });
  test::idle_streams(false);
  CHECK(wrong == "");
}

TEST_CASE("calls by copy engines are captured, and replayed beside others") {
  DeviceCluster cluster({0, 1, 2}, copying());
  REQUIRE(cluster.complaint == "");
  test::idle_streams(true);
  const std::string wrong = each(cluster, [&](std::size_t rank) {
    DeviceCommunicator& comm = cluster.comms[rank];
    const cudaStream_t stream = cluster.streams[rank];
    const exec::OnDevice on(comm.device());
    const DeviceCase mine(case_of(Collective::kAllGather, 3, 4000), rank, comm.device(), 5);
    const Registered registered(comm, mine);
    std::string error = registered.complaint + said(comm.prepare(mine.request()));
    error += said(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    error += mine.start(comm, stream) + mine.start(comm, stream);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    error += said(cudaStreamEndCapture(stream, &graph));
    error += said(cudaGraphInstantiate(&executable, graph, 0));
    for (int replay = 0; replay < 5 && error.empty(); ++replay) {
      error += said(cudaGraphLaunch(executable, stream));
      if (replay % 2 == 0) error += mine.start(comm, stream);
    }
    error += error.empty() ? mine.finish(comm, stream) : "";
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
    return error;
  });
  test::idle_streams(false);
  CHECK(wrong == "");
}

/// Ranks make these calls on registered memory, null: none, and copy what they got to pageable
/// memory, which keeps others from launching on their devices meanwhile; what each is told.
std::vector<Status> told(DeviceCluster& cluster,
                         const std::vector<std::function<Request(Request)>>& calls) {
  std::vector<Status> found(calls.size());
  // Copies are read from them until all ranks' streams have ended.
  std::vector<std::unique_ptr<DeviceCase>> cases(calls.size());
  std::barrier ended(static_cast<std::ptrdiff_t>(calls.size()));
  static_cast<void>(each(cluster, [&](std::size_t rank) -> std::string {
    DeviceCommunicator& comm = cluster.comms[rank];
    cases[rank] = std::make_unique<DeviceCase>(
        case_of(Collective::kAllGather, static_cast<int>(calls.size()), 3000), rank, comm.device(),
        5);
    const DeviceCase& mine = *cases[rank];
    const Registered registered(comm, mine);
    for (int i = 0; calls[rank] && i < 3; ++i)  // Those behind it end as well.
      static_cast<void>(comm.call(calls[rank](mine.request()), cluster.streams[rank]));
    std::vector<std::byte> got(64);
    if (calls[rank])
      cudaMemcpyAsync(got.data(), mine.buffers().output, got.size(), cudaMemcpyDefault,
                      cluster.streams[rank]);
    static_cast<void>(cudaStreamSynchronize(cluster.streams[rank]));
    found[rank] = comm.check();
    ended.arrive_and_wait();  // What is registered stays so for all of them.
    return "";
  }));
  return found;
}
Request as_it_is(Request request) { return request; }

TEST_CASE("copies that wait for a rank that never calls end with an error that names it") {
  Settings settings = copying();
  settings.timeout = std::chrono::milliseconds(400);
  DeviceCluster cluster({0, 1, 2}, settings);
  REQUIRE(cluster.complaint == "");
  const std::vector<Status> found = told(cluster, {as_it_is, nullptr, as_it_is});
  for (const std::size_t rank : {0, 2}) {
    CAPTURE(said(found[rank]));
    CHECK(code_of(found[rank]) == Code::kTimeout);
    CHECK(has(said(found[rank]), "waited too long for rank 1 in a call by copy engines"));
  }
}

TEST_CASE("ranks whose calls differ are told long before the deadline") {
  for (const bool type : {false, true}) {  // Another count, and another type.
    DeviceCluster differ({0, 1}, copying());
    REQUIRE(differ.complaint == "");
    const std::vector<Status> found = told(differ, {as_it_is, [type](Request request) {
                                                      if (type) request.type = DataType::kInt32;
                                                      if (!type) request.count -= 1;
                                                      return request;
                                                    }});
    for (const Status& one : found) {
      CAPTURE(said(one));
      CHECK(code_of(one) == Code::kMismatch);
      CHECK(has(said(one), "met another call of rank"));
    }
  }
}

TEST_CASE("an abort ends calls by copy engines") {
  DeviceCluster cluster({0, 1}, copying());
  REQUIRE(cluster.complaint == "");
  std::jthread aborts;
  const std::vector<Status> found =
      told(cluster, {[&](Request request) {
                       if (!aborts.joinable())
                         aborts = std::jthread([&] {
                           std::this_thread::sleep_for(std::chrono::milliseconds(50));
                           cluster.comms[1].abort("enough");
                         });
                       return request;
                     },
                     nullptr});
  CHECK(code_of(found[0]) == Code::kAborted);
  CHECK(has(said(found[0]), "enough"));
}

#if !defined(TUTTI_GPU)
TEST_CASE("devices whose streams can't wait for values refuse copy engines when they join") {
  simt::refuse_stream_values(true);
  const DeviceCluster cluster({0, 1}, copying());
  simt::refuse_stream_values(false);
  CHECK(has(cluster.complaint, "copy_engines: streams of device 0 can't wait for values"));
}
#endif

}  // namespace
}  // namespace tutti
