// Communicators of devices whose ranks are of one process: every collective against the reference
// on the host, groups, streams, captures, and how they end.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <optional>
#include <random>
#include <thread>

#include "simt/communicator/device_communicators.h"
#include "support/catch.h"
#include "support/kinds.h"

namespace tutti {
namespace {

using test::all_reduce_of;
using test::Case;
using test::DeviceCase;
using test::DeviceCluster;
using test::said;

std::vector<int> devices_for(int ranks, int devices) {
  std::vector<int> list;
  for (int rank = 0; rank < ranks; ++rank) list.push_back(rank % devices);
  return list;
}

TEST_CASE("every collective, over types, operations and sizes") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  test::shuffle_threads(seed);
  for (const int ranks : {1, 2, 3, 5}) {
    DeviceCluster cluster(devices_for(ranks, 3));  // Some share a device.
    REQUIRE(cluster.complaint.empty());
    for (int i = 0; i < kCollectiveCount; ++i) {
      Case test;
      test.collective = static_cast<Collective>(i);
      test.ranks = ranks;
      // Nothing, one, what one shot takes, and several slots.
      for (const std::size_t count : {0, 1, 333, 5000}) {
        test.type = test::any_type(random);
        test.op = static_cast<ReduceOp>(random() % 6);
        test.count = count;
        test.root = static_cast<int>(random() % static_cast<unsigned>(ranks));
        test.in_place = random() % 2 == 0;
        CHECK(run_in_group(cluster.comms, cluster.streams, test, random()) == "");
      }
    }
  }
}

#if !defined(TUTTI_GPU)
TEST_CASE("first calls make no streams, which could stand behind kernels that wait") {
  DeviceCluster cluster({0, 1});
  REQUIRE(cluster.complaint.empty());
  const auto next_id = [] {
    unsigned long long id = 0;
    const cudaStream_t stream = test::new_stream(0);
    CHECK(said(cudaStreamGetId(stream, &id)) == "");
    cudaStreamDestroy(stream);
    return id;
  };
  const auto before = next_id();
  CHECK(run_in_group(cluster.comms, cluster.streams, all_reduce_of(4000, 2), 1) == "");
  CHECK(next_id() == before + 1);
}

TEST_CASE("a group is one operation for all streams that it names") {
  constexpr std::size_t kCount = 1000, kBytes = kCount * sizeof(float);
  DeviceCluster cluster({0, 1});
  REQUIRE(cluster.complaint == "");
  const cudaStream_t others[] = {test::new_stream(0), test::new_stream(1)};
  std::vector<exec::CudaMemory> memory;
  for (const int device : {0, 1}) {
    auto made = exec::CudaMemory::allocate(device, 3 * kBytes);
    REQUIRE(made);
    REQUIRE(made->write(0, std::vector<float>(3 * kCount, 1).data(), 3 * kBytes));
    memory.push_back(std::move(*made));
  }
  const auto all_reduce = [&](std::size_t rank, std::size_t part, cudaStream_t stream) {
    Request request;
    request.collective = Collective::kAllReduce;
    request.input = memory[rank].data();
    request.output = memory[rank].data() + part * kBytes;
    request.count = kCount;
    request.type = DataType::kFloat32;
    return said(cluster.comms[rank].call(request, stream));
  };
  // What a stream of the group does before is done when any of its calls begins: the second stream
  // makes the data of the first one's call.
  std::atomic<bool> go{false};
  const auto wait = [](void* flag) {
    // relaxed: nothing but the flag is passed on.
    while (!static_cast<std::atomic<bool>*>(flag)->load(std::memory_order_relaxed))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  std::string error;
  {
    const exec::OnDevice on(0);
    const std::vector<float> twos(kCount, 2);
    REQUIRE(cudaLaunchHostFunc(others[0], wait, &go) == cudaSuccess);
    void* pinned = nullptr;
    REQUIRE(cudaMallocHost(&pinned, kBytes) == cudaSuccess);
    std::memcpy(pinned, twos.data(), kBytes);
    REQUIRE(cudaMemcpyAsync(memory[0].data(), pinned, kBytes, cudaMemcpyHostToDevice, others[0]) ==
            cudaSuccess);
    Group group;
    error += all_reduce(0, 1, cluster.streams[0]);
    error += all_reduce(0, 2, others[0]);
    error += said(group.end());
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // A call that began would read it.
    go.store(true, std::memory_order_relaxed);
  }
  // Nor does a stream go on before the last of its calls is over: rank 1 has made the first alone.
  error += all_reduce(1, 1, cluster.streams[1]);
  {
    const exec::OnDevice on(1);
    error += said(cudaStreamSynchronize(cluster.streams[1]));
  }
  {
    const exec::OnDevice on(0);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    CHECK(cudaStreamQuery(cluster.streams[0]) == cudaErrorNotReady);
  }
  error += all_reduce(1, 2, others[1]);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const exec::OnDevice on(static_cast<int>(rank));
    for (const cudaStream_t stream : {cluster.streams[rank], others[rank]})
      error += said(cudaStreamSynchronize(stream));
    std::vector<float> got(2 * kCount);
    error += said(memory[rank].read(kBytes, got.data(), 2 * kBytes));
    CHECK(std::count(got.begin(), got.end(), 3.0F) == 2 * kCount);
  }
  CHECK(error == "");
}

TEST_CASE("the lanes that are chosen are within the user's limits") {
  const auto lanes = [](int least, int most) {
    Settings settings;
    settings.slot_bytes = 1024;  // More lanes of usual slots would not fit their memory.
    settings.least_lanes = least;
    settings.most_lanes = most;
    DeviceCluster cluster({0, 1}, settings);
    REQUIRE(cluster.complaint == "");
    CHECK(run_in_group(cluster.comms, cluster.streams, all_reduce_of(4000, 2), 1) == "");
    const std::string text = cluster.comms[0].describe();
    const std::size_t end = text.find(" lanes\n");
    REQUIRE(end != std::string::npos);
    return text.substr(text.rfind(' ', end - 1) + 1, end - text.rfind(' ', end - 1) - 1);
  };
  CHECK(lanes(0, 0) == "32");
  CHECK(lanes(0, 6) == "6");
  CHECK(lanes(20, 0) == "32");
  CHECK(lanes(40, 0) == "40");
  CHECK(lanes(40, 3) == "3");
}

#endif

/// A case for each rank, all begun on streams of their own by one thread.
struct Round {
  Round(DeviceCluster& in, const Case& test, std::uint64_t seed) : cluster(in) {
    for (std::size_t rank = 0; rank < in.comms.size(); ++rank)
      cases.push_back(std::make_unique<DeviceCase>(test, rank, in.comms[rank].device(), seed));
  }
  std::string finish() {
    for (std::size_t rank = 0; rank < cases.size(); ++rank) {
      auto error = cases[rank]->finish(cluster.comms[rank], cluster.streams[rank]);
      if (!error.empty()) return error;
    }
    return "";
  }
  DeviceCluster& cluster;
  std::vector<std::unique_ptr<DeviceCase>> cases;
};

TEST_CASE("one thread calls for one rank after the other, without a group") {
  DeviceCluster cluster({0, 0, 1});
  REQUIRE(cluster.complaint.empty());
  for (const std::size_t count : {7, 9000}) {  // Packets, and a plan that is made under way.
    Round round(cluster, all_reduce_of(count, 3), count);
    for (std::size_t rank = 0; rank < 3; ++rank)
      REQUIRE(round.cases[rank]->start(cluster.comms[rank], cluster.streams[rank]) == "");
    CHECK(round.finish() == "");
  }
}

// Loading a kernel waits for what its device runs: here for kernels that wait for the next rank's.
TEST_CASE("one thread calls for one rank after the other, kernels that nobody has called before") {
  DeviceCluster one({6, 6}), other({6, 6});  // No other test's device.
  REQUIRE(one.complaint + other.complaint == "");
  std::vector<std::unique_ptr<Round>> rounds;
  for (const DataType type : {DataType::kInt32, DataType::kFloat64, DataType::kUint8}) {
    for (const std::size_t count : {7, 9000}) {
      for (DeviceCluster* cluster : {&one, &other}) {
        Case test = all_reduce_of(count, 2);
        test.type = type;
        rounds.push_back(std::make_unique<Round>(*cluster, test, count));
      }
    }
  }
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for (const auto& round : rounds) {
      DeviceCluster& in = round->cluster;
      REQUIRE(round->cases[rank]->start(in.comms[rank], in.streams[rank]) == "");
    }
  }
  for (const auto& round : rounds) CHECK(round->finish() == "");
}

