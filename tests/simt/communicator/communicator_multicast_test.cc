// Communicators of devices behind NVSwitches: they have multicast memory, go on without where it
// can't be had, and choose it where estimates say so. Calls over it have the bits of the reference;
// sums by the switch are of numbers that are exact in any order.
#include <random>
#include <string>
#include <vector>

#include "simt/communicator/multicast_cases.h"
#include "simt/runtime.h"
#include "support/catch.h"
#include "support/sample.h"

namespace tutti {
namespace {

using test::Case;
using test::case_of;
using test::DeviceCluster;
using test::each;
using test::kTaken;
using test::said;
using test::settings_of;

bool has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return true;
  UNSCOPED_INFO("\"" << part << "\" is not in: " << text);
  return false;
}

TEST_CASE("calls over multicast memory, of plain buffers") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  for (const int ranks : {2, 5}) {
    for (const Contract contract : {Contract::kDeterministic, Contract::kRelaxed}) {
      std::vector<int> devices;
      for (int rank = 0; rank < ranks; ++rank) devices.push_back(7 - rank);
      DeviceCluster cluster(devices, settings_of("nvls", contract));
      REQUIRE(cluster.complaint == "");
      REQUIRE(has(cluster.comms[0].describe(), "\nmulticast memory: 2.00 MiB of this rank's"));
      for (const Collective collective : kTaken) {
        const Case test = case_of(collective, ranks, random, contract == Contract::kRelaxed);
        test::shuffle_threads(random() % 2 == 0 ? 0 : random());
        for (int round = 0; round < 2; ++round)
          REQUIRE(test::run_in_group(cluster.comms, cluster.streams, test, random()) == "");
      }
      const std::string text = cluster.comms[1].describe();
      CHECK(has(text, "all_reduce up to"));
      CHECK(has(text, ": nvls, estimated"));
    }
  }
  test::shuffle_threads(0);
}

/// A window of each rank for inputs, and one for outputs.
std::string run_in_windows(DeviceCluster& cluster, const Case& test, std::uint64_t seed) {
  const auto inputs = test::DeviceRanks::make_inputs(test, seed);
  return each(cluster, [&](std::size_t rank) -> std::string {
    DeviceCommunicator& comm = cluster.comms[rank];
    const exec::OnDevice on(comm.device());
    const std::size_t bytes = std::max(test.input_bytes(), test.output_bytes()) + 64;
    const auto input = device_mem_alloc(comm.device(), bytes),
               output = device_mem_alloc(comm.device(), bytes);
    if (!input || !output) return "no memory";
    std::string wrong =
        said(comm.open_window(*input, bytes)) + said(comm.open_window(*output, bytes));
    if (!has(comm.describe(), "number 3: multicast memory")) wrong += "it is no multicast memory";
    const cudaStream_t stream = cluster.streams[rank];
    test::Buffer got(test.output_bytes());
    for (int round = 0; round < 2 && wrong.empty(); ++round) {
      cudaMemcpyAsync(*input, inputs[rank].data(), test.input_bytes(), cudaMemcpyDefault, stream);
      Request request;
      request.collective = test.collective;
      request.input = *input;
      request.output = *output;
      request.count = test.count;
      request.type = test.type;
      request.reduction = Reduction(test.op);
      request.root = Rank{test.root};
      wrong += said(comm.call(request, stream));
      cudaMemcpyAsync(got.data(), *output, got.size(), cudaMemcpyDefault, stream);
      wrong += said(cudaStreamSynchronize(stream));
      wrong += said(comm.check());
      if (wrong.empty()) wrong = test::DeviceRanks::compare(test, rank, inputs, got);
    }
    wrong += said(comm.close_window(*input)) + said(comm.close_window(*output));
    return wrong + said(device_mem_free(*input)) + said(device_mem_free(*output));
  });
}

