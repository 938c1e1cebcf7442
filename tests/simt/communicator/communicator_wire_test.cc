// Calls with a wire between devices: the bits of the definition (expected_on_wire), which are those
// of the host's calls, over every way that slots go; graphs round anew; and what can't be had is
// refused.
#include <bit>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "simt/communicator/device_communicators.h"
#include "support/catch.h"
#include "support/kinds.h"

namespace tutti {
namespace {

using test::Case;
using test::DeviceCase;
using test::DeviceCluster;
using test::said;

std::vector<Wire> all_wires() {
  std::vector<Wire> wires;
  for (int format = 1; format < kWireFormats; ++format) {
    for (const Rounding rounding : {Rounding::kNearest, Rounding::kStochastic})
      wires.emplace_back(static_cast<WireFormat>(format), rounding);
  }
  return wires;
}

std::vector<int> first_devices(int ranks) {
  std::vector<int> devices;
  for (int rank = 0; rank < ranks; ++rank) devices.push_back(rank);
  return devices;
}

/// Calls of a cluster, of which some have a wire.
class Calls {
 public:
  explicit Calls(DeviceCluster& cluster) : cluster_(cluster) {}
  std::string run(Case test, std::uint64_t seed) {
    test.ranks = static_cast<int>(cluster_.comms.size());
    if (!test.wire.is_plain() && test.count != 0) test.wire_call = ++calls_;
    return test::run_in_group(cluster_.comms, cluster_.streams, test, seed);
  }