TEST_CASE("several collectives and communicators in one group") {
  DeviceCluster one({0, 1}), other({1, 0});
  REQUIRE(one.complaint + other.complaint == "");
  std::vector<std::unique_ptr<Round>> rounds;
  Group group;
  for (const std::size_t count : {3000, 5, 1}) {
    for (DeviceCluster* cluster : {&one, &other}) {
      rounds.push_back(std::make_unique<Round>(*cluster, all_reduce_of(count, 2), count));
      for (std::size_t rank = 0; rank < 2; ++rank) {
        REQUIRE(rounds.back()->cases[rank]->start(cluster->comms[rank], cluster->streams[rank]) ==
                "");
      }
    }
  }
  REQUIRE(said(group.end()) == "");
  for (const auto& round : rounds) CHECK(round->finish() == "");
}

TEST_CASE("calls on changing streams take place in their order") {
  test::idle_streams(true);
  DeviceCluster cluster({0, 1});
  REQUIRE(cluster.complaint.empty());
  std::vector<std::vector<cudaStream_t>> streams{cluster.streams};
  for (int i = 0; i < 2; ++i) streams.push_back({test::new_stream(0), test::new_stream(1)});
  for (const std::size_t count : {40, 4000}) {
    std::vector<std::unique_ptr<Round>> rounds;
    for (std::size_t number = 0; number < 9; ++number)
      rounds.push_back(std::make_unique<Round>(cluster, all_reduce_of(count, 2), number));
    for (std::size_t number = 0; number < 9; ++number) {
      for (std::size_t rank = 0; rank < 2; ++rank) {
        // Not on the same stream's turn on both ranks.
        const auto stream = streams[(number + rank * (number / 3)) % 3][rank];
        REQUIRE(rounds[number]->cases[rank]->start(cluster.comms[rank], stream) == "");
      }
    }
    for (const auto& of : streams) {
      for (cudaStream_t stream : of) REQUIRE(said(cudaStreamSynchronize(stream)) == "");
    }
    for (const auto& round : rounds) CHECK(round->finish() == "");
  }
  test::idle_streams(false);
  for (std::size_t i = 1; i < streams.size(); ++i) {
    for (cudaStream_t stream : streams[i]) cudaStreamDestroy(stream);
  }
}