TEST_CASE("calls over multicast memory, in windows") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  for (const Contract contract : {Contract::kDeterministic, Contract::kRelaxed}) {
    for (const Collective collective : kTaken) {
      for (const bool whole : {true, false}) {  // Whether blocks are of whole vectors.
        DeviceCluster cluster({0, 3, 5}, settings_of("nvls", contract));
        REQUIRE(cluster.complaint == "");
        Case test = case_of(collective, 3, random, contract == Contract::kRelaxed);
        test.in_place = false;
        test.misalign = 0;
        test.count = test.count / 16 * 16 + (whole ? 16 : 1);
        REQUIRE(run_in_windows(cluster, test, random()) == "");
      }
    }
  }
}

TEST_CASE("multicast memory is chosen where estimates say so, and can be forbidden") {
  Request large;
  large.collective = Collective::kAllReduce;
  large.count = std::size_t{64} << 20;
  large.type = DataType::kFloat32;
  const auto explained = [&](const std::string& algorithm, Contract contract, ReduceOp op) {
    Settings settings;
    settings.topology = test::kTopology.path();
    settings.algorithm = algorithm;
    settings.contract = contract;
    DeviceCluster cluster({0, 1, 2, 3, 4, 5, 6, 7}, settings);
    if (!cluster.complaint.empty()) return cluster.complaint;
    large.reduction = Reduction(op);
    const auto text = cluster.comms[0].explain(large);
    return text ? *text : text.error().what;
  };
  const std::string relaxed = explained("", Contract::kRelaxed, ReduceOp::kSum);
  CHECK(has(relaxed, "\n 1 nvls "));
  CHECK(has(relaxed, "\nBound: 640.96 us: "));  // What passes a GPU's links once, by the switch.
  CHECK(has(explained("", Contract::kRelaxed, ReduceOp::kMax), "- nvls"));
  CHECK(has(explained("^nvls", Contract::kRelaxed, ReduceOp::kSum), "is forbidden"));
  CHECK_FALSE(has(explained("", Contract::kDeterministic, ReduceOp::kSum), "\n 1 nvls "));
}

TEST_CASE("without multicast memory a communicator goes on, and says why") {
  DeviceCluster shared({0, 0}, settings_of("nvls", Contract::kRelaxed));
  REQUIRE(shared.complaint == "");
  CHECK(has(shared.comms[0].describe(), "\nno multicast memory: ranks share a device\n"));
  for (const char* algorithm : {"^nvls", "direct,all_reduce=two_shot,broadcast=^nvls"}) {
    DeviceCluster forbidden({0, 1, 2}, settings_of(algorithm, Contract::kRelaxed));
    CHECK(has(forbidden.comms[0].describe(),
              "\nno multicast memory: TUTTI_ALGORITHM takes other ways\n"));
  }
  DeviceCluster some({0, 1, 2}, settings_of("all_reduce=^nvls", Contract::kRelaxed));
  CHECK(has(some.comms[0].describe(), "\nmulticast memory: "));
  simt::refuse_handles(true);
  DeviceCluster refused({0, 1, 2}, settings_of("nvls", Contract::kRelaxed));
  simt::refuse_handles(false);
  REQUIRE(refused.complaint == "");
  for (DeviceCommunicator& comm : refused.comms) {
    CHECK(has(comm.describe(), "\nno multicast memory: "));
    CHECK(has(comm.describe(), "multicast memory: importing it: "));
  }
  std::mt19937_64 random(1);
  const Case test = case_of(Collective::kAllReduce, 3, random, true);
  CHECK(test::run_in_group(refused.comms, refused.streams, test, 1) == "");
}

TEST_CASE("multicast memory is free once all ranks have left") {
  std::size_t before = 0, during = 0, after = 0, total = 0;
  { const DeviceCluster first({0, 1}, settings_of("nvls", Contract::kRelaxed)); }
  cudaMemGetInfo(&before, &total);
  {
    DeviceCluster cluster({0, 1}, settings_of("nvls", Contract::kRelaxed));
    REQUIRE(has(cluster.comms[0].describe(), "\nmulticast memory: "));
    cudaMemGetInfo(&during, &total);
  }
  cudaMemGetInfo(&after, &total);
  CHECK(during < before);
  CHECK(after == before);
}

}  // namespace
}  // namespace tutti