 private:
  DeviceCluster& cluster_;
  std::uint64_t calls_ = 0;
};

Case random_case(std::mt19937_64& random) {
  // Less than a block, blocks with a ragged end, several slots.
  constexpr std::size_t kCounts[] = {0, 1, 31, 33, 64, 127, 1000, 5003, 20000};
  Case test;
  do {
    test.op = test::all_ops()[random() % test::all_ops().size()];
  } while (is_bitwise(test.op));
  const std::vector<Wire> wires = all_wires();
  test.wire = wires[random() % wires.size()];
  test.count = kCounts[random() % std::size(kCounts)];
  test.in_place = random() % 2 == 0;
  test.misalign = random() % 3 == 0 ? 4 * (random() % 4) : 0;
  return test;
}

TEST_CASE("an all-reduce with a wire has the bits of the host's on 2, 4 and 8 devices") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  test::shuffle_threads(seed);
  for (const int ranks : {1, 2, 3, 4, 8}) {
    DeviceCluster cluster(first_devices(ranks));
    REQUIRE(cluster.complaint == "");
    Calls calls(cluster);
    for (const Wire& wire : all_wires()) {
      Case test = random_case(random);
      test.wire = wire;
      REQUIRE(calls.run(test, random()) == "");
      test.wire = {};  // A plain call between them.
      REQUIRE(calls.run(test, random()) == "");
    }
  }
}

TEST_CASE("other collectives with a wire have the bits of the host's") {
  std::mt19937_64 random(Catch::rngSeed());
  for (const int ranks : {2, 3}) {
    DeviceCluster cluster(first_devices(ranks));
    REQUIRE(cluster.complaint == "");
    Calls calls(cluster);
    for (int i = 0; i < kCollectiveCount; ++i) {
      for (int again = 0; again < 3; ++again) {
        Case test = random_case(random);
        test.collective = static_cast<Collective>(i);
        test.root = static_cast<int>(random() % static_cast<unsigned>(ranks));
        REQUIRE(calls.run(test, random()) == "");
      }
    }
  }
}

TEST_CASE("registered memory is not read by peers in a call with a wire") {
  DeviceCluster cluster({0, 1});
  REQUIRE(cluster.complaint == "");
  constexpr std::size_t kCount = 3000, kBytes = kCount * sizeof(float);
  std::vector<exec::CudaMemory> memory;
  for (const std::size_t rank : {0, 1}) {
    auto made = exec::CudaMemory::allocate_for_peers(cluster.comms[rank].device(), kBytes);
    REQUIRE(made);
    const std::vector<float> ones(kCount, 1 + 0x1p-20F);  // No bfloat16.
    REQUIRE(made->write(0, ones.data(), kBytes));
    memory.push_back(*std::move(made));
  }
  REQUIRE(test::each(cluster, [&](std::size_t rank) {
            return said(cluster.comms[rank].register_memory(memory[rank].data(), kBytes));
          }) == "");
  CHECK(test::each(cluster, [&](std::size_t rank) {
          Request request{.input = memory[rank].data(),
                          .output = memory[rank].data(),
                          .count = kCount,
                          .type = DataType::kFloat32};
          request.wire = WireFormat::kBfloat16;
          std::string wrong = said(cluster.comms[rank].call(request, cluster.streams[rank]));
          wrong += said(cudaStreamSynchronize(cluster.streams[rank]));
          std::vector<float> got(kCount);
          wrong += said(memory[rank].read(0, got.data(), kBytes));
          if (got != std::vector<float>(kCount, 2))
            wrong += "another sum: " + std::to_string(got[0]);
          wrong += said(cluster.comms[rank].check());
          return wrong + said(cluster.comms[rank].deregister_memory(memory[rank].data()));
        }) == "");
}

#if !defined(TUTTI_GPU)
TEST_CASE("devices without access to each other encode too") {
  std::mt19937_64 random(Catch::rngSeed());
  const test::NoPeerAccess none;
  DeviceCluster cluster({0, 1, 2, 0});
  REQUIRE(cluster.complaint == "");
  Calls calls(cluster);
  for (const Wire& wire : all_wires()) {
    Case test = random_case(random);
    test.wire = wire;
    REQUIRE(calls.run(test, random()) == "");
  }
}
#endif

TEST_CASE("slots between hosts are encoded") {
  std::mt19937_64 random(Catch::rngSeed());
  Settings settings = test::small_settings();
  settings.transport = "tcp";
  settings.groups = {2};
  DeviceCluster cluster(first_devices(4), settings);
  REQUIRE(cluster.complaint == "");
  CHECK(cluster.comms[0].describe().find("to rank 2: network") != std::string::npos);
  Calls calls(cluster);
  for (const Wire& wire : all_wires()) {
    Case test = random_case(random);
    test.wire = wire;
    REQUIRE(calls.run(test, random()) == "");
  }
}

/// What a broadcast from rank 0 makes of `data` at rank 1.
std::vector<float> broadcast(DeviceCluster& cluster, const Wire& wire,
                             const std::vector<float>& data) {
  const std::size_t bytes = data.size() * sizeof(float);
  std::vector<float> got(data.size());
  CHECK(test::each(cluster, [&](std::size_t rank) {
          auto memory = exec::CudaMemory::allocate(cluster.comms[rank].device(), bytes);
          if (!memory) return std::string("no memory");
          std::string wrong = rank == 0 ? said(memory->write(0, data.data(), bytes)) : "";
          Request request{.collective = Collective::kBroadcast,
                          .input = memory->data(),
                          .output = memory->data(),
                          .count = data.size(),
                          .type = DataType::kFloat32};
          request.wire = wire;
          wrong += said(cluster.comms[rank].call(request, cluster.streams[rank]));
          wrong += said(cudaStreamSynchronize(cluster.streams[rank]));
          if (rank == 1) wrong += said(memory->read(0, got.data(), bytes));
          return wrong + said(cluster.comms[rank].check());
        }) == "");
  return got;
}

TEST_CASE("the codes of all kinds of float32 are those of the definition") {
  constexpr std::size_t kCount = 4001;
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  DeviceCluster cluster({0, 1});
  REQUIRE(cluster.complaint == "");
  std::uint64_t call = 0;
  for (const bool finite : {true, false}) {
    for (const Wire& wire : all_wires()) {
      std::vector<float> data(kCount);
      for (std::size_t i = 0; i < kCount; ++i) {
        // In blocks of one magnitude, in blocks of any bits: subnormals, infinities and NaN too.
        const auto bits = static_cast<std::uint32_t>(random());
        const float small = std::ldexp(static_cast<float>(bits % 4001) - 2000.0F,
                                       static_cast<int>(i / 32 % 250) - 140);
        data[i] = i / 32 % 2 == 0 ? small : std::bit_cast<float>(bits);
        if (finite && !std::isfinite(data[i])) data[i] = -0.0F;
      }
      const std::vector<float> got = broadcast(cluster, wire, data);
      Case test;
      test.count = kCount;
      test.wire = wire;
      test.wire_call = ++call;
      std::vector<float> want = data;
      test::round_to_wire(test, 0, 0, reinterpret_cast<std::byte*>(want.data()));
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < kCount; ++i) {
        const bool same =
            std::bit_cast<std::uint32_t>(got[i]) == std::bit_cast<std::uint32_t>(want[i]);
        if (same || (std::isnan(got[i]) && std::isnan(want[i]))) continue;
        if (wrong++ == 0)
          UNSCOPED_INFO(to_string(wire) << " element " << i << ": " << data[i] << " became "
                                        << got[i] << ", not " << want[i]);
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("a graph with a call with a wire rounds anew each time") {
  DeviceCluster cluster({0, 1});
  REQUIRE(cluster.complaint == "");
  Case test;
  test.ranks = 2;
  test.count = 3001;
  test.wire = WireFormat::kInt8;
  CHECK(test::each(cluster, [&](std::size_t rank) {
          DeviceCommunicator& comm = cluster.comms[rank];
          const cudaStream_t stream = cluster.streams[rank];
          const exec::OnDevice on(comm.device());
          const DeviceCase one(test, rank, comm.device(), 3);
          std::string wrong = said(comm.prepare(one.request()));
          cudaGraph_t graph = nullptr;
          cudaGraphExec_t ready = nullptr;
          wrong += said(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
          wrong += one.start(comm, stream);
          wrong += said(cudaStreamEndCapture(stream, &graph));
          wrong += said(cudaGraphInstantiate(&ready, graph, 0));
          for (std::uint64_t call = 1; call <= 3; ++call) {
            Case again = test;
            again.wire_call = call;
            wrong += said(cudaGraphLaunch(ready, stream));
            wrong += said(cudaStreamSynchronize(stream));
            wrong += test::DeviceRanks::compare(
                again, rank, test::DeviceRanks::make_inputs(again, 3), one.buffers());
          }
          wrong += said(cudaGraphExecDestroy(ready));
          wrong += said(cudaGraphDestroy(graph));
          return wrong + said(comm.check());
        }) == "");
}

TEST_CASE("ranks that differ in the wire get a mismatch that says so") {
  DeviceCluster cluster({0, 1});
  REQUIRE(cluster.complaint == "");
  Case test = test::all_reduce_of(500, 2);
  std::vector<std::string> errors(2);
  (void)test::each(cluster, [&](std::size_t rank) {
    Case mine = test;
    mine.wire = rank == 0 ? Wire(WireFormat::kInt8) : Wire(WireFormat::kInt8, Rounding::kNearest);
    const DeviceCase one(mine, rank, cluster.comms[rank].device(), 1);
    errors[rank] = one.start(cluster.comms[rank], cluster.streams[rank]);
    errors[rank] += said(cudaStreamSynchronize(cluster.streams[rank]));
    errors[rank] += said(cluster.comms[rank].check());
    return std::string();
  });
  for (const std::string& error : errors) {
    INFO(error);
    CHECK(error.find("all_reduce of 500 float32 (sum) as int8:nearest") != std::string::npos);
    // One of the two is the sentence's subject, which ends with a comma.
    const bool other =
        error.find("all_reduce of 500 float32 (sum) as int8,") != std::string::npos ||
        error.find("all_reduce of 500 float32 (sum) as int8;") != std::string::npos;
    CHECK(other);
  }
}

TEST_CASE("the setting is for all-reduces of float32 that sum or average") {
  Settings settings = test::small_settings();
  settings.wire = WireFormat::kBfloat16;
  DeviceCluster cluster({0, 1}, settings);
  REQUIRE(cluster.complaint == "");
  Case test = test::all_reduce_of(700, 2);
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax}) {
    test.op = op;
    CHECK(test::each(cluster, [&](std::size_t rank) {
            const DeviceCase one(test, rank, cluster.comms[rank].device(), 1);
            std::string wrong = one.start(cluster.comms[rank], cluster.streams[rank]);
            wrong += said(cudaStreamSynchronize(cluster.streams[rank]));
            wrong += said(cluster.comms[rank].check());
            Case want = test;
            if (op != ReduceOp::kMax) want.wire = settings.wire;
            return wrong + test::DeviceRanks::compare(
                               want, rank, test::DeviceRanks::make_inputs(test, 1), one.buffers());
          }) == "");
  }
}

TEST_CASE("plans that would round at every hop are refused, and the explanation says why") {
  DeviceCluster cluster(first_devices(4));
  REQUIRE(cluster.complaint == "");
  Request request{.count = 100000, .type = DataType::kFloat32};
  request.wire = WireFormat::kInt8;
  const auto text = cluster.comms[0].explain(request);
  REQUIRE(text);
  INFO(*text);
  CHECK(text->find("100000 x float32 as int8") != std::string::npos);
  CHECK(text->find("sends partial sums, which int8 would") != std::string::npos);
  CHECK(text->find("Taken: two_shot") != std::string::npos);
  request.type = DataType::kBfloat16;
  const auto refused = cluster.comms[0].explain(request);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().what == "all_reduce: the wire int8 is for float32, not bfloat16");
}

TEST_CASE("a call with a wire of more ranks than a step adds up is refused") {
  DeviceCluster cluster({0, 1, 2, 3, 4, 5, 6, 7, 0});
  REQUIRE(cluster.complaint == "");
  Request request{.count = 1000, .type = DataType::kFloat32};
  request.wire = WireFormat::kInt8;
  const Status refused = cluster.comms[0].prepare(request);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == Code::kUnsupported);
  CHECK(refused.error().what.find("kernels take 8") != std::string::npos);
}

}  // namespace
}  // namespace tutti