TEST_CASE("captured calls, also of what was never called before, can be replayed") {
  DeviceCluster cluster({0, 1, 1});
  REQUIRE(cluster.complaint.empty());
  for (const std::size_t count : {20, 6000}) {
    std::vector<std::unique_ptr<Round>> rounds;
    std::vector<cudaGraphExec_t> graphs(3);
    for (const std::uint64_t seed : {1, 2})
      rounds.push_back(std::make_unique<Round>(cluster, all_reduce_of(count, 3), seed));
    for (std::size_t rank = 0; rank < 3; ++rank) {
      const exec::OnDevice on(cluster.comms[rank].device());
      const cudaStream_t stream = cluster.streams[rank];
      REQUIRE(said(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal)) == "");
      for (const auto& round : rounds)
        REQUIRE(round->cases[rank]->start(cluster.comms[rank], stream) == "");
      cudaGraph_t graph = nullptr;
      REQUIRE(said(cudaStreamEndCapture(stream, &graph)) == "");
      REQUIRE(said(cudaGraphInstantiate(&graphs[rank], graph, 0)) == "");
      cudaGraphDestroy(graph);
    }
    for (int replay = 0; replay < 3; ++replay) {
      for (std::size_t rank = 0; rank < 3; ++rank)
        REQUIRE(said(cudaGraphLaunch(graphs[rank], cluster.streams[rank])) == "");
      // Between replays, a call as ever.
      CHECK(run_in_group(cluster.comms, cluster.streams, all_reduce_of(count, 3), 5) == "");
    }
    for (const auto& round : rounds) CHECK(round->finish() == "");
    for (cudaGraphExec_t graph : graphs) cudaGraphExecDestroy(graph);
  }
}

/// Elements of rank `from`'s message number `number` to `to`.
std::vector<std::uint32_t> message_of(int from, int to, std::size_t number, std::size_t count) {
  std::vector<std::uint32_t> data(count);
  for (std::size_t i = 0; i < count; ++i) {
    data[i] = static_cast<std::uint32_t>((from * 31 + to) * 1000003 + number * 7919 + i);
  }
  return data;
}

TEST_CASE("messages between all ranks, with themselves too, of any sizes, in one group") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  constexpr int kRanks = 4;
  DeviceCluster cluster({0, 1, 0, 2});
  REQUIRE(cluster.complaint.empty());
  struct Sent {
    int from, to;
    std::size_t number, count;
    exec::CudaMemory source, target;
  };
  std::vector<Sent> all;
  for (int from = 0; from < kRanks; ++from) {
    for (int to = 0; to < kRanks; ++to) {
      for (std::size_t number = 0; number < 2; ++number) {
        // Much more than fits the rings between the two.
        const std::size_t count = random() % 3 == 0 ? random() % 9 : random() % 9000;
        auto source = exec::CudaMemory::allocate(
            cluster.comms[static_cast<std::size_t>(from)].device(), count * 4 + 4);
        auto target = exec::CudaMemory::allocate(
            cluster.comms[static_cast<std::size_t>(to)].device(), count * 4 + 4);
        REQUIRE((source && target));
        REQUIRE(source->write(0, message_of(from, to, number, count).data(), count * 4));
        all.push_back({from, to, number, count, *std::move(source), *std::move(target)});
      }
    }
  }
  Group group;
  for (const bool sends : {false, true}) {
    // In any order, but that those of a pair keep theirs.
    const std::uint64_t order = random();
    std::stable_sort(all.begin(), all.end(), [order](const Sent& a, const Sent& b) {
      const auto place = [order](const Sent& one) {
        return (static_cast<std::uint64_t>(one.from * 31 + one.to) * 0x9E3779B97F4A7C15ULL) ^ order;
      };
      return place(a) < place(b);
    });
    for (const Sent& one : all) {
      const auto at = static_cast<std::size_t>(sends ? one.from : one.to);
      DeviceCommunicator& comm = cluster.comms[at];
      const Status status = sends ? comm.send(one.source.data(), one.count, DataType::kUint32,
                                              Rank{one.to}, cluster.streams[at])
                                  : comm.recv(one.target.data(), one.count, DataType::kUint32,
                                              Rank{one.from}, cluster.streams[at]);
      REQUIRE(said(status) == "");
    }
  }
  REQUIRE(said(group.end()) == "");
  for (cudaStream_t stream : cluster.streams) REQUIRE(said(cudaStreamSynchronize(stream)) == "");
  for (const Sent& one : all) {
    std::vector<std::uint32_t> got(one.count);
    REQUIRE(one.target.read(0, got.data(), one.count * 4));
    CHECK(got == message_of(one.from, one.to, one.number, one.count));
  }
  // And what comes after them.
  CHECK(run_in_group(cluster.comms, cluster.streams, all_reduce_of(3000, kRanks), 1) == "");
}

TEST_CASE("all messages of a rank go at a time, whatever its peers wait for first") {
  constexpr std::size_t kCount = 60000;  // More than fits the rings.
  Settings settings = test::small_settings();
  settings.timeout = std::chrono::seconds(20);
  DeviceCluster cluster({0, 1, 2}, settings);  // By two lanes, a message each way.
  REQUIRE(cluster.complaint.empty());
  std::vector<exec::CudaMemory> memories;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    auto memory = exec::CudaMemory::allocate(cluster.comms[rank].device(), 2 * kCount);
    REQUIRE(memory);
    memories.push_back(*std::move(memory));
  }
  // Rank 0 sends to both at once. Rank 1 takes its message after that of rank 2, which sends that
  // after it has got its own.
  const auto put = [&](std::size_t rank, bool sends, int peer, std::size_t at) {
    DeviceCommunicator& comm = cluster.comms[rank];
    std::byte* const data = memories[rank].data() + at;
    const cudaStream_t stream = cluster.streams[rank];
    CHECK(said(sends ? comm.send(data, kCount, DataType::kUint8, Rank{peer}, stream)
                     : comm.recv(data, kCount, DataType::kUint8, Rank{peer}, stream)) == "");
  };
  {
    Group group;
    put(0, true, 1, 0);
    put(0, true, 2, 0);
    CHECK(said(group.end()) == "");
  }
  put(1, false, 2, 0);
  put(1, false, 0, kCount);
  put(2, false, 0, 0);
  put(2, true, 1, 0);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    CHECK(said(cudaStreamSynchronize(cluster.streams[rank])) == "");
    CHECK(said(cluster.comms[rank].check()) == "");
  }
}

TEST_CASE("parts of a communicator work beside it, on the same streams") {
  DeviceCluster cluster({0, 1, 2, 0, 1});
  REQUIRE(cluster.complaint.empty());
  std::vector<std::string> complaints(5);
  std::vector<std::optional<DeviceCommunicator>> parts(5);
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < 5; ++rank) {
      threads.emplace_back([&, rank] {
        // 4 2 0 | 3 1: backwards.
        const int color = rank == 3 ? -1 : static_cast<int>(rank % 2);
        auto part = cluster.comms[rank].split(color, -static_cast<int>(rank));
        if (!part) {
          complaints[rank] = color < 0 ? "" : part.error().to_string();
          return;
        }
        parts[rank] = *std::move(part);
        Case test = all_reduce_of(3000, parts[rank]->rank_count());
        const auto me = static_cast<std::size_t>(parts[rank]->rank().value);
        DeviceCase one(test, me, parts[rank]->device(), 3 + rank % 2);
        complaints[rank] = one.start(*parts[rank], cluster.streams[rank]);
        if (complaints[rank].empty())
          complaints[rank] = one.finish(*parts[rank], cluster.streams[rank]);
      });
    }
  }
  CHECK(complaints == std::vector<std::string>(5));
  REQUIRE((parts[0] && parts[1] && parts[2] && !parts[3] && parts[4]));
  CHECK(parts[0]->rank().value == 2);
  CHECK(parts[0]->rank_count() == 3);
  CHECK(parts[1]->rank_count() == 1);
  CHECK(run_in_group(cluster.comms, cluster.streams, all_reduce_of(3000, 5), 1) == "");
  cluster.comms.clear();  // Before its parts.
}

}  // namespace
}  // namespace tutti
